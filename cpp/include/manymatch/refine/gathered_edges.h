// The edges of one refinement and their weights, for all geometric problems.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/graph.h"

namespace manymatch {

// kEqual: 1. kByDegree: 1/d_i + 1/d_j with the degrees of the two vertices among the gathered
// edges, so that the influence of a vertex does not depend on its number of edges.
enum class Weighting { kEqual, kByDegree };

// One object per thread; buffers are sized once per graph.
class GatheredEdges {
 public:
  // Kernels read whole vectors: zeros pad the weights to a multiple of this.
  static constexpr std::size_t kPadding = 8;

  explicit GatheredEdges(const Graph& graph)
      : graph_(graph),
        degree0_(at(graph.num0), 0),
        degree1_(at(graph.num1), 0),
        mass0_(at(graph.num0), 0.0),
        mass1_(at(graph.num1), 0.0) {
    int most = 0;
    for (int v = 0; v < graph.num0; ++v) most = std::max(most, graph.at0.degree(v));
    for (int v = 0; v < graph.num1; ++v) most = std::max(most, graph.at1.degree(v));
    inverse_.resize(at(most) + 1, 0.0);
    for (int degree = 1; degree <= most; ++degree) inverse_[at(degree)] = 1.0 / degree;
    edges_.reserve(graph.num_edges());
    weights_.reserve(graph.num_edges() + kPadding);
  }

  std::span<const int> edges() const { return edges_; }
  std::size_t padded() const { return weights_.size(); }
  // One weight per edge, then the padding.
  std::span<const double> weights() const { return weights_; }

  // Gathers the edges of a mask that has `count` bits.
  void gather(MaskView mask, int count, Weighting weighting) {
    edges_.resize(at(count));
    weights_.resize((at(count) + kPadding - 1) / kPadding * kPadding);
    for (std::size_t i = at(count); i < weights_.size(); ++i) weights_[i] = 0.0;
    int* next = edges_.data();
    for_each_bit(mask, [&](int e) {
      *next++ = e;
      ++degree0_[at(graph_.left[at(e)])];
      ++degree1_[at(graph_.right[at(e)])];
    });
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      const std::size_t e = at(edges_[i]);
      const int d0 = degree0_[at(graph_.left[e])], d1 = degree1_[at(graph_.right[e])];
      weights_[i] = weighting == Weighting::kByDegree ? inverse_[at(d0)] + inverse_[at(d1)] : 1.0;
    }
    for (int e : edges_) {
      degree0_[at(graph_.left[at(e)])] = 0;
      degree1_[at(graph_.right[at(e)])] = 0;
    }
  }

  // Weighs by the priors of all edges of the graph. The weight is the share of an edge in the
  // priors of the gathered edges at each of its two vertices (1/d_i + 1/d_j if all priors are
  // equal), times the square root of its prior, since likely edges are also more accurate.
  // `factor`, unless empty, multiplies the weight of each edge of the graph.
  void weigh_by_prior(std::span<const double> prior, std::span<const double> factor = {}) {
    for (int e : edges_) {
      mass0_[at(graph_.left[at(e)])] += prior[at(e)];
      mass1_[at(graph_.right[at(e)])] += prior[at(e)];
    }
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      const std::size_t e = at(edges_[i]);
      const double share =
          prior[e] / mass0_[at(graph_.left[e])] + prior[e] / mass1_[at(graph_.right[e])];
      weights_[i] = std::sqrt(prior[e]) * share;
      if (!factor.empty()) weights_[i] *= factor[e];
    }
    for (int e : edges_) {
      mass0_[at(graph_.left[at(e)])] = 0.0;
      mass1_[at(graph_.right[at(e)])] = 0.0;
    }
  }

 private:
  const Graph& graph_;
  std::vector<int> edges_;
  AlignedVector<double> weights_;
  std::vector<int> degree0_, degree1_;  // zero between calls
  std::vector<double> mass0_, mass1_;   // zero between calls
  std::vector<double> inverse_;         // 1 / degree
};

}  // namespace manymatch

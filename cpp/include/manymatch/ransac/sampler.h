// Minimal samples: Algorithm 2 of the paper (1-to-1 within a sample), and uniform edges for CM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/rng.h"

namespace manymatch {

// Per thread: a permutation that every draw leaves as it found it.
struct SamplerScratch {
  std::vector<int> order;
  std::vector<int> swaps;
};

class ConstrainedSampler {
 public:
  // Edges that may be drawn, in edge order.
  ConstrainedSampler(const Graph& graph, const std::vector<int>& proposals) : graph_(graph) {
    std::vector<int> position(static_cast<std::size_t>(graph.num0), -1);
    std::vector<int> count;
    for (int e : proposals) {
      int& at = position[static_cast<std::size_t>(graph.left[static_cast<std::size_t>(e)])];
      if (at < 0) {
        at = static_cast<int>(count.size());
        count.push_back(0);
      }
      ++count[static_cast<std::size_t>(at)];
    }
    start_.assign(count.size() + 1, 0);
    std::partial_sum(count.begin(), count.end(), start_.begin() + 1);
    std::vector<int> next(start_.begin(), start_.end() - 1);
    edges_.resize(proposals.size());
    for (int e : proposals) {
      const int at = position[static_cast<std::size_t>(graph.left[static_cast<std::size_t>(e)])];
      edges_[static_cast<std::size_t>(next[static_cast<std::size_t>(at)]++)] = e;
    }
    max_attempts_ = std::max<int64_t>(50, 10 * static_cast<int64_t>(count.size()));
  }

  int num_active() const { return static_cast<int>(start_.size()) - 1; }

  // Chance that a drawn edge is an inlier: the mean over the left vertices of the share of inliers
  // among their edges.
  double inlier_chance(const uint64_t* mask) const {
    double total = 0.0;
    for (std::size_t v = 0; v + 1 < start_.size(); ++v) {
      int inliers = 0;
      for (int k = start_[v]; k < start_[v + 1]; ++k) {
        const auto e = static_cast<std::size_t>(edges_[static_cast<std::size_t>(k)]);
        inliers += static_cast<int>(mask[e / 64] >> (e % 64) & 1U);
      }
      total += static_cast<double>(inliers) / static_cast<double>(start_[v + 1] - start_[v]);
    }
    return total / std::max(num_active(), 1);
  }

  void prepare(SamplerScratch& scratch) const {
    scratch.order.resize(static_cast<std::size_t>(num_active()));
    std::iota(scratch.order.begin(), scratch.order.end(), 0);
    scratch.swaps.resize(scratch.order.size());
  }

  // Left vertices in random order; at each, the first edge from a random start whose right vertex
  // is free. The permutation is drawn only as far as it is needed, which has the same law.
  // `wasted` counts the vertices looked at by attempts that came to nothing; beyond `patience` no
  // further attempt is made.
  bool draw(Rng& rng, int size, SamplerScratch& scratch, int* sample, int64_t* wasted,
            int64_t patience = INT64_MAX) const {
    const int active = num_active();
    for (int64_t attempt = 0; attempt < max_attempts_ && *wasted <= patience; ++attempt) {
      int drawn = 0, looked = 0;
      for (; looked < active && drawn < size; ++looked) {
        const int other =
            looked + static_cast<int>(rng.below(static_cast<uint32_t>(active - looked)));
        std::swap(scratch.order[static_cast<std::size_t>(looked)],
                  scratch.order[static_cast<std::size_t>(other)]);
        scratch.swaps[static_cast<std::size_t>(looked)] = other;
        const auto vertex =
            static_cast<std::size_t>(scratch.order[static_cast<std::size_t>(looked)]);
        const int edge = first_free_edge(rng, vertex, sample, drawn);
        if (edge >= 0) sample[drawn++] = edge;
      }
      for (int k = looked - 1; k >= 0; --k) {
        std::swap(
            scratch.order[static_cast<std::size_t>(k)],
            scratch.order[static_cast<std::size_t>(scratch.swaps[static_cast<std::size_t>(k)])]);
      }
      if (drawn == size) return true;
      *wasted += looked;
    }
    return false;
  }

 private:
  int first_free_edge(Rng& rng, std::size_t vertex, const int* sample, int drawn) const {
    const int begin = start_[vertex], degree = start_[vertex + 1] - begin;
    const int first = degree == 1 ? 0 : static_cast<int>(rng.below(static_cast<uint32_t>(degree)));
    for (int k = 0; k < degree; ++k) {
      const int offset = first + k < degree ? first + k : first + k - degree;
      const int edge = edges_[static_cast<std::size_t>(begin + offset)];
      const int right = graph_.right[static_cast<std::size_t>(edge)];
      const bool used = std::any_of(sample, sample + drawn, [&](int e) {
        return graph_.right[static_cast<std::size_t>(e)] == right;
      });
      if (!used) return edge;
    }
    return -1;
  }

  const Graph& graph_;
  std::vector<int> start_, edges_;  // edges of each active left vertex
  int64_t max_attempts_;
};

// Distinct edges, each set equally likely; endpoints may repeat.
inline bool draw_edges(Rng& rng, const std::vector<int>& proposals, int size, int* sample) {
  for (int k = 0; k < size; ++k) {
    bool again = true;
    while (again) {
      sample[k] = proposals[rng.below(static_cast<uint32_t>(proposals.size()))];
      again = std::find(sample, sample + k, sample[k]) != sample + k;
    }
  }
  return true;
}

}  // namespace manymatch

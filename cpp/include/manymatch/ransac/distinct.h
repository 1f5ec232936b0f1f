// Stage 2 of method "auto": refine the seeds that lead somewhere new, take the best supported pose.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/ransac/pool.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/score/matching.h"

namespace manymatch {

template <Problem P>
class DistinctSelection {
 public:
  using Model = typename P::Model;

  // A seed that shares more than this part of its inliers with a refined model ends where that did.
  static constexpr double kSame = 0.7;

  // The support of a model is the weight of its heaviest matching, or with `weight` null the size
  // of its largest.
  DistinctSelection(const P& problem, const double* weight, bool skip_repeated)
      : problem_(problem),
        weight_(weight),
        skip_repeated_(skip_repeated),
        space_(problem.workspace()),
        matching_(problem.graph()),
        best_at_(static_cast<std::size_t>(problem.graph().num0), 0.0) {}

  int64_t refinements() const { return refinements_; }
  double support() const { return support_; }

  // `found`, already refined, competes with the seeds; of equal ones the earlier wins.
  Model run(const Model& found, const Pool<Model>& pool, Interrupt& interrupt) {
    auto seeds = pool.entries();
    std::sort(seeds.begin(), seeds.end(), [](const auto& a, const auto& b) {
      return a.score != b.score ? a.score > b.score : a.inserted < b.inserted;
    });
    take(found);
    Mask inliers(problem_.graph().words());
    for (const auto& seed : seeds) {
      if (interrupt.poll()) break;
      if (skip_repeated_ &&
          repeats(inliers, problem_.inliers(seed.model, inliers.data(), nullptr))) {
        continue;
      }
      Model refined = seed.model;
      problem_.local_refine(refined, space_);
      ++refinements_;
      take(refined);
    }
    return best_;
  }

 private:
  bool repeats(const Mask& inliers, int count) const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const Mask& other) {
      int common = 0;
      for (std::size_t w = 0; w < other.size(); ++w) {
        common += __builtin_popcountll(inliers[w] & other[w]);
      }
      return common >= kSame * count;
    });
  }

  void take(const Model& model) {
    taken_.emplace_back(problem_.graph().words());
    const uint64_t* inliers = taken_.back().data();
    problem_.inliers(model, taken_.back().data(), nullptr);
    const double value = weight_ ? weigh(inliers) : matching_.cardinality(inliers);
    if (value > support_) {
      support_ = value;
      best_ = model;
    }
  }

  // Weight of the heaviest matching, or of less than a bound that does not reach the best.
  double weigh(const uint64_t* inliers) {
    const Graph& graph = problem_.graph();
    double bound = 0.0, total = 0.0;
    for_each_bit(inliers, graph.words(), [&](int e) {
      double& best = best_at_[static_cast<std::size_t>(graph.left[static_cast<std::size_t>(e)])];
      bound += std::max(weight_[e] - best, 0.0);
      best = std::max(best, weight_[e]);
    });
    for_each_bit(inliers, graph.words(), [&](int e) {
      best_at_[static_cast<std::size_t>(graph.left[static_cast<std::size_t>(e)])] = 0.0;
    });
    if (bound <= support_) return bound;
    for (int64_t e : heaviest_matching(graph, inliers, weight_)) total += weight_[e];
    return total;
  }

  const P& problem_;
  const double* weight_;
  bool skip_repeated_;
  typename P::Workspace space_;
  MaximumMatching matching_;
  std::vector<double> best_at_;  // heaviest inlier at each left vertex, zero between calls
  std::vector<Mask> taken_;      // inliers of the refined models
  Model best_;
  double support_ = -1.0;
  int64_t refinements_ = 0;
};

}  // namespace manymatch

// Stage 2: refines the pooled seeds once and chooses the model whose inliers have the best
// matching.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/ransac/pool.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/refine/refiner.h"
#include "manymatch/score/matching.h"
#include "manymatch/workers.h"

namespace manymatch {

// A model and its support: how strongly the edges speak for it.
template <class Model>
struct SupportedModel {
  Model model;
  double support;
};

// Buffers with which one thread refines seeds; created when the thread gets its first seed.
template <Problem P>
struct SelectionLane {
  explicit SelectionLane(const P& problem)
      : refiner(problem, Weighting::kByDegree),
        space(problem.workspace()),
        heaviest_at(at(problem.graph().num0), 0.0) {}

  Refiner<P> refiner;
  typename P::Workspace space;
  std::optional<MaximumMatching> matching;  // made when first used
  std::vector<double> heaviest_at;  // heaviest inlier at each left vertex, zero between calls
};

template <Problem P>
class SelectionLanes {
 public:
  SelectionLanes(const P& problem, const Workers& workers)
      : problem_(problem), lanes_(at(workers.size())) {}

  SelectionLane<P>& operator[](int worker) {
    auto& lane = lanes_[at(worker)];
    if (!lane) lane = std::make_unique<SelectionLane<P>>(problem_);
    return *lane;
  }

 private:
  const P& problem_;
  std::vector<std::unique_ptr<SelectionLane<P>>> lanes_;
};

// Stage 2 of Algorithm 1: refines every seed and chooses the largest matching. Ties go to the
// larger raw score of stage 1, then to the earlier insertion. The pool must not be empty.
template <Problem P>
typename P::Model select_by_matching(const P& problem, const Pool<typename P::Model>& pool,
                                     Workers& workers, Interrupt& interrupt) {
  using Model = typename P::Model;
  const auto& entries = pool.entries();
  SelectionLanes<P> lanes(problem, workers);
  std::vector<Model> refined(entries.size());
  std::vector<int> cardinality(entries.size(), -1);
  workers.run(static_cast<int>(entries.size()), [&](int worker, int index) {
    if (worker == 0 ? interrupt.poll() : interrupt.requested()) return;
    SelectionLane<P>& lane = lanes[worker];
    const std::size_t i = at(index);
    Mask mask(problem.graph().words());
    refined[i] = entries[i].model;
    lane.refiner.local_refine(refined[i], lane.space);
    problem.inliers(refined[i], mask, {});
    if (!lane.matching) lane.matching.emplace(problem.graph());
    cardinality[i] = lane.matching->cardinality(mask);
  });
  std::size_t best = 0;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (cardinality[i] != cardinality[best]) {
      if (cardinality[i] > cardinality[best]) best = i;
    } else if (entries[i].score != entries[best].score) {
      if (entries[i].score > entries[best].score) best = i;
    } else if (entries[i].inserted < entries[best].inserted) {
      best = i;
    }
  }
  return refined[best];
}

// Stage 2 of method "auto": refines the seeds that lead to a new model and chooses the model with
// the most support. The support of a model is the weight of the heaviest matching of its inliers;
// without weights, the size of the largest matching.
//
// Seeds are taken in the order of their raw scores, best first. A seed that has about the same
// inliers as an already refined model is skipped. Several threads refine a round of seeds at once;
// the decisions are then made in order, and a seed that repeats a model of its own round is dropped
// with its refinement. The result and the counted refinements are those of one thread.
template <Problem P>
class DistinctSelection {
 public:
  using Model = typename P::Model;

  // A seed with at least this share of its inliers in common with a refined model repeats it.
  static constexpr double kRepeatedShare = 0.7;
  // Seeds per thread in a round: enough to outweigh the wait at the end of the round, few enough
  // that a seed seldom repeats a model of its own round.
  static constexpr int kSeedsPerThread = 8;
  // Steps of a refinement; the best models are polished later.
  static constexpr int kSelectSteps = 8;

  // `weight` has one entry per edge, or is empty.
  DistinctSelection(const P& problem, std::span<const double> weight, bool skip_repeated,
                    Workers& workers)
      : problem_(problem),
        weight_(weight),
        skip_repeated_(skip_repeated),
        workers_(workers),
        lanes_(problem, workers) {}

  int64_t refinements() const { return refinements_; }
  double support() const { return support_; }
  const std::vector<SupportedModel<Model>>& refined() const { return refined_; }

  // `found`, which is already refined, competes with the seeds. Ties go to the earlier model.
  Model run(const Model& found, const Pool<Model>& pool, Interrupt& interrupt) {
    auto seeds = pool.entries();
    std::sort(seeds.begin(), seeds.end(), [](const auto& a, const auto& b) {
      return a.score != b.score ? a.score > b.score : a.inserted < b.inserted;
    });
    Refined first{found, Mask(words())};
    evaluate(first, lanes_[0]);
    take(first);
    std::vector<Mask> inliers(seeds.size());
    std::vector<int> count(seeds.size(), 0);
    if (skip_repeated_) {
      workers_.run(static_cast<int>(seeds.size()), [&](int, int i) {
        inliers[at(i)].resize(words());
        count[at(i)] = problem_.inliers(seeds[at(i)].model, inliers[at(i)], {});
      });
    }
    const std::size_t most = at(workers_.size() == 1 ? 1 : kSeedsPerThread * workers_.size());
    std::vector<std::size_t> round;  // seeds that are refined at once
    std::vector<Refined> refined;
    for (std::size_t next = 0; next < seeds.size();) {
      if (interrupt.poll()) break;
      round.clear();
      for (; next < seeds.size() && round.size() < most; ++next) {
        if (!skip_repeated_ || !repeats(seeds[next].model, inliers[next], count[next]))
          round.push_back(next);
      }
      refined.assign(round.size(), {});
      workers_.run(static_cast<int>(round.size()), [&](int worker, int i) {
        SelectionLane<P>& lane = lanes_[worker];
        refined[at(i)] = {seeds[round[at(i)]].model, Mask(words())};
        lane.refiner.local_refine(refined[at(i)].model, lane.space, kSelectSteps);
        evaluate(refined[at(i)], lane);
      });
      const std::size_t before = taken_.size();
      for (std::size_t i = 0; i < round.size(); ++i) {
        const std::size_t seed = round[i];
        if (skip_repeated_ && repeats(seeds[seed].model, inliers[seed], count[seed], before)) {
          continue;
        }
        ++refinements_;
        take(refined[i]);
      }
    }
    return best_;
  }

 private:
  struct Refined {
    Model model;
    Mask inliers;
    double support = 0.0, bound = 0.0;  // support <= bound
  };

  std::size_t words() const { return problem_.graph().words(); }

  static int common(const Mask& a, const Mask& b) {
    int count = 0;
    for (std::size_t w = 0; w < a.size(); ++w) count += std::popcount(a[w] & b[w]);
    return count;
  }

  // Whether a seed repeats one of the refined models from number `first` on.
  bool repeats(const Model& seed, const Mask& inliers, int count, std::size_t first = 0) const {
    for (std::size_t i = first; i < taken_.size(); ++i) {
      if (common(inliers, taken_[i]) < kRepeatedShare * count) continue;
      // The edges may not distinguish two different models.
      if (!P::leads_elsewhere(seed, refined_[i].model)) return true;
    }
    return false;
  }

  void evaluate(Refined& model, SelectionLane<P>& lane) const {
    problem_.inliers(model.model, model.inliers, {});
    if (weight_.empty()) {
      if (!lane.matching) lane.matching.emplace(problem_.graph());
      model.support = model.bound = lane.matching->cardinality(model.inliers);
    } else {
      weigh(model, lane.heaviest_at);
    }
  }

  void take(Refined& model) {
    // A single thread would have known the best support so far and stopped at the bound.
    if (model.bound <= support_) model.support = model.bound;
    refined_.push_back({model.model, model.support});
    taken_.push_back(std::move(model.inliers));
    if (model.support > support_) {
      support_ = model.support;
      best_ = model.model;
    }
  }

  // Computes the support: the weight of the heaviest matching, or only its upper bound if that does
  // not exceed the best support so far.
  void weigh(Refined& model, std::vector<double>& heaviest_at) const {
    const Graph& graph = problem_.graph();
    for_each_bit(model.inliers, [&](int e) {
      double& heaviest = heaviest_at[at(graph.left[at(e)])];
      model.bound += std::max(weight_[at(e)] - heaviest, 0.0);
      heaviest = std::max(heaviest, weight_[at(e)]);
    });
    for_each_bit(model.inliers, [&](int e) { heaviest_at[at(graph.left[at(e)])] = 0.0; });
    model.support = model.bound;
    if (model.bound <= support_) return;
    model.support = 0.0;
    for (int64_t e : heaviest_matching(graph, model.inliers, weight_)) {
      model.support += weight_[static_cast<std::size_t>(e)];
    }
  }

  const P& problem_;
  std::span<const double> weight_;
  bool skip_repeated_;
  Workers& workers_;
  SelectionLanes<P> lanes_;
  std::vector<Mask> taken_;  // inliers of the refined models
  std::vector<SupportedModel<Model>> refined_;
  Model best_;
  double support_ = -1.0;
  int64_t refinements_ = 0;
};

}  // namespace manymatch

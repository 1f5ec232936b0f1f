// Stage 2 of Algorithm 1: refine every pooled seed once, take the largest matching.
#pragma once

#include <memory>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/ransac/pool.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/score/matching.h"
#include "manymatch/workers.h"

namespace manymatch {

// Ties go to the larger raw score of stage 1, then to the earlier insertion. The pool is not empty.
template <Problem P>
typename P::Model select_by_matching(const P& problem, const Pool<typename P::Model>& pool,
                                     Workers& workers, Interrupt& interrupt) {
  using Model = typename P::Model;
  struct Lane {
    explicit Lane(const P& problem)
        : matching(problem.graph()), space(problem.workspace()), mask(problem.graph().words()) {}
    MaximumMatching matching;
    typename P::Workspace space;
    Mask mask;
  };
  const auto& entries = pool.entries();
  std::vector<std::unique_ptr<Lane>> lanes(static_cast<std::size_t>(workers.size()));
  std::vector<Model> refined(entries.size());
  std::vector<int> cardinality(entries.size(), -1);
  workers.run(static_cast<int>(entries.size()), [&](int worker, int index) {
    if (worker == 0 ? interrupt.poll() : interrupt.requested()) return;
    auto& lane = lanes[static_cast<std::size_t>(worker)];
    if (!lane) lane = std::make_unique<Lane>(problem);
    const auto i = static_cast<std::size_t>(index);
    refined[i] = entries[i].model;
    problem.local_refine(refined[i], lane->space);
    problem.inliers(refined[i], lane->mask.data(), nullptr);
    cardinality[i] = lane->matching.cardinality(lane->mask.data());
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

}  // namespace manymatch

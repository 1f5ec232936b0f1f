// LocalRefine, FinalPolish and the polish of "auto": choose edges, weights and loss for any
// problem.
#pragma once

#include <span>

#include "manymatch/ransac/problem.h"

namespace manymatch {

// One object per thread.
template <Problem P>
class Refiner {
 public:
  using Model = typename P::Model;
  using Workspace = typename P::Workspace;

  Refiner(const P& problem, Weighting weighting)
      : problem_(problem),
        weighting_(weighting),
        mask_(problem.graph().words()),
        gathered_(problem.graph()) {}

  // Edges with r^2 < 5 eps^2, loss min(r^2, eps^2), by default 25 iterations.
  LmResult local_refine(Model& model, Workspace& space, int max_iterations = 25) {
    gather(model, 5.0);
    return refine(model, Loss::kTruncated, problem_.eps(), max_iterations, space);
  }

  // Edges with r^2 < eps^2, loss eps^2 log(1 + r^2/eps^2), 100 iterations.
  LmResult final_polish(Model& model, Workspace& space) {
    gather(model, 1.0);
    return refine(model, Loss::kCauchy, P::kPolishScale * problem_.eps(), 100, space);
  }

  // A polish with edges up to `reach` thresholds away, weighted by their priors and, unless empty,
  // the factors of `factor`; `scale` of the loss in thresholds.
  LmResult polish_with_priors(Model& model, double reach, double scale,
                              std::span<const double> prior, Workspace& space,
                              Loss loss = Loss::kCauchy, int max_iterations = 100,
                              std::span<const double> factor = {}) {
    gather(model, reach * reach);
    gathered_.weigh_by_prior(prior, factor);
    return refine(model, loss, scale * problem_.eps(), max_iterations, space);
  }

  // Edges and weights of the last refinement.
  const GatheredEdges& gathered() const { return gathered_; }

 private:
  void gather(const Model& model, double factor) {
    const double eps = problem_.eps();
    const int count = problem_.within(model, factor * eps * eps, mask_);
    gathered_.gather(mask_, count, weighting_);
  }

  // A minimal sample fits exactly and leaves nothing to refine.
  LmResult refine(Model& model, Loss loss, double scale, int max_iterations, Workspace& space) {
    if (gathered_.edges().size() <= at(P::kSampleSize)) return {};
    return problem_.refine(model, gathered_, loss, scale * scale, max_iterations, space);
  }

  const P& problem_;
  Weighting weighting_;
  Mask mask_;
  GatheredEdges gathered_;
};

}  // namespace manymatch

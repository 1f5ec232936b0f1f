// Robust estimation: a graph of candidate matches in, a model and its matches out.
//
// `P` is a geometric problem such as RelativePoseProblem (problems/relative_pose/problem.h). The
// library contains these functions for every problem in problems/. For a problem of your own,
// include estimator.h, which defines the templates.
#pragma once

#include <span>
#include <vector>

#include "manymatch/edge_sets.h"
#include "manymatch/interrupt.h"
#include "manymatch/options.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/result.h"

namespace manymatch {

template <Problem P>
ModelEstimate<typename P::Model> estimate(const GraphInput& input, const typename P::Data& data,
                                          Method method, const Options& options,
                                          Interrupt& interrupt);

// Estimates many pairs, one thread for each. The results are those of `estimate` pair by pair.
template <Problem P>
std::vector<ModelEstimate<typename P::Model>> estimate_many(std::span<const GraphInput> inputs,
                                                            std::span<const typename P::Data> data,
                                                            Method method,
                                                            std::span<const Options> options,
                                                            int threads, Interrupt& interrupt);

// Exact score of a given model.
template <Problem P>
ModelScore score(const GraphInput& input, const typename P::Data& data,
                 const typename P::Model& model, double q, double delta);

}  // namespace manymatch

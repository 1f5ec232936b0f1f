// What the paper's estimators and method "auto" have in common.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "manymatch/estimate.h"
#include "manymatch/problems/relative_pose.h"
#include "manymatch/ransac/lo_ransac.h"

namespace manymatch {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Why no sample can be drawn from these edges, or nothing.
std::string hopeless(const Graph& graph, const std::vector<int>& proposals, bool one_to_one);

// Takes over what a search cost; false, with a reason, if it has no pose to go on with.
bool take_search(const SearchResult<Pose>& found, double seconds, Estimate& out);

// Inliers, scores and the resolved matching of the final pose. Of the largest matchings the one
// with the least sum of r^2 / eps^2 is taken, plus the price of each edge where prices are given.
void resolve(const RelativePoseProblem& problem, const HcmTerms& terms, const double* price,
             Estimate& out);

// Method::kAuto: everything but the total time. `edges` are those that may be sampled; they hold a
// sample.
void estimate_auto(const PairInput& input, const Graph& graph, const std::vector<int>& edges,
                   const Options& options, Interrupt& interrupt, Estimate& out);

}  // namespace manymatch

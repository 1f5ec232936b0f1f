// The adaptive number of iterations T*.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace manymatch {

// Number of iterations that draw at least one sample of inliers only with the wanted confidence,
// times `safety`. `phat` is the probability that a sample has inliers only.
inline int64_t iterations_for(double phat, int64_t min_iterations, int64_t max_iterations,
                              double confidence, double safety) {
  if (phat >= 1.0 - 1e-7) return min_iterations;
  if (phat <= 1e-7) return max_iterations;
  const double wanted = std::ceil(safety * std::log1p(-confidence) / std::log1p(-phat));
  return static_cast<int64_t>(
      std::clamp(wanted, static_cast<double>(min_iterations), static_cast<double>(max_iterations)));
}

// The paper's rule: phat = C(I, m) / C(E, m), as if all sets of m edges were equally likely.
inline int64_t iteration_bound(int64_t inliers, int64_t edges, int sample_size,
                               int64_t min_iterations, int64_t max_iterations, double confidence,
                               double safety) {
  double phat = inliers < sample_size ? 0.0 : 1.0;
  for (int u = 0; u < sample_size && phat > 0.0; ++u) {
    phat *= static_cast<double>(inliers - u) / static_cast<double>(edges - u);
  }
  return iterations_for(phat, min_iterations, max_iterations, confidence, safety);
}

}  // namespace manymatch

// Arguments of the refinement kernels: plain types only, as kernels are compiled per instruction
// set.
#pragma once

#include <cstddef>

namespace manymatch {

// r^2, min(r^2, eps^2), eps^2 log(1 + r^2 / eps^2).
enum class Loss : int { kSquared = 0, kTruncated = 1, kCauchy = 2 };

// Correspondences; z0 and z1 are null if points have two coordinates. Padded to a multiple of
// kRefineLanes with weight 0. Sums use that many lanes for all vector widths, so that they round
// the same way.
constexpr int kRefineLanes = 8;
struct RefineArrays {
  const double *x0, *y0, *z0, *x1, *y1, *z1, *weight;
  std::size_t padded;
};

}  // namespace manymatch

// What the kernels of a refinement take: plain types only, as they are compiled per instruction
// set.
#pragma once

#include <cstddef>

namespace manymatch {

// Of the squared residual: r^2, min(r^2, eps^2), eps^2 log(1 + r^2 / eps^2).
enum class Loss : int { kSquared = 0, kTruncated = 1, kCauchy = 2 };

// Correspondences; z0 and z1 are null where points have two coordinates. Padded to a multiple of
// kRefineLanes with weight 0. Sums run in that many fixed lanes whatever the width of the vectors,
// so that they round alike everywhere.
constexpr int kRefineLanes = 8;
struct RefineArrays {
  const double *x0, *y0, *z0, *x1, *y1, *z1, *weight;
  std::size_t padded;
};

}  // namespace manymatch

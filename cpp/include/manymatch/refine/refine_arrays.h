// Correspondences of one refinement, as the kernels of problems between two images read them.
#pragma once

#include <cstddef>

namespace manymatch {

// Padded to a multiple of kRefineLanes with weight 0. Sums run in that many fixed lanes whatever
// the width of the vectors, so that they round alike everywhere.
constexpr int kRefineLanes = 8;
struct RefineArrays {
  const double *x0, *y0, *x1, *y1, *weight;
  std::size_t padded;
};

}  // namespace manymatch

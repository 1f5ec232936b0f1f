// Data of problems between two images.
#pragma once

#include <span>

namespace manymatch {

// Points of the vertices of each side, (x, y) by rows, and the inlier threshold in their unit. The
// arrays belong to the caller.
struct TwoViewPoints {
  std::span<const double> x0, x1;
  double eps;
};

}  // namespace manymatch

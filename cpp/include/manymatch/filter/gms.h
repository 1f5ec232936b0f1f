// The many-to-many GMS filter: keeps an edge if its neighbourhood moves the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

// Side of the right grid relative to that of the left one, in the order in which they are tried.
inline constexpr int kGmsScales = 5;
inline constexpr double kGmsScale[kGmsScales] = {1.0, 0.5, 0.70710678118654752440,
                                                 1.41421356237309504880, 2.0};
inline constexpr int kGmsRotations = 8;

struct GmsOptions {
  double threshold = 4.0;
  int grid = 20;             // cells on a side of the left grid, at least 2
  bool scales = true;        // all five, or the first only
  bool rotations = true;     // all eight, or none
  bool crop = true;          // grids on the box of the points, or on the whole image
  bool integer_mean = true;  // truncate the mean number of points before its square root
};

struct GmsResult {
  std::vector<uint8_t> mask;  // one flag per edge
  int num_kept = 0;
  int scale = -1;  // index of the scale that won; -1 if nothing is kept
  int rotation = -1;
};

using ImageSize = std::span<const double, 2>;  // width, height

// points0, points1: (x, y) of every vertex in pixels, finite and within single precision.
GmsResult gms_filter(const Graph& graph, std::span<const double> points0,
                     std::span<const double> points1, ImageSize size0, ImageSize size1,
                     const GmsOptions& options);

}  // namespace manymatch

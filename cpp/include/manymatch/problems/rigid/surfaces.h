// How well the surfaces of two clouds fit under a transform. All points count, whether or not they
// have an edge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "manymatch/problems/rigid/kernels.h"

namespace manymatch {

// Points (N, 3) by rows, sorted into the cells of a cubic grid.
class PointGrid {
 public:
  PointGrid() = default;
  // Points that are not finite or more than 2^19 cells from the origin are ignored.
  PointGrid(std::vector<double> points, double cell);

  // Calls visit(number of the point, squared distance) for all points within one cell of x, and for
  // some farther away.
  template <class Visit>
  void around(const double* x, Visit&& visit) const;
  const double* point(std::size_t i) const { return points_.data() + 3 * i; }

 private:
  uint64_t key_of(const double* x) const;  // kNone: x is not in the grid
  static constexpr uint64_t kNone = ~uint64_t{0};

  std::vector<double> points_;
  double inverse_ = 0.0;
  std::vector<std::pair<uint64_t, std::size_t>> sorted_;  // cell, number of the point
};

class CloudSurfaces {
 public:
  // Points (N, 3) by rows, in the coordinates of the transforms. Lengths are measured in the
  // spacing of the points of a cloud, or in `least_spacing` if that is larger.
  CloudSurfaces(std::span<const double> points0, std::span<const double> points1,
                double least_spacing);

  // Whether both clouds have enough points to tell their surfaces.
  bool known() const { return !side_[0].points.empty() && !side_[1].points.empty(); }

  // Mean distance, in spacings, of the points of a cloud from the tangent plane at the nearest
  // point of the other; only points with a point of the other cloud within kReach spacings count.
  // Geometric mean of both clouds. Surfaces that coincide have a small gap; surfaces that merely
  // cross have points at all distances.
  double gap(const TransformNumbers& transform);

  // Of the points of one cloud that a sensor at `viewpoint` must have seen, since it saw the other
  // cloud in the same direction, the share that lies in front of what it saw. `side` is the cloud
  // that the sensor saw, in whose coordinates the viewpoint is. 0 if there are no such points.
  double in_front(const TransformNumbers& transform, int side, const double* viewpoint) const;

 private:
  struct Side {
    std::vector<double> points;  // all that are used, in random order
    double spacing = 0.0;
    PointGrid grid;
    std::vector<std::array<double, 3>> normal;  // computed on demand; zero: not yet
  };
  const std::array<double, 3>& normal_at(Side& side, std::size_t i);

  Side side_[2];
  std::vector<std::pair<double, std::size_t>> near_;
};

}  // namespace manymatch

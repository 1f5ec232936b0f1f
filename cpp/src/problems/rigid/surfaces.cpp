#include "manymatch/problems/rigid/surfaces.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "manymatch/problems/rigid/overlap.h"

namespace manymatch {

namespace {

// Most points of a cloud that are mapped.
constexpr std::size_t kMostMapped = 1024;
// Distance, in spacings, up to which a point belongs to the nearest point of the other cloud.
constexpr double kReach = 4.0;
// A tangent plane is that of this many nearest points and the point itself.
constexpr std::size_t kNeighbours = 10;
// A point lies in front of a seen one if the sensor is closer to it by this many spacings and this
// share of the distance: surfaces seen at a low angle, and noise, which grows with the distance.
constexpr double kFrontSpacings = 4.0, kFrontShare = 0.03;

double length(const double* v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

// x in the coordinates of cloud 1 if it is of cloud 0, and the other way.
void map(const TransformNumbers& transform, bool forth, const double* x, double* out) {
  const double *A = transform.A, *t = transform.t;
  if (forth) {
    for (int i = 0; i < 3; ++i) {
      out[i] = A[3 * i] * x[0] + A[3 * i + 1] * x[1] + A[3 * i + 2] * x[2] + t[i];
    }
    return;
  }
  // The inverse is A' (x - t) / scale^2.
  const double factor = 1.0 / (transform.scale * transform.scale);
  const double d[3] = {x[0] - t[0], x[1] - t[1], x[2] - t[2]};
  for (int i = 0; i < 3; ++i) out[i] = factor * (A[i] * d[0] + A[3 + i] * d[1] + A[6 + i] * d[2]);
}

// Unit eigenvector of the least eigenvalue of a symmetric matrix (upper triangle by rows).
std::array<double, 3> least_direction(const double* m) {
  const double trace = m[0] + m[3] + m[5];
  // High powers of (trace - m) have all columns in that direction.
  double p[9] = {trace - m[0], -m[1], -m[2], -m[1],       trace - m[3],
                 -m[4],        -m[2], -m[4], trace - m[5]};
  for (int squared = 0; squared < 10; ++squared) {
    double q[9], most = 0.0;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        q[3 * i + j] = p[3 * i] * p[j] + p[3 * i + 1] * p[3 + j] + p[3 * i + 2] * p[6 + j];
        most = std::max(most, std::abs(q[3 * i + j]));
      }
    }
    if (!(most > 0.0)) break;
    for (int i = 0; i < 9; ++i) p[i] = q[i] / most;
  }
  // All rows are multiples of the direction; the longest is the most precise.
  const double* row = std::max(
      {p, p + 3, p + 6}, [](const double* a, const double* b) { return length(a) < length(b); });
  const double norm = length(row);
  if (!(norm > 0.0)) return {1.0, 0.0, 0.0};
  return {row[0] / norm, row[1] / norm, row[2] / norm};
}

// The nearest point to x within `reach`: its number and squared distance, or infinity.
std::pair<std::size_t, double> nearest(const PointGrid& grid, const double* x, double reach) {
  std::pair<std::size_t, double> best{0, std::numeric_limits<double>::infinity()};
  double limit2 = reach * reach;
  grid.around(x, [&](std::size_t i, double d2) {
    if (d2 < limit2 || (d2 == limit2 && i < best.first)) {
      best = {i, d2};
      limit2 = d2;
    }
  });
  return best;
}

}  // namespace

PointGrid::PointGrid(std::vector<double> points, double cell)
    : points_(std::move(points)), inverse_(1.0 / cell) {
  sorted_.reserve(points_.size() / 3);
  for (std::size_t i = 0; 3 * i + 2 < points_.size(); ++i) {
    const uint64_t key = key_of(point(i));
    if (key != kNone) sorted_.emplace_back(key, i);
  }
  std::sort(sorted_.begin(), sorted_.end());
}

uint64_t PointGrid::key_of(const double* x) const {
  constexpr double kOffset = 1 << 19;
  uint64_t key = 0;
  for (int c = 0; c < 3; ++c) {
    const double cell = std::floor(x[c] * inverse_) + kOffset;
    if (!(cell >= 1.0 && cell < 2.0 * kOffset - 1.0)) return kNone;
    key = key << 20 | static_cast<uint64_t>(cell);
  }
  return key;
}

template <class Visit>
void PointGrid::around(const double* x, Visit&& visit) const {
  const uint64_t key = key_of(x);
  if (key == kNone) return;
  for (const int64_t dx : {-1, 0, 1}) {
    for (const int64_t dy : {-1, 0, 1}) {
      // The three cells along the last axis follow each other.
      const uint64_t row = key + static_cast<uint64_t>(dx * (int64_t{1} << 40) + dy * (1 << 20));
      auto at =
          std::lower_bound(sorted_.begin(), sorted_.end(), std::pair{row - 1, std::size_t{0}});
      for (; at != sorted_.end() && at->first <= row + 1; ++at) {
        const double* p = point(at->second);
        const double d[3] = {p[0] - x[0], p[1] - x[1], p[2] - x[2]};
        visit(at->second, d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      }
    }
  }
}

CloudSurfaces::CloudSurfaces(std::span<const double> points0, std::span<const double> points1,
                             double least_spacing) {
  for (int s = 0; s < 2; ++s) {
    auto [points, spacing] = surface_points(s == 0 ? points0 : points1);
    if (points.empty()) return;
    Side& side = side_[s];
    side.spacing = std::max(spacing, least_spacing);
    side.grid = PointGrid(points, kReach * side.spacing);
    side.normal.assign(points.size() / 3, {0.0, 0.0, 0.0});
    side.points = std::move(points);
  }
}

const std::array<double, 3>& CloudSurfaces::normal_at(Side& side, std::size_t i) {
  std::array<double, 3>& normal = side.normal[i];
  if (length(normal.data()) > 0.0) return normal;
  near_.clear();
  side.grid.around(side.grid.point(i),
                   [&](std::size_t j, double d2) { near_.emplace_back(d2, j); });
  const std::size_t count = std::min(kNeighbours + 1, near_.size());
  std::partial_sort(near_.begin(), near_.begin() + static_cast<std::ptrdiff_t>(count), near_.end());
  double mean[3] = {0, 0, 0}, m[6] = {0, 0, 0, 0, 0, 0};
  for (std::size_t k = 0; k < count; ++k) {
    for (int c = 0; c < 3; ++c) mean[c] += side.grid.point(near_[k].second)[c];
  }
  for (double& c : mean) c /= static_cast<double>(count);
  for (std::size_t k = 0; k < count; ++k) {
    const double* p = side.grid.point(near_[k].second);
    const double d[3] = {p[0] - mean[0], p[1] - mean[1], p[2] - mean[2]};
    int slot = 0;
    for (int r = 0; r < 3; ++r) {
      for (int c = r; c < 3; ++c) m[slot++] += d[r] * d[c];
    }
  }
  normal = least_direction(m);
  return normal;
}

double CloudSurfaces::gap(const TransformNumbers& transform) {
  double product = 1.0;
  for (int s = 0; s < 2; ++s) {
    Side& other = side_[1 - s];
    const std::size_t count = std::min(kMostMapped, side_[s].points.size() / 3);
    double sum = 0.0, near = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      double x[3];
      map(transform, s == 0, side_[s].points.data() + 3 * i, x);
      const auto [j, d2] = nearest(other.grid, x, kReach * other.spacing);
      if (!std::isfinite(d2)) continue;
      const double* p = other.grid.point(j);
      const auto& n = normal_at(other, j);
      sum += std::abs(n[0] * (x[0] - p[0]) + n[1] * (x[1] - p[1]) + n[2] * (x[2] - p[2]));
      near += 1.0;
    }
    // Without any point that is near, half of the reach.
    product *= near > 0.0 ? sum / (near * other.spacing) : 0.5 * kReach;
  }
  return std::sqrt(product);
}

double CloudSurfaces::in_front(const TransformNumbers& transform, int side,
                               const double* viewpoint) const {
  const Side &seen = side_[side], &other = side_[1 - side];
  const std::size_t size = seen.points.size() / 3;
  std::vector<double> direction(seen.points.size()), range(size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      direction[3 * i + c] = seen.points[3 * i + c] - viewpoint[c];
    }
    range[i] = length(direction.data() + 3 * i);
    for (std::size_t c = 0; c < 3; ++c) direction[3 * i + c] /= range[i];
  }
  std::vector<double> sorted = range;
  const auto close = sorted.begin() + static_cast<std::ptrdiff_t>(size / 10);
  std::nth_element(sorted.begin(), close, sorted.end());
  // Directions of neighbours: one spacing apart at the distance of all but the closest points.
  const double reach = seen.spacing / *close;
  if (!std::isfinite(reach)) return 0.0;
  const PointGrid grid(std::move(direction), reach);
  std::size_t hits = 0, front = 0;
  for (std::size_t i = 0; i < std::min(kMostMapped, other.points.size() / 3); ++i) {
    double x[3];
    map(transform, side == 1, other.points.data() + 3 * i, x);
    for (int c = 0; c < 3; ++c) x[c] -= viewpoint[c];
    const double away = length(x);
    for (double& c : x) c /= away;
    const auto [j, d2] = nearest(grid, x, reach);
    if (!(std::sqrt(d2) * range[j] < seen.spacing)) continue;
    ++hits;
    front += away < range[j] * (1.0 - kFrontShare) - kFrontSpacings * seen.spacing;
  }
  return hits ? static_cast<double>(front) / static_cast<double>(hits) : 0.0;
}

}  // namespace manymatch

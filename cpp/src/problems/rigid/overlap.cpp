#include "manymatch/problems/rigid/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "manymatch/rng.h"

namespace manymatch {

namespace {

// A cloud with fewer points has no surface to speak of.
constexpr std::size_t kLeastPoints = 100;
// Most points of a cloud that make cells, and whose neighbours are measured.
constexpr std::size_t kMostTargets = 10000, kMeasured = 32;

// Up to `most` finite points of a cloud in random order, which does not depend on the seed.
std::vector<double> drawn(std::span<const double> points, std::size_t most) {
  std::vector<std::size_t> finite;
  for (std::size_t i = 0; i + 2 < points.size(); i += 3) {
    if (std::isfinite(points[i] + points[i + 1] + points[i + 2])) finite.push_back(i);
  }
  Rng rng(0, 0, Rng::kAgreeing);
  const std::size_t count = std::min(most, finite.size());
  std::vector<double> out;
  out.reserve(3 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t j = i + rng.below(static_cast<uint32_t>(finite.size() - i));
    std::swap(finite[i], finite[j]);
    out.insert(out.end(), points.begin() + static_cast<std::ptrdiff_t>(finite[i]),
               points.begin() + static_cast<std::ptrdiff_t>(finite[i]) + 3);
  }
  return out;
}

// Median distance of a point from its nearest neighbour at another place.
double spacing(std::span<const double> points) {
  std::vector<double> nearest;
  const std::size_t measured = std::min(3 * kMeasured, points.size());
  for (std::size_t i = 0; i < measured; i += 3) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < points.size(); j += 3) {
      const double x = points[j] - points[i], y = points[j + 1] - points[i + 1],
                   z = points[j + 2] - points[i + 2];
      const double d2 = x * x + y * y + z * z;
      if (d2 < least && d2 > 0.0) least = d2;
    }
    nearest.push_back(least);
  }
  const auto middle = nearest.begin() + static_cast<std::ptrdiff_t>(nearest.size() / 2);
  std::nth_element(nearest.begin(), middle, nearest.end());
  return std::sqrt(*middle);
}

}  // namespace

std::pair<std::vector<double>, double> surface_points(std::span<const double> points) {
  if (points.size() < 3 * kLeastPoints) return {};
  std::vector<double> used = drawn(points, kMostTargets);
  if (used.size() < 3 * kLeastPoints) return {};
  const double distance = spacing(used);
  if (!std::isfinite(distance)) return {};
  return {std::move(used), distance};
}

NearCells::NearCells(std::span<const double> points, double radius) : inverse_(2.0 / radius) {
  resize(10);
  constexpr double kReach = 2.0;  // the radius, in cells
  constexpr uint32_t kCells = 5;  // along an axis that can be within the radius
  for (std::size_t i = 0; i + 2 < points.size(); i += 3) {
    uint32_t first[3];
    double d2[3][kCells];
    bool inside = true;
    for (std::size_t c = 0; c < 3; ++c) {
      const double at_cell = points[i + c] * inverse_ + kOffset;
      inside = inside && at_cell > 4.0 && at_cell < 2.0 * kOffset - 4.0;
      if (!inside) break;
      first[c] = static_cast<uint32_t>(at_cell - kReach);
      for (uint32_t k = 0; k < kCells; ++k) {
        const double d = first[c] + k + 0.5 - at_cell;
        d2[c][k] = d * d;
      }
    }
    if (!inside) continue;
    for (uint32_t x = 0; x < kCells; ++x) {
      for (uint32_t y = 0; y < kCells; ++y) {
        const double left = kReach * kReach - d2[0][x] - d2[1][y];
        if (left < 0.0) continue;
        // Cells that differ in z only are neighbouring bits of a word, or of two.
        uint32_t run = 0;
        for (uint32_t z = 0; z < kCells; ++z) run |= uint32_t{d2[2][z] <= left} << z;
        run <<= first[2] & 7;
        const uint32_t cx = first[0] + x, cy = first[1] + y, row = (cy & 7) << 3;
        if (run & 255U) insert(Cell(cx, cy, first[2]), uint64_t{run & 255U} << row);
        if (run >> 8) insert(Cell(cx, cy, first[2] + 8), uint64_t{run >> 8} << row);
      }
    }
  }
}

void NearCells::insert(const Cell& cell, uint64_t bits) {
  uint32_t slot = slot_of(cell.block);
  if (keys_[slot] == kEmpty) {
    if (2 * (used_ + 1) > keys_.size()) {
      resize(64 - shift_ + 1);
      slot = slot_of(cell.block);
    }
    keys_[slot] = cell.block;
    ++used_;
  }
  bits_[slot][cell.word] |= bits;
}

void NearCells::resize(int log2_slots) {
  std::vector<uint64_t> keys(std::size_t{1} << log2_slots, kEmpty);
  std::vector<std::array<uint64_t, 8>> bits(keys.size(), std::array<uint64_t, 8>{});
  keys.swap(keys_);
  bits.swap(bits_);
  shift_ = 64 - log2_slots;
  mask_ = (uint32_t{1} << log2_slots) - 1;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == kEmpty) continue;
    const uint32_t slot = slot_of(keys[i]);
    keys_[slot] = keys[i];
    bits_[slot] = bits[i];
  }
}

CloudOverlap::CloudOverlap(std::span<const double> points0, std::span<const double> points1,
                           double least_radius, std::size_t most_looked_up) {
  for (int s = 0; s < 2; ++s) {
    auto [targets, distance] = surface_points(s == 0 ? points0 : points1);
    if (targets.empty()) return;
    side_[s].cells.emplace(targets, std::max(distance, least_radius));
    targets.resize(std::min(targets.size(), 3 * most_looked_up));
    side_[s].points = std::move(targets);
  }
}

double CloudOverlap::share(const TransformNumbers& transform, std::size_t most) const {
  const double *A = transform.A, *t = transform.t;
  std::size_t near[2] = {0, 0}, count[2];
  for (int s = 0; s < 2; ++s) count[s] = std::min(most, side_[s].points.size() / 3);
  // Cloud 0 in the cells of cloud 1.
  const double* p = side_[0].points.data();
  const NearCells& cells1 = *side_[1].cells;
  for (std::size_t i = 0; i < 3 * count[0]; i += 3) {
    near[0] += cells1.contains(A[0] * p[i] + A[1] * p[i + 1] + A[2] * p[i + 2] + t[0],
                               A[3] * p[i] + A[4] * p[i + 1] + A[5] * p[i + 2] + t[1],
                               A[6] * p[i] + A[7] * p[i + 1] + A[8] * p[i + 2] + t[2]);
  }
  // And the other way. The inverse is A' (x - t) / scale^2.
  const double factor = 1.0 / (transform.scale * transform.scale);
  p = side_[1].points.data();
  const NearCells& cells0 = *side_[0].cells;
  for (std::size_t i = 0; i < 3 * count[1]; i += 3) {
    const double x = factor * (p[i] - t[0]), y = factor * (p[i + 1] - t[1]),
                 z = factor * (p[i + 2] - t[2]);
    near[1] += cells0.contains(A[0] * x + A[3] * y + A[6] * z, A[1] * x + A[4] * y + A[7] * z,
                               A[2] * x + A[5] * y + A[8] * z);
  }
  return std::sqrt(static_cast<double>(near[0]) / static_cast<double>(count[0]) *
                   (static_cast<double>(near[1]) / static_cast<double>(count[1])));
}

}  // namespace manymatch

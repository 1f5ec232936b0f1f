// Overlap of two clouds under a transform. All points count, whether or not they have an edge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "manymatch/problems/rigid/kernels.h"

namespace manymatch {

// The cells of a cubic grid whose centres are within a radius of a point of a cloud. A cell is half
// a radius wide. Blocks of 8 x 8 x 8 cells are bit masks in a hash table.
class NearCells {
 public:
  // Points (N, 3) by rows. Points that are not finite or more than 2^19 radii from the origin are
  // ignored.
  NearCells(std::span<const double> points, double radius);

  bool contains(double x, double y, double z) const {
    const double cx = x * inverse_ + kOffset, cy = y * inverse_ + kOffset,
                 cz = z * inverse_ + kOffset;
    constexpr double kMost = 2.0 * kOffset;
    // False for NaN too.
    if (!(cx >= 0.0 && cx < kMost && cy >= 0.0 && cy < kMost && cz >= 0.0 && cz < kMost)) {
      return false;
    }
    const Cell cell(static_cast<uint32_t>(cx), static_cast<uint32_t>(cy),
                    static_cast<uint32_t>(cz));
    const uint32_t slot = slot_of(cell.block);
    return keys_[slot] == cell.block && (bits_[slot][cell.word] >> cell.bit & 1U);
  }

 private:
  static constexpr double kOffset = 1 << 20;
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  struct Cell {
    uint64_t block;
    uint32_t word, bit;
    Cell(uint32_t x, uint32_t y, uint32_t z)
        : block(uint64_t{x >> 3} << 40 | uint64_t{y >> 3} << 20 | (z >> 3)),
          word(x & 7),
          bit((y & 7) << 3 | (z & 7)) {}
  };

  // The slot of a block, or the empty slot where it belongs.
  uint32_t slot_of(uint64_t block) const {
    uint32_t slot = static_cast<uint32_t>((block * 0x9e3779b97f4a7c15ULL) >> shift_);
    while (keys_[slot] != block && keys_[slot] != kEmpty) slot = (slot + 1) & mask_;
    return slot;
  }
  // Adds cells of the word of `cell`.
  void insert(const Cell& cell, uint64_t bits);
  void resize(int log2_slots);

  double inverse_;
  int shift_ = 0;
  uint32_t mask_ = 0;
  std::size_t used_ = 0;
  std::vector<uint64_t> keys_;
  std::vector<std::array<uint64_t, 8>> bits_;
};

// Up to 10,000 points of a cloud in a random order that does not depend on the seed, and the median
// distance of a point from its nearest neighbour. Empty if there are too few to tell a surface.
std::pair<std::vector<double>, double> surface_points(std::span<const double> points);

// Two clouds, of which points are looked up in the cells of the other.
class CloudOverlap {
 public:
  // Points (N, 3) by rows, in the coordinates of the transforms. Two points are near each other
  // within the spacing of the points of the cloud that is looked up in, and within `least_radius`.
  // Of each cloud at most `most_looked_up` points are looked up.
  CloudOverlap(std::span<const double> points0, std::span<const double> points1,
               double least_radius, std::size_t most_looked_up = 512);

  // Whether both clouds have enough points to tell an overlap.
  bool known() const { return !side_[0].points.empty() && !side_[1].points.empty(); }
  // The share of the points that are near the other cloud: the geometric mean of the shares of the
  // two clouds, so that a scale which brings all points of one cloud to one place gains nothing. Of
  // each cloud the first `most` of a fixed random order are looked up.
  double share(const TransformNumbers& transform, std::size_t most = SIZE_MAX) const;

 private:
  struct Side {
    std::vector<double> points;  // that are looked up, (N, 3) in random order
    std::optional<NearCells> cells;
  };
  Side side_[2];
};

}  // namespace manymatch

// Descriptors of two images as integers, in the order in which the product of both is computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace manymatch {

// Descriptors of an image: rows of unit length, row-major. Invalid rows are ignored.
struct UnitRows {
  const float* data;
  const bool* valid;
  std::size_t count, dimension;
  // The keypoint of every row, if keypoints have several rows or none; empty if row i is that of
  // keypoint i.
  std::span<const int32_t> owners;
  std::size_t keypoints;

  const float* row(std::size_t i) const { return data + i * dimension; }
};

// The valid rows of every keypoint.
class KeypointRows {
 public:
  explicit KeypointRows(const UnitRows& rows);

  std::size_t size() const { return start_.size() - 1; }
  std::size_t dimension() const { return rows_.dimension; }
  bool valid(std::size_t keypoint) const { return !of(keypoint).empty(); }
  bool all_valid() const { return all_valid_; }
  std::span<const int32_t> of(std::size_t keypoint) const {
    return std::span(order_).subspan(start_[keypoint], start_[keypoint + 1] - start_[keypoint]);
  }
  const float* row(int32_t i) const { return rows_.row(static_cast<std::size_t>(i)); }

 private:
  UnitRows rows_;
  std::vector<std::size_t> start_;
  std::vector<int32_t> order_;
  bool all_valid_;
};

// Keypoints in parts of equal size. A part has a slot for the first row of each of its keypoints,
// then slots for their further rows; both are filled up with empty slots to whole blocks.
struct Layout {
  struct Part {
    std::size_t first_keypoint, num_keypoints, first_slot, own_slots, num_slots;
  };

  Layout(const KeypointRows& keypoints, std::size_t part_size, std::size_t block);

  std::vector<Part> parts;
  std::vector<int32_t> row;     // of every slot; -1: empty
  std::vector<int32_t> target;  // its keypoint, counted from the first of the part; -1: empty
};

// Computes tiles of the similarities of keypoints: the largest product of any of their rows.
class Products {
 public:
  static constexpr std::size_t kGroup = 48, kColumns = 2048;

  Products(const KeypointRows& left, const KeypointRows& right);

  const std::vector<Layout::Part>& groups() const { return left_.parts; }
  const std::vector<Layout::Part>& columns() const { return right_.parts; }
  // Largest difference between a similarity here and the exact one.
  double error() const { return error_; }
  // Writes the similarities of the keypoints of a group and of a part of the columns. Rows of the
  // tile are `stride` apart. There are kGroup rows, and a stride has room for `own_slots` columns.
  void fill(const Layout::Part& group, const Layout::Part& part, float* tile,
            std::size_t stride) const;

 private:
  std::size_t pairs_;
  Layout left_, right_;
  std::vector<int16_t> rows_, columns_;
  double error_;
};

}  // namespace manymatch

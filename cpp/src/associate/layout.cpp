#include "manymatch/associate/layout.h"

#include <algorithm>
#include <cmath>

#include "manymatch/associate/kernels.h"
#include "manymatch/dispatch.h"

namespace manymatch {

namespace {

constexpr std::size_t rounded_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Rounds every row of a layout to integers, has `place` store it, and returns the length of the
// largest error of a row.
template <class Place>
double round_rows(const KeypointRows& keypoints, const Layout& layout, std::size_t width,
                  const Place& place) {
  const std::size_t dimension = keypoints.dimension();
  std::vector<int16_t> integers(width, 0);
  float largest = 0.0F;
  for (std::size_t slot = 0; slot < layout.row.size(); ++slot) {
    if (layout.row[slot] < 0) continue;
    const float squares = kernels<AssociateKernels>().rounded(keypoints.row(layout.row[slot]),
                                                              dimension, integers.data());
    largest = std::max(largest, squares);
    place(slot, integers.data());
  }
  // The sum itself is rounded once per entry.
  const double slack = 1.0 + static_cast<double>(dimension) * 0x1p-23;
  return std::sqrt(static_cast<double>(largest) * slack);
}

}  // namespace

KeypointRows::KeypointRows(const UnitRows& rows) : rows_(rows), start_(rows.keypoints + 1, 0) {
  const auto keypoint_of = [&](std::size_t i) {
    return rows.owners.empty() ? i : static_cast<std::size_t>(rows.owners[i]);
  };
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (rows.valid[i]) ++start_[keypoint_of(i) + 1];
  }
  all_valid_ = std::find(start_.begin() + 1, start_.end(), 0U) == start_.end();
  for (std::size_t v = 0; v < rows.keypoints; ++v) start_[v + 1] += start_[v];
  order_.resize(start_.back());
  std::vector<std::size_t> next(start_.begin(), start_.end() - 1);
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (rows.valid[i]) order_[next[keypoint_of(i)]++] = static_cast<int32_t>(i);
  }
}

Layout::Layout(const KeypointRows& keypoints, std::size_t part_size, std::size_t block) {
  const auto fill_up = [&](std::size_t first_slot) {
    const std::size_t size = first_slot + rounded_up(row.size() - first_slot, block);
    row.resize(size, -1);
    target.resize(size, -1);
  };
  for (std::size_t first = 0; first < keypoints.size(); first += part_size) {
    const std::size_t number = std::min(part_size, keypoints.size() - first);
    Part part{first, number, row.size(), 0, 0};
    for (std::size_t v = 0; v < number; ++v) {
      const auto own = keypoints.of(first + v);
      row.push_back(own.empty() ? -1 : own[0]);
      target.push_back(static_cast<int32_t>(v));
    }
    fill_up(part.first_slot);
    part.own_slots = row.size() - part.first_slot;
    for (std::size_t v = 0; v < number; ++v) {
      for (std::size_t n = 1; n < keypoints.of(first + v).size(); ++n) {
        row.push_back(keypoints.of(first + v)[n]);
        target.push_back(static_cast<int32_t>(v));
      }
    }
    fill_up(part.first_slot);
    part.num_slots = row.size() - part.first_slot;
    parts.push_back(part);
  }
}

Products::Products(const KeypointRows& left, const KeypointRows& right)
    : pairs_((left.dimension() + 1) / 2),
      left_(left, kGroup, kBlockRows),
      right_(right, kColumns, kBlockColumns),
      rows_(left_.row.size() * 2 * pairs_, 0),
      columns_(right_.row.size() * 2 * pairs_, 0) {
  const std::size_t width = 2 * pairs_;
  const double error0 =
      round_rows(left, left_, width, [&](std::size_t slot, const int16_t* integers) {
        std::copy_n(integers, width, rows_.data() + slot * width);
      });
  const double error1 =
      round_rows(right, right_, width, [&](std::size_t slot, const int16_t* integers) {
        int16_t* block = columns_.data() + slot / kBlockColumns * kBlockColumns * width;
        for (std::size_t p = 0; p < pairs_; ++p) {
          std::copy_n(integers + 2 * p, 2, block + 2 * (p * kBlockColumns + slot % kBlockColumns));
        }
      });
  // Rows have length one, up to a rounding of each entry. The sum of the integers is exact; the
  // last term covers its rounding to float32, and that of the exact value.
  const double unit = static_cast<double>(kUnit);
  error_ = 1.001 * (error0 + error1) / unit + error0 * error1 / (unit * unit) + 1e-6;
}

void Products::fill(const Layout::Part& group, const Layout::Part& part, float* tile,
                    std::size_t stride) const {
  const auto products = kernels<AssociateKernels>().products;
  const auto raise = kernels<AssociateKernels>().raise;
  const std::size_t width = 2 * pairs_;
  constexpr float kScale = 1.0F / (kUnit * kUnit);
  for (std::size_t c = 0; c < part.num_slots; c += kBlockColumns) {
    const int16_t* columns = columns_.data() + (part.first_slot + c) * width;
    for (std::size_t r = 0; r < group.num_slots; r += kBlockRows) {
      const int16_t* rows = rows_.data() + (group.first_slot + r) * width;
      const bool own_row = r < group.own_slots, own_column = c < part.own_slots;
      if (own_row && own_column) {
        products(rows, width, columns, pairs_, kScale, tile + r * stride + c, stride);
        continue;
      }
      float block[kBlockRows * kBlockColumns];
      products(rows, width, columns, pairs_, kScale, block, kBlockColumns);
      const int32_t* row_target = left_.target.data() + group.first_slot + r;
      const int32_t* column_target = right_.target.data() + part.first_slot + c;
      for (std::size_t y = 0; y < kBlockRows && row_target[y] >= 0; ++y) {
        float* out = tile + static_cast<std::size_t>(row_target[y]) * stride;
        if (own_column) {
          raise(block + y * kBlockColumns, kBlockColumns, out + c);
          continue;
        }
        for (std::size_t x = 0; x < kBlockColumns && column_target[x] >= 0; ++x) {
          // By value: no branch, which would often be mispredicted.
          const float before = out[column_target[x]], value = block[y * kBlockColumns + x];
          out[column_target[x]] = before > value ? before : value;
        }
      }
    }
  }
}

}  // namespace manymatch

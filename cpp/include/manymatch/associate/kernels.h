// The kernels of the association, as a table of functions compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manymatch {

// Shape of the block of products that a kernel computes at once, the same for every instruction
// set.
constexpr std::size_t kBlockRows = 12, kBlockColumns = 32;
// Length of a unit row as integers.
constexpr float kUnit = 32768.0F;

struct AssociateKernels {
  // Inner products of kBlockRows rows and kBlockColumns columns of integers, times `scale`. A row
  // has 2 * `pairs` entries; rows are `row_stride` apart. Columns are interleaved: two entries of
  // every column, then the next two.
  void (*products)(const int16_t* rows, std::size_t row_stride, const int16_t* columns,
                   std::size_t pairs, float scale, float* out, std::size_t out_stride);
  // Rounds kUnit * x to integers, at most kUnit - 1, and returns the sum of the squared errors.
  float (*rounded)(const float* x, std::size_t count, int16_t* out);
  // Finds the positions, ascending, of values above the threshold of the row or of their column.
  // Returns their number; `hits` has room for `count` positions.
  int (*above)(const float* values, std::size_t count, float row_threshold,
               const float* column_threshold, int32_t* hits);
  // Inner product in float64; the same bits for every instruction set and when a and b swap.
  double (*dot)(const float* a, const float* b, std::size_t count);
  // out[c] = x[c] * factor, computed in float64.
  void (*scaled)(const float* x, std::size_t count, double factor, float* out);
  // largest[c] = max(largest[c], values[c]).
  void (*raise)(const float* values, std::size_t count, float* largest);
};

}  // namespace manymatch

// The kernels of the association, as a table of functions compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manymatch {

struct AssociateKernels {
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

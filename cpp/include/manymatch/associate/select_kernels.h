// The two hot loops of the association, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/simd.h"

namespace manymatch {
namespace {

// Positions in `values` that exceed the row's threshold or that of their column, ascending.
// Returns how many; `hits` has room for `count` of them.
int above(const float* values, std::size_t count, float row_threshold,
          const float* column_threshold, int32_t* hits) {
  const vf row = splat(row_threshold);
  int found = 0;
  std::size_t c = 0;
  for (; c + kFloats <= count; c += kFloats) {
    const vf value = load(values + c);
    unsigned mask = bits(less(row, value)) | bits(less(load(column_threshold + c), value));
    while (mask != 0) {
      hits[found++] = static_cast<int32_t>(c) + __builtin_ctz(mask);
      mask &= mask - 1;
    }
  }
  for (; c < count; ++c) {
    if (values[c] > row_threshold || values[c] > column_threshold[c]) {
      hits[found++] = static_cast<int32_t>(c);
    }
  }
  return found;
}

// Inner product in float64. A product of two float32 numbers is exact in float64 and the order of
// the additions is fixed, so the bits are the same for every instruction set and when a and b swap.
double dot(const float* a, const float* b, std::size_t count) {
  constexpr int kLanes = 32;
  double sum[kLanes] = {};
  std::size_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      sum[l] += static_cast<double>(a[c + l]) * static_cast<double>(b[c + l]);
    }
  }
  for (int l = 0; c < count; ++c, ++l) {
    sum[l] += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) sum[l] += sum[l + width];
  }
  return sum[0];
}

}  // namespace
}  // namespace manymatch

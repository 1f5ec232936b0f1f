// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/associate/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

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

// A product of two float32 numbers is exact in float64 and the order of the additions is fixed.
double dot(const float* a, const float* b, std::size_t count) {
  typedef float Floats __attribute__((vector_size(32)));
  typedef double Doubles __attribute__((vector_size(64)));
  constexpr int kWidth = 8, kVectors = 4, kLanes = kWidth * kVectors;
  Doubles sum[kVectors] = {};
  std::size_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      Floats x, y;
      __builtin_memcpy(&x, a + c + v * kWidth, sizeof x);
      __builtin_memcpy(&y, b + c + v * kWidth, sizeof y);
      sum[v] += __builtin_convertvector(x, Doubles) * __builtin_convertvector(y, Doubles);
    }
  }
  double lanes[kLanes];
  __builtin_memcpy(lanes, sum, sizeof lanes);
  for (int l = 0; c < count; ++c, ++l) {
    lanes[l] += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

void scaled(const float* x, std::size_t count, double factor, float* out) {
  for (std::size_t c = 0; c < count; ++c) {
    out[c] = static_cast<float>(static_cast<double>(x[c]) * factor);
  }
}

void raise(const float* values, std::size_t count, float* largest) {
  for (std::size_t c = 0; c < count; ++c) {
    largest[c] = values[c] > largest[c] ? values[c] : largest[c];
  }
}

}  // namespace

template <>
const AssociateKernels CompiledFor<AssociateKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .above = above,
    .dot = dot,
    .scaled = scaled,
    .raise = raise,
};

}  // namespace manymatch

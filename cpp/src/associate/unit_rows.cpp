#include "manymatch/associate/unit_rows.h"

#include <algorithm>
#include <cmath>

#include "manymatch/associate/kernels.h"
#include "manymatch/dispatch.h"

namespace manymatch {

namespace {

// Sum of squares with a fixed order of additions; `scale` is a power of two.
double sum_of_squares(const double* x, std::size_t n, double scale) {
  constexpr std::size_t kLanes = 8;
  double sum[kLanes] = {};
  std::size_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const double v = x[c + l] * scale;
      sum[l] += v * v;
    }
  }
  for (std::size_t l = 0; c < n; ++c, ++l) {
    const double v = x[c] * scale;
    sum[l] += v * v;
  }
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

// Largest absolute value; NaN or infinity if there is one.
double largest_entry(const double* x, std::size_t n) {
  double largest = 0.0;
  for (std::size_t c = 0; c < n; ++c) {
    const double size = std::abs(x[c]);
    if (!(size <= largest)) largest = size;
    if (!std::isfinite(size)) return size;
  }
  return largest;
}

bool zero_row(float* out, std::size_t n) {
  std::fill_n(out, n, 0.0F);
  return false;
}

// A row of unit length has an entry of at least 1 / sqrt(n); a shorter one may have vanished.
bool any_left(double norm, double floor, const float* out, std::size_t n) {
  return norm >= floor || std::any_of(out, out + n, [](float v) { return v != 0.0F; });
}

}  // namespace

bool unit_row(const float* x, std::size_t n, float* out) {
  // Squares of float32 numbers neither overflow nor vanish in float64.
  const double squares = kernels<AssociateKernels>().dot(x, x, n);
  if (!(squares > 0.0 && std::isfinite(squares))) return zero_row(out, n);
  const double norm = std::sqrt(squares);
  kernels<AssociateKernels>().scaled(x, n, 1.0 / std::max(norm, kNormFloor), out);
  return any_left(norm, kNormFloor, out, n);
}

bool unit_row(const double* x, std::size_t n, float* out) {
  double scale = 1.0;
  double squares = sum_of_squares(x, n, scale);
  // Outside this range squares may have left float64: scale the largest entry to about one.
  if (!(squares > 1e-280 && squares < 1e280)) {
    const double largest = largest_entry(x, n);
    if (!std::isfinite(largest) || largest == 0.0) return zero_row(out, n);
    // Not below 2^-1000, so that the scale itself stays finite.
    scale = std::ldexp(1.0, -std::max(std::ilogb(largest), -1000));
    squares = sum_of_squares(x, n, scale);
  }
  const double norm = std::sqrt(squares), floor = kNormFloor * scale;
  const double factor = 1.0 / std::max(norm, floor);
  for (std::size_t c = 0; c < n; ++c) out[c] = static_cast<float>(x[c] * scale * factor);
  return any_left(norm, floor, out, n);
}

}  // namespace manymatch

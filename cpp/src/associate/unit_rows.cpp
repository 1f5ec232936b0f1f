#include "manymatch/associate/unit_rows.h"

#include <algorithm>
#include <cmath>

#include "manymatch/associate/kernels.h"
#include "manymatch/dispatch.h"

namespace manymatch {

namespace {

// Sum of squares with a fixed order of additions; `scale` is a power of two.
double sum_of_squares(std::span<const double> x, double scale) {
  constexpr std::size_t kLanes = 8;
  double sum[kLanes] = {};
  std::size_t c = 0;
  for (; c + kLanes <= x.size(); c += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const double v = x[c + l] * scale;
      sum[l] += v * v;
    }
  }
  for (std::size_t l = 0; c < x.size(); ++c, ++l) {
    const double v = x[c] * scale;
    sum[l] += v * v;
  }
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

// Largest absolute value; NaN or infinity if there is one.
double largest_entry(std::span<const double> x) {
  double largest = 0.0;
  for (double entry : x) {
    const double size = std::abs(entry);
    if (!(size <= largest)) largest = size;
    if (!std::isfinite(size)) return size;
  }
  return largest;
}

bool zero_row(std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  return false;
}

// A row of unit length has an entry of at least 1 / sqrt(n); otherwise it has underflowed.
bool any_left(double norm, double floor, std::span<const float> out) {
  return norm >= floor || std::any_of(out.begin(), out.end(), [](float v) { return v != 0.0F; });
}

}  // namespace

bool unit_row(std::span<const float> x, std::span<float> out) {
  // Squares of float32 numbers neither overflow nor underflow in float64.
  const double squares = kernels<AssociateKernels>().dot(x.data(), x.data(), x.size());
  if (!(squares > 0.0 && std::isfinite(squares))) return zero_row(out);
  const double norm = std::sqrt(squares);
  kernels<AssociateKernels>().scaled(x.data(), x.size(), 1.0 / std::max(norm, kNormFloor),
                                     out.data());
  return any_left(norm, kNormFloor, out);
}

bool unit_row(std::span<const double> x, std::span<float> out) {
  double scale = 1.0;
  double squares = sum_of_squares(x, scale);
  // Outside this range squares may overflow or underflow: scale the largest entry to about one.
  if (!(squares > 1e-280 && squares < 1e280)) {
    const double largest = largest_entry(x);
    if (!std::isfinite(largest) || largest == 0.0) return zero_row(out);
    // Not below 2^-1000, so that the scale itself stays finite.
    scale = std::ldexp(1.0, -std::max(std::ilogb(largest), -1000));
    squares = sum_of_squares(x, scale);
  }
  const double norm = std::sqrt(squares), floor = kNormFloor * scale;
  const double factor = 1.0 / std::max(norm, floor);
  for (std::size_t c = 0; c < x.size(); ++c) out[c] = static_cast<float>(x[c] * scale * factor);
  return any_left(norm, floor, out);
}

}  // namespace manymatch

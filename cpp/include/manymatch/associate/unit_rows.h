// Descriptors scaled to unit length.
#pragma once

#include <cstddef>

namespace manymatch {

constexpr double kNormFloor = 1e-12;

// Writes x / max(|x|, 1e-12) in float32. False if an entry is not finite (the row is then zero) or
// if nothing but zeros is left.
bool unit_row(const float* x, std::size_t n, float* out);
bool unit_row(const double* x, std::size_t n, float* out);

}  // namespace manymatch

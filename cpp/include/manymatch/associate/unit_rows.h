// Descriptors scaled to unit length.
#pragma once

#include <span>

namespace manymatch {

constexpr double kNormFloor = 1e-12;

// Writes x / max(|x|, 1e-12) in float32. False if an entry is not finite (the result is then zero)
// or if all entries of the result are zero.
bool unit_row(std::span<const float> x, std::span<float> out);
bool unit_row(std::span<const double> x, std::span<float> out);

}  // namespace manymatch

// Depths of one vector of correspondences.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

// Depths must exceed this share of the baseline.
constexpr double kMinDepth = 0.01;

// With unit rays b0, b1 and u = R b0: a = -u.b1, p = -u.t, s = b1.t. The depths are
// (p - a s) / (1 - a^2) in camera 0 and (s - a p) / (1 - a^2) in camera 1. `n` is 1 / |(x, y, 1)|.
template <class V>
struct Depths {
  V a, p, s;

  Depths(const V* R, const V* t, V x0, V y0, V n0, V x1, V y1, V n1) {
    const V u0 = fma(R[0], x0, fma(R[1], y0, R[2])) * n0;
    const V u1 = fma(R[3], x0, fma(R[4], y0, R[5])) * n0;
    const V u2 = fma(R[6], x0, fma(R[7], y0, R[8])) * n0;
    a = -(fma(u0, x1, fma(u1, y1, u2)) * n1);
    p = -fma(u0, t[0], fma(u1, t[1], u2 * t[2]));
    s = fma(x1, t[0], fma(y1, t[1], t[2])) * n1;
  }
};

}  // namespace
}  // namespace manymatch

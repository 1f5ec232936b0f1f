// Sampson distance of one vector of correspondences, for doubles and floats alike.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

// At or below this the Sampson distance is undefined (both points at their epipoles).
constexpr double kMinDenominator = 2.2e-16;

// E = [t]x R, row-major.
inline void essential_matrix(const double* R, const double* t, double* E) {
  for (int c = 0; c < 3; ++c) {
    E[c] = t[1] * R[6 + c] - t[2] * R[3 + c];
    E[3 + c] = t[2] * R[c] - t[0] * R[6 + c];
    E[6 + c] = t[0] * R[3 + c] - t[1] * R[c];
  }
}

// Epipolar lines e = E x0, g = E' x1 (the first two components matter here), and the distance
// r^2 = num^2 / den with num = x1' E x0 and den = e0^2 + e1^2 + g0^2 + g1^2.
template <class V>
struct Sampson {
  V e0, e1, g0, g1, num, den;

  Sampson(const V* E, V x0, V y0, V x1, V y1)
      : e0(fma(E[0], x0, fma(E[1], y0, E[2]))),
        e1(fma(E[3], x0, fma(E[4], y0, E[5]))),
        g0(fma(E[0], x1, fma(E[3], y1, E[6]))),
        g1(fma(E[1], x1, fma(E[4], y1, E[7]))),
        num(fma(x1, e0, fma(y1, e1, fma(E[6], x0, fma(E[7], y0, E[8]))))),
        den(fma(e0, e0, fma(e1, e1, fma(g0, g0, g1 * g1)))) {}
};

// Lanes with a finite distance.
inline md is_defined(vd r2, vd den) {
  return both(less(splat(kMinDenominator), den), less(r2, splat(__builtin_inf())));
}

}  // namespace
}  // namespace manymatch

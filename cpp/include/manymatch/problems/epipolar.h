// What problems with an epipolar constraint x1' E x0 = 0 share: the Sampson distance, for doubles
// and floats alike, and the matrices that satisfy the constraint at a few correspondences.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

// At or below this the Sampson distance is undefined (both points at their epipoles).
constexpr double kMinDenominator = 2.2e-16;

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

// Orthonormal basis of the null space of the Rows x 9 epipolar system, from the QR of its
// transpose, whose columns are given and overwritten.
template <int Rows>
inline void null_space(vd (*columns)[9], vd (*basis)[9]) {
  vd beta[Rows];
  const vd zero = vd{}, two = splat(2.0);
  for (int k = 0; k < Rows; ++k) {
    vd* v = columns[k];  // the reflector replaces the column
    vd norm2 = vd{};
    for (int i = k; i < 9; ++i) norm2 = fma(v[i], v[i], norm2);
    const vd norm = sqrt(norm2);
    const vd head = v[k];
    v[k] = head + select(less(head, zero), -norm, norm);
    beta[k] = two / (norm2 - head * head + v[k] * v[k]);
    for (int c = k + 1; c < Rows; ++c) {
      vd dot = vd{};
      for (int i = k; i < 9; ++i) dot = fma(v[i], columns[c][i], dot);
      dot = dot * beta[k];
      for (int i = k; i < 9; ++i) columns[c][i] = fnma(dot, v[i], columns[c][i]);
    }
  }
  for (int n = 0; n < 9 - Rows; ++n) {
    vd* x = basis[n];
    for (int i = 0; i < 9; ++i) x[i] = splat(i == Rows + n ? 1.0 : 0.0);
    for (int k = Rows - 1; k >= 0; --k) {
      const vd* v = columns[k];
      vd dot = vd{};
      for (int i = k; i < 9; ++i) dot = fma(v[i], x[i], dot);
      dot = dot * beta[k];
      for (int i = k; i < 9; ++i) x[i] = fnma(dot, v[i], x[i]);
    }
  }
}

}  // namespace
}  // namespace manymatch

// Shared by the problems with an epipolar constraint x1' E x0 = 0: the Sampson distance, for
// doubles and floats alike, and the matrices that satisfy the constraint at a few correspondences.
#pragma once

#include "manymatch/problems/edge_loops.h"

namespace manymatch {
namespace {

// If the denominator is not above this, the Sampson distance is undefined (both points are at their
// epipoles).
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

// The residual of one vector of edges, and their points.
struct SampsonResidual : Sampson<vd> {
  vd x0, y0, x1, y1, r2;
  md defined;

  template <class Edges>
  SampsonResidual(const vd* E, const Edges& edges, std::size_t i)
      : SampsonResidual(E, load(edges.x0 + i), load(edges.y0 + i), load(edges.x1 + i),
                        load(edges.y1 + i)) {}

 private:
  SampsonResidual(const vd* E, vd a0, vd b0, vd a1, vd b1)
      : Sampson<vd>(E, a0, b0, a1, b1),
        x0(a0),
        y0(b0),
        x1(a1),
        y1(b1),
        r2(num * num / den),
        defined(is_defined(r2, den)) {}
};

// Squared distances, infinity if undefined.
inline void sampson_residuals(const RefineArrays& a, const vd* E, double* r2_out) {
  store_residuals(a.padded, r2_out, [=](std::size_t i) { return SampsonResidual(E, a, i); });
}

// Edges closer than eps to their epipolar lines, in float32 and loosened so that none is missed:
// |num| is off by at most `slack`, and the factor on eps covers the relative error of sqrt(den).
template <class Edges>
inline int screen_sampson(const Edges& edges, const vf* E, double eps, double slack,
                          uint64_t* mask) {
  const vf limit = splat(static_cast<float>(eps * eps * (1.0 + 1e-5)));
  const vf tau = splat(static_cast<float>(slack)), zero = splat(0.0F);
  return mask_edges<kFloats>(edges.words, mask, [=](std::size_t i) {
    const Sampson<vf> sampson(E, load(edges.x0f + i), load(edges.y0f + i), load(edges.x1f + i),
                              load(edges.y1f + i));
    const vf num = max(abs(sampson.num) - tau, zero);
    // Padding is NaN, so its den is NaN and the comparison fails.
    return bits(less_equal(num * num, limit * sampson.den));
  });
}

// Orthonormal basis of the null space of the Rows x 9 epipolar system, by a QR decomposition of its
// transpose. The columns of the transpose are given, and overwritten.
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

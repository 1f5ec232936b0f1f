// Sampson distance and cheirality over all edges of a graph (ALGORITHM: Sampson, Cheirality).
#pragma once

#include "manymatch/kernels.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// E = [t]x R, row-major.
inline void essential_matrix(const double* R, const double* t, double* E) {
  for (int c = 0; c < 3; ++c) {
    E[c] = t[1] * R[6 + c] - t[2] * R[3 + c];
    E[3 + c] = t[2] * R[c] - t[0] * R[6 + c];
    E[6 + c] = t[0] * R[3 + c] - t[1] * R[c];
  }
}

// Depths must exceed this share of the baseline.
constexpr double kMinDepth = 0.01;
// At or below this the Sampson distance is undefined (both points at their epipoles).
constexpr double kMinDenominator = 2.2e-16;

int inliers(const EdgeArrays& edges, const double* R, const double* t, double eps2, uint64_t* mask,
            double* r2_out) {
  double E[9];
  essential_matrix(R, t, E);
  vd e[9], r[9], tt[3];
  for (int k = 0; k < 9; ++k) e[k] = splat(E[k]);
  for (int k = 0; k < 9; ++k) r[k] = splat(R[k]);
  for (int k = 0; k < 3; ++k) tt[k] = splat(t[k]);
  const vd limit = splat(eps2), tiny = splat(kMinDenominator), depth = splat(kMinDepth);
  const vd one = splat(1.0), infinity = splat(__builtin_inf());
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kDoubles) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vd x0 = load(edges.x0 + i), y0 = load(edges.y0 + i);
      const vd x1 = load(edges.x1 + i), y1 = load(edges.y1 + i);
      const vd e0 = fma(e[0], x0, fma(e[1], y0, e[2]));
      const vd e1 = fma(e[3], x0, fma(e[4], y0, e[5]));
      const vd e2 = fma(e[6], x0, fma(e[7], y0, e[8]));
      const vd g0 = fma(e[0], x1, fma(e[3], y1, e[6]));
      const vd g1 = fma(e[1], x1, fma(e[4], y1, e[7]));
      const vd num = fma(x1, e0, fma(y1, e1, e2));
      const vd den = fma(e0, e0, fma(e1, e1, fma(g0, g0, g1 * g1)));
      const vd r2 = num * num / den;
      const md defined = both(less(tiny, den), less(r2, infinity));
      if (r2_out) store(r2_out + i, select(defined, r2, splat(__builtin_nan(""))));
      const md close = both(defined, less(r2, limit));
      unsigned hits = bits(close);
      if (hits) {
        const vd n0 = load(edges.n0 + i), n1 = load(edges.n1 + i);
        const vd u0 = fma(r[0], x0, fma(r[1], y0, r[2])) * n0;
        const vd u1 = fma(r[3], x0, fma(r[4], y0, r[5])) * n0;
        const vd u2 = fma(r[6], x0, fma(r[7], y0, r[8])) * n0;
        const vd a = -(fma(u0, x1, fma(u1, y1, u2)) * n1);
        const vd p = -fma(u0, tt[0], fma(u1, tt[1], u2 * tt[2]));
        const vd s = fma(x1, tt[0], fma(y1, tt[1], tt[2])) * n1;
        const vd bound = depth * fnma(a, a, one);
        hits &= bits(both(less(bound, fnma(a, s, p)), less(bound, fnma(a, p, s))));
      }
      word |= static_cast<uint64_t>(hits) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// The same test in float32, loosened by what rounding can do, so that it never misses an inlier.
// |num| is off by at most `slack` (the caller derives it from the largest points of the graph),
// sqrt(den) by a relative part that the factor on eps covers, the two depth tests (on unit rays,
// so of size one) by a few units in the last place. Depths are looked at only if at least `enough`
// edges are close to their epipolar lines: most hypotheses end before.
int screen(const EdgeArrays& edges, const double* R, const double* t, double eps, double slack,
           int enough, uint64_t* mask) {
  double E[9];
  essential_matrix(R, t, E);
  vf e[9];
  for (int k = 0; k < 9; ++k) e[k] = splat(static_cast<float>(E[k]));
  const vf limit = splat(static_cast<float>(eps * eps * (1.0 + 1e-5)));
  const vf tau = splat(static_cast<float>(slack)), zero = splat(0.0F);
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kFloats) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vf x0 = load(edges.x0f + i), y0 = load(edges.y0f + i);
      const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i);
      const vf e0 = fma(e[0], x0, fma(e[1], y0, e[2]));
      const vf e1 = fma(e[3], x0, fma(e[4], y0, e[5]));
      const vf e2 = fma(e[6], x0, fma(e[7], y0, e[8]));
      const vf g0 = fma(e[0], x1, fma(e[3], y1, e[6]));
      const vf g1 = fma(e[1], x1, fma(e[4], y1, e[7]));
      const vf num = max(abs(fma(x1, e0, fma(y1, e1, e2))) - tau, zero);
      const vf den = fma(e0, e0, fma(e1, e1, fma(g0, g0, g1 * g1)));
      // Padding is NaN: den is, so the comparison fails.
      word |= static_cast<uint64_t>(bits(less_equal(num * num, limit * den))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  if (total < enough) return total;

  vf r[9], tt[3];
  for (int k = 0; k < 9; ++k) r[k] = splat(static_cast<float>(R[k]));
  for (int k = 0; k < 3; ++k) tt[k] = splat(static_cast<float>(t[k]));
  const vf one = splat(1.0F), depth = splat(static_cast<float>(kMinDepth));
  const vf depth_slack = splat(4e-6F);
  constexpr uint64_t kGroup = (uint64_t{1} << kFloats) - 1;
  total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = mask[w];
    for (int b = 0; b < 64; b += kFloats) {
      if (!(word >> b & kGroup)) continue;
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vf x0 = load(edges.x0f + i), y0 = load(edges.y0f + i), n0 = load(edges.n0f + i);
      const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i), n1 = load(edges.n1f + i);
      const vf u0 = fma(r[0], x0, fma(r[1], y0, r[2])) * n0;
      const vf u1 = fma(r[3], x0, fma(r[4], y0, r[5])) * n0;
      const vf u2 = fma(r[6], x0, fma(r[7], y0, r[8])) * n0;
      const vf a = -(fma(u0, x1, fma(u1, y1, u2)) * n1);
      const vf p = -fma(u0, tt[0], fma(u1, tt[1], u2 * tt[2]));
      const vf s = fma(x1, tt[0], fma(y1, tt[1], tt[2])) * n1;
      const vf bound = depth * (one - a * a) - depth_slack;
      const uint64_t front = bits(less(bound, p - a * s)) & bits(less(bound, s - a * p));
      word &= ~(kGroup << b) | front << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

}  // namespace
}  // namespace manymatch

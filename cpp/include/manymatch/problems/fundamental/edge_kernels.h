// Sampson distance and side of all edges under a fundamental matrix, and the sums of a refinement.
#pragma once

#include "manymatch/problems/epipolar.h"
#include "manymatch/problems/fundamental/kernels.h"

namespace manymatch {
namespace {

// Positive where e x x1 and F x0 have the same direction. Both are lines through x1, or nearly so,
// so that the first two components tell.
template <class V>
inline V side_of(const Sampson<V>& sampson, const V* e, V x1, V y1) {
  const V line0 = fma(-e[2], y1, e[1]), line1 = fma(e[2], x1, -e[0]);
  return fma(line0, sampson.e0, line1 * sampson.e1);
}

int inliers(const FundamentalEdges& edges, const double* F, const double* epipole, double eps2,
            uint64_t* mask, double* r2_out) {
  vd f[9], e[3];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  for (int k = 0; k < 3; ++k) e[k] = splat(epipole[k]);
  const vd limit = splat(eps2), zero = vd{};
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kDoubles) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vd x1 = load(edges.x1 + i), y1 = load(edges.y1 + i);
      const Sampson<vd> sampson(f, load(edges.x0 + i), load(edges.y0 + i), x1, y1);
      const vd r2 = sampson.num * sampson.num / sampson.den;
      const md defined = is_defined(r2, sampson.den);
      if (r2_out) store(r2_out + i, select(defined, r2, splat(__builtin_nan(""))));
      const md hit = both(both(defined, less(r2, limit)), less(zero, side_of(sampson, e, x1, y1)));
      word |= static_cast<uint64_t>(bits(hit)) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// The same test in float32, loosened by what rounding can do, so that it never misses an inlier.
// Sides are looked at only if at least `enough` edges are close to their epipolar lines.
int screen(const FundamentalEdges& edges, const double* F, const double* epipole, double eps,
           double slack, double side_slack, int enough, uint64_t* mask) {
  vf f[9], e[3];
  for (int k = 0; k < 9; ++k) f[k] = splat(static_cast<float>(F[k]));
  for (int k = 0; k < 3; ++k) e[k] = splat(static_cast<float>(epipole[k]));
  const vf limit = splat(static_cast<float>(eps * eps * (1.0 + 1e-5)));
  const vf tau = splat(static_cast<float>(slack)), zero = splat(0.0F);
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kFloats) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const Sampson<vf> sampson(f, load(edges.x0f + i), load(edges.y0f + i), load(edges.x1f + i),
                                load(edges.y1f + i));
      const vf num = max(abs(sampson.num) - tau, zero);
      // Padding is NaN: den is, so the comparison fails.
      word |= static_cast<uint64_t>(bits(less_equal(num * num, limit * sampson.den))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  if (total < enough) return total;

  const vf lowest = splat(static_cast<float>(-side_slack));
  constexpr uint64_t kGroup = (uint64_t{1} << kFloats) - 1;
  total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = mask[w];
    for (int b = 0; b < 64; b += kFloats) {
      if (!(word >> b & kGroup)) continue;
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i);
      const Sampson<vf> sampson(f, load(edges.x0f + i), load(edges.y0f + i), x1, y1);
      const uint64_t right = bits(less(lowest, side_of(sampson, e, x1, y1)));
      word &= ~(kGroup << b) | right << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

struct LinearisedSampson {
  vd r, J[9];
  md defined;
};

// r = C / s with C = x1' F x0 and s^2 = den. Of an entry F_ij, C has the derivative x1_i x0_j, and
// half of den has e_i x0_j (for i < 2) plus g_j x1_i (for j < 2).
inline LinearisedSampson linearise(const RefineArrays& a, std::size_t i, const vd* F) {
  const vd one = splat(1.0);
  const vd p[3] = {load(a.x0 + i), load(a.y0 + i), one};
  const vd q[3] = {load(a.x1 + i), load(a.y1 + i), one};
  const Sampson<vd> sampson(F, p[0], p[1], q[0], q[1]);
  const vd inverse = one / sqrt(sampson.den), c = sampson.num / sampson.den;
  const vd line1[2] = {c * sampson.e0, c * sampson.e1}, line0[2] = {c * sampson.g0, c * sampson.g1};
  LinearisedSampson out;
  out.r = sampson.num * inverse;
  for (int row = 0; row < 3; ++row) {
    for (int col = 0; col < 3; ++col) {
      vd d = row < 2 ? (q[row] - line1[row]) * p[col] : p[col];
      if (col < 2) d = fnma(line0[col], q[row], d);
      out.J[3 * row + col] = d * inverse;
    }
  }
  out.defined = is_defined(out.r * out.r, sampson.den);
  return out;
}

void normal_equations(const RefineArrays& a, const double* F, Loss loss, double eps2, double* out) {
  constexpr int kPieces = kRefineLanes / kDoubles;
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  const vd limit = splat(eps2), inverse_limit = splat(1.0 / eps2), zero = vd{}, one = splat(1.0);
  vd sum[kMatrixSums][kPieces] = {};
  for (std::size_t i = 0; i < a.padded; i += kRefineLanes) {
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::size_t at = i + static_cast<std::size_t>(piece * kDoubles);
      const LinearisedSampson l = linearise(a, at, f);
      const vd weight = load(a.weight + at), r2 = l.r * l.r;
      vd robust = one, cost = r2;
      if (loss == Loss::kTruncated) {
        const md inside = less(r2, limit);
        robust = select(inside, one, zero);
        cost = select(inside, r2, limit);
      } else if (loss == Loss::kCauchy) {
        robust = one / fma(r2, inverse_limit, one);
        cost = zero;
      }
      const md used = both(l.defined, less(zero, weight));
      const vd w = select(used, weight * robust, zero), r = select(used, l.r, zero);
      vd J[9];
      for (int k = 0; k < 9; ++k) J[k] = select(used, l.J[k], zero);
      int slot = 0;
#pragma GCC unroll 9
      for (int row = 0; row < 9; ++row) {
        const vd wJ = w * J[row];
#pragma GCC unroll 9
        for (int col = row; col < 9; ++col, ++slot) {
          sum[slot][piece] = fma(wJ, J[col], sum[slot][piece]);
        }
        sum[kMatrixTriangle + row][piece] = fma(wJ, r, sum[kMatrixTriangle + row][piece]);
      }
      // An undefined residual costs what an outlier costs.
      const vd lost = loss == Loss::kTruncated ? limit : zero;
      sum[kMatrixSums - 1][piece] = fma(select(less(zero, weight), weight, zero),
                                        select(l.defined, cost, lost), sum[kMatrixSums - 1][piece]);
    }
  }
  for (int slot = 0; slot < kMatrixSums; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kPieces; ++piece) store(lanes + piece * kDoubles, sum[slot][piece]);
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

void residuals(const RefineArrays& a, const double* F, double* r2_out) {
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const Sampson<vd> sampson(f, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i));
    const vd r2 = sampson.num * sampson.num / sampson.den;
    store(r2_out + i, select(is_defined(r2, sampson.den), r2, splat(__builtin_inf())));
  }
}

void jacobian(const RefineArrays& a, const double* F, double* r_out, double* J_out) {
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const LinearisedSampson l = linearise(a, i, f);
    store(r_out + i, l.r);
    for (int k = 0; k < 9; ++k) {
      double lanes[kDoubles];
      store(lanes, l.J[k]);
      for (int lane = 0; lane < kDoubles; ++lane) {
        J_out[(i + static_cast<std::size_t>(lane)) * 9 + static_cast<std::size_t>(k)] = lanes[lane];
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

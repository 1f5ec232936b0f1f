// Distances of mapped points: inliers among all edges, and the sums of a refinement.
#pragma once

#include "manymatch/problems/rigid/kernels.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// d = A x0 + t - x1 of one vector of edges.
template <class V, class Scalar>
struct Mapped {
  V A[9], t[3];

  explicit Mapped(const TransformNumbers& transform) {
    for (int c = 0; c < 9; ++c) A[c] = splat(static_cast<Scalar>(transform.A[c]));
    for (int c = 0; c < 3; ++c) t[c] = splat(static_cast<Scalar>(transform.t[c]));
  }

  V difference(int row, V x0, V y0, V z0, V target) const {
    const V* a = A + 3 * row;
    return fma(a[0], x0, fma(a[1], y0, fma(a[2], z0, t[row] - target)));
  }
  V distance2(const V* x0, const V* x1) const {
    V d[3];
    for (int row = 0; row < 3; ++row) d[row] = difference(row, x0[0], x0[1], x0[2], x1[row]);
    return fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
  }
};

int inliers(const SpaceEdges& edges, const TransformNumbers& transform, double eps2, uint64_t* mask,
            double* r2_out) {
  const Mapped<vd, double> mapped(transform);
  const vd weight = splat(1.0 / transform.scale), limit = splat(eps2);
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kDoubles) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vd x0[3] = {load(edges.x0 + i), load(edges.y0 + i), load(edges.z0 + i)};
      const vd x1[3] = {load(edges.x1 + i), load(edges.y1 + i), load(edges.z1 + i)};
      const vd r2 = weight * mapped.distance2(x0, x1);
      if (r2_out)
        store(r2_out + i, select(less(r2, splat(__builtin_inf())), r2, splat(__builtin_nan(""))));
      word |= static_cast<uint64_t>(bits(less(r2, limit))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// What rounding to float32 does: every term of a component of d passes at most seven roundings of
// 2^-24 (its factors, their product where fma is two instructions, and four sums), so its error is
// at most 10 2^-24 times the sum of the absolute values of the terms.
int screen(const SpaceEdges& edges, const TransformNumbers& transform, double eps, uint64_t* mask) {
  constexpr double kUnit = 10.0 / (1 << 24);
  constexpr double kMargin = 1.0 + 1e-5;  // for the roundings after the components are known
  double error2 = 0.0;
  for (int row = 0; row < 3; ++row) {
    double terms = __builtin_fabs(transform.t[row]) + edges.largest1;
    for (int c = 0; c < 3; ++c) {
      terms += __builtin_fabs(transform.A[3 * row + c]) * edges.largest0;
    }
    error2 += kUnit * terms * (kUnit * terms);
  }
  const double reach = (eps * __builtin_sqrt(transform.scale) + __builtin_sqrt(error2)) * kMargin;
  const Mapped<vf, float> mapped(transform);
  const vf limit = splat(static_cast<float>(reach * reach * kMargin));
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kFloats) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const vf x0[3] = {load(edges.x0f + i), load(edges.y0f + i), load(edges.z0f + i)};
      const vf x1[3] = {load(edges.x1f + i), load(edges.y1f + i), load(edges.z1f + i)};
      word |= static_cast<uint64_t>(bits(less_equal(mapped.distance2(x0, x1), limit))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

constexpr int kSpacePieces = kRefineLanes / kDoubles;

void sums(const RefineArrays& a, const TransformNumbers& transform, Loss loss, double eps2,
          double* out) {
  const Mapped<vd, double> mapped(transform);
  const vd scale_weight = splat(1.0 / transform.scale);
  const vd limit = splat(eps2), inverse_limit = splat(1.0 / eps2);
  const vd zero = vd{}, one = splat(1.0);
  vd sum[kSpaceSums][kSpacePieces] = {};
  for (std::size_t i = 0; i < a.padded; i += kRefineLanes) {
    for (int piece = 0; piece < kSpacePieces; ++piece) {
      const std::size_t at = i + static_cast<std::size_t>(piece * kDoubles);
      const vd x0[3] = {load(a.x0 + at), load(a.y0 + at), load(a.z0 + at)};
      const vd x1[3] = {load(a.x1 + at), load(a.y1 + at), load(a.z1 + at)};
      vd p[3], d[3];
      for (int row = 0; row < 3; ++row) {
        const vd* A = mapped.A + 3 * row;
        p[row] = fma(A[0], x0[0], fma(A[1], x0[1], A[2] * x0[2]));
        d[row] = p[row] + (mapped.t[row] - x1[row]);
      }
      const vd dd = fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
      const vd r2 = scale_weight * dd, weight = load(a.weight + at);
      vd robust = one, cost = r2;
      if (loss == Loss::kTruncated) {
        const md inside = less(r2, limit);
        robust = select(inside, one, zero);
        cost = select(inside, r2, limit);
      } else if (loss == Loss::kCauchy) {
        robust = one / fma(r2, inverse_limit, one);
        cost = zero;
      }
      const md used = less(zero, weight);
      const vd w = select(used, weight * robust, zero);
      const auto add = [&](int slot, vd x) { sum[slot][piece] = fma(w, x, sum[slot][piece]); };
      sum[kSumW][piece] = sum[kSumW][piece] + w;
      int slot = kSumPP;
      for (int row = 0; row < 3; ++row) {
        add(kSumP + row, p[row]);
        add(kSumD + row, d[row]);
        for (int col = row; col < 3; ++col) add(slot++, p[row] * p[col]);
        const int j = (row + 1) % 3, k = (row + 2) % 3;
        add(kSumPxD + row, fnma(p[k], d[j], p[j] * d[k]));
      }
      add(kSumPD, fma(p[0], d[0], fma(p[1], d[1], p[2] * d[2])));
      add(kSumDD, dd);
      sum[kSumCost][piece] = fma(select(used, weight, zero), cost, sum[kSumCost][piece]);
    }
  }
  for (int slot = 0; slot < kSpaceSums; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kSpacePieces; ++piece) {
      store(lanes + piece * kDoubles, sum[slot][piece]);
    }
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

void residuals(const RefineArrays& a, const TransformNumbers& transform, double* r2_out) {
  const Mapped<vd, double> mapped(transform);
  const vd weight = splat(1.0 / transform.scale);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const vd x0[3] = {load(a.x0 + i), load(a.y0 + i), load(a.z0 + i)};
    const vd x1[3] = {load(a.x1 + i), load(a.y1 + i), load(a.z1 + i)};
    store(r2_out + i, weight * mapped.distance2(x0, x1));
  }
}

}  // namespace
}  // namespace manymatch

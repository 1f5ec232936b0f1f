// The loops over edges that the kernels of all problems share. Each takes functions that work on
// one vector of edges; lambdas that capture by value are faster. Like simd.h, this header is only
// for files that are compiled once per instruction set.
#pragma once

#include "manymatch/refine/refine_arrays.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// The residual of one vector of edges, and the lanes in which it is defined.
struct Residual {
  vd r2;
  md defined;
};

// The residuals r of one vector of edges, R for each, and their derivatives J; r2 is the sum of the
// squares. `kFinite`: derivatives are finite even if the residual is undefined.
template <int R, int N, bool kFinite = false>
struct Linearised {
  static constexpr int kRows = R, kColumns = N;
  static constexpr bool kAlwaysFinite = kFinite;
  vd r[R], J[R][N], r2;
  md defined;
};

// Fills a mask of edges: test(i) returns one bit for each of the `width` edges from i on. Returns
// the number of bits set.
template <int width, class Test>
inline int mask_edges(std::size_t words, uint64_t* mask, Test test) {
  int total = 0;
  for (std::size_t w = 0; w < words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += width) {
      word |= static_cast<uint64_t>(test(w * 64 + static_cast<std::size_t>(b))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// Tests the edges of a mask again and clears the bits of those that fail; vectors without a bit are
// skipped. Returns the number of bits left.
template <class Test>
inline int narrow_mask(std::size_t words, uint64_t* mask, Test test) {
  constexpr uint64_t kGroup = (uint64_t{1} << kFloats) - 1;
  int total = 0;
  for (std::size_t w = 0; w < words; ++w) {
    uint64_t word = mask[w];
    for (int b = 0; b < 64; b += kFloats) {
      if (!(word >> b & kGroup)) continue;
      const uint64_t passed = test(w * 64 + static_cast<std::size_t>(b));
      word &= ~(kGroup << b) | passed << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// The edges with defined residuals below a limit that satisfy another condition. measure(i) returns
// r2 and defined; also(i, measured, near) returns the bits of the lanes in `near` that satisfy it.
// Writes all residuals, NaN if undefined, unless r2_out is null.
template <class Measure, class Also>
inline int find_inliers(std::size_t words, double limit2, uint64_t* mask, double* r2_out,
                        Measure measure, Also also) {
  const vd limit = splat(limit2), nan = splat(__builtin_nan(""));
  return mask_edges<kDoubles>(words, mask, [&](std::size_t i) {
    const auto measured = measure(i);
    if (r2_out) store(r2_out + i, select(measured.defined, measured.r2, nan));
    return also(i, measured, both(measured.defined, less(measured.r2, limit)));
  });
}
template <class Measure>
inline int find_inliers(std::size_t words, double limit2, uint64_t* mask, double* r2_out,
                        Measure measure) {
  return find_inliers(words, limit2, mask, r2_out, measure,
                      [](std::size_t, const auto&, md near) { return bits(near); });
}

// Writes squared residuals, infinity if undefined.
template <class Measure>
inline void store_residuals(std::size_t padded, double* r2_out, Measure measure) {
  for (std::size_t i = 0; i < padded; i += kDoubles) {
    const auto measured = measure(i);
    store(r2_out + i, select(measured.defined, measured.r2, splat(__builtin_inf())));
  }
}

// Sums over edges in kRefineLanes fixed lanes. add(i, sum) adds the terms of the vector of edges
// from i on; sum(slot) is the vector of a sum.
template <int kSums, class Add>
inline void sum_in_lanes(std::size_t padded, double* out, Add add) {
  constexpr int kPieces = kRefineLanes / kDoubles;
  static_assert(kRefineLanes % kDoubles == 0);
  vd sum[kSums][kPieces] = {};
  for (std::size_t i = 0; i < padded; i += kRefineLanes) {
    for (int piece = 0; piece < kPieces; ++piece) {
      add(i + static_cast<std::size_t>(piece * kDoubles),
          [&sum, piece](int slot) -> vd& { return sum[slot][piece]; });
    }
  }
  for (int slot = 0; slot < kSums; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kPieces; ++piece) store(lanes + piece * kDoubles, sum[slot][piece]);
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

// Weighted sums of a robust loss. linearise(i) returns r2, defined and what add(linearised, weight,
// used, sum) needs to add its terms, with the weight multiplied by the derivative of the loss. The
// last sum is the cost: 0 for Cauchy's loss, which the caller sums from the residuals.
template <int kSums, class Linearise, class Add>
inline void robust_sums(const RefineArrays& a, Loss loss, double eps2, double* out,
                        Linearise linearise, Add add) {
  const vd limit = splat(eps2), inverse_limit = splat(1.0 / eps2), zero = vd{}, one = splat(1.0);
  sum_in_lanes<kSums>(a.padded, out, [&](std::size_t i, auto sum) {
    const auto l = linearise(i);
    const vd weight = load(a.weight + i);
    vd robust = one, cost = l.r2;
    if (loss == Loss::kTruncated) {
      const md inside = less(l.r2, limit);
      robust = select(inside, one, zero);
      cost = select(inside, l.r2, limit);
    } else if (loss == Loss::kCauchy) {
      robust = one / fma(l.r2, inverse_limit, one);
      cost = zero;
    }
    const md positive = less(zero, weight), used = both(l.defined, positive);
    // An undefined residual costs as much as an outlier.
    const vd lost = loss == Loss::kTruncated ? limit : zero;
    vd& total = sum(kSums - 1);
    total = fma(select(positive, weight, zero), select(l.defined, cost, lost), total);
    add(l, select(used, weight * robust, zero), used, sum);
  });
}

// Normal equations of the first N parameters: the upper triangle of J'WJ by rows, J'Wr, the cost.
template <int N, class Linearise>
inline void sum_equations(const RefineArrays& a, Loss loss, double eps2, double* out,
                          Linearise linearise) {
  constexpr int kTriangle = N * (N + 1) / 2;
  robust_sums<kTriangle + N + 1>(
      a, loss, eps2, out, linearise, []<class L>(const L& l, vd w, md used, auto sum) {
        constexpr int R = L::kRows;
        const vd zero = vd{};
        vd J[R][N], wJ[R][N], r[R];
        for (int row = 0; row < R; ++row) {
          for (int p = 0; p < N; ++p) {
            J[row][p] = L::kAlwaysFinite ? l.J[row][p] : select(used, l.J[row][p], zero);
            wJ[row][p] = w * J[row][p];
          }
        }
        int slot = 0;
#pragma GCC unroll 9
        for (int p = 0; p < N; ++p) {
#pragma GCC unroll 9
          for (int q = p; q < N; ++q, ++slot) {
            vd& total = sum(slot);
            for (int row = R - 1; row >= 0; --row) total = fma(wJ[row][p], J[row][q], total);
          }
        }
        for (int row = 0; row < R; ++row) {
          r[row] = L::kAlwaysFinite ? l.r[row] : select(used, l.r[row], zero);
        }
#pragma GCC unroll 9
        for (int p = 0; p < N; ++p, ++slot) {
          vd& total = sum(slot);
          for (int row = R - 1; row >= 0; --row) total = fma(wJ[row][p], r[row], total);
        }
      });
}

// Writes residuals (padded, R) and derivatives (padded, R, N) by rows.
template <class Linearise>
inline void store_jacobian(std::size_t padded, double* r_out, double* J_out, Linearise linearise) {
  for (std::size_t i = 0; i < padded; i += kDoubles) {
    const auto l = linearise(i);
    constexpr std::size_t R = l.kRows, N = l.kColumns;
    double lanes[kDoubles];
    for (std::size_t row = 0; row < R; ++row) {
      store(lanes, l.r[row]);
      for (std::size_t lane = 0; lane < kDoubles; ++lane) r_out[(i + lane) * R + row] = lanes[lane];
      for (std::size_t p = 0; p < N; ++p) {
        store(lanes, l.J[row][p]);
        for (std::size_t lane = 0; lane < kDoubles; ++lane) {
          J_out[((i + lane) * R + row) * N + p] = lanes[lane];
        }
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

// Reprojection error of points of the world in one image: inliers among all edges, and the normal
// equations of a refinement.
#pragma once

#include "manymatch/problems/absolute_pose/kernels.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// (d0, d1) = w (projection - x) with w the depth.
template <class V>
struct Projection {
  V w, d0, d1;

  // Of the homogeneous point (X, Y, Z, W).
  Projection(const V* P, V x, V y, V X, V Y, V Z, V W)
      : Projection(P, x, y, X, Y, Z, P[3] * W, P[7] * W, P[11] * W) {}
  // Of the point (X, Y, Z).
  Projection(const V* P, V x, V y, V X, V Y, V Z)
      : Projection(P, x, y, X, Y, Z, P[3], P[7], P[11]) {}

 private:
  Projection(const V* P, V x, V y, V X, V Y, V Z, V t0, V t1, V t2)
      : w(fma(P[8], X, fma(P[9], Y, fma(P[10], Z, t2)))),
        d0(fma(-x, w, fma(P[0], X, fma(P[1], Y, fma(P[2], Z, t0))))),
        d1(fma(-y, w, fma(P[4], X, fma(P[5], Y, fma(P[6], Z, t1))))) {}
};

template <class V, class Scalar>
struct BroadcastPose {
  V P[12];

  explicit BroadcastPose(const double* from, double scale = 1.0) {
    for (int k = 0; k < 12; ++k) P[k] = splat(static_cast<Scalar>(scale * from[k]));
  }
};

// r^2 and where it is defined.
inline vd reprojection2(const vd* P, vd x, vd y, vd X, vd Y, vd Z, md* defined) {
  const Projection<vd> p(P, x, y, X, Y, Z);
  const vd r2 = fma(p.d0, p.d0, p.d1 * p.d1) / (p.w * p.w);
  *defined = both(less(vd{}, p.w), less(r2, splat(__builtin_inf())));
  return r2;
}

int inliers(const AbsolutePoseEdges& edges, const double* pose, double eps2, uint64_t* mask,
            double* r2_out) {
  const BroadcastPose<vd, double> v(pose);
  const vd limit = splat(eps2), nan = splat(__builtin_nan(""));
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kDoubles) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      md defined;
      const vd r2 = reprojection2(v.P, load(edges.x + i), load(edges.y + i), load(edges.X + i),
                                  load(edges.Y + i), load(edges.Z + i), &defined);
      if (r2_out) store(r2_out + i, select(defined, r2, nan));
      word |= static_cast<uint64_t>(bits(both(defined, less(r2, limit)))) << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// With coefficients of at most one and homogeneous points of at most one, every term of w and of d
// passes at most nine roundings of 2^-24 (coefficient, coordinates, products and sums; fewer where
// fma is one instruction). With rows that sum up to R in absolute value and image coordinates of at
// most T: |error of w| <= 12 2^-24 R2 and |error of d| <= 12 2^-24 (max(R0, R1) + T R2) for each
// component. An inlier has |d| < eps w, so that in float32 |d| < eps w + offset.
int screen(const AbsolutePoseEdges& edges, const double* pose, double eps, uint64_t* mask) {
  constexpr double kMargin = 1.0 + 1e-5;  // for the roundings after w and d are known
  constexpr double kUnit = 12.0 / (1 << 24);
  double largest = 0.0;
  for (int k = 0; k < 12; ++k) {
    if (__builtin_fabs(pose[k]) > largest) largest = __builtin_fabs(pose[k]);
  }
  const double scale = 1.0 / largest;
  double row[3];
  for (int i = 0; i < 3; ++i) {
    row[i] = 0.0;
    for (int j = 0; j < 4; ++j) row[i] += scale * __builtin_fabs(pose[4 * i + j]);
  }
  const double error_w = kUnit * row[2];
  const double error_d = kUnit * ((row[0] > row[1] ? row[0] : row[1]) + edges.largest * row[2]);
  const BroadcastPose<vf, float> v(pose, scale);
  const vf slope = splat(static_cast<float>(eps * kMargin));
  const vf offset =
      splat(static_cast<float>((1.4142135623730951 * error_d + eps * error_w) * kMargin));
  int total = 0;
  for (std::size_t w = 0; w < edges.words; ++w) {
    uint64_t word = 0;
    for (int b = 0; b < 64; b += kFloats) {
      const std::size_t i = w * 64 + static_cast<std::size_t>(b);
      const Projection<vf> p(v.P, load(edges.xf + i), load(edges.yf + i), load(edges.Xf + i),
                             load(edges.Yf + i), load(edges.Zf + i), load(edges.Wf + i));
      // Negative behind the camera; NaN for padding, so that the comparison fails.
      const vf limit = fma(p.w, slope, offset);
      word |=
          static_cast<uint64_t>(bits(less_equal(fma(p.d0, p.d0, p.d1 * p.d1), limit * abs(limit))))
          << b;
    }
    mask[w] = word;
    total += __builtin_popcountll(word);
  }
  return total;
}

// Depths at or below this are taken as not positive, and everything stays finite: an edge without a
// residual then takes no part by its weight of zero.
constexpr double kSmallestDepth = 1e-30;

// One vector of edges. The rotation turns the point in the frame of the camera, y -> y + w x y.
struct LinearisedProjection {
  vd r[2], J[2][kFocalParameters], r2;
  md defined;

  LinearisedProjection(const RefineArrays& a, std::size_t i, const vd* P, vd f, vd unit) {
    const vd zero = vd{}, one = splat(1.0);
    const vd X = load(a.x1 + i), Y = load(a.y1 + i), Z = load(a.z1 + i);
    const vd w = fma(P[8], X, fma(P[9], Y, fma(P[10], Z, P[11])));
    defined = less(splat(kSmallestDepth), w);
    const vd inverse = select(defined, one / w, zero);
    const vd u = fma(P[0], X, fma(P[1], Y, fma(P[2], Z, P[3]))) * inverse;
    const vd v = fma(P[4], X, fma(P[5], Y, fma(P[6], Z, P[7]))) * inverse;
    const vd p = u / f, q = v / f, step = unit * inverse;
    r[0] = u - load(a.x0 + i);
    r[1] = v - load(a.y0 + i);
    r2 = fma(r[0], r[0], r[1] * r[1]);
    J[0][0] = -(u * q);
    J[0][1] = fma(u, p, f);
    J[0][2] = -v;
    J[0][3] = f * step;
    J[0][4] = zero;
    J[0][5] = -(u * step);
    J[0][6] = u;
    J[1][0] = -fma(v, q, f);
    J[1][1] = v * p;
    J[1][2] = u;
    J[1][3] = zero;
    J[1][4] = f * step;
    J[1][5] = -(v * step);
    J[1][6] = v;
  }
};

constexpr int kProjectionPieces = kRefineLanes / kDoubles;

template <int N>
void sum_equations(const RefineArrays& a, const double* pose, double f, double unit, Loss loss,
                   double eps2, double* out) {
  constexpr int kSums = N * (N + 1) / 2 + N + 1;
  const BroadcastPose<vd, double> broadcast(pose);
  const vd focal = splat(f), step = splat(unit);
  const vd limit = splat(eps2), inverse_limit = splat(1.0 / eps2);
  const vd zero = vd{}, one = splat(1.0);
  vd sum[kSums][kProjectionPieces] = {};
  for (std::size_t i = 0; i < a.padded; i += kRefineLanes) {
    for (int piece = 0; piece < kProjectionPieces; ++piece) {
      const std::size_t at = i + static_cast<std::size_t>(piece * kDoubles);
      const LinearisedProjection l(a, at, broadcast.P, focal, step);
      const vd weight = load(a.weight + at);
      vd robust = one, cost = l.r2;
      if (loss == Loss::kTruncated) {
        const md inside = less(l.r2, limit);
        robust = select(inside, one, zero);
        cost = select(inside, l.r2, limit);
      } else if (loss == Loss::kCauchy) {
        robust = one / fma(l.r2, inverse_limit, one);
        cost = zero;
      }
      const md used = both(l.defined, less(zero, weight));
      const vd w = select(used, weight * robust, zero);
      vd wJ[2][N];
      for (int p = 0; p < N; ++p) {
        wJ[0][p] = w * l.J[0][p];
        wJ[1][p] = w * l.J[1][p];
      }
      int slot = 0;
#pragma GCC unroll 8
      for (int p = 0; p < N; ++p) {
#pragma GCC unroll 8
        for (int q = p; q < N; ++q, ++slot) {
          sum[slot][piece] = fma(wJ[0][p], l.J[0][q], fma(wJ[1][p], l.J[1][q], sum[slot][piece]));
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < N; ++p, ++slot) {
        sum[slot][piece] = fma(wJ[0][p], l.r[0], fma(wJ[1][p], l.r[1], sum[slot][piece]));
      }
      // An undefined residual costs what an outlier costs.
      const vd lost = loss == Loss::kTruncated ? limit : zero;
      const vd term = select(l.defined, cost, lost);
      sum[kSums - 1][piece] =
          fma(select(less(zero, weight), weight, zero), term, sum[kSums - 1][piece]);
    }
  }
  for (int slot = 0; slot < kSums; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kProjectionPieces; ++piece) {
      store(lanes + piece * kDoubles, sum[slot][piece]);
    }
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

void normal_equations(const RefineArrays& a, const double* pose, double f, double unit,
                      bool with_focal, Loss loss, double eps2, double* out) {
  if (with_focal) {
    sum_equations<kFocalParameters>(a, pose, f, unit, loss, eps2, out);
  } else {
    sum_equations<kAbsolutePoseParameters>(a, pose, f, unit, loss, eps2, out);
  }
}

void residuals(const RefineArrays& a, const double* pose, double* r2_out) {
  const BroadcastPose<vd, double> v(pose);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    md defined;
    const vd r2 = reprojection2(v.P, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i),
                                load(a.z1 + i), &defined);
    store(r2_out + i, select(defined, r2, splat(__builtin_inf())));
  }
}

void jacobian(const RefineArrays& a, const double* pose, double f, double unit, double* r_out,
              double* J_out) {
  const BroadcastPose<vd, double> v(pose);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const LinearisedProjection l(a, i, v.P, splat(f), splat(unit));
    double lanes[kDoubles];
    for (int row = 0; row < 2; ++row) {
      store(lanes, l.r[row]);
      for (int lane = 0; lane < kDoubles; ++lane) {
        r_out[(i + static_cast<std::size_t>(lane)) * 2 + static_cast<std::size_t>(row)] =
            lanes[lane];
      }
      for (int p = 0; p < kFocalParameters; ++p) {
        store(lanes, l.J[row][p]);
        for (int lane = 0; lane < kDoubles; ++lane) {
          const std::size_t at =
              (i + static_cast<std::size_t>(lane)) * 2 + static_cast<std::size_t>(row);
          J_out[at * kFocalParameters + static_cast<std::size_t>(p)] = lanes[lane];
        }
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

// Residuals, derivatives and normal equations of the Sampson distance for one relative pose.
#pragma once

#include "manymatch/problems/relative_pose/edge_kernels.h"

namespace manymatch {
namespace {

constexpr int kPieces = kRefineLanes / kDoubles;
static_assert(kRefineLanes % kDoubles == 0);

// A pose in every lane: E for points (x, y, 1), the third column of E for the rays of camera 1, R
// with its third column for points, and the two directions in which t moves.
template <class Z>
struct PoseVectors {
  vd e[9], third[3], last[3], r[9], basis[2][3];
  decltype(doubles(Z{})) z0, z1;
};

template <class Z>
inline PoseVectors<Z> broadcast_pose(const TwoViews<Z>& views, const double* tangent) {
  PoseVectors<Z> v;
  double E[9];
  essential_matrix(views.R, views.t, E);
  for (int k = 0; k < 2; ++k) v.third[k] = splat(E[3 * k + 2]);
  for (int k = 0; k < 2; ++k) v.last[k] = splat(E[6 + k]);
  v.third[2] = splat(E[8] * views.z1);
  v.last[2] = splat(E[8] * views.z0);
  for_points(E, views.z0, views.z1);
  for (int k = 0; k < 9; ++k) v.e[k] = splat(E[k]);
  for (int k = 0; k < 9; ++k) v.r[k] = splat(k % 3 == 2 ? views.R[k] * views.z0 : views.R[k]);
  for (int j = 0; j < 2; ++j) {
    for (int k = 0; k < 3; ++k) v.basis[j][k] = splat(tangent ? tangent[3 * j + k] : 0.0);
  }
  v.z0 = doubles(views.z0);
  v.z1 = doubles(views.z1);
  return v;
}

template <class Z>
struct Linearised {
  vd r, J[kPoseParameters<Z>];
  md defined;
};

// r = C / s with C = x1' E x0, s^2 = den. Rotation moves as R exp([w]x), translation along its two
// tangents b_j, so dC/dw = x0 x g, dC/db = u x x1 with u = R x0, and half of d(den) follows from
// the first two components of e = E x0 and g = E' x1 alone. A focal length is the third component
// of its rays, so that dC/dz0 = g2, and half of d(den)/dz0 is h2 below.
template <class Z>
inline Linearised<Z> linearise(const RefineArrays& a, std::size_t i, const PoseVectors<Z>& v) {
  const vd x0 = load(a.x0 + i), y0 = load(a.y0 + i), x1 = load(a.x1 + i), y1 = load(a.y1 + i);
  const vd *E = v.e, *R = v.r;
  const auto z0 = v.z0, z1 = v.z1;
  const Sampson<vd> sampson(E, x0, y0, x1, y1);
  const vd e0 = sampson.e0, e1 = sampson.e1, g0 = sampson.g0, g1 = sampson.g1;
  const vd C = sampson.num, den = sampson.den;
  const vd g2 = fma(v.third[0], x1, fma(v.third[1], y1, v.third[2]));
  const vd inv_s = splat(1.0) / sqrt(den);
  const vd c = C / den;
  // h = E' (e0, e1, 0)
  const vd h0 = fma(E[0], e0, E[3] * e1), h1 = fma(E[1], e0, E[4] * e1);
  const vd h2 = fma(v.third[0], e0, v.third[1] * e1);
  // u = R x0, k = R (g0, g1, 0)
  const vd u0 = fma(R[0], x0, fma(R[1], y0, R[2]));
  const vd u1 = fma(R[3], x0, fma(R[4], y0, R[5]));
  const vd u2 = fma(R[6], x0, fma(R[7], y0, R[8]));
  const vd k0 = fma(R[0], g0, R[1] * g1), k1 = fma(R[3], g0, R[4] * g1);
  const vd k2 = fma(R[6], g0, R[7] * g1);

  Linearised<Z> out;
  out.r = C * inv_s;
  // x0 x (g - c h) - c (g1 g2, -g0 g2, 0)
  const vd d0 = fnma(c, h0, g0), d1 = fnma(c, h1, g1), d2 = fnma(c, h2, g2);
  out.J[0] = (fnma(c, g1 * g2, y0 * d2) - d1 * z0) * inv_s;
  out.J[1] = (fma(c, g0 * g2, d0 * z0) - x0 * d2) * inv_s;
  out.J[2] = (x0 * d1 - y0 * d0) * inv_s;
  // u x (x1 - c (e0, e1, 0)) - c k x x1
  const vd w0 = fnma(c, e0, x1), w1 = fnma(c, e1, y1);
  const vd q0 = fnma(c, fnma(k2, y1, k1 * z1), fnma(u2, w1, u1 * z1));
  const vd q1 = fnma(c, fma(k2, x1, -(k0 * z1)), fma(u2, w0, -(u0 * z1)));
  const vd q2 = fnma(c, fnma(k1, x1, k0 * y1), fnma(u1, w0, u0 * w1));
  for (int j = 0; j < 2; ++j) {
    const vd* b = v.basis[j];
    out.J[3 + j] = fma(b[0], q0, fma(b[1], q1, b[2] * q2)) * inv_s;
  }
  if constexpr (kPoseParameters<Z> == 7) {
    const vd e2 = fma(v.last[0], x0, fma(v.last[1], y0, v.last[2]));
    const vd m2 = fma(v.last[0], g0, v.last[1] * g1);
    out.J[5] = d2 * inv_s * z0;
    out.J[6] = fnma(c, m2, e2) * inv_s * z1;
  }
  out.defined = is_defined(out.r * out.r, den);
  return out;
}

template <class Z>
void normal_equations(const RefineArrays& a, const TwoViews<Z>& views, const double* tangent,
                      Loss loss, double eps2, double* out) {
  constexpr int N = kPoseParameters<Z>, kTriangle = N * (N + 1) / 2, kCost = kTriangle + N;
  const PoseVectors<Z> v = broadcast_pose(views, tangent);
  const vd limit = splat(eps2), inv_limit = splat(1.0 / eps2), zero = splat(0.0), one = splat(1.0);
  vd sum[kCost + 1][kPieces] = {};
  for (std::size_t i = 0; i < a.padded; i += kRefineLanes) {
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::size_t at = i + static_cast<std::size_t>(piece * kDoubles);
      const Linearised<Z> l = linearise(a, at, v);
      const vd weight = load(a.weight + at), r2 = l.r * l.r;
      vd robust = one, cost = r2;
      if (loss == Loss::kTruncated) {
        const md inside = less(r2, limit);
        robust = select(inside, one, zero);
        cost = select(inside, r2, limit);
      } else if (loss == Loss::kCauchy) {
        robust = one / fma(r2, inv_limit, one);
        cost = zero;
      }
      const md used = both(l.defined, less(zero, weight));
      const vd w = select(used, weight * robust, zero);
      vd J[N], wJ[N];
      for (int k = 0; k < N; ++k) {
        J[k] = select(used, l.J[k], zero);
        wJ[k] = w * J[k];
      }
      int slot = 0;
      for (int row = 0; row < N; ++row) {
        for (int col = row; col < N; ++col, ++slot) {
          sum[slot][piece] = fma(wJ[row], J[col], sum[slot][piece]);
        }
      }
      const vd r = select(used, l.r, zero);
      for (int k = 0; k < N; ++k)
        sum[kTriangle + k][piece] = fma(wJ[k], r, sum[kTriangle + k][piece]);
      // An undefined residual costs what an outlier costs.
      const vd lost = loss == Loss::kTruncated ? limit : zero;
      const vd term = select(l.defined, cost, lost);
      sum[kCost][piece] = fma(select(less(zero, weight), weight, zero), term, sum[kCost][piece]);
    }
  }
  for (int slot = 0; slot <= kCost; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kPieces; ++piece) store(lanes + piece * kDoubles, sum[slot][piece]);
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

template <class Z>
void residuals(const RefineArrays& a, const TwoViews<Z>& views, double* r2_out) {
  const PoseVectors<Z> v = broadcast_pose(views, nullptr);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const Sampson<vd> sampson(v.e, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i));
    const vd r2 = sampson.num * sampson.num / sampson.den;
    store(r2_out + i, select(is_defined(r2, sampson.den), r2, splat(__builtin_inf())));
  }
}

template <class Z>
void jacobian(const RefineArrays& a, const TwoViews<Z>& views, const double* tangent, double* r_out,
              double* J_out) {
  constexpr int N = kPoseParameters<Z>;
  const PoseVectors<Z> v = broadcast_pose(views, tangent);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const Linearised<Z> l = linearise(a, i, v);
    store(r_out + i, l.r);
    for (int k = 0; k < N; ++k) {
      double lanes[kDoubles];
      store(lanes, l.J[k]);
      for (int lane = 0; lane < kDoubles; ++lane) {
        J_out[(i + static_cast<std::size_t>(lane)) * N + static_cast<std::size_t>(k)] = lanes[lane];
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

// Residuals, derivatives and normal equations of the Sampson distance for one relative pose.
#pragma once

#include "manymatch/problems/relative_pose/edge_kernels.h"

namespace manymatch {
namespace {

// A pose in every lane: E for points (x, y, 1); the third column and row of E for the rays of
// camera 1 and camera 0; R for points; and the two directions in which t moves.
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

// r = C / s with C = x1' E x0, s^2 = den. The rotation moves as R exp([w]x) and the translation
// along its two tangents b_j, so dC/dw = x0 x g and dC/db = u x x1 with u = R x0. Half of d(den)
// depends only on the first two components of e = E x0 and g = E' x1. A focal length is the third
// component of its rays, so dC/dz0 = g2, and half of d(den)/dz0 is h2 below.
template <class Z>
inline Linearised<1, kPoseParameters<Z>> linearise(const RefineArrays& a, std::size_t i,
                                                   const PoseVectors<Z>& v) {
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

  Linearised<1, kPoseParameters<Z>> out;
  vd* J = out.J[0];
  out.r[0] = C * inv_s;
  out.r2 = out.r[0] * out.r[0];
  // x0 x (g - c h) - c (g1 g2, -g0 g2, 0)
  const vd d0 = fnma(c, h0, g0), d1 = fnma(c, h1, g1), d2 = fnma(c, h2, g2);
  J[0] = (fnma(c, g1 * g2, y0 * d2) - d1 * z0) * inv_s;
  J[1] = (fma(c, g0 * g2, d0 * z0) - x0 * d2) * inv_s;
  J[2] = (x0 * d1 - y0 * d0) * inv_s;
  // u x (x1 - c (e0, e1, 0)) - c k x x1
  const vd w0 = fnma(c, e0, x1), w1 = fnma(c, e1, y1);
  const vd q0 = fnma(c, fnma(k2, y1, k1 * z1), fnma(u2, w1, u1 * z1));
  const vd q1 = fnma(c, fma(k2, x1, -(k0 * z1)), fma(u2, w0, -(u0 * z1)));
  const vd q2 = fnma(c, fnma(k1, x1, k0 * y1), fnma(u1, w0, u0 * w1));
  for (int j = 0; j < 2; ++j) {
    const vd* b = v.basis[j];
    J[3 + j] = fma(b[0], q0, fma(b[1], q1, b[2] * q2)) * inv_s;
  }
  if constexpr (kPoseParameters<Z> == 7) {
    const vd e2 = fma(v.last[0], x0, fma(v.last[1], y0, v.last[2]));
    const vd m2 = fma(v.last[0], g0, v.last[1] * g1);
    J[5] = d2 * inv_s * z0;
    J[6] = fnma(c, m2, e2) * inv_s * z1;
  }
  out.defined = is_defined(out.r2, den);
  return out;
}

template <class Z>
void normal_equations(const RefineArrays& a, const TwoViews<Z>& views, const double* tangent,
                      Loss loss, double eps2, double* out) {
  const PoseVectors<Z> v = broadcast_pose(views, tangent);
  sum_equations<kPoseParameters<Z>>(a, loss, eps2, out,
                                    [=](std::size_t i) { return linearise(a, i, v); });
}

template <class Z>
void residuals(const RefineArrays& a, const TwoViews<Z>& views, double* r2_out) {
  sampson_residuals(a, broadcast_pose(views, nullptr).e, r2_out);
}

template <class Z>
void jacobian(const RefineArrays& a, const TwoViews<Z>& views, const double* tangent, double* r_out,
              double* J_out) {
  const PoseVectors<Z> v = broadcast_pose(views, tangent);
  store_jacobian(a.padded, r_out, J_out, [=](std::size_t i) { return linearise(a, i, v); });
}

}  // namespace
}  // namespace manymatch

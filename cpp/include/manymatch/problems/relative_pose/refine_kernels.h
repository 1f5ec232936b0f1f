// Residuals, derivatives and normal equations of the Sampson distance for one relative pose.
#pragma once

#include "manymatch/problems/relative_pose/edge_kernels.h"

namespace manymatch {
namespace {

constexpr int kPieces = kRefineLanes / kDoubles;
static_assert(kRefineLanes % kDoubles == 0);

struct PoseVectors {
  vd e[9], r[9], basis[2][3];
};

inline PoseVectors broadcast_pose(const double* R, const double* t, const double* tangent) {
  PoseVectors v;
  double E[9];
  essential_matrix(R, t, E);
  for (int k = 0; k < 9; ++k) v.e[k] = splat(E[k]);
  for (int k = 0; k < 9; ++k) v.r[k] = splat(R[k]);
  for (int j = 0; j < 2; ++j) {
    for (int k = 0; k < 3; ++k) v.basis[j][k] = splat(tangent ? tangent[3 * j + k] : 0.0);
  }
  return v;
}

struct Linearised {
  vd r, J[5];
  md defined;
};

// r = C / s with C = x1' E x0, s^2 = den. Rotation moves as R exp([w]x), translation along its two
// tangents b_j, so dC/dw = x0 x g, dC/db = u x x1 with u = R x0, and half of d(den) follows from
// the first two components of e = E x0 and g = E' x1 alone.
inline Linearised linearise(const RefineArrays& a, std::size_t i, const PoseVectors& v) {
  const vd x0 = load(a.x0 + i), y0 = load(a.y0 + i), x1 = load(a.x1 + i), y1 = load(a.y1 + i);
  const vd *E = v.e, *R = v.r;
  const Sampson<vd> sampson(E, x0, y0, x1, y1);
  const vd e0 = sampson.e0, e1 = sampson.e1, g0 = sampson.g0, g1 = sampson.g1;
  const vd C = sampson.num, den = sampson.den;
  const vd g2 = fma(E[2], x1, fma(E[5], y1, E[8]));
  const vd inv_s = splat(1.0) / sqrt(den);
  const vd c = C / den;
  // h = E' (e0, e1, 0)
  const vd h0 = fma(E[0], e0, E[3] * e1), h1 = fma(E[1], e0, E[4] * e1);
  const vd h2 = fma(E[2], e0, E[5] * e1);
  // u = R x0, k = R (g0, g1, 0)
  const vd u0 = fma(R[0], x0, fma(R[1], y0, R[2]));
  const vd u1 = fma(R[3], x0, fma(R[4], y0, R[5]));
  const vd u2 = fma(R[6], x0, fma(R[7], y0, R[8]));
  const vd k0 = fma(R[0], g0, R[1] * g1), k1 = fma(R[3], g0, R[4] * g1);
  const vd k2 = fma(R[6], g0, R[7] * g1);

  Linearised out;
  out.r = C * inv_s;
  // x0 x (g - c h) - c (g1 g2, -g0 g2, 0)
  const vd d0 = fnma(c, h0, g0), d1 = fnma(c, h1, g1), d2 = fnma(c, h2, g2);
  out.J[0] = (fnma(c, g1 * g2, y0 * d2) - d1) * inv_s;
  out.J[1] = (fma(c, g0 * g2, d0) - x0 * d2) * inv_s;
  out.J[2] = (x0 * d1 - y0 * d0) * inv_s;
  // u x (x1 - c (e0, e1, 0)) - c k x x1
  const vd w0 = fnma(c, e0, x1), w1 = fnma(c, e1, y1);
  const vd q0 = fnma(c, fnma(k2, y1, k1), fnma(u2, w1, u1));
  const vd q1 = fnma(c, fma(k2, x1, -k0), fma(u2, w0, -u0));
  const vd q2 = fnma(c, fnma(k1, x1, k0 * y1), fnma(u1, w0, u0 * w1));
  for (int j = 0; j < 2; ++j) {
    const vd* b = v.basis[j];
    out.J[3 + j] = fma(b[0], q0, fma(b[1], q1, b[2] * q2)) * inv_s;
  }
  out.defined = is_defined(out.r * out.r, den);
  return out;
}

void normal_equations(const RefineArrays& a, const double* R, const double* t,
                      const double* tangent, Loss loss, double eps2, double* out) {
  const PoseVectors v = broadcast_pose(R, t, tangent);
  const vd limit = splat(eps2), inv_limit = splat(1.0 / eps2), zero = splat(0.0), one = splat(1.0);
  vd sum[21][kPieces] = {};
  for (std::size_t i = 0; i < a.padded; i += kRefineLanes) {
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::size_t at = i + static_cast<std::size_t>(piece * kDoubles);
      const Linearised l = linearise(a, at, v);
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
      vd J[5], wJ[5];
      for (int k = 0; k < 5; ++k) {
        J[k] = select(used, l.J[k], zero);
        wJ[k] = w * J[k];
      }
      int slot = 0;
      for (int row = 0; row < 5; ++row) {
        for (int col = row; col < 5; ++col, ++slot) {
          sum[slot][piece] = fma(wJ[row], J[col], sum[slot][piece]);
        }
      }
      const vd r = select(used, l.r, zero);
      for (int k = 0; k < 5; ++k) sum[15 + k][piece] = fma(wJ[k], r, sum[15 + k][piece]);
      // An undefined residual costs what an outlier costs.
      const vd lost = loss == Loss::kTruncated ? limit : zero;
      const vd term = select(l.defined, cost, lost);
      sum[20][piece] = fma(select(less(zero, weight), weight, zero), term, sum[20][piece]);
    }
  }
  for (int slot = 0; slot < 21; ++slot) {
    double lanes[kRefineLanes];
    for (int piece = 0; piece < kPieces; ++piece) store(lanes + piece * kDoubles, sum[slot][piece]);
    out[slot] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

void residuals(const RefineArrays& a, const double* R, const double* t, double* r2_out) {
  const PoseVectors v = broadcast_pose(R, t, nullptr);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const Sampson<vd> sampson(v.e, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i));
    const vd r2 = sampson.num * sampson.num / sampson.den;
    store(r2_out + i, select(is_defined(r2, sampson.den), r2, splat(__builtin_inf())));
  }
}

void jacobian(const RefineArrays& a, const double* R, const double* t, const double* tangent,
              double* r_out, double* J_out) {
  const PoseVectors v = broadcast_pose(R, t, tangent);
  for (std::size_t i = 0; i < a.padded; i += kDoubles) {
    const Linearised l = linearise(a, i, v);
    store(r_out + i, l.r);
    for (int k = 0; k < 5; ++k) {
      double lanes[kDoubles];
      store(lanes, l.J[k]);
      for (int lane = 0; lane < kDoubles; ++lane) {
        J_out[(i + static_cast<std::size_t>(lane)) * 5 + static_cast<std::size_t>(k)] = lanes[lane];
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

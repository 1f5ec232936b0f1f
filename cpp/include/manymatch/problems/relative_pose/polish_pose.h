// Newton on the five epipolar equations, and the sign of the translation; one pose per lane.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

inline void cross(const vd* a, const vd* b, vd* out) {
  out[0] = fnma(a[2], b[1], a[1] * b[2]);
  out[1] = fnma(a[0], b[2], a[2] * b[0]);
  out[2] = fnma(a[1], b[0], a[0] * b[1]);
}

inline vd dot(const vd* a, const vd* b) { return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2])); }

// R <- R (3 - R'R) / 2: squares the distance of R from the rotations.
inline void orthonormalise(vd* R) {
  vd gram[3][3], old[9];
  for (int i = 0; i < 9; ++i) old[i] = R[i];
  for (int i = 0; i < 3; ++i) {
    for (int j = i; j < 3; ++j) {
      gram[i][j] = fma(old[i], old[j], fma(old[3 + i], old[3 + j], old[6 + i] * old[6 + j]));
      gram[j][i] = gram[i][j];
    }
  }
  const vd half = splat(-0.5), three_halves = splat(1.5);
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 3; ++c) {
      const vd product =
          fma(old[3 * r], gram[0][c], fma(old[3 * r + 1], gram[1][c], old[3 * r + 2] * gram[2][c]));
      R[3 * r + c] = fma(half, product, three_halves * old[3 * r + c]);
    }
  }
}

// Largest deviation of R'R from the identity.
inline vd orthonormality(const vd* R) {
  vd worst = vd{};
  for (int i = 0; i < 3; ++i) {
    for (int j = i; j < 3; ++j) {
      const vd entry = fma(R[i], R[j], fma(R[3 + i], R[3 + j], R[6 + i] * R[6 + j]));
      const vd off = abs(entry - splat(i == j ? 1.0 : 0.0));
      worst = select(less(worst, off), off, worst);
    }
  }
  return worst;
}

// Solves A x = b for symmetric positive definite A (lower triangle used, destroyed) by L D L'.
inline void solve_symmetric(vd A[5][5], vd* b) {
  for (int j = 0; j < 5; ++j) {
    const vd inverse = splat(1.0) / A[j][j];
    for (int i = j + 1; i < 5; ++i) {
      const vd factor = A[i][j] * inverse;
      for (int k = i; k < 5; ++k) A[k][i] = fnma(A[k][j], factor, A[k][i]);
      b[i] = fnma(factor, b[j], b[i]);
      A[j][i] = factor;  // kept above the diagonal for back substitution
    }
    b[j] = b[j] * inverse;
  }
  for (int j = 4; j >= 0; --j) {
    for (int i = j + 1; i < 5; ++i) b[j] = fnma(A[j][i], b[i], b[j]);
  }
}

// Two unit vectors orthogonal to t, from the axis that t is farthest from.
inline void tangent_vectors(const vd* t, vd basis[2][3]) {
  const vd zero = vd{}, one = splat(1.0);
  const vd ax = abs(t[0]), ay = abs(t[1]), az = abs(t[2]);
  const md x = both(less_equal(ax, ay), less_equal(ax, az));
  const md y = both(negate(x), less_equal(ay, az));
  const md z = negate(either(x, y));
  const vd axis[3] = {select(x, one, zero), select(y, one, zero), select(z, one, zero)};
  cross(t, axis, basis[0]);
  const vd inverse = one / sqrt(dot(basis[0], basis[0]));
  for (int i = 0; i < 3; ++i) basis[0][i] = basis[0][i] * inverse;
  cross(t, basis[0], basis[1]);
}

// Moves a pose by g: three for the rotation, two along the tangents of t.
inline void move_pose(const vd basis[2][3], const vd* g, vd* R, vd* t) {
  // R exp([w]x) to second order, then back onto the rotations; large steps are useless anyway.
  const vd half = splat(0.5);
  const vd w2 = half * dot(g, g);
  vd turned[9];
  for (int r = 0; r < 3; ++r) {
    const vd* row = R + 3 * r;
    const vd along = half * dot(row, g);
    vd crossed[3];
    cross(row, g, crossed);  // row of R [w]x
    for (int i = 0; i < 3; ++i) {
      turned[3 * r + i] = row[i] + crossed[i] + fnma(w2, row[i], along * g[i]);
    }
  }
  for (int i = 0; i < 9; ++i) R[i] = turned[i];
  orthonormalise(R);
  for (int i = 0; i < 3; ++i) t[i] = fma(basis[0][i], g[3], fma(basis[1][i], g[4], t[i]));
  const vd inverse = splat(1.0) / sqrt(dot(t, t));
  for (int i = 0; i < 3; ++i) t[i] = t[i] * inverse;
}

// A few Gauss-Newton steps on the equations restore the digits that elimination without pivoting
// and ill-conditioned roots lose. Lanes that have converged stay as they are, so that a lane does
// not depend on its neighbours. Returns the lanes that satisfy the equations.
inline md polish_pose(const vd b0[5][3], const vd b1[5][3], vd* R, vd* t) {
  constexpr int kSteps = 4;
  // If R is far from a rotation, it does not belong to a root.
  const md valid = less(orthonormality(R), splat(1e-1));
  orthonormalise(R);
  vd residual = vd{};
  for (int step = 0;; ++step) {
    vd basis[2][3], A[5][5], g[5];
    tangent_vectors(t, basis);
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < i; ++j) A[i][j] = vd{};
      A[i][i] = splat(1e-24);  // slight damping keeps degenerate lanes finite
      g[i] = vd{};
    }
    residual = vd{};
    for (int k = 0; k < 5; ++k) {
      vd u[3], normal[3], w[3], row[5], pulled[3];
      for (int r = 0; r < 3; ++r) u[r] = dot(R + 3 * r, b0[k]);
      cross(u, b1[k], normal);  // c = t . normal
      const vd c = dot(t, normal);
      residual = fma(c, c, residual);
      // dc/dw = b0 x (E' b1) with E' b1 = R' (b1 x t)
      cross(b1[k], t, w);
      for (int i = 0; i < 3; ++i) pulled[i] = fma(R[i], w[0], fma(R[3 + i], w[1], R[6 + i] * w[2]));
      cross(b0[k], pulled, row);
      row[3] = dot(basis[0], normal);
      row[4] = dot(basis[1], normal);
      for (int i = 0; i < 5; ++i) {
        for (int j = 0; j <= i; ++j) A[i][j] = fma(row[i], row[j], A[i][j]);
        g[i] = fnma(row[i], c, g[i]);
      }
    }
    // Equations of unit rays; below this the residual is rounding.
    const md moving = less(splat(1e-29), residual);
    if (step == kSteps || !(bits(both(valid, moving)) & kAllDoubles)) break;
    solve_symmetric(A, g);
    vd next_R[9], next_t[3];
    for (int i = 0; i < 9; ++i) next_R[i] = R[i];
    for (int i = 0; i < 3; ++i) next_t[i] = t[i];
    move_pose(basis, g, next_R, next_t);
    for (int i = 0; i < 9; ++i) R[i] = select(moving, next_R[i], R[i]);
    for (int i = 0; i < 3; ++i) t[i] = select(moving, next_t[i], t[i]);
  }
  const md rotation = less(orthonormality(R), splat(1e-12));
  return both(both(valid, rotation), less(residual, splat(1e-20)));
}

// Depths up to a positive factor decide the sign of t. Returns the lanes with all five points in
// front of both cameras.
inline md orient_translation(const vd b0[5][3], const vd b1[5][3], const vd* R, vd* t) {
  const vd zero = vd{};
  md in_front = less_equal(zero, zero), behind = in_front;
  for (int k = 0; k < 5; ++k) {
    vd u[3];
    for (int r = 0; r < 3; ++r) u[r] = dot(R + 3 * r, b0[k]);
    const vd uu = dot(u, u), xx = dot(b1[k], b1[k]), ux = dot(u, b1[k]);
    const vd ut = dot(u, t), xt = dot(b1[k], t);
    const vd depth0 = fnma(ut, xx, ux * xt), depth1 = fnma(ux, ut, uu * xt);
    in_front = both(in_front, both(less(zero, depth0), less(zero, depth1)));
    behind = both(behind, both(less(depth0, zero), less(depth1, zero)));
  }
  for (int i = 0; i < 3; ++i) t[i] = select(behind, -t[i], t[i]);
  return either(in_front, behind);
}

}  // namespace
}  // namespace manymatch

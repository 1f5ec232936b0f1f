// Sampson distance and side of all edges under a fundamental matrix, and the sums of a refinement.
#pragma once

#include "manymatch/problems/epipolar.h"
#include "manymatch/problems/fundamental/kernels.h"

namespace manymatch {
namespace {

// Positive if e x x1 and F x0 have the same direction. Both are lines through x1, or nearly so:
// comparing the first two components is enough.
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
  return find_inliers(
      edges.words, eps2, mask, r2_out, [=](std::size_t i) { return SampsonResidual(f, edges, i); },
      [=](std::size_t, const SampsonResidual& m, md near) {
        return bits(both(near, less(vd{}, side_of<vd>(m, e, m.x1, m.y1))));
      });
}

// The same test in float32, loosened by the rounding errors so that it never misses an inlier.
// Sides are tested only if at least `enough` edges are close to their epipolar lines.
int screen(const FundamentalEdges& edges, const double* F, const double* epipole, double eps,
           double slack, double side_slack, int enough, uint64_t* mask) {
  vf f[9], e[3];
  for (int k = 0; k < 9; ++k) f[k] = splat(static_cast<float>(F[k]));
  for (int k = 0; k < 3; ++k) e[k] = splat(static_cast<float>(epipole[k]));
  const int near = screen_sampson(edges, f, eps, slack, mask);
  if (near < enough) return near;
  const vf lowest = splat(static_cast<float>(-side_slack));
  return narrow_mask(edges.words, mask, [=](std::size_t i) {
    const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i);
    const Sampson<vf> sampson(f, load(edges.x0f + i), load(edges.y0f + i), x1, y1);
    return bits(less(lowest, side_of(sampson, e, x1, y1)));
  });
}

// r = C / s with C = x1' F x0 and s^2 = den. The derivative of C by F_ij is x1_i x0_j; that of half
// of den is e_i x0_j (if i < 2) plus g_j x1_i (if j < 2).
inline Linearised<1, 9> linearise(const RefineArrays& a, std::size_t i, const vd* F) {
  const vd one = splat(1.0);
  const vd p[3] = {load(a.x0 + i), load(a.y0 + i), one};
  const vd q[3] = {load(a.x1 + i), load(a.y1 + i), one};
  const Sampson<vd> sampson(F, p[0], p[1], q[0], q[1]);
  const vd inverse = one / sqrt(sampson.den), c = sampson.num / sampson.den;
  const vd line1[2] = {c * sampson.e0, c * sampson.e1}, line0[2] = {c * sampson.g0, c * sampson.g1};
  Linearised<1, 9> out;
  out.r[0] = sampson.num * inverse;
  out.r2 = out.r[0] * out.r[0];
  for (int row = 0; row < 3; ++row) {
    for (int col = 0; col < 3; ++col) {
      vd d = row < 2 ? (q[row] - line1[row]) * p[col] : p[col];
      if (col < 2) d = fnma(line0[col], q[row], d);
      out.J[0][3 * row + col] = d * inverse;
    }
  }
  out.defined = is_defined(out.r2, sampson.den);
  return out;
}

void normal_equations(const RefineArrays& a, const double* F, Loss loss, double eps2, double* out) {
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  sum_equations<9>(a, loss, eps2, out, [=](std::size_t i) { return linearise(a, i, f); });
}

void residuals(const RefineArrays& a, const double* F, double* r2_out) {
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  sampson_residuals(a, f, r2_out);
}

void jacobian(const RefineArrays& a, const double* F, double* r_out, double* J_out) {
  vd f[9];
  for (int k = 0; k < 9; ++k) f[k] = splat(F[k]);
  store_jacobian(a.padded, r_out, J_out, [=](std::size_t i) { return linearise(a, i, f); });
}

}  // namespace
}  // namespace manymatch

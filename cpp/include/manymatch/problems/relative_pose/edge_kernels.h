// Depths of a vector of correspondences, for doubles and floats alike, and the inliers of a pose
// among all edges of a graph.
#pragma once

#include "manymatch/problems/epipolar.h"
#include "manymatch/problems/relative_pose/kernels.h"

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

template <class V>
inline V operator*(V a, One) {
  return a;
}
inline One operator*(One a, One) { return a; }

// The third component of the rays in every lane.
inline vd doubles(double z) { return splat(z); }
inline One doubles(One z) { return z; }
inline vf floats(double z) { return splat(static_cast<float>(z)); }
inline One floats(One z) { return z; }

// 1 / |(x, y, z)|. For points on the normalised plane it is already known.
template <class V, class Number>
inline V inverse_norm(V x, V y, V z, const Number*) {
  return splat(Number{1}) / sqrt(fma(x, x, fma(y, y, z * z)));
}
template <class V, class Number>
inline V inverse_norm(V, V, One, const Number* known) {
  return load(known);
}

// Replaces E by diag(1, 1, z1) E diag(1, 1, z0), which acts on points (x, y, 1) as E does on rays.
template <class Z>
inline void for_points(double* E, Z z0, Z z1) {
  for (int k = 2; k < 9; k += 3) E[k] = E[k] * z0;
  for (int k = 6; k < 9; ++k) E[k] = E[k] * z1;
}

// Depths must exceed this share of the baseline.
constexpr double kMinDepth = 0.01;

// With unit rays b0, b1 and u = R b0: a = -u.b1, p = -u.t, s = b1.t. The depths are
// (p - a s) / (1 - a^2) in camera 0 and (s - a p) / (1 - a^2) in camera 1. `n` is 1 / |(x, y, z)|.
template <class V>
struct Depths {
  V a, p, s;

  template <class Z>
  Depths(const V* R, const V* t, V x0, V y0, Z z0, V n0, V x1, V y1, Z z1, V n1) {
    const V u0 = fma(R[0], x0, fma(R[1], y0, R[2] * z0)) * n0;
    const V u1 = fma(R[3], x0, fma(R[4], y0, R[5] * z0)) * n0;
    const V u2 = fma(R[6], x0, fma(R[7], y0, R[8] * z0)) * n0;
    a = -(fma(u0, x1, fma(u1, y1, u2 * z1)) * n1);
    p = -fma(u0, t[0], fma(u1, t[1], u2 * t[2]));
    s = fma(x1, t[0], fma(y1, t[1], t[2] * z1)) * n1;
  }
};

template <class Z>
int inliers(const EdgeArrays& edges, const TwoViews<Z>& views, double eps2, uint64_t* mask,
            double* r2_out) {
  const double *R = views.R, *t = views.t;
  const auto z0 = doubles(views.z0), z1 = doubles(views.z1);
  double E[9];
  essential_matrix(R, t, E);
  for_points(E, views.z0, views.z1);
  vd e[9], r[9], tt[3];
  for (int k = 0; k < 9; ++k) e[k] = splat(E[k]);
  for (int k = 0; k < 9; ++k) r[k] = splat(R[k]);
  for (int k = 0; k < 3; ++k) tt[k] = splat(t[k]);
  const vd min_depth = splat(kMinDepth), one = splat(1.0);
  return find_inliers(
      edges.words, eps2, mask, r2_out, [=](std::size_t i) { return SampsonResidual(e, edges, i); },
      [=](std::size_t i, const SampsonResidual& m, md near) {
        const unsigned hits = bits(near);
        if (!hits) return hits;
        const vd x0 = m.x0, y0 = m.y0, x1 = m.x1, y1 = m.y1;
        const Depths<vd> d(r, tt, x0, y0, z0, inverse_norm(x0, y0, z0, edges.n0 + i), x1, y1, z1,
                           inverse_norm(x1, y1, z1, edges.n1 + i));
        const vd bound = min_depth * fnma(d.a, d.a, one);
        return hits &
               bits(both(less(bound, fnma(d.a, d.s, d.p)), less(bound, fnma(d.a, d.p, d.s))));
      });
}

// The same test in float32, loosened by the rounding errors so that it never misses an inlier. The
// two depth tests work on unit rays and are off by a few units in the last place. Depths are tested
// only if at least `enough` edges are close to their epipolar lines: most hypotheses end before.
template <class Z>
int screen(const EdgeArrays& edges, const TwoViews<Z>& views, double eps, double slack, int enough,
           uint64_t* mask) {
  const double *R = views.R, *t = views.t;
  const auto z0 = floats(views.z0), z1 = floats(views.z1);
  double E[9];
  essential_matrix(R, t, E);
  for_points(E, views.z0, views.z1);
  vf e[9];
  for (int k = 0; k < 9; ++k) e[k] = splat(static_cast<float>(E[k]));
  const int near = screen_sampson(edges, e, eps, slack, mask);
  if (near < enough) return near;

  vf r[9], tt[3];
  for (int k = 0; k < 9; ++k) r[k] = splat(static_cast<float>(R[k]));
  for (int k = 0; k < 3; ++k) tt[k] = splat(static_cast<float>(t[k]));
  const vf one = splat(1.0F), min_depth = splat(static_cast<float>(kMinDepth));
  const vf depth_slack = splat(4e-6F);
  return narrow_mask(edges.words, mask, [=](std::size_t i) {
    const vf x0 = load(edges.x0f + i), y0 = load(edges.y0f + i);
    const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i);
    const Depths<vf> d(r, tt, x0, y0, z0, inverse_norm(x0, y0, z0, edges.n0f + i), x1, y1, z1,
                       inverse_norm(x1, y1, z1, edges.n1f + i));
    const vf bound = min_depth * (one - d.a * d.a) - depth_slack;
    return bits(less(bound, d.p - d.a * d.s)) & bits(less(bound, d.s - d.a * d.p));
  });
}

}  // namespace
}  // namespace manymatch

// Reprojection error of points of the world in one image: inliers among all edges, and the normal
// equations of a refinement.
#pragma once

#include "manymatch/problems/absolute_pose/kernels.h"
#include "manymatch/problems/edge_loops.h"

namespace manymatch {
namespace {

// (d0, d1) = w (projection - (x, y)) with w the depth.
template <class V>
struct Projection {
  V w, d0, d1;

  // For a homogeneous point (X, Y, Z, W).
  Projection(const V* P, V x, V y, V X, V Y, V Z, V W)
      : Projection(P, x, y, X, Y, Z, P[3] * W, P[7] * W, P[11] * W) {}
  // For a point (X, Y, Z).
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

inline Residual reprojection(const vd* P, vd x, vd y, vd X, vd Y, vd Z) {
  const Projection<vd> p(P, x, y, X, Y, Z);
  const vd r2 = fma(p.d0, p.d0, p.d1 * p.d1) / (p.w * p.w);
  return {r2, both(less(vd{}, p.w), less(r2, splat(__builtin_inf())))};
}

int inliers(const AbsolutePoseEdges& edges, const double* pose, double eps2, uint64_t* mask,
            double* r2_out) {
  const BroadcastPose<vd, double> v(pose);
  return find_inliers(edges.words, eps2, mask, r2_out, [=](std::size_t i) {
    return reprojection(v.P, load(edges.x + i), load(edges.y + i), load(edges.X + i),
                        load(edges.Y + i), load(edges.Z + i));
  });
}

// Rounding errors in float32. Coefficients and homogeneous points are at most one, and every term
// of w and d passes at most nine roundings of 2^-24 (coefficient, coordinates, products and sums;
// fewer if fma is one instruction). Let R be the sums of the absolute values of the rows, and T the
// largest image coordinate. Then |error of w| <= 12 2^-24 R2 and, for each component,
// |error of d| <= 12 2^-24 (max(R0, R1) + T R2). An inlier has |d| < eps w, so in float32
// |d| < eps w + offset.
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
  return mask_edges<kFloats>(edges.words, mask, [=](std::size_t i) {
    const Projection<vf> p(v.P, load(edges.xf + i), load(edges.yf + i), load(edges.Xf + i),
                           load(edges.Yf + i), load(edges.Zf + i), load(edges.Wf + i));
    // Negative behind the camera; NaN for padding, so that the comparison fails.
    const vf limit = fma(p.w, slope, offset);
    return bits(less_equal(fma(p.d0, p.d0, p.d1 * p.d1), limit * abs(limit)));
  });
}

// Depths up to this count as not positive, so that everything stays finite. An edge without a
// residual has the weight zero.
constexpr double kSmallestDepth = 1e-30;

// One vector of edges. The rotation turns the point y in the frame of the camera: y -> y + w x y.
struct LinearisedProjection : Linearised<2, kFocalParameters, true> {
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

void normal_equations(const RefineArrays& a, const double* pose, double f, double unit,
                      bool with_focal, Loss loss, double eps2, double* out) {
  const BroadcastPose<vd, double> v(pose);
  const vd focal = splat(f), step = splat(unit);
  const auto linearise = [=](std::size_t i) {
    return LinearisedProjection(a, i, v.P, focal, step);
  };
  if (with_focal) {
    sum_equations<kFocalParameters>(a, loss, eps2, out, linearise);
  } else {
    sum_equations<kAbsolutePoseParameters>(a, loss, eps2, out, linearise);
  }
}

void residuals(const RefineArrays& a, const double* pose, double* r2_out) {
  const BroadcastPose<vd, double> v(pose);
  store_residuals(a.padded, r2_out, [=](std::size_t i) {
    return reprojection(v.P, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i),
                        load(a.z1 + i));
  });
}

void jacobian(const RefineArrays& a, const double* pose, double f, double unit, double* r_out,
              double* J_out) {
  const BroadcastPose<vd, double> v(pose);
  store_jacobian(a.padded, r_out, J_out, [=](std::size_t i) {
    return LinearisedProjection(a, i, v.P, splat(f), splat(unit));
  });
}

}  // namespace
}  // namespace manymatch

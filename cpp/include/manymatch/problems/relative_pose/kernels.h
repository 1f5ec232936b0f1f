// The kernels of relative pose, as a table of functions compiled once per instruction set.
//
// Arguments are plain structs, so that no inline function is shared between instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Edges as structure of arrays, padded with NaN to a whole number of 64-edge words; the padding is
// an outlier of every pose. Points are on the normalised plane and `n` is 1 / |(x, y, 1)|. If a
// focal length is unknown, points are in its unit and `n` is null.
struct EdgeArrays {
  const double *x0, *y0, *n0, *x1, *y1, *n1;
  const float *x0f, *y0f, *n0f, *x1f, *y1f, *n1f;
  std::size_t words;
};

// A batch of five-point samples: ray k of sample i has components b0[k][c][i], b1[k][c][i].
constexpr int kFivePointBatch = 64;
constexpr int kFivePointMaxRoots = 10;
struct FivePointBatch {
  alignas(64) double b0[5][3][kFivePointBatch];
  alignas(64) double b1[5][3][kFivePointBatch];
  int count;
};
struct FivePointSolutions {
  int count;
  int sample[kFivePointBatch * kFivePointMaxRoots];
  double R[kFivePointBatch * kFivePointMaxRoots][9];
  double t[kFivePointBatch * kFivePointMaxRoots][3];
};

// The number 1; the compiler removes the multiplication.
struct One {};

// A pose, and the third component of the rays (x, y, z) of either camera: One for points on the
// normalised planes, or a focal length (double) in the unit of the points.
template <class Z>
struct TwoViews {
  const double *R, *t;
  Z z0 = {}, z1 = {};
};

// Number of parameters of a refinement: three for the rotation, two for the direction of
// translation and, if they are unknown, the logarithms of the two focal lengths.
template <class Z>
constexpr int kPoseParameters = 7;
template <>
inline constexpr int kPoseParameters<One> = 5;

// N is kPoseParameters<Z>.
template <class Z>
struct EpipolarKernels {
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. `slack` bounds
  // the rounding error of the numerator. With fewer than `enough` edges it may stop early with a
  // larger superset.
  // Returns the number of bits set.
  int (*screen)(const EdgeArrays&, const TwoViews<Z>&, double eps, double slack, int enough,
                uint64_t* mask);
  // Exact inliers in float64: r^2 < eps^2 and cheirality. r2 may be null.
  int (*inliers)(const EdgeArrays&, const TwoViews<Z>&, double eps2, uint64_t* mask, double* r2);
  // out: N (N + 1) / 2 entries of the upper triangle of J^T W J by rows, N of J^T W r, the cost (0
  // for Cauchy: the caller sums it from the residuals).
  void (*normal_equations)(const RefineArrays&, const TwoViews<Z>&, const double* tangent, Loss,
                           double eps2, double* out);
  // Squared residuals, infinite where undefined.
  void (*residuals)(const RefineArrays&, const TwoViews<Z>&, double* r2);
  // Signed residuals and their derivatives, row-major (padded, N).
  void (*jacobian)(const RefineArrays&, const TwoViews<Z>&, const double* tangent, double* r,
                   double* J);
};

using UnknownFocalKernels = EpipolarKernels<double>;

struct RelativePoseKernels : EpipolarKernels<One> {
  void (*five_point)(const FivePointBatch&, FivePointSolutions&);
};

}  // namespace manymatch

// The kernels of the absolute pose, as a table of functions compiled once per instruction set.
//
// A pose is given as the matrix P = diag(f, f, 1) [R | t] by rows (3, 4), with f the focal length
// relative to the one that the image points were divided by. A point X of the world projects to the
// first two coordinates of P (X, 1) divided by the third, which is its depth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Points of the edges as structure of arrays, padded with NaN to a whole number of 64-edge words;
// the padding is an outlier of every pose. The float32 columns of the world are homogeneous with
// coordinates of at most one, so that a far point does not cost the other points precision.
struct AbsolutePoseEdges {
  const double *x, *y, *X, *Y, *Z;
  const float *xf, *yf, *Xf, *Yf, *Zf, *Wf;
  std::size_t words;
  double largest;  // largest |image coordinate|, at least 1
};

// A batch of samples: point k of sample i is seen at (x[k][i], y[k][i]) on the normalised plane and
// is X[k][c][i] in the world.
constexpr int kPerspectiveBatch = 64;
struct PerspectiveBatch {
  alignas(64) double x[3][kPerspectiveBatch], y[3][kPerspectiveBatch];
  alignas(64) double X[3][3][kPerspectiveBatch];
  int count;
};
constexpr int kThreePointRoots = 4;
struct PerspectiveSolutions {
  int count;
  int sample[kThreePointRoots * kPerspectiveBatch];  // ascending
  double R[kThreePointRoots * kPerspectiveBatch][9];
  double t[kThreePointRoots * kPerspectiveBatch][3];
  double depth[kThreePointRoots * kPerspectiveBatch];  // mean of the three points
};

// Three for the rotation, three for the translation, one for an unknown focal length.
constexpr int kAbsolutePoseParameters = 6, kFocalParameters = 7;

struct AbsolutePoseKernels {
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. Returns the
  // number of bits set.
  int (*screen)(const AbsolutePoseEdges&, const double* P, double eps, uint64_t* mask);
  // Exact inliers in float64: depth > 0 and r^2 < eps^2, r the distance in the image. Squared
  // residuals go to r2 unless it is null, NaN where the depth is not positive.
  int (*inliers)(const AbsolutePoseEdges&, const double* P, double eps2, uint64_t* mask,
                 double* r2);
  void (*three_point)(const PerspectiveBatch&, PerspectiveSolutions&);
  // The step is exp([w]x) (R X + t) + unit dt and, with seven parameters, f exp(df). out: the upper
  // triangle of J'WJ by rows, J'Wr, and the cost (0 for Cauchy's loss: the caller sums it from the
  // residuals).
  void (*normal_equations)(const RefineArrays&, const double* P, double f, double unit,
                           bool with_focal, Loss, double eps2, double* out);
  // Squared residuals, infinite where undefined.
  void (*residuals)(const RefineArrays&, const double* P, double* r2);
  // The two residuals of an edge and their derivatives: r (padded, 2) and J (padded, 2, 7).
  void (*jacobian)(const RefineArrays&, const double* P, double f, double unit, double* r,
                   double* J);
};

}  // namespace manymatch

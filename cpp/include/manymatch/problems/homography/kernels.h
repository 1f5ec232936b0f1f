// The kernels of homography, as a table of functions compiled once per instruction set.
//
// A homography is given by nine numbers by rows, x1 ~ H x0, with Frobenius norm one and the sign
// that makes the third coordinate positive at the points it explains.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Points of the edges as structure of arrays, padded with NaN to a whole number of 64-edge words;
// the padding is an outlier of every homography.
struct HomographyEdges {
  const double *x0, *y0, *x1, *y1;
  const float *x0f, *y0f, *x1f, *y1f;
  std::size_t words;
  double largest0, largest1;  // largest |coordinate| in each image, at least 1
};

// A batch of samples: point k of sample i is (x0[k][i], y0[k][i]) and (x1[k][i], y1[k][i]).
constexpr int kFourPointBatch = 64;
struct FourPointBatch {
  alignas(64) double x0[4][kFourPointBatch], y0[4][kFourPointBatch];
  alignas(64) double x1[4][kFourPointBatch], y1[4][kFourPointBatch];
  int count;
};
struct FourPointSolutions {
  int count;
  int sample[kFourPointBatch];  // ascending
  double H[kFourPointBatch][9];
};

constexpr int kHomographyParameters = 8;
constexpr int kHomographyTriangle = kHomographyParameters * (kHomographyParameters + 1) / 2;

constexpr int kLinearSums = 24;

struct HomographyKernels {
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. With fewer than
  // `enough` edges it may stop early with a larger superset. Returns the number of bits set.
  int (*screen)(const HomographyEdges&, const double* H, double eps, int enough, uint64_t* mask);
  // Exact inliers in float64: r^2 < eps^2, r^2 the mean of the squared transfer errors in the two
  // images. Squared residuals go to r2 unless it is null, NaN where undefined.
  int (*inliers)(const HomographyEdges&, const double* H, double eps2, uint64_t* mask, double* r2);
  void (*four_point)(const FourPointBatch&, FourPointSolutions&);
  // Affine maps through the first three points of each sample.
  void (*three_point)(const FourPointBatch&, FourPointSolutions&);
  // Parameters: the entries of D in H (I + D) by rows, without the last. out: the upper triangle of
  // J'WJ by rows, J'Wr, and the cost (0 for Cauchy's loss: the caller sums it from the residuals).
  void (*normal_equations)(const RefineArrays&, const double* H, Loss, double eps2, double* out);
  // The sums of the direct linear transform over the weighted edges: the upper triangles, by rows,
  // of the sums of z z' with z = (x0, y0, 1), and of it times x1, y1 and x1^2 + y1^2.
  void (*linear_sums)(const RefineArrays&, double* out);
  // Squared residuals, infinite where undefined.
  void (*residuals)(const RefineArrays&, const double* H, double* r2);
  // Four residuals per edge, whose squares sum up to r^2, and their derivatives: r (padded, 4) and
  // J (padded, 4, 8).
  void (*jacobian)(const RefineArrays&, const double* H, double* r, double* J);
};

}  // namespace manymatch

// The kernels of the fundamental matrix, as a table of functions compiled once per instruction set.
//
// A fundamental matrix is given by nine numbers by rows, x1' F x0 = 0, with Frobenius norm one, and
// by its epipole e in image 1, F' e = 0, |e| = 1. The sign of e is such that e x x1 and F x0 have
// the same direction for all points that both cameras see (the oriented epipolar constraint).
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Points of the edges as structure of arrays, padded with NaN to a whole number of 64-edge words;
// the padding is an outlier of every matrix.
struct FundamentalEdges {
  const double *x0, *y0, *x1, *y1;
  const float *x0f, *y0f, *x1f, *y1f;
  std::size_t words;
};

// A batch of samples: point k of sample i is (x0[k][i], y0[k][i]) and (x1[k][i], y1[k][i]).
constexpr int kSevenPointBatch = 64;
constexpr int kSevenPointMaxRoots = 3;
struct SevenPointBatch {
  alignas(64) double x0[7][kSevenPointBatch], y0[7][kSevenPointBatch];
  alignas(64) double x1[7][kSevenPointBatch], y1[7][kSevenPointBatch];
  int count;
};
struct SevenPointSolutions {
  int count;
  int sample[kSevenPointBatch * kSevenPointMaxRoots];  // ascending
  double F[kSevenPointBatch * kSevenPointMaxRoots][9];
  double e[kSevenPointBatch * kSevenPointMaxRoots][3];
};

// Upper triangle of J'WJ by rows, J'Wr, and the cost, for the nine entries of a matrix.
constexpr int kMatrixTriangle = 45, kMatrixSums = kMatrixTriangle + 9 + 1;

struct FundamentalKernels {
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. `slack` bounds
  // the rounding error of the numerator, `side_slack` that of the side. With fewer than `enough`
  // edges it may stop early with a larger superset. Returns the number of bits set.
  int (*screen)(const FundamentalEdges&, const double* F, const double* e, double eps, double slack,
                double side_slack, int enough, uint64_t* mask);
  // Exact inliers in float64: Sampson distance r^2 < eps^2, and the right side. Squared residuals
  // go to r2 unless it is null, NaN where undefined.
  int (*inliers)(const FundamentalEdges&, const double* F, const double* e, double eps2,
                 uint64_t* mask, double* r2);
  // Up to three matrices per sample: those that have all seven points on one side.
  void (*seven_point)(const SevenPointBatch&, SevenPointSolutions&);
  // Sums for the nine entries of F by rows as free parameters. The cost is 0 for Cauchy's loss: the
  // caller sums it from the residuals.
  void (*normal_equations)(const RefineArrays&, const double* F, Loss, double eps2, double* out);
  // Squared residuals, infinite where undefined.
  void (*residuals)(const RefineArrays&, const double* F, double* r2);
  // Signed residuals and their derivatives by the entries of F, row-major (padded, 9).
  void (*jacobian)(const RefineArrays&, const double* F, double* r, double* J);
};

}  // namespace manymatch

// The kernels of rigid transforms and similarities, as a table of functions compiled once per
// instruction set.
//
// A transform is x1 = A x0 + t with A = s R. The residual of an edge is the geometric mean of its
// distances in the two spaces, r^2 = |A x0 + t - x1|^2 / s; for a rigid transform it is the
// distance. Swapping the sides does not change it, and a scale of zero cannot make residuals small.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// By rows.
struct TransformNumbers {
  double A[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  double t[3] = {0, 0, 0};
  double scale = 1;
};

// Points of the edges as structure of arrays, padded with NaN to a whole number of 64-edge words;
// the padding is an outlier of every transform.
struct SpaceEdges {
  const double *x0, *y0, *z0, *x1, *y1, *z1;
  const float *x0f, *y0f, *z0f, *x1f, *y1f, *z1f;
  std::size_t words;
  double largest0, largest1;  // largest |coordinate| of each side, at least 1
};

// A batch of samples: coordinate c of point k of sample i is x0[k][c][i] and x1[k][c][i].
constexpr int kThreePointBatch = 64;
struct ThreePointBatch {
  alignas(64) double x0[3][3][kThreePointBatch];
  alignas(64) double x1[3][3][kThreePointBatch];
  int count;
};
struct ThreePointSolutions {
  int count;
  int sample[kThreePointBatch];  // ascending
  TransformNumbers transform[kThreePointBatch];
};

// A sample has a transform only if the sides of its triangles differ by at most `tolerance` (times
// the root of the scale) and the smallest heights of both are at least `least_height`.
struct ThreePointLimits {
  double tolerance, least_height;
};

// Sums over weighted edges that make up the normal equations, with p = A x0 and d = p + t - x1: w,
// w p, w p p' (upper triangle), w d, w p x d, w p.d, w d.d, and the cost.
enum SpaceSum : int {
  kSumW = 0,
  kSumP = 1,
  kSumPP = 4,
  kSumD = 10,
  kSumPxD = 13,
  kSumPD = 16,
  kSumDD = 17,
  kSumCost = 18,
  kSpaceSums = 19
};

// Two edges can be in one rigid transform if the distances between their ends in the two clouds
// differ by less than the tolerance and are at least the least distance, which excludes edges with
// a common vertex. All squared.
struct PairLimits {
  double tolerance2, least2;
};

struct RigidKernels {
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. Returns the
  // number of bits set.
  int (*screen)(const SpaceEdges&, const TransformNumbers&, double eps, uint64_t* mask);
  // Exact inliers in float64: r^2 < eps^2. Squared residuals go to r2 unless it is null, NaN where
  // undefined.
  int (*inliers)(const SpaceEdges&, const TransformNumbers&, double eps2, uint64_t* mask,
                 double* r2);
  void (*rigid_three_point)(const ThreePointBatch&, const ThreePointLimits&, ThreePointSolutions&);
  void (*similarity_three_point)(const ThreePointBatch&, const ThreePointLimits&,
                                 ThreePointSolutions&);
  // The edges that can be in one rigid transform with a given edge.
  void (*consistent)(const SpaceEdges&, std::size_t edge, const PairLimits&, uint64_t* mask);
  // The cost is 0 for Cauchy's loss: the caller sums it from the residuals.
  void (*sums)(const RefineArrays&, const TransformNumbers&, Loss, double eps2, double* out);
  void (*residuals)(const RefineArrays&, const TransformNumbers&, double* r2);
};

}  // namespace manymatch

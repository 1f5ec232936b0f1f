// The estimator and the exact score, on plain arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/options.h"
#include "manymatch/result.h"

namespace manymatch {

// Arrays belong to the caller. Points are on the normalised planes.
struct PairInput {
  const double *x0, *x1;  // (n0, 2), (n1, 2)
  int n0, n1;
  const int32_t* edges;  // (num_edges, 2), checked by the caller
  int64_t num_edges;
  const int32_t* rank;       // null: unknown
  const uint8_t* proposals;  // null: every edge
  double eps;
  const double *points0, *points1;  // pixels, for the motion filter of kAuto; null: no filter
  const uint8_t* kept;              // what that filter keeps, if it is known; null: run it
};

Estimate estimate_relative_pose(const PairInput& input, Method method, const Options& options,
                                Interrupt& interrupt);

struct PoseScore {
  double hcm;
  int cardinality, num_inliers;
  std::vector<uint8_t> inliers;
  std::vector<double> r2;
};

PoseScore score_pose(const PairInput& input, const Pose& pose, double q, double delta);

// Many pairs, one thread each; the same results as one at a time.
std::vector<Estimate> estimate_relative_poses(const std::vector<PairInput>& inputs, Method method,
                                              const std::vector<Options>& options, int threads,
                                              Interrupt& interrupt);

}  // namespace manymatch

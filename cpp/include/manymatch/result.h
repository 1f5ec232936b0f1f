// What the estimator returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manymatch {

struct Timing {
  double setup = 0, search = 0, local_refine = 0, select = 0, polish = 0, resolve = 0, total = 0;
};

// What an estimate says whatever the geometric problem.
struct Estimate {
  bool success = false;
  std::string failure;
  std::vector<uint8_t> inliers;  // one per edge
  std::vector<int64_t> matched;  // edges of the resolved matching
  std::vector<uint8_t> kept;     // edges the motion filter keeps; empty if it did not run
  double hcm = 0;
  int cardinality = 0;
  int num_inliers = 0;
  int64_t iterations = 0;
  int64_t refinements = 0;
  int pooled = 0;           // raw seeds that stage 1 handed to stage 2
  double worst_pooled = 0;  // least raw score among them
  bool interrupted = false;
  Timing timing;
};

template <class Model>
struct ModelEstimate : Estimate {
  Model model;
};

// Exact score of a given model.
struct ModelScore {
  double hcm;
  int cardinality, num_inliers;
  std::vector<uint8_t> inliers;  // one per edge
  std::vector<double> r2;        // squared residuals, NaN where undefined
};

}  // namespace manymatch

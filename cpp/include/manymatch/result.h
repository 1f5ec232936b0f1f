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
  std::vector<double> trust;     // factor on the priors of each source; empty: one source
  double hcm = 0;
  int cardinality = 0;
  int num_inliers = 0;
  int64_t iterations = 0;
  int64_t refinements = 0;
  int pooled = 0;           // raw seeds that stage 1 handed to stage 2
  double worst_pooled = 0;  // least raw score among them
  bool interrupted = false;
  // Of method "auto". The threshold that was used over the one that was given.
  double threshold = 1.0;
  double noise = 0, noise_deviation = 0;  // of a coordinate of a keypoint, in the points' unit
  double support = 0;                     // log-likelihood of the model over that of chance
  double second_support = 0;  // the same of the best model apart from it, 0 if there is none
  double pool_agreement = 0;  // mean share of the inliers of a seed that the chosen model has too
  Timing timing;
};

// Another model that may be the right one.
template <class Model>
struct Alternative {
  Model model;
  double support = 0;
  double probability = 0;  // given that the estimated model or one of the alternatives is right
  std::vector<int64_t> matched;
};

template <class Model>
struct ModelEstimate : Estimate {
  Model model;
  std::vector<Alternative<Model>> alternatives;  // the likeliest first
};

// Exact score of a given model.
struct ModelScore {
  double hcm;
  int cardinality, num_inliers;
  std::vector<uint8_t> inliers;  // one per edge
  std::vector<double> r2;        // squared residuals, NaN where undefined
};

}  // namespace manymatch

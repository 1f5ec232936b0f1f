// Results of the estimator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manymatch {

struct Timing {
  double setup = 0, search = 0, local_refine = 0, select = 0, polish = 0, resolve = 0, total = 0;
};

// The fields of an estimate that all geometric problems share.
struct Estimate {
  bool success = false;
  std::string failure;
  std::vector<uint8_t> inliers;  // one per edge
  std::vector<int64_t> matched;  // edges of the resolved matching
  std::vector<uint8_t> kept;     // edges that the motion filter keeps; empty if it did not run
  std::vector<double> trust;  // factor on the priors of each source; empty if there is one source
  double hcm = 0;
  int cardinality = 0;
  int num_inliers = 0;
  int64_t iterations = 0;
  int64_t refinements = 0;
  int pooled = 0;           // raw seeds that stage 1 handed to stage 2
  double worst_pooled = 0;  // lowest raw score among them
  bool interrupted = false;
  // The remaining fields are for method "auto". Threshold used, divided by the given one.
  double threshold = 1.0;
  double noise = 0, noise_deviation = 0;  // of a keypoint coordinate, in the unit of the points
  double support = 0;                     // log-likelihood ratio of the model to chance
  Timing timing;
};

// Another model that may be the right one.
template <class Model>
struct Alternative {
  Model model;
  double support = 0;
  double probability = 0;  // if the estimated model or one of the alternatives is right
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

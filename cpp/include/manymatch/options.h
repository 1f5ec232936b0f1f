// Options of the estimator; mirrors manymatch.Options.
#pragma once

#include <cstdint>

namespace manymatch {

enum class Method { kHcmMcm, kHcm, kMcm, kCm };

struct Options {
  int64_t min_iterations = 1000;
  int64_t max_iterations = 100000;
  double confidence = 0.9999;  // eta
  double safety = 3.0;         // kappa
  int pool_size = 100;         // N_c
  double q = 0.3;
  double delta = 0.01;
  double guidance = 0.0;
  uint64_t seed = 0;
  int threads = 1;
};

}  // namespace manymatch

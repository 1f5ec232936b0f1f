// Options of the estimator; mirrors manymatch.Options.
#pragma once

#include <cstdint>

namespace manymatch {

enum class Method { kAuto, kHcmMcm, kHcm, kMcm, kCm };

// Parts of Method::kAuto, as bits of Options::without. Their names are in
// manymatch.options.INGREDIENTS.
namespace ingredient {
inline constexpr unsigned kFilter = 1, kRanks = 2, kMixture = 4, kStopping = 8, kNarrow = 16,
                          kDistinct = 32, kWeights = 64, kPolish = 128;
}  // namespace ingredient

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
  unsigned without = 0;  // ingredients of kAuto that are left out

  bool uses(unsigned part) const { return !(without & part); }
};

}  // namespace manymatch

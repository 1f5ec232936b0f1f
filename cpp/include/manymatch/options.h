// Options of the estimator; mirrors manymatch.Options.
#pragma once

#include <cstdint>

namespace manymatch {

enum class Method { kAuto, kHcmMcm, kHcm, kMcm, kCm };

// Parts of Method::kAuto, as bits of Options::disabled. Their names, in the same order, are in
// AUTO_PARTS of the Python package.
enum AutoPart : unsigned {
  kFilterPart = 1U << 0,
  kRanksPart = 1U << 1,
  kMixturePart = 1U << 2,
  kStoppingPart = 1U << 3,
  kNarrowPart = 1U << 4,
  kDistinctPart = 1U << 5,
  kWeightsPart = 1U << 6,
  kPolishPart = 1U << 7,
  kResidualsPart = 1U << 8,
  kTrustPart = 1U << 9,
  kOverlapPart = 1U << 10,
};

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
  // The estimator chooses the threshold; that of the data is only its unit.
  bool automatic_threshold = false;
  unsigned disabled = 0;  // bits of the parts of kAuto that are switched off

  bool uses(AutoPart part) const { return !(disabled & part); }
};

}  // namespace manymatch

// The robust mechanisms as policies of the loop: HCM, MCM and CM.
//
// A scorer values a mask of inlier edges. `bound` sees a superset of the inliers and returns at
// least the true value; with `needed` it may stop early and return any bound below it.
#pragma once

#include <cstdint>

#include "manymatch/score/hcm.h"
#include "manymatch/score/matching.h"

namespace manymatch {

struct Value {
  double score;
  int inliers;
};

// Running maxima over the raw models of the iterations that passed the gate.
struct RawBest {
  double score = -1.0;  // below every score: all mechanisms start at 0
  int inliers = 0;
};

class HcmScorer {
 public:
  HcmScorer(const Graph& graph, const HcmTerms& terms)
      : evaluate_(graph, terms), largest_step_(terms.largest_step()) {}

  double bound(const uint64_t* mask, int count, double needed) {
    const double quick = count * largest_step_;
    // The margin covers the rounding of sums of a few thousand terms.
    return quick < needed ? quick : evaluate_(mask) * (1.0 + 1e-12);
  }
  double score(const uint64_t* mask, int, const double*) { return evaluate_(mask); }

  static bool gate(const Value& raw, const RawBest& best) {
    return raw.score > best.score || raw.inliers >= best.inliers;
  }

 private:
  HcmEvaluator evaluate_;
  double largest_step_;
};

class McmScorer {
 public:
  explicit McmScorer(const Graph& graph) : matching_(graph) {}

  double bound(const uint64_t* mask, int count, double needed) {
    return count < needed ? count : matching_.cardinality(mask, static_cast<int>(needed));
  }
  double score(const uint64_t* mask, int, const double*) { return matching_.cardinality(mask); }

  static bool gate(const Value& raw, const RawBest& best) { return raw.score >= best.score; }

 private:
  MaximumMatching matching_;
};

// Edges as independent correspondences, truncated squared residuals: sum of 1 - r^2 / eps^2.
class CmScorer {
 public:
  CmScorer(const Graph& graph, double eps2) : words_(graph.words()), inverse_eps2_(1.0 / eps2) {}

  double bound(const uint64_t*, int count, double) { return count; }
  double score(const uint64_t* mask, int, const double* r2) {
    double total = 0.0;
    for_each_bit(mask, words_, [&](int e) { total += 1.0 - r2[e] * inverse_eps2_; });
    return total;
  }

  static bool gate(const Value& raw, const RawBest& best) {
    return raw.score > best.score || raw.inliers > best.inliers;
  }

 private:
  std::size_t words_;
  double inverse_eps2_;
};

}  // namespace manymatch

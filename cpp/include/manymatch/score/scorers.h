// The robust mechanisms as policies of the loop: HCM, MCM and CM.
//
// A scorer values a mask of inlier edges. `bound` sees a superset of the inliers and returns at
// least the true value; with `needed` it may stop early and return any bound below it.
// `fewest_edges` tells how many inliers a score needs at least, `kGateCountsInliers` whether many
// inliers alone open the gate to refinement.
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
  static constexpr bool kGateCountsInliers = true;

  HcmScorer(const Graph& graph, const HcmTerms& terms) : terms_(terms), evaluate_(graph, terms) {}

  int fewest_edges(double score) const { return terms_.fewest_edges(score); }
  // Sums over another set of vertices round differently; the margin covers that.
  double bound(const uint64_t* mask, double) { return evaluate_(mask) * (1.0 + 1e-12); }
  double score(const uint64_t* mask, const double*) { return evaluate_(mask); }

  static bool gate(const Value& raw, const RawBest& best) {
    return raw.score > best.score || raw.inliers >= best.inliers;
  }

 private:
  const HcmTerms& terms_;
  HcmEvaluator evaluate_;
};

class McmScorer {
 public:
  static constexpr bool kGateCountsInliers = false;

  explicit McmScorer(const Graph& graph) : matching_(graph) {}

  int fewest_edges(double score) const { return static_cast<int>(score); }
  double bound(const uint64_t* mask, double needed) {
    return matching_.cardinality(mask, static_cast<int>(needed));
  }
  double score(const uint64_t* mask, const double*) { return matching_.cardinality(mask); }

  static bool gate(const Value& raw, const RawBest& best) { return raw.score >= best.score; }

 private:
  MaximumMatching matching_;
};

// Edges as independent correspondences, truncated squared residuals: sum of 1 - r^2 / eps^2.
class CmScorer {
 public:
  static constexpr bool kGateCountsInliers = true;

  CmScorer(const Graph& graph, double eps2) : words_(graph.words()), inverse_eps2_(1.0 / eps2) {}

  int fewest_edges(double score) const { return static_cast<int>(score); }
  double bound(const uint64_t* mask, double) {
    int count = 0;
    for (std::size_t w = 0; w < words_; ++w) count += __builtin_popcountll(mask[w]);
    return count;
  }
  double score(const uint64_t* mask, const double* r2) {
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

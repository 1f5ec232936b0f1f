// The robust mechanisms HCM, MCM and CM as policies of the loop. A scorer gives a mask of inliers a
// value and knows nothing about the geometry.
#pragma once

#include <concepts>
#include <span>

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

// What the loop needs from a scorer; one object per thread.
template <class S>
concept Scorer = requires(S scorer, const S constant, MaskView mask, std::span<const double> r2,
                          double score, const Value& raw, const RawBest& best) {
  // The value of the inliers in `mask`; r2 holds their squared residuals.
  { scorer.score(mask, r2) } -> std::convertible_to<double>;
  // Upper bound of the value, given a superset of the inliers. If the bound is below `score`, it
  // need not be tight.
  { scorer.bound(mask, score) } -> std::convertible_to<double>;
  // Fewest inliers that can reach a score.
  { constant.fewest_edges(score) } -> std::same_as<int>;
  // Whether a raw model is refined, given the best raw values so far; and whether many inliers
  // alone can be a reason for that.
  { S::gate(raw, best) } -> std::same_as<bool>;
  { S::kGateCountsInliers } -> std::convertible_to<bool>;
};

class HcmScorer {
 public:
  static constexpr bool kGateCountsInliers = true;

  HcmScorer(const Graph& graph, const HcmTerms& terms) : terms_(terms), evaluate_(graph, terms) {}

  int fewest_edges(double score) const { return terms_.fewest_edges(score); }
  // The margin covers rounding: sums over another set of vertices round differently.
  double bound(MaskView mask, double) { return evaluate_(mask) * (1.0 + 1e-12); }
  double score(MaskView mask, std::span<const double>) { return evaluate_(mask); }

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
  double bound(MaskView mask, double needed) {
    return matching_.cardinality(mask, static_cast<int>(needed));
  }
  double score(MaskView mask, std::span<const double>) { return matching_.cardinality(mask); }

  static bool gate(const Value& raw, const RawBest& best) { return raw.score >= best.score; }

 private:
  MaximumMatching matching_;
};

// Edges as independent correspondences with truncated squared residuals: sum of 1 - r^2 / eps^2.
class CmScorer {
 public:
  static constexpr bool kGateCountsInliers = true;

  explicit CmScorer(double eps2) : inverse_eps2_(1.0 / eps2) {}

  int fewest_edges(double score) const { return static_cast<int>(score); }
  double bound(MaskView mask, double) { return count_bits(mask); }
  double score(MaskView mask, std::span<const double> r2) {
    double total = 0.0;
    for_each_bit(mask, [&](int e) { total += 1.0 - r2[at(e)] * inverse_eps2_; });
    return total;
  }

  static bool gate(const Value& raw, const RawBest& best) {
    return raw.score > best.score || raw.inliers > best.inliers;
  }

 private:
  double inverse_eps2_;
};

static_assert(Scorer<HcmScorer> && Scorer<McmScorer> && Scorer<CmScorer>);

}  // namespace manymatch

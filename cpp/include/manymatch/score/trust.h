// How far each source of edges can be trusted, measured on the pair itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/noise.h"

namespace manymatch {

// Measures which share of the priors of each source agrees with a model beyond chance. Each source
// is judged by the model that suits it best, so the right model need not be known: the edges of a
// useless source agree with no model much more than by chance.
class SourceTrust {
 public:
  // Wrong edges are counted between these distances, in thresholds.
  static constexpr double kFirstWrong = 5.0, kLastWrong = 15.0;
  // The best of many models has more edges by chance than a single one; this many standard
  // deviations are subtracted.
  static constexpr double kChanceDeviations = 2.0;
  // Factor on the priors of a useless source.
  static constexpr double kLeastTrust = 0.1;

  // Source and prior of every edge.
  SourceTrust(std::vector<int> source, std::vector<double> prior, int num_sources, ResidualLaw law);

  // Adds a model: its inliers, and the residuals of all edges in squared thresholds.
  void look_at(MaskView inliers, std::span<const double> squared);
  // Factor of each source: its measured share divided by the share that its priors promise,
  // relative to the best source. If the priors are right, the edges that agree have the share
  // sum(p^2) / sum(p) of them; that is more for a few confident edges of a matcher than for five
  // candidates per keypoint.
  std::vector<double> factors() const;
  static double factor_of(double relative_share) {
    return std::max(relative_share * relative_share, kLeastTrust);
  }

 private:
  std::vector<int> source_;
  std::vector<double> prior_;
  ResidualLaw law_;
  std::vector<double> total_, unit_;  // per source: sum(p) and sum(p^2) / sum(p)
  std::vector<double> share_;         // per source: the largest share so far
};

// Factor on the prior of every edge: the confidence of its matcher relative to the mean of its
// source over the considered edges, within bounds.
std::vector<double> belief_factors(std::span<const double> belief, std::span<const int32_t> source,
                                   std::span<const int> considered);

}  // namespace manymatch

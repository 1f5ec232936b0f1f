// How far each source of edges can be trusted, judged by the pair itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/noise.h"

namespace manymatch {

// Which share of the priors of each source lies at a model beyond chance. Each source is judged by
// the model that suits it best: which model is right need not be known, and the edges of a source
// that shows nothing of the scene agree with no model much more than by chance.
class SourceTrust {
 public:
  // Wrong edges are counted between these distances, in thresholds.
  static constexpr double kFirstWrong = 5.0, kLastWrong = 15.0;
  // The best of many models has more edges by chance than one has: so many standard deviations.
  static constexpr double kChanceDeviations = 2.0;
  // Factor on the priors of a source that shows nothing.
  static constexpr double kLeastTrust = 0.1;

  // Source and prior of every edge.
  SourceTrust(std::vector<int> source, std::vector<double> prior, int num_sources, ResidualLaw law);

  // Takes a model: its inliers, and all residuals in squared thresholds.
  void look_at(MaskView inliers, std::span<const double> squared);
  // Factor of each source: how far its share is what its priors promise, relative to the source
  // that keeps most. If priors are right, the edges that agree have the share
  // sum(p^2) / sum(p) of them, which is more for a matcher's few sure edges than for five
  // candidates per keypoint.
  std::vector<double> factors() const;
  static double factor_of(double relative_share) {
    return std::max(relative_share * relative_share, kLeastTrust);
  }

 private:
  std::vector<int> source_;
  std::vector<double> prior_;
  ResidualLaw law_;
  std::vector<double> total_, unit_;  // of each source: sum(p) and sum(p^2) / sum(p)
  std::vector<double> share_;         // the largest so far
};

// Factor on the prior of every edge by what its matcher says of it: how that compares with the mean
// of its source among the considered edges, within bounds.
std::vector<double> belief_factors(std::span<const double> belief, std::span<const int32_t> source,
                                   std::span<const int> considered);

}  // namespace manymatch

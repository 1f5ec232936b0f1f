// The overlap of two clouds as evidence for a transform, and a search for transforms with a large
// overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/problems/rigid/overlap.h"
#include "manymatch/problems/rigid/problem.h"
#include "manymatch/ransac/selection.h"

namespace manymatch {

// How improbable a share of near points is for a wrong transform: minus the logarithm of the
// probability that a wrong one has a larger share. The largest shares of many wrong transforms
// follow an exponential law.
class ShareOfWrong {
 public:
  ShareOfWrong() = default;
  // The largest shares of `all` wrong transforms, and the mean of all.
  ShareOfWrong(std::span<const double> largest, std::size_t all, double mean);

  bool known() const { return slope_ > 0.0; }
  double nats(double share) const {
    if (share < start_) return std::max(0.0, share - mean_) * nats_ / (start_ - mean_);
    return nats_ + (share - start_) * slope_;
  }

 private:
  double mean_ = 0.0;
  double start_ = 0.0, nats_ = 0.0;  // where the exponential law begins
  double slope_ = 0.0;
};

// On surfaces that resemble themselves a wrong transform can have more inliers than the true one,
// but its clouds hardly overlap. Evidence is how far the overlap exceeds that of wrong transforms
// of the same pair. There is none if the graph holds matched points only.
template <bool kFreeScale>
class OverlapEvidence {
 public:
  using P = TransformProblem<kFreeScale>;
  using Model = Transform<kFreeScale>;

  OverlapEvidence(const P& problem, const VertexPoints& points, const Graph& whole);

  // If the edges support several transforms, measures the overlap of wrong ones and, unless that of
  // `best` is far beyond it, looks for transforms with a larger overlap.
  std::vector<Model> search(const Model& best, const std::vector<SupportedModel<Model>>& refined,
                            uint64_t seed, Interrupt& interrupt);

  // Nats of support; 0 before the search.
  double operator()(const Model& model) const;

 private:
  // Support of a nat of evidence: points of one patch of a surface agree together, and so do edges.
  static constexpr double kPerNat = 8.0;

  struct Found {
    Model model;
    double share, score;
  };
  bool sample(uint64_t seed, int number, typename P::Workspace& space);
  // Overlap of a model; the last stage asks for that of the same models several times.
  double share_of(const Model& model) const;

  const P& problem_;
  const VertexPoints& points_;
  const bool holds_clouds_;
  std::optional<CloudOverlap> overlap_;
  mutable std::vector<std::pair<Model, double>> shares_;
  ShareOfWrong chance_;
  // Transforms with the largest shares that were found, of how many, and the mean share of these.
  std::vector<Found> rivals_;
  std::size_t num_found_ = 0;
  double mean_share_ = 0.0;
  // Buffers of `sample`.
  Mask row_;
  std::vector<int> agreeing_, samples_;
  Solutions<Model> solutions_;
};

extern template class OverlapEvidence<false>;
extern template class OverlapEvidence<true>;

}  // namespace manymatch

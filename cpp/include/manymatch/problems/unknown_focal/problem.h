// Relative pose of two pinhole cameras of which one or both have an unknown focal length.
//
// Points are about the principal points and in one unit for both images, so that a focal length is
// the third component of the rays of its camera, and residuals are Sampson distances in images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/problems/points.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "manymatch/ransac/selection.h"

namespace manymatch {

struct FocalPose {
  Pose pose;
  double f[2] = {1.0, 1.0};
  // Standard deviation of the logarithm of each focal length among the models that were compared
  // with this one (UnknownFocalProblem::note_spread); 0 if there were none.
  double spread[2] = {0.0, 0.0};
};

// What is known of the focal lengths: log-normal priors, of which a standard deviation of 0 says
// that the focal length is known. If `shared`, both are unknown, equal, and have the first prior.
struct FocalPriors {
  double log_median[2], sigma[2];
  bool shared;

  bool unknown(int side) const { return sigma[side] > 0.0; }
  // Logarithm of the density over that at the medians.
  double log_density(const FocalPose& model) const;
};

struct FocalPoints : VertexPoints {
  FocalPriors priors;
  // What the focal lengths of minimal samples are drawn from: the priors, or what is close to a
  // model.
  FocalPriors drawn;

  // Parameters: median and standard deviation of the logarithm of each focal length, and whether
  // they are one. Throws std::invalid_argument.
  FocalPoints(const VertexPoints& points, std::span<const double> parameters);
  FocalPoints near(const FocalPose& model, int round) const;
  // With focal lengths that are known: number k of values all over the priors. If there are two
  // unknown ones, they keep the ratio of the model.
  FocalPoints held(int k, const FocalPose& model) const;
  // Of such points: gives a model these focal lengths; what support a model may lose on the way.
  void hold(FocalPose& model) const;
  double way(const FocalPose& model) const;
};

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
LmResult refine_focal_pose(FocalPose& model, const FocalPriors& priors, RefineColumns& columns,
                           std::span<const double> weights, Loss loss, double eps2,
                           int max_iterations);

class UnknownFocalProblem {
 public:
  using Model = FocalPose;
  using Data = FocalPoints;
  using Workspace = RelativePoseProblem::Workspace;
  // A sample is that of a known focal length, and one is drawn with it.
  static constexpr int kSampleSize = RelativePoseProblem::kSampleSize;
  static constexpr int kDimension0 = 2, kDimension1 = 2;
  static constexpr const char* kModelName = RelativePoseProblem::kModelName;
  static constexpr double kPolishReach = RelativePoseProblem::kPolishReach;
  static constexpr double kPolishScale = RelativePoseProblem::kPolishScale;
  static constexpr int kResidualDimensions = RelativePoseProblem::kResidualDimensions;
  static bool same(const FocalPose& a, const FocalPose& b) {
    return RelativePoseProblem::same(a.pose, b.pose);
  }
  static bool apart(const FocalPose& a, const FocalPose& b) {
    return RelativePoseProblem::apart(a.pose, b.pose);
  }
  // Other focal lengths can be another optimum.
  static bool starts_apart(const FocalPose& a, const FocalPose& b);
  // A seed with the inliers of a refined model can still be another one.
  static bool leads_elsewhere(const FocalPose& a, const FocalPose& b);
  // The last stage draws focal lengths from the prior in the first rounds, near the best after
  // that, and looks at more models than if the focal length is known.
  static constexpr int kSettleRounds = 4, kWideRounds = 2;
  static constexpr std::size_t kOtherPolished = 8;
  // Models with focal lengths over the priors are compared at the end: how likely each is, what it
  // costs to take one if the other is right, and how far their focal lengths spread.
  static constexpr int kRivals = 14;
  static double log_probability(double support);
  static double loss(const FocalPose& a, const FocalPose& b);
  static void note_spread(FocalPose& model, const std::vector<SupportedModel<FocalPose>>& rivals);
  // Share of the samples whose focal length is close enough to the right one.
  static constexpr double kSampleChance = 0.25;

  UnknownFocalProblem(const Graph& graph, const FocalPoints& points);
  // arrays_ points into the other members.
  UnknownFocalProblem(const UnknownFocalProblem&) = delete;
  UnknownFocalProblem& operator=(const UnknownFocalProblem&) = delete;

  const Graph& graph() const { return graph_; }
  double eps() const { return eps_; }
  static Workspace workspace() { return RelativePoseProblem::workspace(); }
  // What the priors add to the support of a model.
  double log_prior(const FocalPose& model) const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<FocalPose>& out) const;
  int screen(const FocalPose& model, int enough, std::span<uint64_t> mask) const;
  int inliers(const FocalPose& model, std::span<uint64_t> mask, std::span<double> r2) const;
  int within(const FocalPose& model, double limit2, std::span<uint64_t> mask) const;
  LmResult refine(FocalPose& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  // What speaks against optical axes that differ by more than the field of view.
  double log_overlap(const FocalPose& model) const;
  // Focal lengths that go with a sample: a function of its edges.
  void draw(std::span<const int> sample, double* f) const;

  const Graph& graph_;
  double eps_;
  EdgePoints points_;
  FocalPriors priors_, drawn_;
  EdgeArrays arrays_;
  double largest_[2];  // squared distances from the principal points
};

static_assert(Problem<UnknownFocalProblem>);

}  // namespace manymatch

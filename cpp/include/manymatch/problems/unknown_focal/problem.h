// Relative pose of two pinhole cameras, one or both of unknown focal length.
//
// Points are relative to the principal points and have the same unit in both images. A focal length
// in that unit is the third component of the rays of its camera. Residuals are Sampson distances in
// the images.
#pragma once

#include <algorithm>
#include <cmath>
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
  // Standard deviation of the logarithm of each focal length among the likely models; 0 if none
  // were compared with this one.
  double spread[2] = {0.0, 0.0};
};

// Priors of the logarithms of the focal lengths. A standard deviation of 0 means that the focal
// length is known. If `shared`, both are unknown and equal, and the first prior holds for both.
struct FocalPriors {
  double log_median[2], sigma[2];
  bool shared;

  bool unknown(int side) const { return sigma[side] > 0.0; }
  // Log-density relative to the density at the medians: Student's t with three degrees of freedom.
  // Most cameras are closer to the median than a normal law of that deviation says, few much
  // farther.
  double log_density(const FocalPose& model) const;
};

struct FocalPoints : VertexPoints {
  FocalPriors priors;
  // Distribution of the focal lengths that are drawn for samples: the priors, or close to a model.
  FocalPriors drawn;

  // `parameters`: median and standard deviation of the logarithm of each focal length, and whether
  // both cameras share one focal length. Throws std::invalid_argument.
  FocalPoints(const VertexPoints& points, std::span<const double> parameters);
  // The same points with focal lengths held at value number k of kHeld values over the priors. Two
  // unknown focal lengths keep the ratio that they have in the model.
  static constexpr int kHeld = 14;
  FocalPoints held(int k, const FocalPose& model) const;
  // Gives a model the focal lengths of these points, which must be held.
  void hold(FocalPose& model) const;
  // Estimate of the support that a model loses when it is given these focal lengths.
  double cost_of_holding(const FocalPose& model) const;
};

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
LmResult refine_focal_pose(FocalPose& model, const FocalPriors& priors, RefineColumns& columns,
                           std::span<const double> weights, Loss loss, double eps2,
                           int max_iterations);

class UnknownFocalProblem : public PointProblem<UnknownFocalProblem> {
 public:
  using Model = FocalPose;
  using Data = FocalPoints;
  using Workspace = RelativePoseProblem::Workspace;
  // A focal length is drawn for each sample, which then determines the pose.
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
  // Different focal lengths can lead to different optima.
  static bool starts_apart(const FocalPose& a, const FocalPose& b);
  static bool leads_elsewhere(const FocalPose& a, const FocalPose& b);
  // The last stage draws focal lengths from the prior in the first kWideRounds rounds and near the
  // best model after that. It polishes more models than if the focal length is known.
  static constexpr int kSettleRounds = 4, kWideRounds = 2;
  static constexpr std::size_t kOtherPolished = 8;
  static FocalPoints data_near(const FocalPoints& points, const FocalPose& model, int round);
  // A wrong edge is more often an inlier of the best model if the focal length is free: models can
  // bend towards wrong edges. So an edge needs more to count, and large residuals count less.
  static constexpr double kWrongInliers = 3.0, kMostSupportScale = 0.6;
  static double chance_of_wrong_inlier(std::span<const double>, double delta) {
    return kWrongInliers * delta;
  }
  static double support_scale(double scale) { return std::min(scale, kMostSupportScale); }
  // Share of the samples whose focal length is close enough to the right one.
  static constexpr double kSampleChance = 0.25;
  // Edges often hardly determine the focal length, and the model with the most support is then at
  // one end of a flat valley. Compares it with models whose focal lengths are held at values over
  // the priors, chooses the one with the least expected loss, and notes the spread of the focal
  // lengths.
  template <class Settlement>
  static void conclude(Settlement& settlement);
  // Log-probability of a model, up to a constant; loss of taking model a if b is right.
  static double log_probability(double support);
  static double loss(const FocalPose& a, const FocalPose& b);
  static void note_spread(FocalPose& model, const std::vector<SupportedModel<FocalPose>>& models);

  UnknownFocalProblem(const Graph& graph, const FocalPoints& points);

  static Workspace workspace() { return RelativePoseProblem::workspace(); }
  // What the priors add to the support of a model.
  double log_prior(const FocalPose& model) const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<FocalPose>& out) const;
  int screen(const FocalPose& model, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const FocalPose& model, double limit2, uint64_t* mask, double* r2) const;
  LmResult refine(FocalPose& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  // Models less likely than this, relative to the likeliest one, are not chosen by conclude().
  static constexpr double kLeastWeight = 1e-3;

  // Log-penalty of optical axes that differ by more than the field of view.
  double log_overlap(const FocalPose& model) const;
  // Draws the focal lengths of a sample. They depend only on its edges.
  void draw(std::span<const int> sample, double* f) const;

  FocalPriors priors_, drawn_;
  EdgeArrays arrays_;
  double largest_[2];  // squared distances from the principal points
};

template <class Settlement>
void UnknownFocalProblem::conclude(Settlement& settlement) {
  std::vector<SupportedModel<FocalPose>> models{settlement.best()};
  std::vector<FocalPoints> data;
  for (int k = 0; k < FocalPoints::kHeld; ++k) {
    data.push_back(settlement.data().held(k, settlement.best().model));
    const FocalPoints& held = data.back();
    // Starts from the model that is expected to keep the most support.
    const auto* start = &settlement.best();
    double most = start->support - held.cost_of_holding(start->model);
    for (const auto& other : settlement.polished()) {
      const double expected = other.support - held.cost_of_holding(other.model);
      if (expected > most) {
        most = expected;
        start = &other;
      }
    }
    models.push_back(*start);
    held.hold(models.back().model);
  }
  settlement.polish_under(data, std::span(models).subspan(1));
  std::vector<double> weight;
  for (const auto& model : models) weight.push_back(log_probability(model.support));
  const double largest = *std::max_element(weight.begin(), weight.end());
  for (double& w : weight) w = std::exp(w - largest);
  std::size_t chosen = 0;
  double least = 0.0;
  for (std::size_t i = 0; i < models.size(); ++i) {
    // With focal lengths far from the best ones, a pose may stay where it was and have a small loss
    // although no edge supports it.
    if (i != 0 && weight[i] < kLeastWeight) continue;
    double expected = 0.0;
    for (std::size_t j = 0; j < models.size(); ++j) {
      expected += weight[j] * loss(models[i].model, models[j].model);
    }
    if (i == 0 || expected < least) {
      chosen = i;
      least = expected;
    }
  }
  if (chosen != 0) settlement.replace_best(models[chosen].model);
  note_spread(settlement.best().model, models);
}

static_assert(Problem<UnknownFocalProblem>);

}  // namespace manymatch

#include "manymatch/problems/unknown_focal/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "manymatch/refine/robust_least_squares.h"
#include "manymatch/rng.h"

namespace manymatch {

namespace {

const UnknownFocalKernels& focal_kernels() { return kernels<UnknownFocalKernels>(); }

// The logarithm of a focal length stays within this many standard deviations of its prior.
constexpr double kMostDeviations = 4.0;
// A logistic variable of scale 1 has this standard deviation.
constexpr double kLogisticDeviation = 1.8137993642342178;
// Standard deviations of the logarithm of focal lengths that are drawn near a model: in the first
// such round, and later.
constexpr double kNear = 0.3, kNearer = 0.1;
// Focal lengths whose logarithms differ by more than this can lead to different optima.
constexpr double kStartsApart = 0.1;
// Edges are not independent: this many nats of support make a model e times as likely (the same as
// for alternatives in estimator.h). So the log-prior has this weight beside the support.
constexpr double kNatsPerOdds = 16.0;
// Weight of the log-prior in a refinement, where it should only fix what the edges leave open.
constexpr double kRefineWeight = 0.1;
// The optical axes of two cameras that see the same things seldom differ by more than the field of
// view minus 20 degrees; each degree beyond costs a nat (both numbers are in radians). Without
// this, models with long focal lengths and cameras far around the scene explain nearly everything.
constexpr double kOverlap = 0.34906585, kNatsPerRadian = 57.29578;
// Largest loss: that of poses that differ by 10 degrees or more, in radians.
constexpr double kMostLoss = 0.17453293;
// Held focal lengths span this many standard deviations of the prior to either side. A model loses
// about kNatsPerHeld nats per unit of the logarithm when it is given another focal length.
constexpr double kHeldDeviations = 2.0, kNatsPerHeld = 100.0;
// A seed leads elsewhere if the logarithm of a focal length differs by more than this from that of
// the refined model, or the rotation by more than 10 degrees (given as a cosine).
constexpr double kLeadsElsewhere = 0.2;
constexpr double kOtherRotation = 0.98480775;

constexpr int kAll = kPoseParameters<double>;

TwoViews<double> views_of(const FocalPose& model) {
  return {model.pose.R, model.pose.t, model.f[0], model.f[1]};
}

struct FocalTerms {
  static void normal_equations(const RefineArrays& edges, const FocalPose& model, Loss loss,
                               double eps2, double* out) {
    double tangent[6];
    tangent_plane(model.pose.t, tangent);
    focal_kernels().normal_equations(edges, views_of(model), tangent, loss, eps2, out);
  }
  static void residuals(const RefineArrays& edges, const FocalPose& model, double* r2) {
    focal_kernels().residuals(edges, views_of(model), r2);
  }
};

// The system of the free parameters: five of the pose and up to two focal lengths.
template <int N>
struct FocalSystem {
  RobustSystem<kAll, FocalPose, FocalTerms> edges;
  const FocalPriors& priors;
  double prior_weight;  // cost of a deviation by one sigma
  int column[2];        // number of the parameter for each focal length, -1 if it is known

  FocalSystem(const RobustSystem<kAll, FocalPose, FocalTerms>& system, const FocalPriors& all,
              double weight)
      : edges(system), priors(all), prior_weight(weight) {
    column[0] = priors.unknown(0) ? 5 : -1;
    column[1] = priors.unknown(1) ? (N == 7 ? 6 : 5) : -1;
  }

  double linearise(const FocalPose& model, double* upper, double* gradient) const {
    double all[kAll * (kAll + 1) / 2], slope[kAll], square[N][N] = {};
    double cost = edges.linearise(model, all, slope);
    int into[kAll] = {0, 1, 2, 3, 4, column[0], column[1]};
    std::fill_n(gradient, N, 0.0);
    int slot = 0;
    for (int i = 0; i < kAll; ++i) {
      if (into[i] >= 0) gradient[into[i]] += slope[i];
      for (int j = i; j < kAll; ++j, ++slot) {
        if (into[i] < 0 || into[j] < 0) continue;
        square[into[i]][into[j]] += all[slot];
        if (i != j && into[i] == into[j]) square[into[i]][into[j]] += all[slot];
      }
    }
    for (int side = 0; side < (priors.shared ? 1 : 2); ++side) {
      if (column[side] < 0) continue;
      const double s = priors.sigma[side], off = std::log(model.f[side]) - priors.log_median[side];
      cost += prior_weight * off * off / (s * s);
      gradient[column[side]] += prior_weight * off / (s * s);
      square[column[side]][column[side]] += prior_weight / (s * s);
    }
    slot = 0;
    for (int i = 0; i < N; ++i) {
      for (int j = i; j < N; ++j) upper[slot++] = square[i][j];
    }
    return cost;
  }

  FocalPose move(const FocalPose& model, const double* step) const {
    double tangent[6];
    tangent_plane(model.pose.t, tangent);
    FocalPose moved = model;
    moved.pose = perturb(model.pose, tangent, step);
    for (int side = 0; side < 2; ++side) {
      if (column[side] < 0) continue;
      const double middle = priors.log_median[side], most = kMostDeviations * priors.sigma[side];
      moved.f[side] = std::exp(
          std::clamp(std::log(model.f[side]) + step[column[side]], middle - most, middle + most));
    }
    return moved;
  }
};

}  // namespace

double FocalPriors::log_density(const FocalPose& model) const {
  double sum = 0.0;
  for (int side = 0; side < (shared ? 1 : 2); ++side) {
    if (!unknown(side)) continue;
    const double z = (std::log(model.f[side]) - log_median[side]) / sigma[side];
    sum -= 2.0 * std::log1p(z * z);
  }
  return sum;
}

FocalPoints::FocalPoints(const VertexPoints& points, std::span<const double> parameters)
    : VertexPoints(points) {
  const auto p = parameters;
  if (p.size() != 5 || !(p[0] > 0.0) || !(p[1] >= 0.0) || !(p[2] > 0.0) || !(p[3] >= 0.0) ||
      (p[4] != 0.0 && !(p[1] > 0.0 && p[0] == p[2] && p[1] == p[3]))) {
    throw std::invalid_argument(
        "parameters must be the median and the standard deviation of the logarithm of each focal "
        "length, and whether both cameras share one focal length");
  }
  priors = {{std::log(p[0]), std::log(p[2])}, {p[1], p[3]}, p[4] != 0.0};
  drawn = priors;
}

FocalPoints UnknownFocalProblem::data_near(const FocalPoints& points, const FocalPose& model,
                                           int round) {
  FocalPoints out = points;
  const int narrow = round - kWideRounds;
  for (int side = 0; side < 2; ++side) {
    if (narrow < 0 || !points.priors.unknown(side)) continue;
    out.drawn.log_median[side] = std::log(model.f[side]);
    out.drawn.sigma[side] = std::min(narrow == 0 ? kNear : kNearer, points.priors.sigma[side]);
  }
  return out;
}

FocalPoints FocalPoints::held(int k, const FocalPose& model) const {
  FocalPoints out = *this;
  const double place = 2.0 * k / (kHeld - 1) - 1.0;
  const int first = priors.unknown(0) ? 0 : 1;
  const double value = priors.log_median[first] + kHeldDeviations * priors.sigma[first] * place;
  for (int side = 0; side < 2; ++side) {
    if (!priors.unknown(side)) continue;
    out.priors.log_median[side] = value + std::log(model.f[side] / model.f[first]);
    out.priors.sigma[side] = 0.0;
  }
  out.priors.shared = false;
  out.drawn = out.priors;
  return out;
}

void FocalPoints::hold(FocalPose& model) const {
  for (int side = 0; side < 2; ++side) model.f[side] = std::exp(priors.log_median[side]);
}

double FocalPoints::cost_of_holding(const FocalPose& model) const {
  return kNatsPerHeld * (std::abs(std::log(model.f[0]) - priors.log_median[0]) +
                         std::abs(std::log(model.f[1]) - priors.log_median[1]));
}

LmResult refine_focal_pose(FocalPose& model, const FocalPriors& priors, RefineColumns& columns,
                           std::span<const double> weights, Loss loss, double eps2,
                           int max_iterations) {
  double count = 0.0, total = 0.0;
  for (double w : weights) {
    count += w > 0.0 ? 1.0 : 0.0;
    total += w;
  }
  if (count == 0.0) return {};
  // The noise is about the scale of Cauchy's loss, and half of where the other losses end.
  const double variance = loss == Loss::kCauchy ? eps2 : 0.25 * eps2;
  const double prior_weight = kRefineWeight * variance * total / (count * count);
  const RobustSystem<kAll, FocalPose, FocalTerms> edges{columns.arrays(weights), columns.r2, loss,
                                                        eps2, 1.0 / count};
  FocalPose refined = model;
  LmResult result;
  if (!priors.unknown(0) && !priors.unknown(1)) {
    FocalSystem<5> system(edges, priors, prior_weight);
    result = levenberg_marquardt<5>(refined, system, max_iterations);
  } else if (!priors.shared && priors.unknown(0) && priors.unknown(1)) {
    FocalSystem<7> system(edges, priors, prior_weight);
    result = levenberg_marquardt<7>(refined, system, max_iterations);
  } else {
    FocalSystem<6> system(edges, priors, prior_weight);
    result = levenberg_marquardt<6>(refined, system, max_iterations);
  }
  result.initial_cost *= count;
  result.cost *= count;
  normalise(refined.pose);
  if (is_finite(refined.pose)) model = refined;
  return result;
}

bool UnknownFocalProblem::starts_apart(const FocalPose& a, const FocalPose& b) {
  return apart(a, b) || std::abs(std::log(a.f[0] / b.f[0])) > kStartsApart ||
         std::abs(std::log(a.f[1] / b.f[1])) > kStartsApart;
}

bool UnknownFocalProblem::leads_elsewhere(const FocalPose& a, const FocalPose& b) {
  double trace = 0.0;
  for (int i = 0; i < 9; ++i) trace += a.pose.R[i] * b.pose.R[i];
  return 0.5 * (trace - 1.0) < kOtherRotation ||
         std::abs(std::log(a.f[0] / b.f[0])) > kLeadsElsewhere ||
         std::abs(std::log(a.f[1] / b.f[1])) > kLeadsElsewhere;
}

double UnknownFocalProblem::loss(const FocalPose& a, const FocalPose& b) {
  double trace = 0.0, cosine = 0.0;
  for (int i = 0; i < 9; ++i) trace += a.pose.R[i] * b.pose.R[i];
  for (int i = 0; i < 3; ++i) cosine += a.pose.t[i] * b.pose.t[i];
  const double least = std::min(0.5 * (trace - 1.0), cosine);
  return std::min(std::acos(std::clamp(least, -1.0, 1.0)), kMostLoss);
}

void UnknownFocalProblem::note_spread(FocalPose& model,
                                      const std::vector<SupportedModel<FocalPose>>& models) {
  double most = models[0].support, total = 0.0, squares[2] = {0.0, 0.0};
  for (const auto& other : models) most = std::max(most, other.support);
  for (const auto& other : models) {
    const double weight = std::exp((other.support - most) / kNatsPerOdds);
    total += weight;
    for (int side = 0; side < 2; ++side) {
      const double off = std::log(other.model.f[side] / model.f[side]);
      squares[side] += weight * off * off;
    }
  }
  for (int side = 0; side < 2; ++side) model.spread[side] = std::sqrt(squares[side] / total);
}

UnknownFocalProblem::UnknownFocalProblem(const Graph& graph, const FocalPoints& points)
    : PointProblem(graph, points),
      priors_(points.priors),
      drawn_(points.drawn),
      largest_{0.0, 0.0} {
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const double r0 = points_.x0[e] * points_.x0[e] + points_.y0[e] * points_.y0[e];
    const double r1 = points_.x1[e] * points_.x1[e] + points_.y1[e] * points_.y1[e];
    if (!std::isfinite(r0) || !std::isfinite(r1)) {  // stays an outlier
      points_.x0[e] = points_.x1[e] = std::numeric_limits<double>::quiet_NaN();
      points_.x0f[e] = points_.x1f[e] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    largest_[0] = std::max(largest_[0], r0);
    largest_[1] = std::max(largest_[1], r1);
  }
  arrays_ = {points_.x0.data(),  points_.y0.data(),  nullptr,
             points_.x1.data(),  points_.y1.data(),  nullptr,
             points_.x0f.data(), points_.y0f.data(), nullptr,
             points_.x1f.data(), points_.y1f.data(), nullptr,
             graph.words()};
}

double UnknownFocalProblem::log_prior(const FocalPose& model) const {
  return kNatsPerOdds * priors_.log_density(model) + log_overlap(model);
}

double UnknownFocalProblem::log_overlap(const FocalPose& model) const {
  double field = 0.0;  // mean of the two fields of view, between the farthest points
  for (int side = 0; side < 2; ++side)
    field += std::atan(std::sqrt(largest_[side]) / model.f[side]);
  const double between = std::acos(std::clamp(model.pose.R[8], -1.0, 1.0));
  return -kNatsPerRadian * std::max(0.0, between - std::max(field - kOverlap, 0.0));
}

double UnknownFocalProblem::log_probability(double support) { return support / kNatsPerOdds; }

void UnknownFocalProblem::draw(std::span<const int> sample, double* f) const {
  uint64_t key = 0;
  for (int e : sample) key = mix64(key + static_cast<uint64_t>(e) + 0x9e3779b97f4a7c15ULL);
  Rng rng(key, 0, Rng::kSample);
  for (int side = 0; side < 2; ++side) {
    f[side] = std::exp(drawn_.log_median[side]);
    if (!drawn_.unknown(side)) continue;
    // Logistic: close to normal, with longer tails.
    const double u = std::clamp(rng.uniform(), 1e-4, 1.0 - 1e-4);
    f[side] *= std::exp(drawn_.sigma[side] / kLogisticDeviation * std::log(u / (1.0 - u)));
    if (drawn_.shared) {
      f[1] = f[0];
      return;
    }
  }
}

void UnknownFocalProblem::solve(std::span<const int> samples, Workspace& space,
                                Solutions<FocalPose>& out) const {
  FivePointBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / kSampleSize;
  double f[kBatch][2];
  for (int i = 0; i < batch.count; ++i) {
    const std::span<const int> sample = samples.subspan(at(kSampleSize * i), kSampleSize);
    draw(sample, f[i]);
    for (int k = 0; k < kSampleSize; ++k) {
      const std::size_t e = at(sample[at(k)]);
      const double ray0[3] = {points_.x0[e], points_.y0[e], f[i][0]};
      const double ray1[3] = {points_.x1[e], points_.y1[e], f[i][1]};
      const double n0 = 1.0 / std::sqrt(ray0[0] * ray0[0] + ray0[1] * ray0[1] + ray0[2] * ray0[2]);
      const double n1 = 1.0 / std::sqrt(ray1[0] * ray1[0] + ray1[1] * ray1[1] + ray1[2] * ray1[2]);
      for (int c = 0; c < 3; ++c) {
        batch.b0[k][c][i] = n0 * ray0[c];
        batch.b1[k][c][i] = n1 * ray1[c];
      }
    }
  }
  kernels<RelativePoseKernels>().five_point(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    const int sample = space.solutions->sample[i];
    FocalPose model{{}, {f[sample][0], f[sample][1]}};
    std::copy_n(space.solutions->R[i], 9, model.pose.R);
    std::copy_n(space.solutions->t[i], 3, model.pose.t);
    out.models.push_back(model);
    out.sample.push_back(sample);
  }
}

int UnknownFocalProblem::screen(const FocalPose& model, int enough,
                                std::span<uint64_t> mask) const {
  // Rounding errors of x1' E x0 and sqrt(den), as in RelativePoseProblem.
  const double length0 = std::sqrt(largest_[0] + model.f[0] * model.f[0]);
  const double length1 = std::sqrt(largest_[1] + model.f[1] * model.f[1]);
  const double slack = 1.4e-6 * length0 * length1 + 1.5e-6 * eps_ * std::max(length0, length1);
  if (!(slack < 0.5 * eps_ && eps_ < 1e3 && length0 < 1e3 && length1 < 1e3)) {
    return inliers(model, mask, {});
  }
  return focal_kernels().screen(arrays_, views_of(model), eps_, slack, enough, mask.data());
}

int UnknownFocalProblem::inliers_below(const FocalPose& model, double limit2, uint64_t* mask,
                                       double* r2) const {
  return focal_kernels().inliers(arrays_, views_of(model), limit2, mask, r2);
}

LmResult UnknownFocalProblem::refine(FocalPose& model, const GatheredEdges& edges, Loss loss,
                                     double scale2, int max_iterations, Workspace& space) const {
  RefineColumns& columns = space.columns;
  columns.gather(edges, points_);
  return refine_focal_pose(model, priors_, columns, edges.weights(), loss, scale2, max_iterations);
}

}  // namespace manymatch

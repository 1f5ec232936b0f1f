#include "manymatch/problems/absolute_pose/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "manymatch/problems/relative_pose/pose.h"
#include "manymatch/refine/robust_least_squares.h"
#include "manymatch/rng.h"

namespace manymatch {

namespace {

const AbsolutePoseKernels& pose_kernels() { return kernels<AbsolutePoseKernels>(); }

// Cosine of 4 degrees; a tenth of the depth of the points.
constexpr double kSameRotation = 0.99756405, kSameCentre = 0.1;
// Standard deviation of the logarithm of focal lengths that are drawn near a model.
constexpr double kNearFocal = 0.05;

template <int N>
struct ProjectionTerms {
  static_assert(N == kAbsolutePoseParameters || N == kFocalParameters);

  static void normal_equations(const RefineArrays& edges, const AbsolutePose& pose, Loss loss,
                               double eps2, double* out) {
    double P[12];
    projection_matrix(pose, P);
    pose_kernels().normal_equations(edges, P, pose.f, pose.depth, N == kFocalParameters, loss, eps2,
                                    out);
  }
  static void residuals(const RefineArrays& edges, const AbsolutePose& pose, double* r2) {
    double P[12];
    projection_matrix(pose, P);
    pose_kernels().residuals(edges, P, r2);
  }
  static AbsolutePose move(const AbsolutePose& pose, const double* step) {
    return perturb(pose, step, N == kFocalParameters);
  }
};

using FocalSystem = RobustSystem<kFocalParameters, AbsolutePose, ProjectionTerms<kFocalParameters>>;

// The edges, and the prior of the focal length as one more observation.
struct SystemWithPrior : FocalSystem {
  double information;  // inverse variance of log f, in the unit of the cost

  double linearise(const AbsolutePose& pose, double* upper, double* gradient) const {
    constexpr int kLast = kFocalParameters * (kFocalParameters + 1) / 2 - 1;
    const double cost = FocalSystem::linearise(pose, upper, gradient), log_f = std::log(pose.f);
    upper[kLast] += scale * information;
    gradient[kFocalParameters - 1] += scale * information * log_f;
    return cost + scale * information * log_f * log_f;
  }
};

// Harmonic mean of the depths, the unit of a step of the translation.
double typical_depth(const AbsolutePose& pose, const RefineArrays& edges) {
  double sum = 0.0, total = 0.0;
  for (std::size_t i = 0; i < edges.padded; ++i) {
    const double depth =
        pose.R[6] * edges.x1[i] + pose.R[7] * edges.y1[i] + pose.R[8] * edges.z1[i] + pose.t[2];
    if (!(edges.weight[i] > 0.0 && depth > 0.0)) continue;
    sum += edges.weight[i] / depth;
    total += edges.weight[i];
  }
  const double mean = total / sum;
  return mean > 0.0 && std::isfinite(mean) ? mean : pose.depth;
}

bool is_finite(const AbsolutePose& pose) {
  double sum = pose.f;
  for (double r : pose.R) sum += std::abs(r);
  for (double c : pose.t) sum += std::abs(c);
  return std::isfinite(sum);
}

}  // namespace

void projection_matrix(const AbsolutePose& pose, double* P) {
  for (int i = 0; i < 3; ++i) {
    const double factor = i < 2 ? pose.f : 1.0;
    for (int j = 0; j < 3; ++j) P[4 * i + j] = factor * pose.R[3 * i + j];
    P[4 * i + 3] = factor * pose.t[i];
  }
}

AbsolutePose perturb(const AbsolutePose& pose, const double* step, bool with_focal) {
  AbsolutePose moved = pose;
  // exp([w]x) R = R exp([R' w]x)
  double turned[3];
  for (int i = 0; i < 3; ++i) {
    turned[i] = pose.R[i] * step[0] + pose.R[3 + i] * step[1] + pose.R[6 + i] * step[2];
  }
  rotate(moved.R, turned);
  double turn[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  rotate(turn, step);
  for (int i = 0; i < 3; ++i) {
    moved.t[i] = turn[3 * i] * pose.t[0] + turn[3 * i + 1] * pose.t[1] +
                 turn[3 * i + 2] * pose.t[2] + pose.depth * step[3 + i];
  }
  if (with_focal) moved.f *= std::exp(std::clamp(step[6], -1.0, 1.0));
  return moved;
}

AbsolutePoseData AbsolutePoseProblem::data_near(const AbsolutePoseData& data,
                                                const AbsolutePose& pose, int) {
  AbsolutePoseData out = data;
  if (data.focal_sigma > 0.0) {
    out.drawn_median = pose.f;
    out.drawn_sigma = std::min(kNearFocal, data.focal_sigma);
  }
  return out;
}

LmResult refine_absolute_pose(AbsolutePose& pose, RefineColumns& columns,
                              std::span<const double> weights, Loss loss, double eps2,
                              int max_iterations, double focal_sigma, double noise) {
  AbsolutePose refined = pose;
  const RefineArrays edges = columns.arrays(weights);
  refined.depth = typical_depth(pose, edges);
  LmResult result;
  if (focal_sigma > 0.0) {
    double count = 0.0;
    for (double weight : weights) count += weight > 0.0 ? 1.0 : 0.0;
    if (count == 0.0) return {};
    SystemWithPrior system{{edges, columns.r2, loss, eps2, 1.0 / count},
                           noise * noise / (focal_sigma * focal_sigma)};
    result = levenberg_marquardt<kFocalParameters>(refined, system, max_iterations);
    result.initial_cost *= count;
    result.cost *= count;
  } else {
    result = minimise_robustly<kAbsolutePoseParameters, ProjectionTerms<kAbsolutePoseParameters>>(
        refined, edges, columns.r2, loss, eps2, max_iterations);
  }
  orthonormalise(refined.R);
  if (is_finite(refined)) pose = refined;
  return result;
}

AbsolutePoseProblem::AbsolutePoseProblem(const Graph& graph, const AbsolutePoseData& data)
    : PointProblem(graph, data),
      focal_sigma_(data.focal_sigma),
      drawn_median_(data.drawn_median),
      drawn_sigma_(data.drawn_sigma) {
  AlignedVector<double> columns[4] = {points_.x1, points_.y1, points_.z1, points_.x1};
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const double largest =
        std::max({1.0, std::abs(points_.x1[e]), std::abs(points_.y1[e]), std::abs(points_.z1[e])});
    for (int k = 0; k < 3; ++k) columns[k][e] /= largest;
    columns[3][e] = std::isnan(points_.x1[e]) ? points_.x1[e] : 1.0 / largest;
  }
  Xf_ = to_float(columns[0]);
  Yf_ = to_float(columns[1]);
  Zf_ = to_float(columns[2]);
  Wf_ = to_float(columns[3]);
  arrays_ = {points_.x0.data(), points_.y0.data(),  points_.x1.data(),  points_.y1.data(),
             points_.z1.data(), points_.x0f.data(), points_.y0f.data(), Xf_.data(),
             Yf_.data(),        Zf_.data(),         Wf_.data(),         graph.words(),
             points_.largest0};
  // Beyond these limits the squares in the screen could exceed the range of float.
  screens_ = eps_ < 1e6 && points_.largest0 < 1e6;
}

bool AbsolutePoseProblem::same(const AbsolutePose& a, const AbsolutePose& b) {
  double trace = 0.0;
  for (int i = 0; i < 9; ++i) trace += a.R[i] * b.R[i];
  if (!(0.5 * (trace - 1.0) > kSameRotation)) return false;
  double gap2 = 0.0;
  for (int i = 0; i < 3; ++i) {
    double gap = 0.0;
    for (int j = 0; j < 3; ++j) gap += a.R[3 * j + i] * a.t[j] - b.R[3 * j + i] * b.t[j];
    gap2 += gap * gap;
  }
  return std::sqrt(gap2) < kSameCentre * std::max(a.depth, b.depth);
}

AbsolutePoseProblem::Workspace AbsolutePoseProblem::workspace() const {
  Workspace space;
  space.batch = std::make_unique<PerspectiveBatch>();
  space.solutions = std::make_unique<PerspectiveSolutions>();
  return space;
}

// The logistic distribution is close to the normal one, with longer tails, and its quantiles need
// only a logarithm.
double AbsolutePoseProblem::draw_focal(std::span<const int> sample, int place) const {
  uint64_t key = 0;
  for (int e : sample) {
    key = mix64(key + static_cast<uint64_t>(graph_.left[at(e)]) * 0x9e3779b97f4a7c15ULL +
                static_cast<uint64_t>(graph_.right[at(e)]) + 1);
  }
  const double within = (static_cast<double>(key >> 11) + 0.5) * 0x1.0p-53;
  const double u = (static_cast<double>(place) + within) / kBatch;
  return drawn_median_ * std::exp(drawn_sigma_ * std::numbers::sqrt3 * std::numbers::inv_pi *
                                  std::log(u / (1.0 - u)));
}

double AbsolutePoseProblem::log_prior(const AbsolutePose& pose) const {
  if (!(focal_sigma_ > 0.0)) return 0.0;
  const double deviations = std::log(pose.f) / focal_sigma_;
  return -0.5 * deviations * deviations;
}

void AbsolutePoseProblem::solve(std::span<const int> samples, Workspace& space,
                                Solutions<AbsolutePose>& out) const {
  PerspectiveBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / kSampleSize;
  double focal[kBatch];
  for (int i = 0; i < batch.count; ++i) {
    const std::span<const int> sample = samples.subspan(at(kSampleSize * i), kSampleSize);
    focal[i] = focal_sigma_ > 0.0 ? draw_focal(sample, i) : 1.0;
    for (int k = 0; k < kSampleSize; ++k) {
      const std::size_t e = at(sample[at(k)]);
      batch.x[k][i] = points_.x0[e] / focal[i];
      batch.y[k][i] = points_.y0[e] / focal[i];
      batch.X[k][0][i] = points_.x1[e];
      batch.X[k][1][i] = points_.y1[e];
      batch.X[k][2][i] = points_.z1[e];
    }
  }
  const PerspectiveSolutions& found = *space.solutions;
  pose_kernels().three_point(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < found.count; ++i) {
    AbsolutePose pose;
    std::copy_n(found.R[i], 9, pose.R);
    std::copy_n(found.t[i], 3, pose.t);
    pose.f = focal[found.sample[i]];
    pose.depth = found.depth[i];
    if (!is_finite(pose)) continue;
    out.models.push_back(pose);
    out.sample.push_back(found.sample[i]);
  }
}

int AbsolutePoseProblem::screen(const AbsolutePose& pose, int, std::span<uint64_t> mask) const {
  if (!screens_) return inliers(pose, mask, {});
  double P[12];
  projection_matrix(pose, P);
  return pose_kernels().screen(arrays_, P, eps_, mask.data());
}

int AbsolutePoseProblem::inliers_below(const AbsolutePose& pose, double limit2, uint64_t* mask,
                                       double* r2) const {
  double P[12];
  projection_matrix(pose, P);
  return pose_kernels().inliers(arrays_, P, limit2, mask, r2);
}

LmResult AbsolutePoseProblem::refine(AbsolutePose& pose, const GatheredEdges& edges, Loss loss,
                                     double scale2, int max_iterations, Workspace& space) const {
  RefineColumns& columns = space.columns;
  columns.gather(edges, points_);
  return refine_absolute_pose(pose, columns, edges.weights(), loss, scale2, max_iterations,
                              focal_sigma_, kPolishScale * eps_);
}

}  // namespace manymatch

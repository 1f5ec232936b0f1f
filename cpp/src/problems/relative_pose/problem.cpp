#include "manymatch/problems/relative_pose/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "manymatch/refine/robust_least_squares.h"
#include "manymatch/score/noise.h"

namespace manymatch {

namespace {

const RelativePoseKernels& pose_kernels() { return kernels<RelativePoseKernels>(); }

// Cosines of 4 and 12 degrees: translation directions are less accurate than rotations.
constexpr double kSameRotation = 0.99756405, kSameDirection = 0.97814760;
// For chance_of_wrong_inlier: distances, in thresholds, between which wrong edges are counted. With
// features of stride 16, true edges that hit a neighbouring keypoint reach about 15 pixels.
constexpr double kFirstWrong = 15.0, kLastWrong = 30.0;

struct PoseTerms {
  static void normal_equations(const RefineArrays& edges, const Pose& pose, Loss loss, double eps2,
                               double* out) {
    double tangent[6];
    tangent_plane(pose.t, tangent);
    pose_kernels().normal_equations(edges, {pose.R, pose.t}, tangent, loss, eps2, out);
  }
  static void residuals(const RefineArrays& edges, const Pose& pose, double* r2) {
    pose_kernels().residuals(edges, {pose.R, pose.t}, r2);
  }
  static Pose move(const Pose& pose, const double* step) {
    double tangent[6];
    tangent_plane(pose.t, tangent);
    return perturb(pose, tangent, step);
  }
};

}  // namespace

double RelativePoseProblem::chance_of_wrong_inlier(std::span<const double> squared, double delta) {
  return std::max(delta, density_of_wrong_edges(squared, kFirstWrong, kLastWrong, delta));
}

bool RelativePoseProblem::same(const Pose& a, const Pose& b) {
  double cosine = 0.0;
  for (int i = 0; i < 3; ++i) cosine += a.t[i] * b.t[i];
  return !apart(a, b) && cosine > kSameDirection;
}

bool RelativePoseProblem::apart(const Pose& a, const Pose& b) {
  double trace = 0.0;
  for (int i = 0; i < 9; ++i) trace += a.R[i] * b.R[i];
  return !(0.5 * (trace - 1.0) > kSameRotation);
}

LmResult refine_pose(Pose& pose, RefineColumns& columns, std::span<const double> weights, Loss loss,
                     double eps2, int max_iterations) {
  Pose refined = pose;
  const LmResult result = minimise_robustly<5, PoseTerms>(refined, columns.arrays(weights),
                                                          columns.r2, loss, eps2, max_iterations);
  normalise(refined);
  if (is_finite(refined)) pose = refined;
  return result;
}

RelativePoseProblem::RelativePoseProblem(const Graph& graph, const VertexPoints& points)
    : PointProblem(graph, points), n0_(points_.x0), n1_(points_.x1) {
  double largest0 = 1.0, largest1 = 1.0;
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const double a[2] = {points_.x0[e], points_.y0[e]}, b[2] = {points_.x1[e], points_.y1[e]};
    const double norm0 = std::sqrt(a[0] * a[0] + a[1] * a[1] + 1.0);
    const double norm1 = std::sqrt(b[0] * b[0] + b[1] * b[1] + 1.0);
    if (!std::isfinite(norm0) || !std::isfinite(norm1)) {  // stays an outlier
      n0_[e] = n1_[e] = points_.x0[e] = points_.x1[e] = std::numeric_limits<double>::quiet_NaN();
      points_.x0f[e] = points_.x1f[e] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    n0_[e] = 1.0 / norm0;
    n1_[e] = 1.0 / norm1;
    largest0 = std::max(largest0, norm0);
    largest1 = std::max(largest1, norm1);
  }
  n0f_ = to_float(n0_);
  n1f_ = to_float(n1_);
  arrays_ = {points_.x0.data(), points_.y0.data(),  n0_.data(),         points_.x1.data(),
             points_.y1.data(), n1_.data(),         points_.x0f.data(), points_.y0f.data(),
             n0f_.data(),       points_.x1f.data(), points_.y1f.data(), n1f_.data(),
             graph.words()};
  // Rounding errors in float32. x1' E x0: eight roundings of 2^-24 on terms whose absolute values
  // sum to at most sqrt(2) |x0| |x1|, doubled for safety. sqrt(den): multiplied by eps.
  slack_ = 1.4e-6 * largest0 * largest1 + 1.5e-6 * eps_ * std::max(largest0, largest1);
  screens_ = slack_ < 0.5 * eps_ && eps_ < 1e3 && largest0 < 1e3 && largest1 < 1e3;
}

RelativePoseProblem::Workspace RelativePoseProblem::workspace() {
  Workspace space;
  space.batch = std::make_unique<FivePointBatch>();
  space.solutions = std::make_unique<FivePointSolutions>();
  return space;
}

void RelativePoseProblem::solve(std::span<const int> samples, Workspace& space,
                                Solutions<Pose>& out) const {
  FivePointBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / kSampleSize;
  for (int i = 0; i < batch.count; ++i) {
    for (int k = 0; k < kSampleSize; ++k) {
      const std::size_t e = at(samples[at(kSampleSize * i + k)]);
      batch.b0[k][0][i] = points_.x0[e] * n0_[e];
      batch.b0[k][1][i] = points_.y0[e] * n0_[e];
      batch.b0[k][2][i] = n0_[e];
      batch.b1[k][0][i] = points_.x1[e] * n1_[e];
      batch.b1[k][1][i] = points_.y1[e] * n1_[e];
      batch.b1[k][2][i] = n1_[e];
    }
  }
  pose_kernels().five_point(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    Pose pose;
    std::copy_n(space.solutions->R[i], 9, pose.R);
    std::copy_n(space.solutions->t[i], 3, pose.t);
    out.models.push_back(pose);
    out.sample.push_back(space.solutions->sample[i]);
  }
}

int RelativePoseProblem::screen(const Pose& pose, int enough, std::span<uint64_t> mask) const {
  if (!screens_) return inliers(pose, mask, {});
  return pose_kernels().screen(arrays_, {pose.R, pose.t}, eps_, slack_, enough, mask.data());
}

int RelativePoseProblem::inliers_below(const Pose& pose, double limit2, uint64_t* mask,
                                       double* r2) const {
  return pose_kernels().inliers(arrays_, {pose.R, pose.t}, limit2, mask, r2);
}

LmResult RelativePoseProblem::refine(Pose& pose, const GatheredEdges& edges, Loss loss,
                                     double scale2, int max_iterations, Workspace& space) const {
  RefineColumns& columns = space.columns;
  columns.gather(edges, points_);
  return refine_pose(pose, columns, edges.weights(), loss, scale2, max_iterations);
}

}  // namespace manymatch

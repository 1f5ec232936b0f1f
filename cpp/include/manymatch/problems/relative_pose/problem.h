// Relative pose of two calibrated cameras from five or more correspondences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/problems/points.h"
#include "manymatch/problems/relative_pose/kernels.h"
#include "manymatch/problems/relative_pose/pose.h"
#include "manymatch/ransac/problem.h"

namespace manymatch {

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
LmResult refine_pose(Pose& pose, RefineColumns& columns, std::span<const double> weights, Loss loss,
                     double eps2, int max_iterations);

class RelativePoseProblem : public PointProblem<RelativePoseProblem> {
 public:
  using Model = Pose;
  using Data = VertexPoints;  // on the normalised planes
  static constexpr int kSampleSize = 5;
  static constexpr int kDimension0 = 2, kDimension1 = 2;
  static constexpr const char* kModelName = "pose";
  static constexpr double kPolishReach = 3.0;
  static constexpr double kPolishScale = 1.0;
  static constexpr int kResidualDimensions = 1;
  // Coarse features find partners at the same height in the image, so that a pose whose epipolar
  // lines are level has many wrong edges as inliers. They show as edges farther from the lines.
  static double chance_of_wrong_inlier(std::span<const double> squared, double delta);
  static bool same(const Pose& a, const Pose& b);
  // Compares rotations only: translation directions of minimal samples are too inaccurate.
  static bool apart(const Pose& a, const Pose& b);
  struct Workspace {
    std::unique_ptr<FivePointBatch> batch;
    std::unique_ptr<FivePointSolutions> solutions;
    RefineColumns columns;
  };

  RelativePoseProblem(const Graph& graph, const VertexPoints& points);

  static Workspace workspace();

  void solve(std::span<const int> samples, Workspace& space, Solutions<Pose>& out) const;
  int screen(const Pose& pose, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const Pose& pose, double limit2, uint64_t* mask, double* r2) const;
  LmResult refine(Pose& pose, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  AlignedVector<double> n0_, n1_;  // 1 / |(x, y, 1)| per edge, padded
  AlignedVector<float> n0f_, n1f_;
  EdgeArrays arrays_;
  double slack_ = 0;
  bool screens_ = true;
};

static_assert(Problem<RelativePoseProblem>);
static_assert(kFivePointBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

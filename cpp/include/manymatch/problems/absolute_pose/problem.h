// Pose of a camera in the world from three or more points of known position, and its focal length
// where that is unknown.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/problems/absolute_pose/kernels.h"
#include "manymatch/problems/points.h"
#include "manymatch/ransac/problem.h"

namespace manymatch {

// A point X of the world is R X + t in the frame of the camera and is seen at f times its first two
// coordinates over the third. f is one where the focal length is known.
struct AbsolutePose {
  double R[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  double t[3] = {0, 0, 0};
  double f = 1.0;
  double depth = 1.0;  // about that of the points it was found from
};

// diag(f, f, 1) [R | t] by rows, as the kernels take it.
void projection_matrix(const AbsolutePose& pose, double* P);
// exp([w]x) (R X + t) + pose.depth dt and f exp(df): w and dt are three numbers each; df is the
// seventh, used `with_focal`.
AbsolutePose perturb(const AbsolutePose& pose, const double* step, bool with_focal);

// Points of the image (x0) and of the world (x1). x0 is on the normalised plane; where the focal
// length is unknown, on that of the median of its prior. `parameters` is nothing, or the standard
// deviation of the logarithm of the focal length, 0 where it is known.
struct AbsolutePoseData : VertexPoints {
  explicit AbsolutePoseData(const VertexPoints& points, std::span<const double> parameters = {})
      : VertexPoints(points),
        focal_sigma(parameters.empty() ? 0.0 : parameters[0]),
        drawn_sigma(focal_sigma) {}

  // The same with focal lengths of samples close to that of a model, for the last stage.
  AbsolutePoseData near(const AbsolutePose& pose, int round) const;

  double focal_sigma;
  // Focal lengths of samples: a median and the standard deviation of the logarithm.
  double drawn_median = 1.0, drawn_sigma;
};

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column. With
// `focal_sigma` above 0 the focal length is refined too, and the logarithm of f is an observation
// of 0 with that deviation; the noise of the image points is taken to be `noise`.
LmResult refine_absolute_pose(AbsolutePose& pose, RefineColumns& columns,
                              std::span<const double> weights, Loss loss, double eps2,
                              int max_iterations, double focal_sigma, double noise);

class AbsolutePoseProblem {
 public:
  using Model = AbsolutePose;
  using Data = AbsolutePoseData;
  static constexpr int kSampleSize = 3;
  static constexpr int kDimension0 = 2, kDimension1 = 3;
  static constexpr const char* kModelName = "pose";
  static constexpr double kPolishReach = 2.0;
  // A threshold is about three standard deviations of the noise.
  static constexpr double kPolishScale = 1.0 / 3.0;
  static constexpr int kResidualDimensions = 2;
  // Where a pose has hundreds of rank-one edges, others only add points of the map beside the right
  // ones.
  static constexpr double kPolishPriorPower = 4.0;
  // By the angle between the rotations, and the distance of the centres over the depth of the
  // points.
  static bool same(const AbsolutePose& a, const AbsolutePose& b);
  static bool apart(const AbsolutePose& a, const AbsolutePose& b) { return !same(a, b); }
  struct Workspace {
    std::unique_ptr<PerspectiveBatch> batch;
    std::unique_ptr<PerspectiveSolutions> solutions;
    RefineColumns columns;
  };

  AbsolutePoseProblem(const Graph& graph, const AbsolutePoseData& data);
  // arrays_ points into the other members.
  AbsolutePoseProblem(const AbsolutePoseProblem&) = delete;
  AbsolutePoseProblem& operator=(const AbsolutePoseProblem&) = delete;

  const Graph& graph() const { return graph_; }
  double eps() const { return eps_; }
  Workspace workspace() const;
  // Logarithm of the density of the focal length over that at the median.
  double log_prior(const AbsolutePose& pose) const;

  // An unknown focal length is drawn from its prior, for each sample by the sample and its place in
  // the batch: places cover the prior evenly.
  void solve(std::span<const int> samples, Workspace& space, Solutions<AbsolutePose>& out) const;
  int screen(const AbsolutePose& pose, int enough, std::span<uint64_t> mask) const;
  int inliers(const AbsolutePose& pose, std::span<uint64_t> mask, std::span<double> r2) const;
  int within(const AbsolutePose& pose, double limit2, std::span<uint64_t> mask) const;
  LmResult refine(AbsolutePose& pose, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  double draw_focal(std::span<const int> sample, int place) const;

  const Graph& graph_;
  double eps_, focal_sigma_, drawn_median_, drawn_sigma_;
  EdgePoints points_;
  AlignedVector<float> Xf_, Yf_, Zf_, Wf_;  // homogeneous, at most one
  AbsolutePoseEdges arrays_;
  bool screens_ = true;
};

static_assert(Problem<AbsolutePoseProblem>);
static_assert(kPerspectiveBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

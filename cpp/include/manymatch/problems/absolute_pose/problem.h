// Pose of a camera in the world from three or more points of known position, and optionally its
// focal length.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/problems/absolute_pose/kernels.h"
#include "manymatch/problems/points.h"
#include "manymatch/ransac/problem.h"

namespace manymatch {

// A point X of the world is Y = R X + t in the frame of the camera and projects to f (Y0, Y1) / Y2.
// f is 1 if the focal length is known.
struct AbsolutePose {
  double R[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  double t[3] = {0, 0, 0};
  double f = 1.0;
  double depth = 1.0;  // typical depth of the points that it was computed from
};

// diag(f, f, 1) [R | t] by rows, as the kernels take it.
void projection_matrix(const AbsolutePose& pose, double* P);
// exp([w]x) (R X + t) + pose.depth dt and f exp(df): w and dt are three numbers each; df is the
// seventh, used `with_focal`.
AbsolutePose perturb(const AbsolutePose& pose, const double* step, bool with_focal);

// Points of the image (x0) and of the world (x1). x0 is on the normalised plane; if the focal
// length is unknown, it is divided by the median of its prior. `parameters` is empty or holds the
// standard deviation of the logarithm of the focal length, 0 if it is known.
struct AbsolutePoseData : VertexPoints {
  explicit AbsolutePoseData(const VertexPoints& points, std::span<const double> parameters = {})
      : VertexPoints(points),
        focal_sigma(parameters.empty() ? 0.0 : parameters[0]),
        drawn_sigma(focal_sigma) {}

  double focal_sigma;
  // Distribution of the focal lengths drawn for samples: median, standard deviation of the
  // logarithm.
  double drawn_median = 1.0, drawn_sigma;
};

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column. If
// `focal_sigma` is above 0, the focal length is refined too, with a prior: log f is an observation
// of 0 with that standard deviation. `noise` is the assumed noise of the image points.
LmResult refine_absolute_pose(AbsolutePose& pose, RefineColumns& columns,
                              std::span<const double> weights, Loss loss, double eps2,
                              int max_iterations, double focal_sigma, double noise);

class AbsolutePoseProblem : public PointProblem<AbsolutePoseProblem> {
 public:
  using Model = AbsolutePose;
  using Data = AbsolutePoseData;
  static constexpr int kSampleSize = 3;
  static constexpr int kDimension0 = 2, kDimension1 = 3;
  static constexpr const char* kModelName = "pose";
  static constexpr double kPolishReach = 2.0;
  // The threshold is about three standard deviations of the noise.
  static constexpr double kPolishScale = 1.0 / 3.0;
  static constexpr int kResidualDimensions = 2;
  // A pose usually has hundreds of rank-one edges. Edges of higher ranks mostly add map points next
  // to the right one, so the last polish nearly ignores them.
  static double polish_prior(double prior, double) { return std::pow(prior, 4.0); }
  // Compares the angle between the rotations, and the distance of the centres relative to the depth
  // of the points.
  static bool same(const AbsolutePose& a, const AbsolutePose& b);
  static bool apart(const AbsolutePose& a, const AbsolutePose& b) { return !same(a, b); }
  struct Workspace {
    std::unique_ptr<PerspectiveBatch> batch;
    std::unique_ptr<PerspectiveSolutions> solutions;
    RefineColumns columns;
  };

  AbsolutePoseProblem(const Graph& graph, const AbsolutePoseData& data);

  Workspace workspace() const;
  // Log-density of the focal length, relative to the density at the median.
  double log_prior(const AbsolutePose& pose) const;
  // Draws focal lengths close to that of the pose.
  static AbsolutePoseData data_near(const AbsolutePoseData& data, const AbsolutePose& pose, int);

  // Draws a focal length from its prior for each sample if it is unknown. It depends only on the
  // sample and its place in the batch; the places cover the prior evenly.
  void solve(std::span<const int> samples, Workspace& space, Solutions<AbsolutePose>& out) const;
  int screen(const AbsolutePose& pose, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const AbsolutePose& pose, double limit2, uint64_t* mask, double* r2) const;
  LmResult refine(AbsolutePose& pose, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  double draw_focal(std::span<const int> sample, int place) const;

  double focal_sigma_, drawn_median_, drawn_sigma_;
  AlignedVector<float> Xf_, Yf_, Zf_, Wf_;  // homogeneous, at most one
  AbsolutePoseEdges arrays_;
  bool screens_ = true;
};

static_assert(Problem<AbsolutePoseProblem>);
static_assert(kPerspectiveBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

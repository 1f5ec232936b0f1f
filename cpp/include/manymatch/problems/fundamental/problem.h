// Fundamental matrix of two images from seven or more correspondences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/problems/fundamental/kernels.h"
#include "manymatch/problems/homography/problem.h"
#include "manymatch/problems/points.h"
#include "manymatch/ransac/problem.h"

namespace manymatch {

// x1' F x0 = 0, by rows, with Frobenius norm one and rank two, and the epipole in image 1, F' e = 0
// with |e| = 1. The sign of e is such that e x x1 and F x0 have the same direction at the inliers.
struct Fundamental {
  double F[9] = {0, 0, 0, 0, 0, -0.70710678118654752, 0, 0.70710678118654752, 0};
  double e[3] = {1, 0, 0};
};

// F = B1 M B0', with the columns of B1 and B0 orthogonal to the two epipoles. Q1 = (B1, e1) and
// Q0 = (B0, e0) are orthonormal, by rows, and M is 2x2 with norm one. F has rank two by
// construction, and the factors stay well defined if the two singular values of F are equal.
struct FactoredFundamental {
  static constexpr int kParameters = 7;
  double Q1[9], Q0[9], M[4];

  explicit FactoredFundamental(const Fundamental& model);
  Fundamental model() const;
  // Rotates Q1 and Q0 by two parameters each, and moves M by three along its unit sphere.
  FactoredFundamental moved(const double* step) const;
  // Derivatives of F by the parameters at zero, (9, 7) by rows.
  void derivatives(double (*out)[kParameters]) const;
};

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
LmResult refine_fundamental(Fundamental& model, RefineColumns& columns,
                            std::span<const double> weights, Loss loss, double eps2,
                            int max_iterations);

// The plane, among those compatible with F, that contains most of the first `used` correspondences:
// a homography with symmetric transfer error below the threshold at `count` of them. Planes are
// taken from triplets of correspondences, drawn with a fixed seed.
struct DominantPlane {
  Homography H;
  int count = 0;
};
DominantPlane dominant_plane(const Fundamental& model, RefineColumns& columns, std::size_t used,
                             double eps2);

class FundamentalProblem : public PointProblem<FundamentalProblem> {
 public:
  using Model = Fundamental;
  using Data = VertexPoints;  // same unit in both images; coordinates should be within [-1, 1]
  static constexpr int kSampleSize = 7;
  static constexpr int kDimension0 = 2, kDimension1 = 2;
  static constexpr const char* kModelName = "fundamental matrix";
  static constexpr double kPolishReach = 3.0;
  static constexpr double kPolishScale = 1.0;
  static constexpr int kResidualDimensions = 1;
  // Matrices with nearly the same inliers can have epipoles far from each other. With fewer samples
  // in the last stage, most wrong results had a better matrix nearby.
  static constexpr int kSettleRounds = 6, kSettleSamples = 512;
  // Stage 2 does not know the measured chance below, so the last stage looks at more models.
  static constexpr std::size_t kSettleMeasured = 50, kSettleRefined = 25;
  // Repeated structures in a row give wrong edges along the row, and a matrix whose epipolar lines
  // follow it has many of them as inliers. They show as edges a little beyond the threshold, which
  // are counted here. The count includes true edges that hit a neighbouring keypoint and so is too
  // high; the result is its geometric mean with delta.
  static double chance_of_wrong_inlier(std::span<const double> squared, double delta);
  static bool same(const Fundamental& a, const Fundamental& b);
  static bool apart(const Fundamental& a, const Fundamental& b);
  struct Workspace {
    std::unique_ptr<SevenPointBatch> batch;
    std::unique_ptr<SevenPointSolutions> solutions;
    RefineColumns columns;
    AlignedVector<double> weights;
    Mask mask;
    std::vector<int> off_plane;
  };

  FundamentalProblem(const Graph& graph, const VertexPoints& points);

  Workspace workspace() const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<Fundamental>& out) const;
  int screen(const Fundamental& model, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const Fundamental& model, double limit2, uint64_t* mask, double* r2) const;
  // With the truncated loss, that is for the model of a sample, also looks for a plane: if it holds
  // many of the inliers, the epipole is determined anew from edges off the plane, since points on a
  // plane do not determine it.
  LmResult refine(Fundamental& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  bool complete(Fundamental& model, const Homography& plane, Workspace& space) const;

  FundamentalEdges arrays_;
  double slack_ = 0, side_slack_ = 0;
  bool screens_ = true;
};

static_assert(Problem<FundamentalProblem>);
static_assert(kSevenPointBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

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
// with |e| = 1 and the sign that makes e x x1 and F x0 point the same way at the points that the
// matrix explains.
struct Fundamental {
  double F[9] = {0, 0, 0, 0, 0, -0.70710678118654752, 0, 0.70710678118654752, 0};
  double e[3] = {1, 0, 0};
};

// F = B1 M B0', with the columns of B1 and B0 orthogonal to the two epipoles. Q1 = (B1, e1) and
// Q0 = (B0, e0) are orthonormal, by rows, and M is 2x2 with norm one, so that rank two holds by
// construction and nothing is singular where the two singular values of F are equal.
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

// The plane that explains most of the correspondences among those which F allows, as a homography
// whose symmetric transfer error is below the threshold at `count` of them; found from triplets of
// the first `used`, drawn by a fixed key.
struct DominantPlane {
  Homography H;
  int count = 0;
};
DominantPlane dominant_plane(const Fundamental& model, RefineColumns& columns, std::size_t used,
                             double eps2);

class FundamentalProblem {
 public:
  using Model = Fundamental;
  using Data =
      VertexPoints;  // both images in one unit, best such that all points are within [-1, 1]
  static constexpr int kSampleSize = 7;
  static constexpr int kDimension0 = 2, kDimension1 = 2;
  static constexpr const char* kModelName = "fundamental matrix";
  static constexpr double kPolishReach = 3.0;
  static constexpr double kPolishScale = 1.0;
  static constexpr int kResidualDimensions = 1;
  // Two matrices of nearly the same inliers have epipoles far from each other: most wrong results
  // were near a better matrix that too few samples in the last stage had missed.
  static constexpr int kSettleRounds = 6, kSettleSamples = 512;
  static constexpr bool kMeasuresChance = true;
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
  // arrays_ points into the other members.
  FundamentalProblem(const FundamentalProblem&) = delete;
  FundamentalProblem& operator=(const FundamentalProblem&) = delete;

  const Graph& graph() const { return graph_; }
  double eps() const { return eps_; }
  Workspace workspace() const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<Fundamental>& out) const;
  int screen(const Fundamental& model, int enough, std::span<uint64_t> mask) const;
  int inliers(const Fundamental& model, std::span<uint64_t> mask, std::span<double> r2) const;
  int within(const Fundamental& model, double limit2, std::span<uint64_t> mask) const;
  // With the truncated loss, that is from a sample, a model most of whose inliers are on a plane is
  // completed: samples of a plane say nothing of the epipole.
  LmResult refine(Fundamental& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 private:
  bool complete(Fundamental& model, const Homography& plane, Workspace& space) const;

  const Graph& graph_;
  double eps_;
  EdgePoints points_;
  FundamentalEdges arrays_;
  double slack_ = 0, side_slack_ = 0;
  bool screens_ = true;
};

static_assert(Problem<FundamentalProblem>);
static_assert(kSevenPointBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

// Homography between two images of a plane (or of any scene, taken from one place) from four or
// more correspondences.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/problems/homography/kernels.h"
#include "manymatch/problems/points.h"
#include "manymatch/ransac/problem.h"

namespace manymatch {

// x1 ~ H x0, by rows, with Frobenius norm one. The sign is such that H x0 has a positive third
// coordinate at the inliers.
struct Homography {
  double H[9] = {0.57735026918962576, 0, 0, 0, 0.57735026918962576, 0, 0, 0, 0.57735026918962576};
};

// Scales to Frobenius norm one. False, and unchanged, if the norm is zero or not finite.
bool normalise(Homography& model);
// H (I + D), with D by rows and without its last entry.
Homography perturb(const Homography& model, const double* step);

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
LmResult refine_homography(Homography& model, RefineColumns& columns,
                           std::span<const double> weights, Loss loss, double eps2,
                           int max_iterations);

// The normalised direct linear transform over the edges with a positive weight: the H of norm one
// with the least weighted sum of squares of w (H x0 - x1), w the third coordinate of H x0. Its sign
// makes w positive at x0 = 0. False, and unchanged, if there is none.
bool direct_linear_transform(const RefineColumns& columns, std::span<const double> weights,
                             Homography& model);

// The same for affine maps, whose third row is (0, 0, 1) times a number: the last two of the eight
// parameters stay zero, and the direct map has the least weighted sum of squares of H x0 - x1.
LmResult refine_affine(Homography& model, RefineColumns& columns, std::span<const double> weights,
                       Loss loss, double eps2, int max_iterations);
bool direct_affine(const RefineColumns& columns, std::span<const double> weights,
                   Homography& model);

// A refinement that started from the direct linear transform. It depends only on the edges, their
// weights and which of them were within the threshold, so its result can be reused. If nearly all
// edges are inliers, thousands of samples lead to the same refinement.
struct RememberedRefinement {
  std::vector<int> edges;
  AlignedVector<double> weights, inside;
  double start_cost = 0;
  int max_iterations = 0;
  Homography model;
  LmResult result;
};

class HomographyProblem : public PointProblem<HomographyProblem> {
 public:
  using Model = Homography;
  using Data = VertexPoints;  // same unit in both images; coordinates should be within [-1, 1]
  static constexpr int kSampleSize = 4;
  static constexpr int kDimension0 = 2, kDimension1 = 2;
  static constexpr const char* kModelName = "homography";
  // Candidates of low rank are often true to a few pixels, and many average out.
  static constexpr std::size_t kConsideredEdges = 4096;
  static constexpr double kPolishReach = 2.0;
  static constexpr int kResidualDimensions = 2;
  // A scene is only nearly a plane. A narrow polish, or one that prefers some edges, fits the
  // flattest part and is off elsewhere.
  static constexpr double kPolishScale = 2.0 / 3.0;
  static constexpr bool kPolishByNoise = false;
  static double polish_prior(double, double without_filter) { return without_filter; }
  static bool same(const Homography& a, const Homography& b);
  static bool apart(const Homography& a, const Homography& b) { return !same(a, b); }
  struct Workspace {
    std::unique_ptr<FourPointBatch> batch;
    std::unique_ptr<FourPointSolutions> solutions;
    RefineColumns columns;
    AlignedVector<double> inside;  // weights of the edges within the threshold, 0 for the others
    std::array<RememberedRefinement, 64> remembered;
    std::size_t next_remembered = 0;
  };

  HomographyProblem(const Graph& graph, const VertexPoints& points);

  Workspace workspace() const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<Homography>& out) const;
  int screen(const Homography& model, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const Homography& model, double limit2, uint64_t* mask, double* r2) const;
  // With the truncated loss, that is for the model of a sample, starts from the direct linear
  // transform of the inliers if that is better.
  LmResult refine(Homography& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

 protected:
  using Solver = void (*)(const FourPointBatch&, FourPointSolutions&);
  using Refinement = LmResult (*)(Homography&, RefineColumns&, std::span<const double>, Loss,
                                  double, int);
  using Direct = bool (*)(const RefineColumns&, std::span<const double>, Homography&);

  void solve_by(Solver solver, int points, std::span<const int> samples, Workspace& space,
                Solutions<Homography>& out) const;
  LmResult refine_by(Refinement refinement, Direct direct, Homography& model,
                     const GatheredEdges& edges, Loss loss, double scale2, int max_iterations,
                     Workspace& space) const;

 private:
  HomographyEdges arrays_;
  bool screens_ = true;
};

// Homographies that are affine, from three or more correspondences.
class AffineProblem : public HomographyProblem {
 public:
  using HomographyProblem::HomographyProblem;
  static constexpr int kSampleSize = 3;
  static constexpr const char* kModelName = "affine map";

  void solve(std::span<const int> samples, Workspace& space, Solutions<Homography>& out) const;
  LmResult refine(Homography& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;
};

static_assert(Problem<HomographyProblem>);
static_assert(Problem<AffineProblem>);
static_assert(kFourPointBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

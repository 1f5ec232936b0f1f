// Relative pose of two calibrated cameras from five or more correspondences.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/geometry/pose.h"
#include "manymatch/graph.h"
#include "manymatch/kernels.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/refine/levenberg_marquardt.h"

namespace manymatch {

// Edges gathered for one refinement, with their weights.
struct Gathered {
  AlignedVector<double> x0, y0, x1, y1, weight, r2;
  std::vector<int> edges;
  std::size_t padded = 0;

  void reserve(std::size_t edges);
  // Room for `count` edges; the padding behind them is made, they themselves are left to be set.
  void resize(std::size_t count);
  // Or one by one, and then the padding.
  void clear();
  void add(double ax, double ay, double bx, double by, double w);
  void pad();
  RefineArrays arrays() const {
    return {x0.data(), y0.data(), x1.data(), y1.data(), weight.data(), padded};
  }
};

// Levenberg-Marquardt over gathered edges.
LmResult refine_pose(Pose& pose, Gathered& gathered, Loss loss, double eps2, int max_iterations);

class RelativePoseProblem {
 public:
  using Model = Pose;
  static constexpr int kSampleSize = 5;
  struct Workspace {
    std::unique_ptr<FivePointBatch> batch;
    std::unique_ptr<FivePointSolutions> solutions;
    Mask mask;
    Gathered gathered;
    std::vector<int> degree0, degree1;
    std::vector<double> mass0, mass1;
  };

  // x0, x1: points on the normalised planes, (x, y) by rows. With `weighted`, refinement gives an
  // edge 1/d_i + 1/d_j by its degrees among the gathered edges; otherwise 1.
  RelativePoseProblem(const Graph& graph, const double* x0, const double* x1, double eps,
                      bool weighted);

  const Graph& graph() const { return graph_; }
  double eps() const { return eps_; }
  Workspace workspace() const;

  void solve(const int* samples, int count, Workspace& space, Solutions<Pose>& out) const;
  int screen(const Pose& pose, int enough, uint64_t* mask) const;
  int inliers(const Pose& pose, uint64_t* mask, double* r2) const;

  // Edges with r^2 < 5 eps^2 and cheirality, loss min(r^2, eps^2), 25 iterations.
  LmResult local_refine(Pose& pose, Workspace& space) const;
  // Edges with r^2 < eps^2, loss eps^2 log(1 + r^2/eps^2), 100 iterations.
  LmResult final_polish(Pose& pose, Workspace& space) const;
  // The same with edges up to `reach` thresholds away. An edge weighs what it is of the prior mass
  // at its two vertices, among the gathered edges (1/d_i + 1/d_j where all priors are equal), times
  // the root of its prior: edges found surely are also placed more exactly.
  LmResult far_polish(Pose& pose, Workspace& space, double reach, const double* prior) const;

 private:
  // Refines on the gathered edges.
  LmResult refine(Pose& pose, Workspace& space, Loss loss, int iterations) const;
  void gather(const Pose& pose, double gather2, Workspace& space) const;

  const Graph& graph_;
  double eps_;
  bool weighted_;
  AlignedVector<double> x0_, y0_, n0_, x1_, y1_, n1_;  // per edge, padded
  AlignedVector<float> x0f_, y0f_, n0f_, x1f_, y1f_, n1f_;
  std::vector<double> inverse_;  // of a degree
  EdgeArrays arrays_;
  double slack_ = 0;
  bool screens_ = true;
};

static_assert(Problem<RelativePoseProblem>);

}  // namespace manymatch

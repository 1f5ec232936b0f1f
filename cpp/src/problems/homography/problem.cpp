#include "manymatch/problems/homography/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "manymatch/refine/robust_least_squares.h"

namespace manymatch {

namespace {

// Largest difference of a coordinate of a moved corner of the square [-1, 1]^2.
constexpr double kSameCorners = 0.2;

const HomographyKernels& homography_kernels() { return kernels<HomographyKernels>(); }

// a b for 3x3 matrices by rows.
std::array<double, 9> product(const double* a, const double* b) {
  std::array<double, 9> out;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      out[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    }
  }
  return out;
}

struct HomographyTerms {
  static void normal_equations(const RefineArrays& edges, const Homography& model, Loss loss,
                               double eps2, double* out) {
    homography_kernels().normal_equations(edges, model.H, loss, eps2, out);
  }
  static void residuals(const RefineArrays& edges, const Homography& model, double* r2) {
    homography_kernels().residuals(edges, model.H, r2);
  }
  static Homography move(const Homography& model, const double* step) {
    return perturb(model, step);
  }
};

// The parameters of an affine map are the first six of the eight.
constexpr int kAffineParameters = 6;
struct AffineTerms : HomographyTerms {
  static void normal_equations(const RefineArrays& edges, const Homography& model, Loss loss,
                               double eps2, double* out) {
    double all[kHomographyTriangle + kHomographyParameters + 1];
    homography_kernels().normal_equations(edges, model.H, loss, eps2, all);
    int from = 0, to = 0;
    for (int p = 0; p < kHomographyParameters; ++p) {
      for (int q = p; q < kHomographyParameters; ++q, ++from) {
        if (p < kAffineParameters && q < kAffineParameters) out[to++] = all[from];
      }
    }
    for (int p = 0; p < kAffineParameters; ++p) out[to++] = all[from + p];
    out[to] = all[kHomographyTriangle + kHomographyParameters];
  }
  static Homography move(const Homography& model, const double* step) {
    double whole[kHomographyParameters] = {};
    std::copy_n(step, kAffineParameters, whole);
    return perturb(model, whole);
  }
};

}  // namespace

bool normalise(Homography& model) {
  double norm2 = 0.0;
  for (double h : model.H) norm2 += h * h;
  const double norm = std::sqrt(norm2);
  if (!(norm > 0.0 && std::isfinite(norm))) return false;
  for (double& h : model.H) h /= norm;
  return true;
}

Homography perturb(const Homography& model, const double* step) {
  double factor[9];
  for (int i = 0; i < 9; ++i) factor[i] = (i % 4 == 0 ? 1.0 : 0.0) + (i < 8 ? step[i] : 0.0);
  const std::array<double, 9> moved = product(model.H, factor);
  Homography out;
  std::copy(moved.begin(), moved.end(), out.H);
  normalise(out);
  return out;
}

namespace {

template <int N, class Terms>
LmResult refine_planar(Homography& model, RefineColumns& columns, std::span<const double> weights,
                       Loss loss, double eps2, int max_iterations) {
  Homography refined = model;
  const LmResult result = minimise_robustly<N, Terms>(refined, columns.arrays(weights), columns.r2,
                                                      loss, eps2, max_iterations);
  if (normalise(refined)) model = refined;
  return result;
}

}  // namespace

LmResult refine_homography(Homography& model, RefineColumns& columns,
                           std::span<const double> weights, Loss loss, double eps2,
                           int max_iterations) {
  return refine_planar<kHomographyParameters, HomographyTerms>(model, columns, weights, loss, eps2,
                                                               max_iterations);
}

LmResult refine_affine(Homography& model, RefineColumns& columns, std::span<const double> weights,
                       Loss loss, double eps2, int max_iterations) {
  return refine_planar<kAffineParameters, AffineTerms>(model, columns, weights, loss, eps2,
                                                       max_iterations);
}

bool direct_affine(const RefineColumns& columns, std::span<const double> weights,
                   Homography& model) {
  double sums[4][6], minus[3];
  homography_kernels().linear_sums(columns.arrays(weights), sums[0]);
  Homography found{{0, 0, 0, 0, 0, 0, 0, 0, 1}};
  for (int r = 0; r < 2; ++r) {
    const double* right = sums[r + 1];  // of x1 or y1 times (x0, y0, 1)
    for (int c = 0; c < 3; ++c) minus[c] = -right[c == 0 ? 2 : c == 1 ? 4 : 5];
    if (!solve_damped<3>(sums[0], minus, 0.0, found.H + 3 * r)) return false;
  }
  if (!normalise(found)) return false;
  model = found;
  return true;
}

bool direct_linear_transform(const RefineColumns& columns, std::span<const double> weights,
                             Homography& model) {
  double sums[4][6];
  static_assert(sizeof sums == kLinearSums * sizeof(double));
  homography_kernels().linear_sums(columns.arrays(weights), sums[0]);
  // The rows of an edge are (z, 0, -x1 z) and (0, z, -y1 z) with z = (x0, y0, 1).
  double upper[45], trace = 0.0;
  int slot = 0;
  for (int p = 0; p < 9; ++p) {
    for (int q = p; q < 9; ++q, ++slot) {
      const int low = std::min(p % 3, q % 3), high = std::max(p % 3, q % 3);
      const int c = low == 0 ? high : low + high + 1;
      const int a = p / 3, b = q / 3;
      upper[slot] = a == 2 ? sums[3][c] : b == 2 ? -sums[a + 1][c] : a == b ? sums[0][c] : 0.0;
      if (p == q) trace += upper[slot];
    }
  }
  // Inverse iteration towards the eigenvector of the least eigenvalue.
  Homography found{{0, 0, 0, 0, 0, 0, 0, 0, 1}};
  for (int step = 0; step < 3; ++step) {
    double minus[9];
    for (int i = 0; i < 9; ++i) minus[i] = -found.H[i];
    if (!solve_damped<9>(upper, minus, 1e-12 * trace, found.H) || !normalise(found)) return false;
  }
  model = found;
  return true;
}

HomographyProblem::HomographyProblem(const Graph& graph, const VertexPoints& points)
    : PointProblem(graph, points) {
  arrays_ = {points_.x0.data(),  points_.y0.data(),  points_.x1.data(),  points_.y1.data(),
             points_.x0f.data(), points_.y0f.data(), points_.x1f.data(), points_.y1f.data(),
             graph.words(),      points_.largest0,   points_.largest1};
  // Beyond these limits the squares in the screen could exceed the range of float.
  screens_ = eps_ < 1e6 && points_.largest0 < 1e6 && points_.largest1 < 1e6;
}

bool HomographyProblem::same(const Homography& a, const Homography& b) {
  // Compares where the two move the corners of the square that contains all points.
  for (const double x : {-1.0, 1.0}) {
    for (const double y : {-1.0, 1.0}) {
      double moved[2][3];
      for (int i = 0; i < 3; ++i) {
        moved[0][i] = a.H[3 * i] * x + a.H[3 * i + 1] * y + a.H[3 * i + 2];
        moved[1][i] = b.H[3 * i] * x + b.H[3 * i + 1] * y + b.H[3 * i + 2];
      }
      for (int i = 0; i < 2; ++i) {
        const double gap = moved[0][i] / moved[0][2] - moved[1][i] / moved[1][2];
        if (!(std::abs(gap) < kSameCorners)) return false;
      }
    }
  }
  return true;
}

HomographyProblem::Workspace HomographyProblem::workspace() const {
  Workspace space;
  space.batch = std::make_unique<FourPointBatch>();
  space.solutions = std::make_unique<FourPointSolutions>();
  return space;
}

void HomographyProblem::solve_by(Solver solver, int points, std::span<const int> samples,
                                 Workspace& space, Solutions<Homography>& out) const {
  FourPointBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / points;
  for (int i = 0; i < batch.count; ++i) {
    for (int k = 0; k < points; ++k) {
      const std::size_t e = at(samples[at(points * i + k)]);
      batch.x0[k][i] = points_.x0[e];
      batch.y0[k][i] = points_.y0[e];
      batch.x1[k][i] = points_.x1[e];
      batch.y1[k][i] = points_.y1[e];
    }
  }
  solver(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    Homography model;
    std::copy_n(space.solutions->H[i], 9, model.H);
    out.models.push_back(model);
    out.sample.push_back(space.solutions->sample[i]);
  }
}

void HomographyProblem::solve(std::span<const int> samples, Workspace& space,
                              Solutions<Homography>& out) const {
  solve_by(homography_kernels().four_point, kSampleSize, samples, space, out);
}

void AffineProblem::solve(std::span<const int> samples, Workspace& space,
                          Solutions<Homography>& out) const {
  solve_by(homography_kernels().three_point, kSampleSize, samples, space, out);
}

int HomographyProblem::screen(const Homography& model, int enough, std::span<uint64_t> mask) const {
  if (!screens_) return inliers(model, mask, {});
  return homography_kernels().screen(arrays_, model.H, eps_, enough, mask.data());
}

int HomographyProblem::inliers_below(const Homography& model, double limit2, uint64_t* mask,
                                     double* r2) const {
  return homography_kernels().inliers(arrays_, model.H, limit2, mask, r2);
}

LmResult HomographyProblem::refine(Homography& model, const GatheredEdges& edges, Loss loss,
                                   double scale2, int max_iterations, Workspace& space) const {
  return refine_by(refine_homography, direct_linear_transform, model, edges, loss, scale2,
                   max_iterations, space);
}

LmResult AffineProblem::refine(Homography& model, const GatheredEdges& edges, Loss loss,
                               double scale2, int max_iterations, Workspace& space) const {
  return refine_by(refine_affine, direct_affine, model, edges, loss, scale2, max_iterations, space);
}

LmResult HomographyProblem::refine_by(Refinement refinement, Direct direct, Homography& model,
                                      const GatheredEdges& edges, Loss loss, double scale2,
                                      int max_iterations, Workspace& space) const {
  RefineColumns& columns = space.columns;
  columns.gather(edges, points_);
  const std::span<const double> weights = edges.weights();
  if (loss == Loss::kCauchy) {
    return refinement(model, columns, weights, loss, scale2, max_iterations);
  }
  const RobustSystem<kHomographyParameters, Homography, HomographyTerms> system{
      columns.arrays(weights), columns.r2, loss, scale2, 1.0};
  const double before = system.cost(model);
  space.inside.assign(weights.begin(), weights.end());
  for (std::size_t i = 0; i < space.inside.size(); ++i) {
    if (!(columns.r2[i] < scale2)) space.inside[i] = 0.0;
  }
  for (const RememberedRefinement& old : space.remembered) {
    if (old.max_iterations == max_iterations && old.start_cost < before &&
        std::ranges::equal(old.edges, edges.edges()) && std::ranges::equal(old.weights, weights) &&
        old.inside == space.inside) {
      model = old.model;
      return old.result;
    }
  }
  Homography start;
  const double start_cost = direct(columns, space.inside, start)
                                ? system.cost(start)
                                : std::numeric_limits<double>::infinity();
  if (!(start_cost < before)) {
    return refinement(model, columns, weights, loss, scale2, max_iterations);
  }
  model = start;
  const LmResult result = refinement(model, columns, weights, loss, scale2, max_iterations);
  RememberedRefinement& entry = space.remembered[space.next_remembered];
  space.next_remembered = (space.next_remembered + 1) % space.remembered.size();
  entry.edges.assign(edges.edges().begin(), edges.edges().end());
  entry.weights.assign(weights.begin(), weights.end());
  entry.inside = space.inside;
  entry.start_cost = start_cost;
  entry.max_iterations = max_iterations;
  entry.model = model;
  entry.result = result;
  return result;
}

}  // namespace manymatch

#include "manymatch/problems/fundamental/problem.h"

#include <algorithm>
#include <cmath>

#include "manymatch/problems/relative_pose/pose.h"
#include "manymatch/refine/robust_least_squares.h"
#include "manymatch/rng.h"
#include "manymatch/score/noise.h"

namespace manymatch {

namespace {

constexpr int kParameters = FactoredFundamental::kParameters;

const FundamentalKernels& fundamental_kernels() { return kernels<FundamentalKernels>(); }

// Two matrices of norm one are the same below the first distance and apart above the second.
constexpr double kSame = 0.1, kApart = 0.2;

// Planes are taken from kTriplets triplets of edges. An edge belongs to a plane if it is within
// kPlaneReach thresholds of it. If a plane has at least the share kPlaneShare of the inliers,
// kCompletions pairs of edges off the plane are tried to find the epipole.
constexpr int kTriplets = 24, kCompletions = 200;
constexpr double kPlaneReach = 2.0, kPlaneShare = 0.3;
// Fixed seed of these draws: a refinement depends only on the model and the edges.
constexpr uint64_t kPlaneKey = 0x706c616e65;
// For chance_of_wrong_inlier: distances, in thresholds, between which wrong edges are counted.
constexpr double kFirstWrong = 6.0, kLastWrong = 16.0;

void cross(const double* a, const double* b, double* out) {
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    out[i] = a[j] * b[k] - a[k] * b[j];
  }
}

double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// Scales to norm one; false if the norm is zero or not finite.
bool normalise(double* v, int size) {
  double norm2 = 0.0;
  for (int i = 0; i < size; ++i) norm2 += v[i] * v[i];
  const double norm = std::sqrt(norm2);
  if (!(norm > 0.0 && std::isfinite(norm))) return false;
  for (int i = 0; i < size; ++i) v[i] /= norm;
  return true;
}

// A 3x3 matrix by rows, times a vector.
void apply(const double* A, const double* x, double* out) {
  for (int i = 0; i < 3; ++i) out[i] = dot(A + 3 * i, x);
}

// The direction orthogonal to the rows of a matrix of rank two.
void null_vector(const double* A, double* out) {
  double best = -1.0;
  for (int i = 0; i < 3; ++i) {
    double normal[3];
    cross(A + 3 * ((i + 1) % 3), A + 3 * ((i + 2) % 3), normal);
    const double length = dot(normal, normal);
    if (length > best) {
      best = length;
      std::copy_n(normal, 3, out);
    }
  }
  normalise(out, 3);
}

// Completes a unit vector to three orthonormal columns; it becomes the last one.
void frame_of(const double* last, double* Q) {
  double tangent[6];
  tangent_plane(last, tangent);
  for (int i = 0; i < 3; ++i) {
    Q[3 * i] = tangent[i];
    Q[3 * i + 1] = tangent[3 + i];
    Q[3 * i + 2] = last[i];
  }
}

// Three unit vectors orthogonal to M and to each other.
void sphere_tangents(const double* M, double (*out)[4]) {
  const double rows[3][4] = {
      {-M[1], M[0], -M[3], M[2]}, {-M[2], M[3], M[0], -M[1]}, {-M[3], -M[2], M[1], M[0]}};
  for (int k = 0; k < 3; ++k) std::copy_n(rows[k], 4, out[k]);
}

// B1 M B0'.
void expand(const double* Q1, const double* M, const double* Q0, double* F) {
  for (int i = 0; i < 3; ++i) {
    const double left[2] = {Q1[3 * i] * M[0] + Q1[3 * i + 1] * M[2],
                            Q1[3 * i] * M[1] + Q1[3 * i + 1] * M[3]};
    for (int j = 0; j < 3; ++j) F[3 * i + j] = left[0] * Q0[3 * j] + left[1] * Q0[3 * j + 1];
  }
}

struct FundamentalTerms {
  static void normal_equations(const RefineArrays& edges, const FactoredFundamental& model,
                               Loss loss, double eps2, double* out) {
    double sums[kMatrixSums], B[9][kParameters], A[9][9], AB[9][kParameters];
    fundamental_kernels().normal_equations(edges, model.model().F, loss, eps2, sums);
    model.derivatives(B);
    int slot = 0;
    for (int i = 0; i < 9; ++i) {
      for (int j = i; j < 9; ++j) A[i][j] = A[j][i] = sums[slot++];
    }
    for (int i = 0; i < 9; ++i) {
      for (int k = 0; k < kParameters; ++k) {
        AB[i][k] = 0.0;
        for (int j = 0; j < 9; ++j) AB[i][k] += A[i][j] * B[j][k];
      }
    }
    slot = 0;
    for (int k = 0; k < kParameters; ++k) {
      for (int l = k; l < kParameters; ++l, ++slot) {
        out[slot] = 0.0;
        for (int i = 0; i < 9; ++i) out[slot] += B[i][k] * AB[i][l];
      }
    }
    for (int k = 0; k < kParameters; ++k, ++slot) {
      out[slot] = 0.0;
      for (int i = 0; i < 9; ++i) out[slot] += B[i][k] * sums[kMatrixTriangle + i];
    }
    out[slot] = sums[kMatrixSums - 1];
  }
  static void residuals(const RefineArrays& edges, const FactoredFundamental& model, double* r2) {
    fundamental_kernels().residuals(edges, model.model().F, r2);
  }
  static FactoredFundamental move(const FactoredFundamental& model, const double* step) {
    return model.moved(step);
  }
};

double distance2(const Fundamental& a, const Fundamental& b) {
  double plus = 0.0, minus = 0.0;
  for (int i = 0; i < 9; ++i) {
    plus += (a.F[i] + b.F[i]) * (a.F[i] + b.F[i]);
    minus += (a.F[i] - b.F[i]) * (a.F[i] - b.F[i]);
  }
  return std::min(plus, minus);
}

// The homography of the plane through three correspondences, given F: H = A - e (X^-1 b)' with
// A = [e]x F, X the three points of image 0 by rows, and b such that A x0 - b e is x1 up to scale.
bool plane_through(const Fundamental& model, const double (*x0)[3], const double (*x1)[3],
                   Homography& out) {
  double A[9], b[3];
  for (int c = 0; c < 3; ++c) {
    const double column[3] = {model.F[c], model.F[3 + c], model.F[6 + c]};
    double turned[3];
    cross(model.e, column, turned);
    for (int i = 0; i < 3; ++i) A[3 * i + c] = turned[i];
  }
  for (int k = 0; k < 3; ++k) {
    double moved[3], off[3], along[3];
    apply(A, x0[k], moved);
    cross(x1[k], moved, off);
    cross(x1[k], model.e, along);
    b[k] = dot(off, along) / dot(along, along);
  }
  double minors[3][3], v[3];
  for (int k = 0; k < 3; ++k) cross(x0[(k + 1) % 3], x0[(k + 2) % 3], minors[k]);
  const double area = dot(x0[0], minors[0]);
  for (int c = 0; c < 3; ++c) {
    v[c] = (b[0] * minors[0][c] + b[1] * minors[1][c] + b[2] * minors[2][c]) / area;
  }
  double side = 0.0;
  for (int i = 0; i < 9; ++i) out.H[i] = A[i] - model.e[i / 3] * v[i % 3];
  for (int k = 0; k < 3; ++k) side += dot(out.H + 6, x0[k]);
  if (side < 0.0) {
    for (double& h : out.H) h = -h;
  }
  return manymatch::normalise(out);
}

}  // namespace

FactoredFundamental::FactoredFundamental(const Fundamental& model) {
  double e0[3];
  null_vector(model.F, e0);
  frame_of(model.e, Q1);
  frame_of(e0, Q0);
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      M[2 * a + b] = 0.0;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
          M[2 * a + b] += Q1[3 * i + a] * model.F[3 * i + j] * Q0[3 * j + b];
        }
      }
    }
  }
  normalise(M, 4);
}

Fundamental FactoredFundamental::model() const {
  Fundamental out;
  expand(Q1, M, Q0, out.F);
  for (int i = 0; i < 3; ++i) out.e[i] = Q1[3 * i + 2];
  return out;
}

FactoredFundamental FactoredFundamental::moved(const double* step) const {
  FactoredFundamental out = *this;
  const double turn1[3] = {step[0], step[1], 0.0}, turn0[3] = {step[2], step[3], 0.0};
  rotate(out.Q1, turn1);
  rotate(out.Q0, turn0);
  double tangents[3][4];
  sphere_tangents(M, tangents);
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 4; ++i) out.M[i] += step[4 + k] * tangents[k][i];
  }
  normalise(out.M, 4);
  return out;
}

void FactoredFundamental::derivatives(double (*out)[kParameters]) const {
  // A rotation of Q1 about its first axis turns the second column of B1 towards e1; a rotation
  // about its second axis turns the first column away from e1. Likewise for Q0.
  double tangents[3][4], moved[9];
  sphere_tangents(M, tangents);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double *left = Q1 + 3 * i, *right = Q0 + 3 * j;
      double* row = out[3 * i + j];
      row[0] = left[2] * (M[2] * right[0] + M[3] * right[1]);
      row[1] = -left[2] * (M[0] * right[0] + M[1] * right[1]);
      row[2] = (M[1] * left[0] + M[3] * left[1]) * right[2];
      row[3] = -(M[0] * left[0] + M[2] * left[1]) * right[2];
    }
  }
  for (int k = 0; k < 3; ++k) {
    expand(Q1, tangents[k], Q0, moved);
    for (int i = 0; i < 9; ++i) out[i][4 + k] = moved[i];
  }
}

LmResult refine_fundamental(Fundamental& model, RefineColumns& columns,
                            std::span<const double> weights, Loss loss, double eps2,
                            int max_iterations) {
  FactoredFundamental factored(model);
  const LmResult result = minimise_robustly<kParameters, FundamentalTerms>(
      factored, columns.arrays(weights), columns.r2, loss, eps2, max_iterations);
  Fundamental refined = factored.model();
  if (normalise(refined.F, 9) && normalise(refined.e, 3)) model = refined;
  return result;
}

DominantPlane dominant_plane(const Fundamental& model, RefineColumns& columns, std::size_t used,
                             double eps2) {
  DominantPlane best;
  if (used < 4) return best;
  // The kernel computes transfer errors of whole vectors; those beyond `used` are ignored.
  const RefineArrays arrays = columns.arrays(std::span(columns.r2).first(columns.x0.size()));
  const HomographyKernels& planar = kernels<HomographyKernels>();
  const auto count_near = [&](const Homography& H) {
    planar.residuals(arrays, H.H, columns.r2.data());
    return static_cast<int>(std::count_if(columns.r2.begin(),
                                          columns.r2.begin() + std::ptrdiff_t(used),
                                          [eps2](double r2) { return r2 < eps2; }));
  };
  for (int trial = 0; trial < kTriplets; ++trial) {
    Rng rng(kPlaneKey, static_cast<uint64_t>(trial), Rng::kSample);
    double x0[3][3], x1[3][3];
    for (int k = 0; k < 3; ++k) {
      const std::size_t i = rng.below(static_cast<uint32_t>(used));
      x0[k][0] = columns.x0[i], x0[k][1] = columns.y0[i], x0[k][2] = 1.0;
      x1[k][0] = columns.x1[i], x1[k][1] = columns.y1[i], x1[k][2] = 1.0;
    }
    Homography H;
    if (!plane_through(model, x0, x1, H)) continue;
    const int count = count_near(H);
    if (count > best.count) best = {H, count};
  }
  if (best.count < 4) return best;
  // Three points extrapolate badly, so the plane is fitted again to all points near it.
  for (int round = 0; round < 2; ++round) {
    count_near(best.H);
    AlignedVector<double> near(columns.x0.size(), 0.0);
    for (std::size_t i = 0; i < used; ++i) near[i] = columns.r2[i] < eps2 ? 1.0 : 0.0;
    Homography H;
    if (!direct_linear_transform(columns, near, H)) break;
    const int count = count_near(H);
    if (count <= best.count) break;
    best = {H, count};
  }
  return best;
}

FundamentalProblem::FundamentalProblem(const Graph& graph, const VertexPoints& points)
    : PointProblem(graph, points) {
  arrays_ = {points_.x0.data(),  points_.y0.data(),  points_.x1.data(),
             points_.y1.data(),  points_.x0f.data(), points_.y0f.data(),
             points_.x1f.data(), points_.y1f.data(), graph.words()};
  // Lengths of (x, y, 1).
  const double length0 = std::sqrt(2.0 * points_.largest0 * points_.largest0 + 1.0);
  const double length1 = std::sqrt(2.0 * points_.largest1 * points_.largest1 + 1.0);
  // Rounding errors in float32. x1' F x0: eight roundings of 2^-24 on terms whose absolute values
  // sum to at most |x0| |x1|. sqrt(den): multiplied by eps.
  slack_ = 1.4e-6 * length0 * length1 + 1.5e-6 * eps_ * std::max(length0, length1);
  // (e x x1) . (F x0): ten roundings on terms whose absolute values sum to at most 2 |x1| |x0|.
  side_slack_ = 2.4e-6 * length0 * length1;
  screens_ = slack_ < 0.5 * eps_ && eps_ < 1e3 && length0 < 1e3 && length1 < 1e3;
}

double FundamentalProblem::chance_of_wrong_inlier(std::span<const double> squared, double delta) {
  const double density = density_of_wrong_edges(squared, kFirstWrong, kLastWrong, delta);
  return std::max(delta, std::sqrt(delta * density));
}

bool FundamentalProblem::same(const Fundamental& a, const Fundamental& b) {
  return distance2(a, b) < kSame * kSame;
}

bool FundamentalProblem::apart(const Fundamental& a, const Fundamental& b) {
  return !(distance2(a, b) < kApart * kApart);
}

FundamentalProblem::Workspace FundamentalProblem::workspace() const {
  Workspace space;
  space.batch = std::make_unique<SevenPointBatch>();
  space.solutions = std::make_unique<SevenPointSolutions>();
  space.mask.resize(graph_.words());
  return space;
}

void FundamentalProblem::solve(std::span<const int> samples, Workspace& space,
                               Solutions<Fundamental>& out) const {
  SevenPointBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / kSampleSize;
  for (int i = 0; i < batch.count; ++i) {
    for (int k = 0; k < kSampleSize; ++k) {
      const std::size_t e = at(samples[at(kSampleSize * i + k)]);
      batch.x0[k][i] = points_.x0[e];
      batch.y0[k][i] = points_.y0[e];
      batch.x1[k][i] = points_.x1[e];
      batch.y1[k][i] = points_.y1[e];
    }
  }
  fundamental_kernels().seven_point(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    Fundamental model;
    std::copy_n(space.solutions->F[i], 9, model.F);
    std::copy_n(space.solutions->e[i], 3, model.e);
    out.models.push_back(model);
    out.sample.push_back(space.solutions->sample[i]);
  }
}

int FundamentalProblem::screen(const Fundamental& model, int enough,
                               std::span<uint64_t> mask) const {
  if (!screens_) return inliers(model, mask, {});
  return fundamental_kernels().screen(arrays_, model.F, model.e, eps_, slack_, side_slack_, enough,
                                      mask.data());
}

int FundamentalProblem::inliers_below(const Fundamental& model, double limit2, uint64_t* mask,
                                      double* r2) const {
  return fundamental_kernels().inliers(arrays_, model.F, model.e, limit2, mask, r2);
}

LmResult FundamentalProblem::refine(Fundamental& model, const GatheredEdges& edges, Loss loss,
                                    double scale2, int max_iterations, Workspace& space) const {
  RefineColumns& columns = space.columns;
  columns.gather(edges, points_);
  const LmResult result =
      refine_fundamental(model, columns, edges.weights(), loss, scale2, max_iterations);
  if (loss != Loss::kTruncated) return result;
  const std::size_t used = edges.edges().size();
  const DominantPlane plane =
      dominant_plane(model, columns, used, kPlaneReach * kPlaneReach * eps_ * eps_);
  if (plane.count < kSampleSize || plane.count < kPlaneShare * static_cast<double>(used)) {
    return result;
  }
  Fundamental completed = model;
  if (!complete(completed, plane.H, space)) return result;
  // Refines the completed matrix on its own inliers with equal weights; they may differ from the
  // gathered edges.
  const int count = within(completed, 5.0 * scale2, space.mask);
  columns.resize(at(count), (at(count) + kRefineLanes - 1) / kRefineLanes * kRefineLanes);
  space.weights.assign(columns.x0.size(), 0.0);
  std::size_t next = 0;
  for_each_bit(space.mask, [&](int e) {
    columns.x0[next] = points_.x0[at(e)];
    columns.y0[next] = points_.y0[at(e)];
    columns.x1[next] = points_.x1[at(e)];
    columns.y1[next] = points_.y1[at(e)];
    space.weights[next++] = 1.0;
  });
  refine_fundamental(completed, columns, space.weights, loss, scale2, max_iterations);
  if (inliers(completed, space.mask, {}) > inliers(model, space.mask, {})) model = completed;
  return result;
}

// Given the homography H of a plane, F = [e]x H. For every edge off the plane the epipole e lies on
// the line through H x0 and x1, so two such edges determine it. Tries pairs of edges; false if no
// pair gives more inliers than `model` has.
bool FundamentalProblem::complete(Fundamental& model, const Homography& plane,
                                  Workspace& space) const {
  space.off_plane.clear();
  const double far2 = kPlaneReach * kPlaneReach * eps_ * eps_;
  RefineColumns& columns = space.columns;
  const std::size_t edges = graph_.num_edges();
  if (columns.r2.size() < points_.x0.size()) columns.r2.resize(points_.x0.size());
  const RefineArrays all{points_.x0.data(), points_.y0.data(), nullptr, points_.x1.data(),
                         points_.y1.data(), nullptr,           nullptr, points_.x0.size()};
  kernels<HomographyKernels>().residuals(all, plane.H, columns.r2.data());
  for (std::size_t e = 0; e < edges; ++e) {
    if (!(columns.r2[e] < far2) && std::isfinite(points_.x0[e])) {
      space.off_plane.push_back(static_cast<int>(e));
    }
  }
  if (space.off_plane.size() < 2) return false;
  int best = inliers(model, space.mask, {});
  bool better = false;
  const auto total = static_cast<uint32_t>(space.off_plane.size());
  for (int trial = 0; trial < kCompletions; ++trial) {
    Rng rng(kPlaneKey, static_cast<uint64_t>(trial), Rng::kNearSample);
    double moved[2][3], x1[2][3], line[2][3];
    for (int k = 0; k < 2; ++k) {
      const std::size_t e = at(space.off_plane[rng.below(total)]);
      const double x0[3] = {points_.x0[e], points_.y0[e], 1.0};
      x1[k][0] = points_.x1[e], x1[k][1] = points_.y1[e], x1[k][2] = 1.0;
      apply(plane.H, x0, moved[k]);
      cross(moved[k], x1[k], line[k]);
    }
    Fundamental trial_model;
    cross(line[0], line[1], trial_model.e);
    if (!normalise(trial_model.e, 3)) continue;
    bool one_side = true;
    for (int k = 0; k < 2 && one_side; ++k) {
      double seen[3], mapped[3];
      cross(trial_model.e, x1[k], seen);
      cross(trial_model.e, moved[k], mapped);
      one_side = dot(seen, mapped) > 0.0;
    }
    if (!one_side) continue;
    for (int c = 0; c < 3; ++c) {
      const double column[3] = {plane.H[c], plane.H[3 + c], plane.H[6 + c]};
      double turned[3];
      cross(trial_model.e, column, turned);
      for (int i = 0; i < 3; ++i) trial_model.F[3 * i + c] = turned[i];
    }
    if (!normalise(trial_model.F, 9)) continue;
    const int count = screen(trial_model, best + 1, space.mask);
    if (count > best) {
      best = count;
      model = trial_model;
      better = true;
    }
  }
  return better;
}

}  // namespace manymatch

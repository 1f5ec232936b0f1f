// Rigid transform or similarity between two clouds of points, from three or more correspondences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manymatch/dispatch.h"
#include "manymatch/problems/points.h"
#include "manymatch/problems/rigid/kernels.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/ransac/sampler.h"

namespace manymatch {

// x1 = A x0 + t with A = s R; s is 1 unless the scale is free.
template <bool kFreeScale>
struct Transform : TransformNumbers {};

constexpr int kMostTransformParameters = 7;

// The transform after a step: rotation vector about the origin, translation and, if the scale is
// free, its logarithm. x1 = s exp(step[6]) exp(step[0:3]) R x0 + t + step[3:6].
template <bool kFreeScale>
Transform<kFreeScale> perturb(const Transform<kFreeScale>& transform, const double* step);

// Upper triangle of J'WJ by rows, J'Wr and the cost, for the parameters of `perturb`, from the sums
// of the kernel.
template <bool kFreeScale>
void transform_normal_equations(const double* sums, double scale, double* out);

// Levenberg-Marquardt over the edges with a positive weight; one weight per padded column.
template <bool kFreeScale>
LmResult refine_transform(Transform<kFreeScale>& transform, RefineColumns& columns,
                          std::span<const double> weights, Loss loss, double eps2,
                          int max_iterations);

template <bool kFreeScale>
class OverlapEvidence;

template <bool kFreeScale>
class TransformProblem : public PointProblem<TransformProblem<kFreeScale>> {
 public:
  using Model = Transform<kFreeScale>;
  // If the scale is fixed, both clouds are in the same unit. If it is free, each cloud has its own
  // unit, chosen so that the expected scale is about 1.
  using Data = VertexPoints;
  static constexpr int kSampleSize = 3;
  static constexpr int kDimension0 = 3, kDimension1 = 3;
  static constexpr const char* kModelName = kFreeScale ? "similarity" : "rigid transform";
  // The points of two scans do not coincide, so the next candidate is as good a partner: using all
  // edges is more precise than using the likeliest only, but edges beyond the threshold do harm.
  static constexpr std::size_t kConsideredEdges = 16384;
  // The first neighbour is right only a little more often than the fifth. If the scale is free,
  // more edges and weaker ranks admit more wrong alignments than they gain.
  static constexpr std::size_t kSearchedEdges = kFreeScale ? 384 : 512;
  static constexpr bool kWeakRanks = !kFreeScale;
  static constexpr double kPolishReach = 1.25;
  static constexpr double kPolishScale = 1.0 / 3.0;
  static constexpr int kResidualDimensions = 3;
  using Evidence = OverlapEvidence<kFreeScale>;
  // The overlap tells wrong models apart, so that more can be looked at.
  static constexpr std::size_t kSettleMeasured = 24, kSettleRefined = 6;
  // Whether both move the corners of a cube of about the size of the cloud to about the same
  // places.
  static bool same(const Model& a, const Model& b);
  static bool apart(const Model& a, const Model& b) { return !same(a, b); }
  struct Workspace {
    std::unique_ptr<ThreePointBatch> batch;
    std::unique_ptr<ThreePointSolutions> solutions;
    RefineColumns columns;
  };

  TransformProblem(const Graph& graph, const VertexPoints& points);

  Workspace workspace() const;

  void solve(std::span<const int> samples, Workspace& space, Solutions<Model>& out) const;
  int screen(const Model& model, int enough, std::span<uint64_t> mask) const;
  int inliers_below(const Model& model, double limit2, uint64_t* mask, double* r2) const;
  LmResult refine(Model& model, const GatheredEdges& edges, Loss loss, double scale2,
                  int max_iterations, Workspace& space) const;

  // Draws the second and third edge of a sample among those that preserve distances; null if the
  // scale is free, as distances then change.
  std::unique_ptr<const SampleCompletion> completion() const;

  const SpaceEdges& arrays() const { return arrays_; }

  // Which samples have a transform, for a threshold.
  static ThreePointLimits limits(double eps);
  // Which pairs of edges can be in one sample of "auto" if the scale is fixed.
  static PairLimits pair_limits(double eps);

 private:
  using PointProblem<TransformProblem>::graph_;
  using PointProblem<TransformProblem>::eps_;
  using PointProblem<TransformProblem>::points_;
  SpaceEdges arrays_;
  bool screens_ = true;
};

using RigidProblem = TransformProblem<false>;
using SimilarityProblem = TransformProblem<true>;

extern template class TransformProblem<false>;
extern template class TransformProblem<true>;

static_assert(Problem<RigidProblem> && Problem<SimilarityProblem>);
static_assert(kThreePointBatch == kBatch, "a batch of samples is one batch of the solver");

}  // namespace manymatch

#include "manymatch/problems/rigid/evidence.h"

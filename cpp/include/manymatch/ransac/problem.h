// What the estimator calls of a geometric problem, and nothing else. A type with these members can
// be estimated by every method (estimate.h) without a change to the loop.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/refine/gathered_edges.h"
#include "manymatch/refine/levenberg_marquardt.h"
#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Models of a batch of samples. Models of one sample stand together, samples ascend.
template <class Model>
struct Solutions {
  std::vector<Model> models;
  std::vector<int> sample;  // index within the batch

  void clear() {
    models.clear();
    sample.clear();
  }
};

// Samples that are drawn, solved and screened together.
constexpr int kBatch = 64;

// A problem is built from a graph and its own data (`P::Data`: points by vertex, the threshold).
// The estimator builds it several times, on parts of one graph: the vertices are the same, the
// edges are fewer. Graph and data outlive the problem. All members are const and called by several
// threads at once; what they write to is in the Workspace of a thread.
//
// A problem whose models have more parameters than a sample determines, such as a focal length,
// draws the rest together with the sample. What the estimator asks of it then is optional: the
// share of the samples for which that is close enough (P::kSampleChance), a logarithm of the prior
// of a model (problem.log_prior), data that draw near a model (data.near), and how much more the
// last stage looks at (P::kSettleRounds, P::kOtherPolished, P::starts_apart). Where the edges
// hardly tell that parameter, seeds of the same inliers can be different models
// (P::leads_elsewhere), and models with the parameter held at P::kRivals values (data.held,
// P::loss, ...) are compared last.
//
// Other optional members of a problem: how many edges "auto" considers and searches with
// (P::kConsideredEdges, P::kSearchedEdges), ranks that say little (P::kWeakRanks), the power of
// the priors in the last polish (P::kPolishPriorPower), samples of a round of the last stage
// (P::kSettleSamples), and whether the last stage measures how often a wrong edge is an inlier of
// a model by chance (P::kMeasuresChance), which residuals in one dimension need.
//
// Residuals are in the unit of the threshold `eps()`. An edge is an inlier of a model if its
// squared residual is below eps^2 and the problem's other conditions hold (such as positive
// depths).
template <class P>
concept Problem =
    std::default_initializable<typename P::Model> && std::copyable<typename P::Model> &&
    std::constructible_from<P, const Graph&, const typename P::Data&> &&
    requires(const P problem, typename P::Model& model, const typename P::Model& fixed,
             typename P::Workspace& space, std::span<const int> samples,
             Solutions<typename P::Model>& solutions, int enough, double limit2,
             std::span<uint64_t> mask, std::span<double> r2, const GatheredEdges& edges, Loss loss,
             double scale2, int max_iterations) {
      { P::kSampleSize } -> std::convertible_to<int>;
      // What a model is called in a message, such as "pose".
      { P::kModelName } -> std::convertible_to<const char*>;
      // "auto" polishes with edges up to so many thresholds away: the noise does not end there.
      { P::kPolishReach } -> std::convertible_to<double>;
      // Distances from a line, 1, from a point of an image, 2, or from one in space, 3.
      { P::kResidualDimensions } -> std::convertible_to<int>;
      // Whether two models are the same up to what a refinement changes.
      { P::same(fixed, fixed) } -> std::same_as<bool>;
      // Whether they differ by more than models of minimal samples do which a refinement makes the
      // same.
      { P::apart(fixed, fixed) } -> std::same_as<bool>;
      // Scale of Cauchy's loss in a polish, in thresholds.
      { P::kPolishScale } -> std::convertible_to<double>;
      { problem.graph() } -> std::convertible_to<const Graph&>;
      { problem.eps() } -> std::convertible_to<double>;
      // Buffers of one thread.
      { problem.workspace() } -> std::same_as<typename P::Workspace>;
      // All models of up to kBatch samples of kSampleSize edges each, one sample after the other.
      problem.solve(samples, space, solutions);
      // A superset of the inliers, quickly (and more loosely if it has fewer than `enough` edges).
      // Returns the number of bits set.
      { problem.screen(fixed, enough, mask) } -> std::same_as<int>;
      // The inliers, and the squared residuals of all edges unless r2 is empty. r2 has room for
      // whole words of edges; an undefined residual is NaN.
      { problem.inliers(fixed, mask, r2) } -> std::same_as<int>;
      // The same with the limit of the squared residual given, without residuals.
      { problem.within(fixed, limit2, mask) } -> std::same_as<int>;
      // Minimises the weighted loss, at the given squared scale, over the given edges; it must
      // leave a valid model.
      {
        problem.refine(model, edges, loss, scale2, max_iterations, space)
      } -> std::same_as<LmResult>;
    };

}  // namespace manymatch

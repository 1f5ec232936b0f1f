// What the estimator needs from a geometric problem. Any type that derives from ProblemDefaults and
// satisfies the concept Problem works with every method (estimator.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/interrupt.h"
#include "manymatch/ransac/sampler.h"
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

// Number of samples that are drawn, solved and screened together.
constexpr int kBatch = 64;

// What speaks for a model besides the edges. Most problems know nothing else; a problem that does
// has a class with the same members.
struct NoEvidence {
  // `whole` is the graph of all edges, of which the problem may have a part.
  NoEvidence(const auto& /*problem*/, const auto& /*data*/, const Graph& /*whole*/) {}
  // Models that the evidence suggests, to be refined. Given are the best model and, with their
  // support by the edges, all that were refined.
  template <class Model>
  std::vector<Model> search(const Model& /*best*/, const auto& /*refined*/, uint64_t /*seed*/,
                            Interrupt&) {
    return {};
  }
  // In nats of support.
  double operator()(const auto& /*model*/) const { return 0.0; }
};

// The default of everything that a problem may change. Problem P derives from ProblemDefaults<P>
// and redefines the members that differ.
template <class P>
struct ProblemDefaults {
  // Method "auto" first looks at the best kConsideredEdges edges of each source, and searches with
  // the kSearchedEdges of them that have the largest priors.
  static constexpr std::size_t kConsideredEdges = 2048, kSearchedEdges = 384;
  // If true, priors fall with the square root of the rank, since ranks say little.
  static constexpr bool kWeakRanks = false;
  // Share of the samples without outliers that give a model close to the right one. It is below 1
  // if the problem draws parameters that the sample does not determine, such as a focal length.
  static constexpr double kSampleChance = 1.0;

  // Part kOverlapPart of "auto".
  using Evidence = NoEvidence;

  // The remaining members concern the last stage of "auto" (settle.h), except leads_elsewhere().
  // Rounds of new samples, and samples per round.
  static constexpr int kSettleRounds = 2, kSettleSamples = 128;
  // Models from stage 2 that are measured, and those that are polished.
  static constexpr std::size_t kSettleMeasured = 10, kSettleRefined = 5;
  // Models per round that are polished although they are far from the best model.
  static constexpr std::size_t kOtherPolished = 2;

  // Whether a polish looks only as far as the noise of the pair reaches. If false, it uses
  // kPolishReach and kPolishScale for every pair.
  static constexpr bool kPolishByNoise = true;

  // Scale of the noise, in thresholds, by which residuals count in the support of a model, given
  // the measured one.
  static double support_scale(double scale) { return scale; }
  // Prior of an edge as the last polish uses it, given its prior with and without what the motion
  // filter says.
  static double polish_prior(double prior, double /*without_filter*/) { return prior; }
  // Logarithm of the prior probability of a model, up to a constant.
  double log_prior(const auto&) const { return 0.0; }
  // Probability that a wrong edge is an inlier of a model, given the squared residuals of all edges
  // in squared thresholds. `delta` is the option of that name.
  static double chance_of_wrong_inlier(std::span<const double>, double delta) { return delta; }
  // Data that draw the samples of a round of settling, given the best model so far.
  template <class Data>
  static Data data_near(const Data& data, const auto&, int) {
    return data;
  }
  // Whether refining models a and b can lead to different optima.
  static bool starts_apart(const auto& a, const auto& b) { return P::apart(a, b); }
  // Whether a seed can lead to another optimum than a refined model with the same inliers. Stage 2
  // refines such a seed too.
  static bool leads_elsewhere(const auto&, const auto&) { return false; }
  // Completes samples whose first edge is drawn; null: all edges are drawn.
  std::unique_ptr<const SampleCompletion> completion() const { return nullptr; }
  // Called at the end of settling; may choose another model (Settlement::replace_best).
  static void conclude(auto&) {}
};

// A problem is built from a graph and its own data (`P::Data`: points by vertex, the threshold).
// The estimator builds it several times, on parts of one graph: the vertices are the same, the
// edges are fewer. Graph and data outlive the problem. All members are const, and several threads
// call them at once; each thread has its own Workspace for buffers.
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
      // The name of a model in messages, such as "pose".
      { P::kModelName } -> std::convertible_to<const char*>;
      // "auto" polishes with edges up to this many thresholds away: noise exceeds the threshold.
      { P::kPolishReach } -> std::convertible_to<double>;
      // 1 for distances from a line, 2 from a point in an image, 3 from a point in space.
      { P::kResidualDimensions } -> std::convertible_to<int>;
      // Whether two models differ by no more than a refinement changes.
      { P::same(fixed, fixed) } -> std::same_as<bool>;
      // Whether two models of minimal samples differ so much that refining them gives two models.
      { P::apart(fixed, fixed) } -> std::same_as<bool>;
      // Scale of Cauchy's loss in a polish, in thresholds.
      { P::kPolishScale } -> std::convertible_to<double>;
      { problem.graph() } -> std::convertible_to<const Graph&>;
      { problem.eps() } -> std::convertible_to<double>;
      // Buffers of one thread.
      { problem.workspace() } -> std::same_as<typename P::Workspace>;
      // All models of up to kBatch samples of kSampleSize edges each, one sample after the other.
      problem.solve(samples, space, solutions);
      // Finds a superset of the inliers quickly, and returns its size. If the superset has fewer
      // than `enough` edges, it may be looser.
      { problem.screen(fixed, enough, mask) } -> std::same_as<int>;
      // The inliers, and the squared residuals of all edges unless r2 is empty. r2 has room for
      // whole words of edges; an undefined residual is NaN.
      { problem.inliers(fixed, mask, r2) } -> std::same_as<int>;
      // The same for another limit of the squared residual; r2 may be left out.
      { problem.within(fixed, limit2, mask) } -> std::same_as<int>;
      { problem.within(fixed, limit2, mask, r2) } -> std::same_as<int>;
      // Minimises the weighted loss with the given squared scale over the given edges. The model
      // stays valid.
      {
        problem.refine(model, edges, loss, scale2, max_iterations, space)
      } -> std::same_as<LmResult>;
    };

}  // namespace manymatch

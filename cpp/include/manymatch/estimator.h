// The templates behind estimate.h: every method, written once for all problems. Only problems that
// are not part of the library need this header.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manymatch/estimate.h"
#include "manymatch/ransac/lo_ransac.h"
#include "manymatch/ransac/selection.h"
#include "manymatch/ransac/settle.h"
#include "manymatch/score/priors.h"
#include "manymatch/score/scorers.h"
#include "manymatch/score/trust.h"

namespace manymatch {

// One run on one pair.
template <Problem P>
class Estimator {
 public:
  using Model = typename P::Model;
  using Data = typename P::Data;

  // `most_scale`: upper bound of the noise that the last stage may assume, in thresholds.
  Estimator(const GraphInput& input, const Data& data, const Options& options, Interrupt& interrupt,
            double most_scale = 1.0)
      : most_scale_(most_scale),
        input_(input),
        data_(data),
        options_(options),
        interrupt_(interrupt),
        graph_(input.graph()),
        sampled_(input.sampled_edges()) {}

  ModelEstimate<Model> run(Method method);

 private:
  using Clock = std::chrono::steady_clock;

  // Constants of method "auto".
  // Shares of the samples that are drawn from level 0, and from levels 0 and 1.
  static constexpr double kShareOfLevel0 = 0.5, kShareOfLevels01 = 0.25;
  static_assert(kShareOfLevel0 + kShareOfLevels01 <= 1.0);
  // The trial searches of all sources together get one in kTrialShare of the most iterations, and
  // each starts to look whether it may end after one in kTrialShare of the least.
  static constexpr int64_t kTrialShare = 4;
  // In the trial search of one source, the priors of the other sources are multiplied by this.
  static constexpr double kOtherSources = 0.01;
  // Samples are drawn from a level alone if its largest matching has at least this many edges more
  // than a sample.
  static constexpr int kSpareEdges = 3;
  // Most polishes in a row. Each moves the model and so changes the edges within reach; five are
  // nearly always enough.
  static constexpr int kMaxPolishes = 5;
  // Steps of each.
  static constexpr int kPolishSteps = 10;
  // Least probability that a vertex has no true edge.
  static constexpr double kNoMatchProbability = 0.05;
  // Cost, in nats, of a squared residual of one squared threshold when matchings are compared and
  // the noise is unknown.
  static constexpr double kResidualWeight = 3.0;
  // Edges are not independent evidence: a model becomes e times as likely by this many nats of
  // support, not by one (benchmarks/results/confidence.md has the measured reliability).
  static constexpr double kNatsPerOdds = 16.0;
  // Models below this probability are not reported as alternatives.
  static constexpr double kLeastProbability = 0.01;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void run_paper(Method method);
  void run_auto();

  std::string why_unsolvable(const Graph& graph, const std::vector<int>& edges,
                             bool one_to_one) const {
    return manymatch::why_unsolvable(graph, edges, one_to_one, P::kSampleSize);
  }
  Levels levels_with(std::span<const uint8_t> kept, std::span<const double> factor) const {
    return Levels(graph_, rank_, kept, options_.q, options_.uses(kRanksPart), P::kWeakRanks,
                  factor);
  }
  // Source of every edge of a part.
  std::vector<int> sources_of(const Subgraph& part) const {
    std::vector<int> source;
    for (int e : part.edges) source.push_back(input_.source[at(e)]);
    return source;
  }
  Proposals guided_proposals(bool one_to_one) const;
  Proposals level_proposals(const Subgraph& part, const Levels& levels) const;
  SearchResult<Model> search(Method method, const P& problem, const Proposals& proposals,
                             const HcmTerms& terms, const Options& options, Workers& workers,
                             Interrupt& interrupt, Pool<Model>& pool);
  // Has fields of its own for the result, as several threads search at once.
  struct Trial {
    ModelEstimate<Model>& out;
    Interrupt& interrupt;
    Workers& workers;
    std::vector<SupportedModel<Model>>& refined;
  };
  bool explore(const Levels& levels, const std::vector<int>& considered, const Subgraph& wide,
               const P& select_problem, const Options& options, Trial trial);
  void select(const Levels& levels, const Subgraph& wide, const P& select_problem,
              const Model& found, const Pool<Model>& pool, Trial trial);
  void suggest(typename P::Evidence& evidence, const P& problem,
               std::vector<SupportedModel<Model>>& refined);
  bool judge_sources(const Levels& levels, const std::vector<int>& considered, const Subgraph& wide,
                     const P& problem, Workers& workers, std::vector<double>& factor,
                     std::vector<SupportedModel<Model>>& best);
  std::vector<double> trust_of_sources(const Levels& levels, const Subgraph& wide, const P& problem,
                                       const std::vector<SupportedModel<Model>>& models) const;
  static bool take_search(const SearchResult<Model>& found, double seconds,
                          ModelEstimate<Model>& out);
  static void note_pool(const Pool<Model>& pool, ModelEstimate<Model>& out) {
    out.pooled = static_cast<int>(pool.entries().size());
    out.worst_pooled = pool.worst_score();
  }
  void polish_until_stable(const P& problem, std::span<const double> prior);
  // Cost of an edge in a matching: `residual` times its squared residual in squared thresholds,
  // plus its own cost `of_edge` (empty: zero).
  struct Costs {
    double residual = 1.0;
    std::vector<double> of_edge = {};
  };
  void resolve(const P& problem, const HcmTerms& terms, const Costs& costs,
               const Model& unpolished);
  bool take_matches(const P& problem, const HcmTerms& terms, const Costs& costs);
  std::vector<int64_t> matches_of(const P& problem, const Model& model, const Costs& costs,
                                  Mask& inliers) const;
  using Others = std::vector<typename Settlement<P>::Other>;
  void take_alternatives(const P& problem, const Costs& costs, const Others& others);

  const Clock::time_point start_ = Clock::now();
  const double most_scale_;
  const GraphInput& input_;
  const Data& data_;
  const Options& options_;
  Interrupt& interrupt_;
  const Graph graph_;
  const std::vector<int> sampled_;
  std::vector<int32_t> rank_;  // joint ranks, for kAuto
  ModelEstimate<Model> out_;
};

// The best threshold, in units of the given one: a short search with a wide threshold measures the
// noise. `kept` gets the edges that the motion filter keeps.
template <Problem P>
double automatic_threshold(const GraphInput& input, const typename P::Data& data, Options options,
                           Interrupt& interrupt, std::vector<uint8_t>& kept) {
  constexpr double kWide = 2.0, kLeast = 1.0, kMost = 4.0;
  constexpr double kDeviations = 1.0;  // the threshold, in standard deviations of the noise
  // If the relative uncertainty of the noise is above this, the noise counts as unknown.
  constexpr double kMostUncertainty = 0.15;
  constexpr int64_t kIterations = 400;
  constexpr int kPool = 10;
  options.min_iterations = options.max_iterations = std::min(kIterations, options.max_iterations);
  options.pool_size = std::min(kPool, options.pool_size);
  typename P::Data wide = data;
  wide.eps *= kWide;
  const auto found = Estimator<P>(input, wide, options, interrupt, 1.0 / kWide).run(Method::kAuto);
  kept = found.kept;
  if (!found.success || found.noise_deviation > kMostUncertainty * found.noise) return kLeast;
  return std::clamp(kDeviations * found.noise / data.eps, kLeast, kMost);
}

template <Problem P>
ModelEstimate<typename P::Model> estimate(const GraphInput& input, const typename P::Data& data,
                                          Method method, const Options& options,
                                          Interrupt& interrupt) {
  if (!options.automatic_threshold) {
    return Estimator<P>(input, data, options, interrupt).run(method);
  }
  std::vector<uint8_t> kept;
  const double threshold = automatic_threshold<P>(input, data, options, interrupt, kept);
  typename P::Data chosen = data;
  chosen.eps *= threshold;
  GraphInput filtered = input;
  filtered.kept = kept;
  auto out = Estimator<P>(filtered, chosen, options, interrupt, 1.0 / threshold).run(method);
  out.threshold = threshold;
  return out;
}

template <Problem P>
std::vector<ModelEstimate<typename P::Model>> estimate_many(std::span<const GraphInput> inputs,
                                                            std::span<const typename P::Data> data,
                                                            Method method,
                                                            std::span<const Options> options,
                                                            int threads, Interrupt& interrupt) {
  std::vector<ModelEstimate<typename P::Model>> out(inputs.size());
  Workers workers(threads);
  const auto job = [&](int worker, int index) {
    if (interrupt.requested()) return;
    const std::size_t i = at(index);
    Options one_thread = options[i];
    one_thread.threads = 1;
    // Only the calling thread may ask Python; the others look at the flag it sets.
    Interrupt follower([&interrupt] { return interrupt.requested(); });
    out[i] =
        estimate<P>(inputs[i], data[i], method, one_thread, worker == 0 ? interrupt : follower);
  };
  workers.run(static_cast<int>(inputs.size()), job, [&interrupt] { interrupt.poll(); });
  return out;
}

template <Problem P>
ModelScore score(const GraphInput& input, const typename P::Data& data,
                 const typename P::Model& model, double q, double delta) {
  const Graph graph = input.graph();
  const P problem(graph, data);
  const HcmTerms terms(graph, q, delta, input.given_priors(), HcmTerms::kNoTables);
  Mask mask(graph.words());
  ModelScore score;
  score.r2.resize(graph.words() * 64);
  score.num_inliers = problem.inliers(model, mask, score.r2);
  score.r2.resize(graph.num_edges());
  score.hcm = HcmEvaluator(graph, terms)(mask);
  score.cardinality = MaximumMatching(graph).cardinality(mask);
  score.inliers = flags_of(mask, graph.num_edges());
  return score;
}

template <Problem P>
ModelEstimate<typename P::Model> Estimator<P>::run(Method method) {
  out_.inliers.assign(graph_.num_edges(), 0);
  out_.failure = why_unsolvable(graph_, sampled_, method != Method::kCm);
  if (!out_.failure.empty()) {
    out_.timing.setup = seconds_since(start_);
  } else if (method == Method::kAuto) {
    run_auto();
  } else {
    run_paper(method);
  }
  out_.timing.total = seconds_since(start_);
  return std::move(out_);
}

// Search with one score and, for kHcmMcm, select by another.
template <Problem P>
void Estimator<P>::run_paper(Method method) {
  const bool one_to_one = method != Method::kCm;
  const P problem(graph_, data_);
  const HcmTerms terms(graph_, options_.q, options_.delta, input_.given_priors());
  const Proposals proposals = guided_proposals(one_to_one);
  Workers workers(options_.threads);
  Pool<Model> pool(options_.pool_size);
  out_.timing.setup = seconds_since(start_);

  const auto search_start = Clock::now();
  const SearchResult<Model> found =
      search(method, problem, proposals, terms, options_, workers, interrupt_, pool);
  if (!take_search(found, seconds_since(search_start), out_)) return;

  out_.model = found.model;
  if (method == Method::kHcmMcm) {
    const auto select_start = Clock::now();
    out_.model = select_by_matching(problem, pool, workers, interrupt_);
    out_.refinements += static_cast<int64_t>(pool.entries().size());
    note_pool(pool, out_);
    out_.interrupted = interrupt_.requested();
    out_.timing.select = seconds_since(select_start);
  }
  const auto polish_start = Clock::now();
  const Model unpolished = out_.model;
  typename P::Workspace space = problem.workspace();
  Refiner<P>(problem, one_to_one ? Weighting::kByDegree : Weighting::kEqual)
      .final_polish(out_.model, space);
  out_.timing.polish = seconds_since(polish_start);
  const auto resolve_start = Clock::now();
  resolve(problem, terms, Costs(), unpolished);
  out_.timing.resolve = seconds_since(resolve_start);
}

// Method "auto". The prior of an edge depends on how the edge was found (score/priors.h). Steps:
// search with HCM on the edges with the largest priors, drawing most samples from the best levels;
// select by the heaviest matching on all considered edges; polish with priors; settle by residuals;
// resolve the matches on the whole graph.
template <Problem P>
void Estimator<P>::run_auto() {
  const int sources = input_.num_sources();
  rank_ = joint_ranks(input_, graph_);
  const std::vector<int> considered = best_edges(input_, rank_, P::kConsideredEdges);
  if (options_.uses(kFilterPart)) {
    if (!input_.kept.empty()) {
      out_.kept.assign(input_.kept.begin(), input_.kept.end());
    } else if (!input_.points0.empty()) {
      out_.kept = kept_by_filter(input_, graph_, considered);
    }
  }
  std::vector<double> factor;  // multiplies the prior of each edge; empty: 1
  if (!input_.belief.empty()) factor = belief_factors(input_.belief, input_.source, considered);
  Levels levels = levels_with(out_.kept, factor);
  // Edges that the caller proposes are always considered.
  const std::vector<int> named = input_.proposals.empty() ? std::vector<int>() : sampled_;
  Subgraph wide(graph_, union_of(considered, named));
  if (!why_unsolvable(wide.graph, wide.local(sampled_), true).empty()) {
    wide = Subgraph(graph_, first_edges(graph_.num_edges()));
  }
  Workers workers(options_.threads);
  out_.timing.setup = seconds_since(start_);
  std::vector<SupportedModel<Model>> refined;
  const P select_problem(wide.graph, data_);
  if (sources > 1 && options_.uses(kTrustPart)) {
    factor.resize(graph_.num_edges(), 1.0);
    if (!judge_sources(levels, considered, wide, select_problem, workers, factor, refined)) return;
    levels = levels_with(out_.kept, factor);
  }
  if (!explore(levels, considered, wide, select_problem, options_,
               {out_, interrupt_, workers, refined})) {
    return;
  }

  const auto evidence_start = Clock::now();
  std::optional<typename P::Evidence> evidence;
  if (options_.uses(kOverlapPart)) {
    evidence.emplace(select_problem, data_, graph_);
    suggest(*evidence, select_problem, refined);
  }
  out_.timing.search += seconds_since(evidence_start);

  const auto polish_start = Clock::now();
  const Model unpolished = out_.model;
  if (options_.uses(kPolishPart)) {
    polish_until_stable(select_problem, pick(levels.prior, wide.edges));
  } else {
    typename P::Workspace space = select_problem.workspace();
    Refiner<P>(select_problem, Weighting::kByDegree).final_polish(out_.model, space);
  }
  Costs costs;
  costs.residual = kResidualWeight;
  Others others;
  if (options_.uses(kResidualsPart)) {
    const Levels single = levels_with({}, factor);
    Settlement<P> settlement(
        select_problem, data_, pick(levels.prior, wide.edges), pick(single.prior, wide.edges),
        options_.delta, most_scale_, options_.seed, workers, evidence ? &*evidence : nullptr,
        sources > 1 ? EdgeSources{sources_of(wide), out_.trust} : EdgeSources());
    settlement.run(out_.model, refined, interrupt_);
    others = settlement.others();
    costs.residual = 0.5 / (settlement.scale() * settlement.scale());
    const Noise noise = settlement.noise();
    out_.noise = noise.scale * select_problem.eps();
    out_.noise_deviation = noise.deviation * select_problem.eps();
    out_.support = settlement.support();
  }
  out_.timing.polish = seconds_since(polish_start);

  const auto resolve_start = Clock::now();
  // Of two matchings of the same size the likelier one wins: a smaller prior costs more.
  costs.of_edge = levels.weights(first_edges(graph_.num_edges()), options_.delta);
  const double highest = *std::max_element(costs.of_edge.begin(), costs.of_edge.end());
  for (double& c : costs.of_edge) c = highest - c;
  costs.of_edge.resize(graph_.words() * 64, highest);
  const P whole_problem(graph_, data_);
  const HcmTerms terms(graph_, options_.q, options_.delta, {}, HcmTerms::kNoTables);
  resolve(whole_problem, terms, costs, unpolished);
  if (out_.success) take_alternatives(whole_problem, costs, others);
  out_.timing.resolve = seconds_since(resolve_start);
}

// Searches on the likeliest edges and selects a model; false if there is none or the search was
// interrupted.
template <Problem P>
bool Estimator<P>::explore(const Levels& levels, const std::vector<int>& considered,
                           const Subgraph& wide, const P& select_problem, const Options& options,
                           Trial trial) {
  const auto search_start = Clock::now();
  const std::vector<int> named = input_.proposals.empty() ? std::vector<int>() : sampled_;
  const std::size_t searched = options_.uses(kNarrowPart) ? P::kSearchedEdges : considered.size();
  Subgraph narrow(graph_, union_of(likeliest_edges(levels, considered, searched), named));
  if (!why_unsolvable(narrow.graph, narrow.local(sampled_), true).empty()) narrow = wide;
  Proposals proposals = level_proposals(narrow, levels);
  const P search_problem(narrow.graph, data_);
  if (options_.uses(kFilterPart)) {
    proposals.complete_by(narrow.graph, search_problem.completion());
  }
  const HcmTerms terms(narrow.graph, Priors(narrow.graph, pick(levels.prior, narrow.edges),
                                            options_.delta, kNoMatchProbability));
  Pool<Model> pool(options.pool_size);
  const SearchResult<Model> found = search(Method::kAuto, search_problem, proposals, terms, options,
                                           trial.workers, trial.interrupt, pool);
  if (!take_search(found, seconds_since(search_start), trial.out)) return false;
  select(levels, wide, select_problem, found.model, pool, trial);
  return true;
}

template <Problem P>
void Estimator<P>::select(const Levels& levels, const Subgraph& wide, const P& select_problem,
                          const Model& found, const Pool<Model>& pool, Trial trial) {
  const auto select_start = Clock::now();
  ModelEstimate<Model>& out = trial.out;
  std::vector<double> weight;
  if (options_.uses(kWeightsPart)) {
    weight = levels.weights(wide.edges, options_.delta);
    weight.resize(wide.graph.words() * 64, 0.0);
  }
  DistinctSelection<P> selection(select_problem, weight, options_.uses(kDistinctPart),
                                 trial.workers);
  out.model = selection.run(found, pool, trial.interrupt);
  out.refinements += selection.refinements();
  trial.refined.insert(trial.refined.end(), selection.refined().begin(), selection.refined().end());
  note_pool(pool, out);
  out.interrupted = trial.interrupt.requested();
  out.timing.select += seconds_since(select_start);
}

// Adds the models that the evidence suggests. Infinity makes sure that the last stage measures
// them.
template <Problem P>
void Estimator<P>::suggest(typename P::Evidence& evidence, const P& problem,
                           std::vector<SupportedModel<Model>>& refined) {
  typename P::Workspace space = problem.workspace();
  Refiner<P> refiner(problem, Weighting::kByDegree);
  for (Model& model : evidence.search(out_.model, refined, options_.seed, interrupt_)) {
    refiner.local_refine(model, space);
    ++out_.refinements;
    refined.push_back({model, std::numeric_limits<double>::infinity()});
  }
}

// A trial search with each source shows how far the source can be trusted; multiplies the factors
// of its edges by that. `best` gets the model of each search. False if interrupted. Every source
// needs its own search: a model that one source supports may be missing among the models that the
// others find. Each search is done by one thread.
template <Problem P>
bool Estimator<P>::judge_sources(const Levels& levels, const std::vector<int>& considered,
                                 const Subgraph& wide, const P& problem, Workers& workers,
                                 std::vector<double>& factor,
                                 std::vector<SupportedModel<Model>>& best) {
  const auto start = Clock::now();
  const int sources = input_.num_sources();
  Options options = options_;
  options.max_iterations = std::max<int64_t>(options_.max_iterations / kTrialShare / sources, 1);
  options.min_iterations =
      std::clamp<int64_t>(options_.min_iterations / kTrialShare, 1, options.max_iterations);
  options.pool_size = std::max(options_.pool_size / sources, 1);
  std::vector<ModelEstimate<Model>> out(at(sources));
  std::vector<std::vector<SupportedModel<Model>>> refined(at(sources));
  std::vector<char> found(at(sources));
  workers.run(sources, [&](int worker, int s) {
    std::vector<double> of_one = factor;
    for (std::size_t e = 0; e < of_one.size(); ++e) {
      if (input_.source[e] != s) of_one[e] *= kOtherSources;
    }
    std::vector<int> own;  // edges to search with
    for (int e : considered) {
      if (input_.source[at(e)] == s) own.push_back(e);
    }
    // Only the calling thread may ask Python; the others look at the flag it sets.
    Interrupt follower([this] { return interrupt_.requested(); });
    Workers alone(1);
    found[at(s)] =
        explore(levels_with(out_.kept, of_one), own, wide, problem, options,
                {out[at(s)], worker == 0 ? interrupt_ : follower, alone, refined[at(s)]});
  });
  std::vector<SupportedModel<Model>> all;
  for (std::size_t s = 0; s < at(sources); ++s) {
    out_.iterations += out[s].iterations;
    out_.refinements += out[s].refinements;
    out_.interrupted |= out[s].interrupted;
    if (out[s].interrupted) out_.failure = out[s].failure;
    all.insert(all.end(), refined[s].begin(), refined[s].end());
    // This support belongs to other priors and says nothing here; infinity makes sure that the last
    // stage measures the model again.
    if (found[s]) best.push_back({out[s].model, std::numeric_limits<double>::infinity()});
  }
  out_.timing.search += seconds_since(start);
  if (out_.interrupted) return false;
  out_.trust = trust_of_sources(levels, wide, problem, all);
  for (std::size_t e = 0; e < factor.size(); ++e) factor[e] *= out_.trust[at(input_.source[e])];
  return true;
}

template <Problem P>
std::vector<double> Estimator<P>::trust_of_sources(
    const Levels& levels, const Subgraph& wide, const P& problem,
    const std::vector<SupportedModel<Model>>& models) const {
  SourceTrust trust(sources_of(wide), pick(levels.prior, wide.edges), input_.num_sources(),
                    {P::kResidualDimensions});
  const double eps2 = problem.eps() * problem.eps();
  Mask mask(wide.graph.words());
  std::vector<double> squared(wide.graph.words() * 64);
  for (const auto& model : models) {
    problem.inliers(model.model, mask, squared);
    for (double& r2 : squared) r2 /= eps2;
    trust.look_at(mask, squared);
  }
  return trust.factors();
}

// Draws the share `guidance` of the samples from the rank-one edges.
template <Problem P>
Proposals Estimator<P>::guided_proposals(bool one_to_one) const {
  std::vector<int> rank_one;
  if (options_.guidance > 0.0 && !input_.rank.empty()) {
    for (int e : sampled_) {
      if (input_.rank[at(e)] == 1) rank_one.push_back(e);
    }
  }
  Proposals proposals(graph_, sampled_, !one_to_one);
  // If the rank-one edges do not contain a sample, all iterations draw from all edges.
  if (why_unsolvable(graph_, rank_one, one_to_one).empty()) {
    proposals.guide(graph_, std::move(rank_one), options_.guidance);
  }
  return proposals;
}

// Draws samples from all edges that may be sampled, and a share of them from the best levels only.
template <Problem P>
Proposals Estimator<P>::level_proposals(const Subgraph& part, const Levels& levels) const {
  const std::vector<int> edges = part.local(sampled_);
  Proposals proposals(part.graph, edges, false);
  if (!options_.uses(kMixturePart)) return proposals;
  for (const auto& [level, share] :
       {std::pair{0, kShareOfLevel0}, std::pair{1, kShareOfLevels01}}) {
    std::vector<int> chosen;
    for (int e : edges) {
      if (levels.of[at(part.edges[at(e)])] <= level) chosen.push_back(e);
    }
    if (matching_of_edges(part.graph, chosen) >= P::kSampleSize + kSpareEdges) {
      proposals.guide(part.graph, std::move(chosen), share);
    }
  }
  return proposals;
}

template <Problem P>
SearchResult<typename P::Model> Estimator<P>::search(Method method, const P& problem,
                                                     const Proposals& proposals,
                                                     const HcmTerms& terms, const Options& options,
                                                     Workers& workers, Interrupt& interrupt,
                                                     Pool<Model>& pool) {
  const Graph& graph = problem.graph();
  if (method == Method::kMcm) {
    return LoRansac<P, McmScorer>(
               problem, proposals, options, Weighting::kByDegree, [&] { return McmScorer(graph); },
               workers, interrupt)
        .run(nullptr);
  }
  if (method == Method::kCm) {
    return LoRansac<P, CmScorer>(
               problem, proposals, options, Weighting::kEqual,
               [&] { return CmScorer(problem.eps() * problem.eps()); }, workers, interrupt)
        .run(nullptr);
  }
  LoRansac<P, HcmScorer> hcm(
      problem, proposals, options, Weighting::kByDegree, [&] { return HcmScorer(graph, terms); },
      workers, interrupt);
  if (method == Method::kAuto && options_.uses(kStoppingPart)) {
    hcm.stop_by([&](MaskView inliers) {
      return proposals.clean_chance(inliers, P::kSampleSize) * P::kSampleChance;
    });
  }
  return hcm.run(method == Method::kHcm ? nullptr : &pool);
}

// Adds up the cost of a search. False, with a reason, if the search found no model or was
// interrupted.
template <Problem P>
bool Estimator<P>::take_search(const SearchResult<Model>& found, double seconds,
                               ModelEstimate<Model>& out) {
  out.iterations += found.iterations;
  out.refinements += found.refinements;
  out.timing.local_refine += found.refine_seconds;
  out.timing.search += seconds - found.refine_seconds;
  out.interrupted = found.interrupted;
  if (found.found && !found.interrupted) return true;
  out.failure = (found.interrupted ? std::string("interrupted after ")
                                   : std::string("no sample gave a ") + P::kModelName + " in ") +
                counted(static_cast<std::size_t>(found.iterations), "iteration");
  return false;
}

// Polishes until the inliers do not change any more.
template <Problem P>
void Estimator<P>::polish_until_stable(const P& problem, std::span<const double> prior) {
  typename P::Workspace space = problem.workspace();
  Refiner<P> refiner(problem, Weighting::kByDegree);
  Mask before(problem.graph().words()), after(problem.graph().words());
  problem.inliers(out_.model, before, {});
  for (int i = 0; i < kMaxPolishes; ++i) {
    refiner.polish_with_priors(out_.model, P::kPolishReach, P::kPolishScale, prior, space,
                               Loss::kCauchy, kPolishSteps);
    problem.inliers(out_.model, after, {});
    if (before == after) return;
    before.swap(after);
  }
}

// Finds the matches of the polished model. A polish minimises residuals and ignores the problem's
// other conditions: if the cameras hardly move, most points can end up behind them. If the polished
// model has fewer matches than a sample, the unpolished one is taken; if that has too few as well,
// the estimate fails. Otherwise the polished model stays: it is more accurate, even if it has a few
// inliers less.
template <Problem P>
void Estimator<P>::resolve(const P& problem, const HcmTerms& terms, const Costs& costs,
                           const Model& unpolished) {
  out_.success = take_matches(problem, terms, costs);
  if (out_.success) return;
  out_.model = unpolished;
  out_.success = take_matches(problem, terms, costs);
  if (out_.success) return;
  out_.failure = why_unsupported(out_.cardinality, P::kModelName, P::kSampleSize);
  out_.model = Model();
  out_.hcm = 0.0;
  out_.cardinality = out_.num_inliers = 0;
  out_.matched.clear();
  out_.inliers.assign(graph_.num_edges(), 0);
}

// Sets inliers, scores and matches of the model; returns whether the matches are at least a sample.
template <Problem P>
bool Estimator<P>::take_matches(const P& problem, const HcmTerms& terms, const Costs& costs) {
  const Graph& graph = problem.graph();
  Mask mask(graph.words());
  out_.matched = matches_of(problem, out_.model, costs, mask);
  out_.num_inliers = count_bits(mask);
  out_.hcm = HcmEvaluator(graph, terms)(mask);
  out_.cardinality = static_cast<int>(out_.matched.size());
  out_.inliers = flags_of(mask, graph.num_edges());
  return out_.cardinality >= P::kSampleSize;
}

// The cheapest of the largest matchings of the inliers.
template <Problem P>
std::vector<int64_t> Estimator<P>::matches_of(const P& problem, const Model& model,
                                              const Costs& costs, Mask& inliers) const {
  const double eps2 = problem.eps() * problem.eps();
  std::vector<double> total(problem.graph().words() * 64);
  problem.inliers(model, inliers, total);
  for_each_bit(inliers, [&](int e) {
    total[at(e)] = costs.residual * (total[at(e)] / eps2);
    if (!costs.of_edge.empty()) total[at(e)] += costs.of_edge[at(e)];
  });
  return cheapest_maximum_matching(problem.graph(), inliers, total);
}

// Reports other models with the probability that each is right, given that one of them or the
// chosen one is.
template <Problem P>
void Estimator<P>::take_alternatives(const P& problem, const Costs& costs, const Others& others) {
  double all = 1.0;
  for (const auto& other : others) all += std::exp(other.advantage / kNatsPerOdds);
  for (const auto& other : others) {
    const double probability = std::exp(other.advantage / kNatsPerOdds) / all;
    if (probability < kLeastProbability) continue;
    Mask mask(graph_.words());
    Alternative<Model> alternative{other.model, other.support, probability,
                                   matches_of(problem, other.model, costs, mask)};
    if (static_cast<int>(alternative.matched.size()) < P::kSampleSize) continue;
    out_.alternatives.push_back(std::move(alternative));
  }
}

}  // namespace manymatch

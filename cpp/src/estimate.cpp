#include "manymatch/estimate.h"

#include <chrono>
#include <cmath>
#include <string>

#include "estimate_parts.h"
#include "manymatch/ransac/two_stage.h"

namespace manymatch {

namespace {

constexpr int kSampleSize = RelativePoseProblem::kSampleSize;

Graph make_graph(const PairInput& input) {
  const auto count = static_cast<std::size_t>(input.num_edges);
  std::vector<int> left(count), right(count);
  for (std::size_t e = 0; e < count; ++e) {
    left[e] = input.edges[2 * e];
    right[e] = input.edges[2 * e + 1];
  }
  return {std::move(left), std::move(right), input.n0, input.n1};
}

std::vector<int> proposal_edges(const PairInput& input) {
  std::vector<int> edges;
  for (int64_t e = 0; e < input.num_edges; ++e) {
    if (!input.proposals || input.proposals[e]) edges.push_back(static_cast<int>(e));
  }
  return edges;
}

std::vector<uint8_t> unpack(const Mask& mask, std::size_t edges) {
  std::vector<uint8_t> flags(edges, 0);
  for_each_bit(mask.data(), mask.size(), [&](int e) { flags[static_cast<std::size_t>(e)] = 1; });
  return flags;
}

}  // namespace

std::string hopeless(const Graph& graph, const std::vector<int>& proposals, bool one_to_one) {
  if (graph.num_edges() < static_cast<std::size_t>(kSampleSize)) {
    return "the graph has " + std::to_string(graph.num_edges()) +
           (graph.num_edges() == 1 ? " edge" : " edges") + ", five are needed";
  }
  if (proposals.size() < static_cast<std::size_t>(kSampleSize)) {
    return "proposals leave " + std::to_string(proposals.size()) +
           " edges to sample, five are needed";
  }
  if (one_to_one) {
    const int matching = matching_of_edges(graph, proposals);
    if (matching < kSampleSize) {
      return "at most " + std::to_string(matching) +
             " edges can hold at the same time (one partner per keypoint), five are needed";
    }
  }
  return {};
}

namespace {

Proposals make_proposals(const PairInput& input, const Graph& graph, const Options& options,
                         std::vector<int> edges, bool one_to_one) {
  std::vector<int> rank_one;
  if (options.guidance > 0.0 && input.rank) {
    for (int e : edges) {
      if (input.rank[e] == 1) rank_one.push_back(e);
    }
  }
  Proposals proposals(graph, std::move(edges), !one_to_one);
  // Rank-one edges that hold no sample cannot guide; then all iterations draw from everything.
  if (hopeless(graph, rank_one, one_to_one).empty()) {
    proposals.guide(graph, std::move(rank_one), options.guidance);
  }
  return proposals;
}

template <class Scorer>
SearchResult<Pose> search(const RelativePoseProblem& problem, const Proposals& proposals,
                          const Options& options, const std::function<Scorer()>& make_scorer,
                          Workers& workers, Interrupt& interrupt, Pool<Pose>* pool) {
  return LoRansac<RelativePoseProblem, Scorer>(problem, proposals, options, make_scorer, workers,
                                               interrupt)
      .run(pool);
}

}  // namespace

bool take_search(const SearchResult<Pose>& found, double seconds, Estimate& out) {
  out.iterations = found.iterations;
  out.refinements = found.refinements;
  out.timing.local_refine = found.refine_seconds;
  out.timing.search = seconds - found.refine_seconds;
  out.interrupted = found.interrupted;
  if (found.found && !found.interrupted) return true;
  out.failure = (found.interrupted ? "interrupted after " : "no sample gave a pose in ") +
                std::to_string(found.iterations) + " iterations";
  return false;
}

void resolve(const RelativePoseProblem& problem, const HcmTerms& terms, const double* price,
             Estimate& out) {
  const Graph& graph = problem.graph();
  Mask mask(graph.words());
  std::vector<double> r2(graph.words() * 64);
  out.num_inliers = problem.inliers(out.pose, mask.data(), r2.data());
  out.hcm = HcmEvaluator(graph, terms)(mask.data());
  for_each_bit(mask.data(), mask.size(), [&](int e) {  // in units of the threshold, below 1
    r2[static_cast<std::size_t>(e)] /= problem.eps() * problem.eps();
    if (price) r2[static_cast<std::size_t>(e)] += price[e];
  });
  out.matched = cheapest_maximum_matching(graph, mask.data(), r2.data());
  out.cardinality = static_cast<int>(out.matched.size());
  out.inliers = unpack(mask, graph.num_edges());
}

Estimate estimate_relative_pose(const PairInput& input, Method method, const Options& options,
                                Interrupt& interrupt) {
  const auto start = std::chrono::steady_clock::now();
  Estimate out;
  out.inliers.assign(static_cast<std::size_t>(input.num_edges), 0);
  const bool one_to_one = method != Method::kCm;
  const Graph graph = make_graph(input);
  std::vector<int> edges = proposal_edges(input);
  out.failure = hopeless(graph, edges, one_to_one);
  if (!out.failure.empty()) {
    out.timing.setup = out.timing.total = seconds_since(start);
    return out;
  }
  if (method == Method::kAuto) {
    out.timing.setup = seconds_since(start);
    estimate_auto(input, graph, edges, options, interrupt, out);
    out.timing.total = seconds_since(start);
    return out;
  }
  const RelativePoseProblem problem(graph, input.x0, input.x1, input.eps, one_to_one);
  const HcmTerms terms(graph, options.q, options.delta);
  const Proposals proposals = make_proposals(input, graph, options, std::move(edges), one_to_one);
  Workers workers(options.threads);
  Pool<Pose> pool(options.pool_size);
  out.timing.setup = seconds_since(start);

  const auto search_start = std::chrono::steady_clock::now();
  SearchResult<Pose> found;
  if (method == Method::kMcm) {
    found = search<McmScorer>(
        problem, proposals, options, [&] { return McmScorer(graph); }, workers, interrupt, nullptr);
  } else if (method == Method::kCm) {
    found = search<CmScorer>(
        problem, proposals, options, [&] { return CmScorer(graph, input.eps * input.eps); },
        workers, interrupt, nullptr);
  } else {
    found = search<HcmScorer>(
        problem, proposals, options, [&] { return HcmScorer(graph, terms); }, workers, interrupt,
        method == Method::kHcmMcm ? &pool : nullptr);
  }
  if (!take_search(found, seconds_since(search_start), out)) {
    out.timing.total = seconds_since(start);
    return out;
  }

  out.pose = found.model;
  if (method == Method::kHcmMcm) {
    const auto select_start = std::chrono::steady_clock::now();
    out.pooled = static_cast<int>(pool.entries().size());
    out.worst_pooled = pool.worst_score();
    out.pose = select_by_matching(problem, pool, workers, interrupt);
    out.refinements += static_cast<int64_t>(pool.entries().size());
    out.timing.select = seconds_since(select_start);
    out.interrupted = interrupt.requested();
  }
  const auto polish_start = std::chrono::steady_clock::now();
  RelativePoseProblem::Workspace space = problem.workspace();
  problem.final_polish(out.pose, space);
  out.timing.polish = seconds_since(polish_start);
  const auto resolve_start = std::chrono::steady_clock::now();
  resolve(problem, terms, nullptr, out);
  out.success = true;
  out.timing.resolve = seconds_since(resolve_start);
  out.timing.total = seconds_since(start);
  return out;
}

PoseScore score_pose(const PairInput& input, const Pose& pose, double q, double delta) {
  const Graph graph = make_graph(input);
  const RelativePoseProblem problem(graph, input.x0, input.x1, input.eps, true);
  const HcmTerms terms(graph, q, delta);
  Mask mask(graph.words());
  PoseScore score;
  score.r2.resize(graph.words() * 64);
  score.num_inliers = problem.inliers(pose, mask.data(), score.r2.data());
  score.r2.resize(graph.num_edges());
  score.hcm = HcmEvaluator(graph, terms)(mask.data());
  score.cardinality = MaximumMatching(graph).cardinality(mask.data());
  score.inliers = unpack(mask, graph.num_edges());
  return score;
}

std::vector<Estimate> estimate_relative_poses(const std::vector<PairInput>& inputs, Method method,
                                              const std::vector<Options>& options, int threads,
                                              Interrupt& interrupt) {
  std::vector<Estimate> out(inputs.size());
  Workers workers(threads);
  const auto job = [&](int worker, int index) {
    if (interrupt.requested()) return;
    const auto i = static_cast<std::size_t>(index);
    Options one_thread = options[i];
    one_thread.threads = 1;
    // Only the calling thread may ask Python; the others look at the flag it sets.
    Interrupt follower([&interrupt] { return interrupt.requested(); });
    out[i] =
        estimate_relative_pose(inputs[i], method, one_thread, worker == 0 ? interrupt : follower);
  };
  workers.run(static_cast<int>(inputs.size()), job, [&interrupt] { interrupt.poll(); });
  return out;
}

}  // namespace manymatch

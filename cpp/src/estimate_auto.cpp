// Method "auto": every edge has a prior by how it was found, and rank-one matching is what remains
// of it where nothing but the best candidates is worth believing.
//
// Explore with HCM on the likeliest edges, from samples of which most come from the likeliest
// levels; select by the heaviest matching on all edges; polish.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "estimate_parts.h"
#include "manymatch/filter/gms.h"
#include "manymatch/levels.h"
#include "manymatch/ransac/distinct.h"

namespace manymatch {

namespace {

// Edges beyond these, in the graph's order, are not looked at before the pose is known.
constexpr std::size_t kConsidered = 2048;
// Of these the likeliest are enough to explore with.
constexpr std::size_t kExplored = 384;
// Shares of the samples that are drawn from level 0, and from levels 0 and 1.
constexpr double kShareKept = 0.5, kShareRankOne = 0.25;
// Edges at least, one per keypoint, to draw samples from a level alone.
constexpr int kFewestGuides = 8;
// Noise does not end at the threshold: edges up to so many thresholds away polish the pose.
constexpr double kReach = 3.0;
// The pose moves, and with it who is near; it hardly moves after that.
constexpr int kPolishes = 5;
// A vertex may always have no partner.
constexpr double kDoubt = 0.05;
// r^2 / eps^2 in units of a log-likelihood, for the choice between matchings.
constexpr double kResidualWeight = 3.0;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A part of a graph, between the same vertices. Its edges stay in order.
struct Part {
  std::vector<int> edges;  // of the whole graph, ascending
  Graph graph;

  Part(const Graph& whole, std::vector<int> chosen)
      : edges(std::move(chosen)),
        graph(pick(whole.left, edges), pick(whole.right, edges), whole.num0, whole.num1) {}

  template <class T>
  static std::vector<T> pick(const std::vector<T>& values, const std::vector<int>& edges) {
    std::vector<T> picked;
    picked.reserve(edges.size());
    for (int e : edges) picked.push_back(values[at(e)]);
    return picked;
  }

  // Edges of the whole graph that are here, by their numbers here.
  std::vector<int> local(const std::vector<int>& chosen) const {
    std::vector<int> numbers;
    for (int e : chosen) {
      const auto found = std::lower_bound(edges.begin(), edges.end(), e);
      if (found != edges.end() && *found == e) {
        numbers.push_back(static_cast<int>(found - edges.begin()));
      }
    }
    return numbers;
  }
};

std::vector<int> merged(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<int> first_edges(std::size_t count) {
  std::vector<int> edges(count);
  std::iota(edges.begin(), edges.end(), 0);
  return edges;
}

// Flags of all edges; those that are not considered have not been kept.
std::vector<uint8_t> kept_by_filter(const PairInput& input, const Graph& graph, std::size_t count) {
  const Part head(graph, first_edges(count));
  const double any_size[2] = {1.0, 1.0};  // grids lie on the box of the points
  std::vector<uint8_t> kept =
      gms_filter(head.graph, input.points0, input.points1, any_size, any_size, GmsOptions()).mask;
  kept.resize(graph.num_edges(), 0);
  return kept;
}

// The likeliest edges; of equal ones the first.
std::vector<int> likeliest(const Levels& levels, std::size_t considered, std::size_t count) {
  std::vector<int> order = first_edges(considered);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return levels.prior[at(a)] > levels.prior[at(b)]; });
  order.resize(std::min(order.size(), count));
  std::sort(order.begin(), order.end());
  return order;
}

// Samples from everything that may be sampled, and for a share from the likeliest levels alone.
Proposals make_mixture(const Part& part, const Levels& levels, std::vector<int> edges,
                       bool guided) {
  Proposals proposals(part.graph, edges, false);
  if (!guided) return proposals;
  for (const auto& [level, share] : {std::pair{0, kShareKept}, std::pair{1, kShareRankOne}}) {
    std::vector<int> chosen;
    for (int e : edges) {
      if (levels.of[at(part.edges[at(e)])] <= level) chosen.push_back(e);
    }
    if (matching_of_edges(part.graph, chosen) >= kFewestGuides) {
      proposals.guide(part.graph, std::move(chosen), share);
    }
  }
  return proposals;
}

// Weights of the edges of a part, padded to whole words.
std::vector<double> weights(const Part& part, const Levels& levels, double delta) {
  std::vector<double> weight(part.graph.words() * 64, 0.0);
  for (std::size_t i = 0; i < part.edges.size(); ++i) {
    weight[i] = levels.weight(part.edges[i], delta);
  }
  return weight;
}

// Polishes until the inliers stay. Without priors it does so once and no farther than the
// threshold, as the paper does.
void polish(const RelativePoseProblem& problem, const double* prior, Pose& pose) {
  RelativePoseProblem::Workspace space = problem.workspace();
  if (!prior) {
    problem.final_polish(pose, space);
    return;
  }
  Mask before(problem.graph().words()), after(problem.graph().words());
  problem.inliers(pose, before.data(), nullptr);
  for (int i = 0; i < kPolishes; ++i) {
    problem.far_polish(pose, space, kReach, prior);
    problem.inliers(pose, after.data(), nullptr);
    if (before == after) return;
    before.swap(after);
  }
}

}  // namespace

void estimate_auto(const PairInput& input, const Graph& graph, const std::vector<int>& edges,
                   const Options& options, Interrupt& interrupt, Estimate& out) {
  constexpr int kSampleSize = RelativePoseProblem::kSampleSize;
  const auto start = std::chrono::steady_clock::now();
  const std::size_t considered = std::min(graph.num_edges(), kConsidered);
  if (options.uses(ingredient::kFilter)) {
    if (input.kept) {
      out.kept.assign(input.kept, input.kept + input.num_edges);
    } else if (input.points0) {
      out.kept = kept_by_filter(input, graph, considered);
    }
  }
  const Levels levels(graph, input.rank, out.kept.empty() ? nullptr : out.kept.data(), options.q,
                      options.uses(ingredient::kRanks));
  // Edges that the caller names are looked at wherever they stand.
  const std::vector<int> named = input.proposals ? edges : std::vector<int>();
  Part wide(graph, merged(first_edges(considered), named));
  if (!hopeless(wide.graph, wide.local(edges), true).empty()) {
    wide = Part(graph, first_edges(graph.num_edges()));
  }
  const std::size_t explored = options.uses(ingredient::kNarrow) ? kExplored : considered;
  Part narrow(graph, merged(likeliest(levels, considered, explored), named));
  if (!hopeless(narrow.graph, narrow.local(edges), true).empty()) narrow = wide;
  const Proposals proposals =
      make_mixture(narrow, levels, narrow.local(edges), options.uses(ingredient::kMixture));
  const RelativePoseProblem explore(narrow.graph, input.x0, input.x1, input.eps, true);
  const RelativePoseProblem select(wide.graph, input.x0, input.x1, input.eps, true);
  const HcmTerms terms(narrow.graph, Priors(narrow.graph, Part::pick(levels.prior, narrow.edges),
                                            options.delta, kDoubt));
  Workers workers(options.threads);
  Pool<Pose> pool(options.pool_size);
  out.timing.setup += seconds_since(start);

  const auto search_start = std::chrono::steady_clock::now();
  LoRansac<RelativePoseProblem, HcmScorer> search(
      explore, proposals, options, [&] { return HcmScorer(narrow.graph, terms); }, workers,
      interrupt);
  if (options.uses(ingredient::kStopping)) {
    search.stop_by(
        [&](const uint64_t* inliers) { return proposals.clean_chance(inliers, kSampleSize); });
  }
  const SearchResult<Pose> found = search.run(&pool);
  if (!take_search(found, seconds_since(search_start), out)) return;

  const auto select_start = std::chrono::steady_clock::now();
  const std::vector<double> weight = weights(wide, levels, options.delta);
  DistinctSelection<RelativePoseProblem> selection(
      select, options.uses(ingredient::kWeights) ? weight.data() : nullptr,
      options.uses(ingredient::kDistinct));
  out.pose = selection.run(found.model, pool, interrupt);
  out.refinements += selection.refinements();
  out.pooled = static_cast<int>(pool.entries().size());
  out.worst_pooled = pool.worst_score();
  out.interrupted = interrupt.requested();
  out.timing.select = seconds_since(select_start);

  const auto polish_start = std::chrono::steady_clock::now();
  const std::vector<double> prior = Part::pick(levels.prior, wide.edges);
  polish(select, options.uses(ingredient::kPolish) ? prior.data() : nullptr, out.pose);
  out.timing.polish = seconds_since(polish_start);

  const auto resolve_start = std::chrono::steady_clock::now();
  const RelativePoseProblem whole(graph, input.x0, input.x1, input.eps, true);
  std::vector<double> price(graph.words() * 64, 0.0);
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    price[e] = -levels.weight(static_cast<int>(e), options.delta) / kResidualWeight;
  }
  const double lowest = *std::min_element(price.begin(), price.end());
  for (double& p : price) p -= lowest;
  resolve(whole, HcmTerms(graph, options.q, options.delta), price.data(), out);
  out.timing.resolve = seconds_since(resolve_start);
  out.success = true;
}

}  // namespace manymatch

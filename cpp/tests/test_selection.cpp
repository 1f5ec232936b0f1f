// Stage 2 of method "auto" on synthetic models with given inliers and refinements.
#include <mutex>

#include "check.h"
#include "manymatch/ransac/selection.h"
#include "random_graph.h"

namespace {

struct Named {
  int number = -1;
};

// Model m has the inliers in row m; its refinement is `leads_to[m]`.
class TableProblem : public ProblemDefaults<TableProblem> {
 public:
  using Model = Named;
  struct Data {};
  static constexpr int kSampleSize = 0;  // models without inliers are refined too
  static constexpr const char* kModelName = "model";
  static constexpr double kPolishReach = 1.0;
  static constexpr double kPolishScale = 1.0;
  static constexpr int kResidualDimensions = 1;
  static bool same(const Named& a, const Named& b) { return a.number == b.number; }
  static bool apart(const Named& a, const Named& b) { return !same(a, b); }
  struct Workspace {};

  explicit TableProblem(const Graph& graph, const Data& = {}) : graph_(graph) {}

  int add(const Mask& inliers, int leads_to = -1) {
    const int number = static_cast<int>(inliers_.size());
    inliers_.push_back(inliers);
    leads_to_.push_back(leads_to < 0 ? number : leads_to);
    return number;
  }
  void lead(int from, int to) { leads_to_[static_cast<std::size_t>(from)] = to; }
  const Mask& inliers_of(int model) const { return inliers_[static_cast<std::size_t>(model)]; }
  int refined(int model) const { return leads_to_[static_cast<std::size_t>(model)]; }
  int size() const { return static_cast<int>(inliers_.size()); }
  mutable std::vector<int> asked;  // models that were refined, in order

  const Graph& graph() const { return graph_; }
  Workspace workspace() const { return {}; }
  double eps() const { return 1.0; }
  void solve(std::span<const int>, Workspace&, Solutions<Named>&) const {}
  int screen(const Named& model, int, std::span<uint64_t> mask) const {
    return inliers(model, mask, {});
  }
  int inliers(const Named& model, std::span<uint64_t> mask, std::span<double>) const {
    const Mask& own = inliers_of(model.number);
    std::copy(own.begin(), own.end(), mask.begin());
    return count_bits(own);
  }
  // Every model is refined on all edges.
  int within(const Named&, double, std::span<uint64_t> mask, std::span<double> = {}) const {
    for (int e = 0; e < static_cast<int>(graph_.num_edges()); ++e) set_bit(mask, e);
    return static_cast<int>(graph_.num_edges());
  }
  LmResult refine(Named& model, const GatheredEdges&, Loss, double, int, Workspace&) const {
    const std::lock_guard lock(mutex_);
    asked.push_back(model.number);
    model.number = refined(model.number);
    return {};
  }

 private:
  const Graph& graph_;
  std::vector<Mask> inliers_;
  std::vector<int> leads_to_;
  mutable std::mutex mutex_;
};
static_assert(Problem<TableProblem>);

struct Outcome {
  int model;
  double support;
  int64_t refinements;
  std::vector<int> asked;
  std::vector<double> supports = {};  // of all refined models, exact or bounds
};

using Seeds = std::vector<std::pair<int, double>>;  // model and raw score, in order of insertion

// Empty: the support is the size of the largest matching.
using Weights = std::span<const double>;

Outcome run(const TableProblem& problem, Weights weight, bool skip, int found, const Seeds& seeds,
            int threads = 1) {
  Pool<Named> pool(64);
  for (const auto& [model, score] : seeds) pool.insert({model}, score);
  Interrupt interrupt;
  problem.asked.clear();
  Workers workers(threads);
  DistinctSelection<TableProblem> selection(problem, weight, skip, workers);
  const Named best = selection.run({found}, pool, interrupt);
  Outcome out{best.number, selection.support(), selection.refinements(), problem.asked};
  for (const auto& refined : selection.refined()) out.supports.push_back(refined.support);
  return out;
}

double support_of(const TableProblem& problem, Weights weight, int model) {
  const Mask& inliers = problem.inliers_of(model);
  if (weight.empty()) return MaximumMatching(problem.graph()).cardinality(inliers);
  double total = 0;
  for (int64_t e : heaviest_matching(problem.graph(), inliers, weight))
    total += weight[static_cast<std::size_t>(e)];
  return total;
}

int common(const Mask& a, const Mask& b) {
  int count = 0;
  for (std::size_t w = 0; w < a.size(); ++w) count += std::popcount(a[w] & b[w]);
  return count;
}

// The same as a plain loop that computes the exact support of every refined model.
Outcome plain(const TableProblem& problem, Weights weight, bool skip, int found, Seeds seeds) {
  std::stable_sort(seeds.begin(), seeds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Outcome out{found, support_of(problem, weight, found), 0, {}};
  std::vector<int> taken = {found};
  for (const auto& [seed, score] : seeds) {
    const Mask& inliers = problem.inliers_of(seed);
    const bool known = std::any_of(taken.begin(), taken.end(), [&](int other) {
      return common(inliers, problem.inliers_of(other)) >=
             DistinctSelection<TableProblem>::kRepeatedShare * count_bits(inliers);
    });
    if (skip && known) continue;
    out.asked.push_back(seed);
    ++out.refinements;
    taken.push_back(problem.refined(seed));
    const double support = support_of(problem, weight, taken.back());
    if (support > out.support) {
      out.support = support;
      out.model = taken.back();
    }
  }
  return out;
}

// Weights are multiples of 1/8, so that sums are exact.
std::vector<double> random_weights(Source& random, const Graph& graph) {
  std::vector<double> weight(graph.words() * 64, 0.0);
  for (std::size_t e = 0; e < graph.num_edges(); ++e) weight[e] = (1 + random.pick(16)) / 8.0;
  return weight;
}

void test_against_the_plain_loop() {
  Source random(31);
  int skipped = 0, found_won = 0, seed_won = 0;
  for (int g = 0; g < 300; ++g) {
    const int n = 3 + random.pick(20);
    const Graph graph = random_graph(random, n, n, random.in(0.05, 0.6));
    if (graph.num_edges() == 0) continue;
    const std::vector<double> weight = random_weights(random, graph);
    TableProblem problem(graph);
    // Few kinds of inliers with small changes, so that seeds repeat each other.
    std::vector<Mask> kinds;
    for (int k = 0; k < 4; ++k) kinds.push_back(random_mask(random, graph.num_edges(), 0.3));
    for (int m = 0; m < 24; ++m) {
      Mask mask = kinds[static_cast<std::size_t>(random.pick(4))];
      const Mask change = random_mask(random, graph.num_edges(), random.in(0.0, 0.2));
      for (std::size_t w = 0; w < mask.size(); ++w) mask[w] ^= change[w];
      problem.add(mask);
    }
    for (int m = 0; m < 24; ++m) problem.lead(m, random.pick(24));
    Seeds seeds;
    for (int k = random.pick(20); k >= 0; --k) {
      seeds.emplace_back(random.pick(24), random.pick(6));
    }
    const int found = random.pick(24);
    for (bool skip : {false, true}) {
      for (Weights weights : {Weights(), Weights(weight)}) {
        const Outcome expected = plain(problem, weights, skip, found, seeds);
        const Outcome got = run(problem, weights, skip, found, seeds);
        CHECK_EQ(got.model, expected.model);
        CHECK_EQ(got.support, expected.support);
        CHECK_EQ(got.refinements, expected.refinements);
        CHECK(got.asked == expected.asked);
        // Several threads refine ahead, which does not change the result.
        for (int threads : {2, 3, 8}) {
          const Outcome other = run(problem, weights, skip, found, seeds, threads);
          CHECK_EQ(other.model, expected.model);
          CHECK_EQ(other.support, expected.support);
          CHECK_EQ(other.refinements, expected.refinements);
          CHECK(other.supports == got.supports);
        }
        skipped += static_cast<int>(seeds.size()) - static_cast<int>(got.refinements);
        ++(got.model == found ? found_won : seed_won);
        if (!skip) CHECK_EQ(got.refinements, static_cast<int64_t>(seeds.size()));
      }
    }
  }
  CHECK(skipped > 500 && found_won > 50 && seed_won > 50);
}

Mask bits(std::initializer_list<int> edges, std::size_t words = 1) {
  Mask mask(words, 0);
  for (int e : edges) set_bit(mask, e);
  return mask;
}

Graph ladder(int n) {
  Edges edges;
  for (int i = 0; i < n; ++i) edges.emplace_back(i, i);
  return make_graph(edges, n, n);
}

Mask range(int first, int last, std::size_t words) {
  Mask mask(words, 0);
  for (int e = first; e < last; ++e) {
    set_bit(mask, e);
  }
  return mask;
}

// A seed repeats a model if the model has a large share of the seed's inliers; the share of the
// model's inliers that the seed has does not matter.
void test_repeated_seeds_are_skipped() {
  const int n = 200;
  const Graph graph = ladder(n);
  const std::size_t words = graph.words();
  constexpr double same = DistinctSelection<TableProblem>::kRepeatedShare;
  for (int size : {10, 20, 40}) {
    const int limit = static_cast<int>(std::ceil(same * size - 1e-9));
    for (int shared = limit - 1; shared <= limit; ++shared) {
      TableProblem problem(graph);
      const int found = problem.add(range(0, 100, words));
      const int seed = problem.add(range(100 - shared, 100 - shared + size, words));
      const Outcome outcome = run(problem, {}, true, found, {{seed, 1.0}});
      CHECK_EQ(outcome.refinements, shared >= limit ? 0 : 1);
      CHECK_EQ(run(problem, {}, false, found, {{seed, 1.0}}).refinements, 1);
    }
  }
  // A seed is compared with refined models, not with other seeds.
  TableProblem problem(graph);
  const int found = problem.add(range(0, 20, words));
  const int away = problem.add(range(100, 120, words));
  const int first = problem.add(range(40, 60, words), away);
  const int again = problem.add(range(40, 60, words), away);
  const int there = problem.add(range(100, 118, words));
  const Outcome outcome = run(problem, {}, true, found, {{first, 3.0}, {again, 2.0}, {there, 1.0}});
  CHECK((outcome.asked == std::vector<int>{first, again}));
  // A seed without inliers is skipped.
  const int empty = problem.add(Mask(words, 0), away);
  CHECK_EQ(run(problem, {}, true, found, {{empty, 1.0}}).refinements, 0);
}

void test_competition_and_ties() {
  const Graph graph = ladder(100);
  const std::size_t words = graph.words();
  TableProblem problem(graph);
  const int found = problem.add(range(0, 10, words)), equal = problem.add(range(20, 30, words)),
            better = problem.add(range(40, 51, words)), peer = problem.add(range(60, 71, words)),
            worse = problem.add(range(80, 85, words));
  const auto best = [&](const Seeds& seeds) { return run(problem, {}, true, found, seeds).model; };
  CHECK_EQ(best({}), found);
  CHECK_EQ(best({{worse, 9.0}}), found);
  CHECK_EQ(best({{equal, 9.0}}), found);  // ties go to the earlier model
  CHECK_EQ(best({{better, 1.0}, {equal, 9.0}}), better);
  // The larger raw score comes first; of equal scores, the earlier seed.
  CHECK_EQ(best({{better, 1.0}, {peer, 2.0}}), peer);
  CHECK_EQ(best({{better, 2.0}, {peer, 1.0}}), better);
  CHECK_EQ(best({{better, 1.0}, {peer, 1.0}}), better);
  CHECK_EQ(best({{peer, 1.0}, {better, 1.0}}), peer);
  CHECK((run(problem, {}, true, found, {{worse, 1.0}, {peer, 3.0}, {better, 2.0}}).asked ==
         std::vector<int>{peer, better, worse}));
}

// Three light edges against two heavy ones; of edges with a common vertex only one counts.
void test_support() {
  const Graph graph = make_graph({{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {3, 4}, {5, 4}}, 6, 5);
  const double weight[64] = {1.0, 1.0, 1.0, 2.5, 2.5, 9.0, 2.0};
  TableProblem problem(graph);
  const int light = problem.add(bits({0, 1, 2})), heavy = problem.add(bits({3, 4})),
            crossed = problem.add(bits({3, 4, 5})), star = problem.add(bits({4, 6}));
  CHECK_EQ(run(problem, {}, true, light, {{heavy, 1.0}}).model, light);
  CHECK_EQ(run(problem, weight, true, light, {{heavy, 1.0}}).model, heavy);
  CHECK_EQ(run(problem, {}, true, light, {}).support, 3.0);
  CHECK_EQ(run(problem, weight, true, light, {}).support, 3.0);
  CHECK_EQ(run(problem, weight, true, heavy, {}).support, 5.0);
  CHECK_EQ(run(problem, {}, true, crossed, {}).support, 2.0);
  CHECK_EQ(run(problem, weight, true, crossed, {}).support, 9.0);
  CHECK_EQ(run(problem, {}, true, star, {}).support, 1.0);
  CHECK_EQ(run(problem, weight, true, star, {}).support, 2.5);
}

void test_interrupt() {
  const Graph graph = ladder(30);
  TableProblem problem(graph);
  const int found = problem.add(range(0, 5, 1)), seed = problem.add(range(10, 20, 1));
  Pool<Named> pool(4);
  pool.insert({seed}, 1.0);
  Interrupt interrupt([] { return true; });
  while (!interrupt.poll()) {  // it polls only every 20 ms
  }
  Workers workers(1);
  DistinctSelection<TableProblem> selection(problem, {}, true, workers);
  CHECK_EQ(selection.run({found}, pool, interrupt).number, found);
  CHECK_EQ(selection.refinements(), 0);
}

}  // namespace

int main() {
  test_against_the_plain_loop();
  test_repeated_seeds_are_skipped();
  test_competition_and_ties();
  test_support();
  test_interrupt();
  return check::finish();
}

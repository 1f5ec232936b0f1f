// The loop on the smallest problem: neither the screen nor the number of threads changes the
// result.
#include "check.h"
#include "manymatch/ransac/lo_ransac.h"
#include "manymatch/ransac/selection.h"
#include "translation.h"

namespace {

struct Outcome {
  SearchResult<Shift> result;
  std::vector<std::pair<double, double>> pool;
  Shift selected;
};

template <class Scorer>
Outcome run(const Toy& toy, const Graph& graph, const std::function<Scorer()>& scorer,
            Screen screen, int threads, int pool_size) {
  TranslationData data = toy.data;
  data.screen = screen;
  const TranslationProblem problem(graph, data);
  std::vector<int> all(graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(graph, all, false);
  Options options;
  options.seed = 7;
  options.min_iterations = 300;
  options.max_iterations = 3000;
  Workers workers(threads);
  Interrupt interrupt;
  Pool<Shift> pool(std::max(pool_size, 1));
  Outcome out;
  out.result = LoRansac<TranslationProblem, Scorer>(
                   problem, proposals, options, Weighting::kByDegree, scorer, workers, interrupt)
                   .run(pool_size ? &pool : nullptr);
  out.selected = out.result.model;
  if (pool_size) out.selected = select_by_matching(problem, pool, workers, interrupt);
  for (const auto& entry : pool.entries()) out.pool.emplace_back(entry.score, entry.model.dx);
  std::sort(out.pool.begin(), out.pool.end());
  return out;
}

template <class Scorer>
void test_screen_and_threads_change_nothing(const Toy& toy, const Graph& graph,
                                            const std::function<Scorer()>& scorer) {
  for (int pool_size : {0, 1, 20}) {
    const Outcome plain = run<Scorer>(toy, graph, scorer, Screen::kAll, 1, pool_size);
    CHECK(plain.result.found && !plain.result.interrupted);
    CHECK(plain.result.iterations >= 300 && plain.result.iterations < 3000);
    CHECK(plain.result.refinements > 0);
    CHECK_EQ(plain.pool.size(), static_cast<std::size_t>(pool_size));
    CHECK_NEAR(plain.selected.dx, 3.0, 0.02);  // a raw shift is as good as the noise of its edge
    CHECK_NEAR(plain.selected.dy, -2.0, 0.02);
    CHECK(plain.result.value.inliers >= 38);
    for (Screen screen : {Screen::kExact, Screen::kLoose, Screen::kAll}) {
      for (int threads : {1, 3}) {
        const Outcome other = run<Scorer>(toy, graph, scorer, screen, threads, pool_size);
        CHECK_EQ(other.result.iterations, plain.result.iterations);
        CHECK_EQ(other.result.refinements, plain.result.refinements);
        CHECK_EQ(other.result.value.score, plain.result.value.score);
        CHECK_EQ(other.result.model.dx, plain.result.model.dx);
        CHECK_EQ(other.selected.dx, plain.selected.dx);
        CHECK_EQ(other.selected.dy, plain.selected.dy);
        CHECK(other.pool == plain.pool);
      }
    }
  }
}

// A search with its own stopping rule, and how often it asked for the probability.
struct Stopped {
  SearchResult<Shift> result;
  int asked = 0;
};

// `spoil` makes every refinement worse than its start, so that the best model is a raw one.
Stopped run_until(const Toy& toy, const Graph& graph, const HcmTerms& terms, int threads,
                  double spoil, const std::function<double(MaskView)>& chance) {
  TranslationData data = toy.data;
  data.spoil = spoil;
  const TranslationProblem problem(graph, data);
  std::vector<int> all(graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(graph, all, false);
  Options options;
  options.seed = 7;
  options.min_iterations = 300;
  options.max_iterations = 3000;
  Workers workers(threads);
  Interrupt interrupt;
  LoRansac<TranslationProblem, HcmScorer> search(
      problem, proposals, options, Weighting::kByDegree, [&] { return HcmScorer(graph, terms); },
      workers, interrupt);
  Stopped out;
  Mask last(graph.words(), 0), best(graph.words(), 0);
  search.stop_by([&](MaskView inliers) {
    std::copy(inliers.begin(), inliers.end(), last.begin());
    ++out.asked;
    return chance(inliers);
  });
  out.result = search.run(nullptr);
  problem.inliers(out.result.model, best, {});
  CHECK(best == last);  // the last question was about the inliers of the best model
  return out;
}

void test_stop_by(const Toy& toy, const Graph& graph, const HcmTerms& terms) {
  // The first iterations find the shift; then the probability alone decides.
  int within = 0;
  for (double chance : {0.0, 1e-8, 0.004, 0.01, 0.02, 0.05, 0.2, 0.9, 1.0 - 1e-9, 1.0}) {
    int64_t wanted = 3000;
    if (chance > 1e-7) {
      const double asked = 3.0 * std::log(1.0 - 0.9999) / std::log1p(-std::min(chance, 0.9999999));
      wanted = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(asked)), 300, 3000);
    }
    within += wanted > 300 && wanted < 3000 ? 1 : 0;
    for (int threads : {1, 3}) {
      for (double spoil : {0.0, 1.0}) {
        const Stopped run =
            run_until(toy, graph, terms, threads, spoil, [&](MaskView) { return chance; });
        CHECK_EQ(run.result.iterations, std::min<int64_t>(wanted + 1, 3000));
        CHECK(run.asked > 0 && run.result.found);
      }
    }
  }
  CHECK(within >= 3);
  // The probability of the paper gives the paper's stopping rule.
  const int64_t edges = static_cast<int64_t>(graph.num_edges());
  const auto paper = [&](MaskView inliers) {
    const double count = count_bits(inliers);
    return count * (count - 1) / static_cast<double>(edges * (edges - 1));
  };
  const Outcome expected =
      run<HcmScorer>(toy, graph, [&] { return HcmScorer(graph, terms); }, Screen::kLoose, 1, 0);
  for (int threads : {1, 3}) {
    const Stopped own = run_until(toy, graph, terms, threads, 0.0, paper);
    CHECK_EQ(own.result.iterations, expected.result.iterations);
    CHECK_EQ(own.result.model.dx, expected.result.model.dx);
  }
}

// Iterations of a search with a pool that is told that samples without outliers never come.
int64_t iterations_of(const TranslationData& data, const Graph& graph, int pool_size,
                      double confidence, int threads) {
  const TranslationProblem problem(graph, data);
  const HcmTerms terms(graph, 0.3, 0.01);
  std::vector<int> all(graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(graph, all, false);
  Options options;
  options.seed = 7;
  options.min_iterations = 300;
  options.max_iterations = 30000;
  options.confidence = confidence;
  Workers workers(threads);
  Interrupt interrupt;
  LoRansac<TranslationProblem, HcmScorer> search(
      problem, proposals, options, Weighting::kByDegree, [&] { return HcmScorer(graph, terms); },
      workers, interrupt);
  search.stop_by([](MaskView) { return 0.0; });
  Pool<Shift> pool(pool_size);
  return search.run(pool_size ? &pool : nullptr).iterations;
}

void test_repeats_end_the_search(const Toy& toy, const Graph& graph) {
  for (int threads : {1, 3}) {
    // The pool has the best of all samples, and most of these find the shift: the first count, at
    // the end of the batch with iteration 300, is enough.
    CHECK_EQ(iterations_of(toy.data, graph, 100, 0.9999, threads), 5 * kBatch + 1);
    CHECK_EQ(iterations_of(toy.data, graph, 14, 0.9999, threads), 5 * kBatch + 1);
    // 1.5 log(10000) = 13.8 repeats are needed: the pool is too small, or there is none.
    CHECK_EQ(iterations_of(toy.data, graph, 13, 0.9999, threads), 30000);
    CHECK_EQ(iterations_of(toy.data, graph, 0, 0.9999, threads), 30000);
    CHECK_EQ(iterations_of(toy.data, graph, 20, 0.9999999, threads), 30000);
  }
}

// Without true edges no model is found twice, and the search gives up.
void test_search_without_repeats_gives_up(const Toy& toy, const Graph& graph) {
  TranslationData scattered = toy.data;
  Source random(5);
  for (auto* column : {&scattered.x1, &scattered.y1}) {
    for (double& value : *column) value = random.in(0, 1000);
  }
  for (int threads : {1, 3}) {
    const int64_t iterations = iterations_of(scattered, graph, 100, 0.9999, threads);
    CHECK(iterations >= 20000 && iterations < 26000);
    CHECK_EQ(iterations_of(scattered, graph, 5, 0.9999, threads), 30000);
  }
}

}  // namespace

int main() {
  const Toy toy;
  const Graph graph = make_graph(toy.edges, 40, 40);
  const HcmTerms terms(graph, 0.3, 0.01);
  test_stop_by(toy, graph, terms);
  test_repeats_end_the_search(toy, graph);
  test_search_without_repeats_gives_up(toy, graph);
  test_screen_and_threads_change_nothing<HcmScorer>(toy, graph,
                                                    [&] { return HcmScorer(graph, terms); });
  test_screen_and_threads_change_nothing<McmScorer>(toy, graph, [&] { return McmScorer(graph); });
  test_screen_and_threads_change_nothing<CmScorer>(toy, graph,
                                                   [&] { return CmScorer(0.05 * 0.05); });
  return check::finish();
}

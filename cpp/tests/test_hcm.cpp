// Harmonic consensus compared with its definition.
#include "check.h"
#include "manymatch/score/hcm.h"
#include "random_graph.h"

namespace {

double by_definition(const Graph& graph, const Mask& mask, double q, double delta) {
  double total = 0;
  for (int side = 0; side < 2; ++side) {
    const std::vector<int>& mine = side ? graph.right : graph.left;
    const int vertices = side ? graph.num1 : graph.num0;
    for (int v = 0; v < vertices; ++v) {
      double all = 0, inliers = 0;
      for (std::size_t e = 0; e < graph.num_edges(); ++e) {
        if (mine[e] != v) continue;
        int d0 = 0, d1 = 0;
        for (std::size_t f = 0; f < graph.num_edges(); ++f) {
          d0 += graph.left[f] == graph.left[e] ? 1 : 0;
          d1 += graph.right[f] == graph.right[e] ? 1 : 0;
        }
        const double p = q / (2.0 * d0) + q / (2.0 * d1);
        all += p;
        if (has_bit(mask, e)) inliers += p;
      }
      if (all > 0) total += std::log1p(inliers / (std::max(1.0 - all, 1e-9) * delta));
    }
  }
  return total;
}

// Degrees below and above the limit up to which terms are tabulated.
void test_definition() {
  Source random(3);
  int small = 0, large = 0;
  for (int g = 0; g < 40; ++g) {
    const double q = random.in(0.05, 0.5), delta = random.in(0.005, 0.5);
    const Graph graph = random_graph(random, 1 + random.pick(20), 1 + random.pick(20),
                                     g % 4 ? random.in(0.05, 0.6) : 1.0);
    for (int v = 0; v < graph.num0; ++v) {
      ++(graph.at0.degree(v) <= HcmSide::kTableDegree ? small : large);
    }
    const HcmTerms terms(graph, q, delta);
    HcmEvaluator used(graph, terms);
    for (int m = 0; m < 8; ++m) {
      const Mask mask = random_mask(random, graph.num_edges(), m ? random.uniform() : 0.0);
      const double score = used(mask);
      const double expected = by_definition(graph, mask, q, delta);
      CHECK_NEAR(score, expected, 1e-11 * (1.0 + expected));
      CHECK_EQ(HcmEvaluator(graph, terms)(mask), score);  // nothing is left of the last one
      CHECK_EQ(used(mask), score);
      if (m == 0) CHECK_EQ(score, 0.0);
    }
  }
  CHECK(small > 50 && large > 50);
}

void test_fewest_edges() {
  Source random(4);
  for (int g = 0; g < 100; ++g) {
    const Graph graph =
        random_graph(random, 2 + random.pick(20), 2 + random.pick(20), random.in(0.05, 0.9));
    const HcmTerms terms(graph, 0.3, 0.01);
    HcmEvaluator evaluate(graph, terms);
    for (int m = 0; m < 20; ++m) {
      const Mask mask = random_mask(random, graph.num_edges(), random.uniform());
      if (count_bits(mask) == 0) continue;
      CHECK(terms.fewest_edges(evaluate(mask)) <= count_bits(mask));
    }
    CHECK(terms.fewest_edges(1e6) > static_cast<int>(graph.num_edges()));
  }
  // Edges without common vertices add the same each, so the bound is exact.
  Edges edges;
  for (int i = 0; i < 100; ++i) edges.emplace_back(i, i);
  const Graph graph = make_graph(edges, 100, 100);
  const HcmTerms terms(graph, 0.3, 0.01);
  HcmEvaluator evaluate(graph, terms);
  Mask mask(graph.words(), 0);
  for (std::size_t k = 0; k < edges.size(); ++k) {
    mask[k / 64] |= uint64_t{1} << (k % 64);
    CHECK_EQ(terms.fewest_edges(evaluate(mask)), static_cast<int>(k) + 1);
  }
}

// With given priors, the probability that a vertex has no partner is at least `floor`.
double with_priors(const Graph& graph, const Mask& mask, const std::vector<double>& p, double delta,
                   double floor, int* raised) {
  double total = 0;
  for (int side = 0; side < 2; ++side) {
    const std::vector<int>& mine = side ? graph.right : graph.left;
    const int vertices = side ? graph.num1 : graph.num0;
    for (int v = 0; v < vertices; ++v) {
      double all = 0, inliers = 0;
      for (std::size_t e = 0; e < graph.num_edges(); ++e) {
        if (mine[e] != v) continue;
        all += p[e];
        if (has_bit(mask, e)) inliers += p[e];
      }
      if (1.0 - all < floor) ++*raised;
      total += std::log1p(inliers / (std::max(1.0 - all, floor) * delta));
    }
  }
  return total;
}

void test_given_priors() {
  Source random(5);
  int raised = 0;
  for (int g = 0; g < 60; ++g) {
    const double delta = random.in(0.005, 0.5), floor = g % 2 ? 0.05 : random.in(1e-6, 0.5);
    const Graph graph = random_graph(random, 1 + random.pick(20), 1 + random.pick(20),
                                     g % 4 ? random.in(0.05, 0.6) : 1.0);
    std::vector<double> p(graph.num_edges());
    for (double& value : p) value = random.in(0.0, g % 3 ? 0.2 : 0.9);
    const HcmTerms terms(graph, Priors(graph, p, delta, floor));
    CHECK(terms.priors.p == p);
    HcmEvaluator evaluate(graph, terms);
    for (int m = 0; m < 8; ++m) {
      const Mask mask = random_mask(random, graph.num_edges(), m ? random.uniform() : 0.0);
      const double expected = with_priors(graph, mask, p, delta, floor, &raised);
      CHECK_NEAR(evaluate(mask), expected, 1e-11 * (1.0 + expected));
      if (count_bits(mask)) CHECK(terms.fewest_edges(evaluate(mask)) <= count_bits(mask));
    }
  }
  CHECK(raised > 100);
}

// Passing in the paper's priors gives the same bits as computing them, if the floor is not reached.
void test_given_priors_of_the_paper() {
  Source random(6);
  for (int g = 0; g < 20; ++g) {
    const Graph graph = random_graph(random, 5 + random.pick(20), 5 + random.pick(20), 0.3);
    const HcmTerms paper(graph, 0.3, 0.01);
    const HcmTerms given(graph, Priors(graph, paper.priors.p, 0.01, 1e-9));
    CHECK(given.priors.a0 == paper.priors.a0 && given.priors.a1 == paper.priors.a1);
    const Mask mask = random_mask(random, graph.num_edges(), 0.4);
    CHECK_EQ(HcmEvaluator(graph, given)(mask), HcmEvaluator(graph, paper)(mask));
  }
}

// A score without tables has the same bits.
void test_no_tables() {
  Source random(7);
  for (int g = 0; g < 20; ++g) {
    const Graph graph = random_graph(random, 5 + random.pick(20), 5 + random.pick(20), 0.3);
    const HcmTerms tables(graph, 0.3, 0.01);
    const HcmTerms none(graph, 0.3, 0.01, {}, HcmTerms::kNoTables);
    for (double share : {0.0, 0.1, 0.5, 1.0}) {
      const Mask mask = random_mask(random, graph.num_edges(), share);
      CHECK_EQ(HcmEvaluator(graph, none)(mask), HcmEvaluator(graph, tables)(mask));
    }
  }
}

}  // namespace

int main() {
  test_no_tables();
  test_definition();
  test_fewest_edges();
  test_given_priors();
  test_given_priors_of_the_paper();
  return check::finish();
}

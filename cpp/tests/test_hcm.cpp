// Harmonic consensus against its definition.
#include "check.h"
#include "manymatch/score/hcm.h"
#include "random_graph.h"

using namespace manymatch;

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

// Degrees on both sides of the size up to which terms are tabulated.
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
      const double score = used(mask.data());
      const double expected = by_definition(graph, mask, q, delta);
      CHECK_NEAR(score, expected, 1e-11 * (1.0 + expected));
      CHECK_EQ(HcmEvaluator(graph, terms)(mask.data()), score);  // nothing is left of the last one
      CHECK_EQ(used(mask.data()), score);
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
      CHECK(terms.fewest_edges(evaluate(mask.data())) <= count_bits(mask));
    }
    CHECK(terms.fewest_edges(1e6) > static_cast<int>(graph.num_edges()));
  }
  // Edges that share no vertex are worth the same each: the bound is exact.
  Edges edges;
  for (int i = 0; i < 100; ++i) edges.emplace_back(i, i);
  const Graph graph = make_graph(edges, 100, 100);
  const HcmTerms terms(graph, 0.3, 0.01);
  HcmEvaluator evaluate(graph, terms);
  Mask mask(graph.words(), 0);
  for (std::size_t k = 0; k < edges.size(); ++k) {
    mask[k / 64] |= uint64_t{1} << (k % 64);
    CHECK_EQ(terms.fewest_edges(evaluate(mask.data())), static_cast<int>(k) + 1);
  }
}

}  // namespace

int main() {
  test_definition();
  test_fewest_edges();
  return check::finish();
}

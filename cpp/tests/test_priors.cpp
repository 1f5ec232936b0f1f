// Levels and priors of edges compared with their definition.
#include <algorithm>

#include "check.h"
#include "manymatch/score/priors.h"
#include "random_graph.h"

namespace {

struct Found {
  Graph graph;
  std::vector<int32_t> rank;
  std::vector<uint8_t> kept;

  explicit Found(Source& random)
      : graph(random_graph(random, 1 + random.pick(15), 1 + random.pick(15), 0.4)) {
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      rank.push_back(1 + random.pick(9));
      kept.push_back(random.chance(0.5));
    }
  }
};

int degree(const std::vector<int>& ends, int vertex) {
  return static_cast<int>(std::count(ends.begin(), ends.end(), vertex));
}

double paper_prior(const Graph& graph, std::size_t e, double q) {
  return 0.5 * q / degree(graph.left, graph.left[e]) +
         0.5 * q / degree(graph.right, graph.right[e]);
}

// The factor of edges that the filter does not keep: measured on one edge, the same for all.
double cost_of_doubt() {
  const Graph one = make_graph({{0, 0}}, 1, 1);
  const int32_t first[] = {1};
  const uint8_t no[] = {0}, yes[] = {1};
  return Levels(one, first, no, 0.3, true).prior[0] / Levels(one, first, yes, 0.3, true).prior[0];
}

void test_definition() {
  const double less = cost_of_doubt();
  CHECK(less > 0.0 && less < 1.0);
  Source random(21);
  for (int g = 0; g < 40; ++g) {
    const Found found(random);
    const double q = random.in(0.05, 0.95);
    for (int variant = 0; variant < 16; ++variant) {
      const bool ranked = variant & 1, filtered = variant & 2, by_rank = variant & 4,
                 weak = variant & 8;
      const std::vector<int32_t> no_rank;
      const std::vector<uint8_t> no_filter;
      const Levels levels(found.graph, ranked ? found.rank : no_rank,
                          filtered ? found.kept : no_filter, q, by_rank, weak);
      CHECK_EQ(levels.of.size(), found.graph.num_edges());
      CHECK_EQ(levels.prior.size(), found.graph.num_edges());
      for (std::size_t e = 0; e < found.graph.num_edges(); ++e) {
        const int rank = ranked ? std::min<int>(found.rank[e], Levels::kRanks) : 1;
        const bool doubted = filtered && !found.kept[e];
        const double by = weak ? std::sqrt(static_cast<double>(rank)) : rank;
        const double prior = ranked && by_rank ? q / by : paper_prior(found.graph, e, q);
        CHECK_EQ(levels.of[e], 2 * (rank - 1) + (doubted ? 1 : 0));
        CHECK(levels.of[e] >= 0 && levels.of[e] < Levels::kCount);
        CHECK_NEAR(levels.prior[e], doubted ? less * prior : prior, 1e-15);
        CHECK(levels.prior[e] > 0.0 && levels.prior[e] < 1.0);
      }
    }
  }
}

// Of two levels that differ in rank only, or in the filter only, the better one has a larger prior.
void test_order() {
  Edges edges;
  std::vector<int32_t> rank;
  std::vector<uint8_t> kept;
  for (int e = 0; e < Levels::kCount; ++e) {
    edges.emplace_back(e, e);
    rank.push_back(1 + e / 2);
    kept.push_back(e % 2 == 0);
  }
  const Graph graph = make_graph(edges, Levels::kCount, Levels::kCount);
  const Levels levels(graph, rank, kept, 0.3, true);
  for (int e = 0; e < Levels::kCount; ++e) {
    CHECK_EQ(levels.of[static_cast<std::size_t>(e)], e);
    if (e % 2) CHECK(levels.weight(e, 0.01) < levels.weight(e - 1, 0.01));
    if (e >= 2) CHECK(levels.weight(e, 0.01) < levels.weight(e - 2, 0.01));
  }
}

// The weight is a log-likelihood ratio: what an isolated inlier with this prior adds to one side of
// HCM.
void test_weight() {
  Source random(22);
  const Found found(random);
  for (double q : {0.01, 0.3, 0.9, 0.999999}) {
    for (double delta : {1e-6, 0.01, 0.9}) {
      const Levels levels(found.graph, found.rank, found.kept, q, true);
      for (int e = 0; e < static_cast<int>(found.graph.num_edges()); ++e) {
        const double p = levels.prior[static_cast<std::size_t>(e)];
        const double expected = std::log(((1.0 - p) * delta + p) / ((1.0 - p) * delta));
        CHECK_NEAR(levels.weight(e, delta), expected, 1e-9 * (1.0 + expected));
        CHECK(levels.weight(e, delta) > 0.0 && std::isfinite(levels.weight(e, delta)));
        CHECK(levels.weights({e, e}, delta) == std::vector<double>(2, levels.weight(e, delta)));
      }
    }
  }
}

// Invalid ranks must not index outside the tables.
void test_odd_ranks() {
  const Graph graph = make_graph({{0, 0}, {1, 1}, {2, 2}}, 3, 3);
  const int32_t rank[] = {0, -7, 2147483647};
  const Levels levels(graph, rank, {}, 0.3, true);
  CHECK_EQ(levels.of[0], 0);
  CHECK_EQ(levels.of[1], 0);
  CHECK_EQ(levels.of[2], 2 * (Levels::kRanks - 1));
  CHECK_NEAR(levels.prior[2], 0.3 / Levels::kRanks, 1e-15);
}

}  // namespace

int main() {
  test_definition();
  test_order();
  test_weight();
  test_odd_ranks();
  return check::finish();
}

// Matchings compared with a recursive textbook algorithm and with enumeration.
#include <set>

#include "check.h"
#include "manymatch/score/matching.h"
#include "random_graph.h"

namespace {

// Kuhn's algorithm, recursive.
struct Kuhn {
  const Graph& graph;
  const Mask& mask;
  std::vector<int> partner = std::vector<int>(static_cast<std::size_t>(graph.num1), -1);

  bool augment(int left, std::vector<char>& seen) {
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      const int right = graph.right[e];
      if (graph.left[e] != left || !has_bit(mask, e) || seen[right]) continue;
      seen[right] = 1;
      if (partner[right] < 0 || augment(partner[right], seen)) {
        partner[right] = left;
        return true;
      }
    }
    return false;
  }

  int cardinality() {
    int count = 0;
    for (int l = 0; l < graph.num0; ++l) {
      std::vector<char> seen(static_cast<std::size_t>(graph.num1), 0);
      count += augment(l, seen) ? 1 : 0;
    }
    return count;
  }
};

void test_cardinality() {
  Source random(1);
  for (int g = 0; g < 60; ++g) {
    const Graph graph =
        random_graph(random, 1 + random.pick(25), 1 + random.pick(25), random.in(0.02, 0.4));
    MaximumMatching matching(graph);
    for (int m = 0; m < 60; ++m) {
      const Mask mask = random_mask(random, graph.num_edges(), random.uniform());
      const int expected = Kuhn{graph, mask}.cardinality();
      CHECK_EQ(matching.cardinality(mask), expected);
      const int enough = random.pick(26);
      const int bounded = matching.cardinality(mask, enough);
      CHECK(bounded == expected || (expected < bounded && bounded < enough));
    }
  }
}

// The greedy start takes every second edge of a path, which leaves one augmenting path through the
// whole graph. Then half of the graph, with the same buffers.
void test_long_chain() {
  const int n = 10000;
  Edges edges;
  for (int i = 0; i + 1 < n; ++i) edges.emplace_back(i + 1, i);
  for (int i = 0; i < n; ++i) edges.emplace_back(i, i);
  const Graph graph = make_graph(edges, n, n);
  MaximumMatching matching(graph);
  Mask mask(graph.words(), 0), half(graph.words(), 0);
  for (std::size_t e = 0; e < edges.size(); ++e) {
    mask[e / 64] |= uint64_t{1} << (e % 64);
    if (std::min(edges[e].first, edges[e].second) >= n / 2) half[e / 64] |= uint64_t{1} << (e % 64);
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    CHECK_EQ(matching.cardinality(mask), n);
    CHECK_EQ(matching.cardinality(half), n / 2);
  }
  const std::vector<double> cost(edges.size(), 0.5);
  const auto chosen = cheapest_maximum_matching(graph, half, cost);
  CHECK_EQ(chosen.size(), static_cast<std::size_t>(n / 2));
}

// The cheapest of the largest matchings, by enumeration.
void enumerate(const Graph& graph, const Mask& mask, const std::vector<double>& cost, std::size_t e,
               std::set<int>& left, std::set<int>& right, double total, int& best_size,
               double& best_cost) {
  if (e == graph.num_edges()) {
    const int size = static_cast<int>(left.size());
    if (size > best_size || (size == best_size && total < best_cost)) {
      best_size = size;
      best_cost = total;
    }
    return;
  }
  enumerate(graph, mask, cost, e + 1, left, right, total, best_size, best_cost);
  const int l = graph.left[e], r = graph.right[e];
  if (!has_bit(mask, e) || left.count(l) || right.count(r)) return;
  left.insert(l);
  right.insert(r);
  enumerate(graph, mask, cost, e + 1, left, right, total + cost[e], best_size, best_cost);
  left.erase(l);
  right.erase(r);
}

void test_cheapest() {
  Source random(2);
  for (int g = 0; g < 600; ++g) {
    const Graph graph =
        random_graph(random, 1 + random.pick(6), 1 + random.pick(6), random.in(0.1, 0.5));
    const Mask mask = random_mask(random, graph.num_edges(), 0.8);
    std::vector<double> cost(graph.words() * 64);
    const bool ties = random.chance(0.3);
    for (double& c : cost) c = ties ? random.pick(3) : random.uniform();
    int size = 0;
    double expected = 0;
    std::set<int> left, right;
    enumerate(graph, mask, cost, 0, left, right, 0, size, expected);

    const auto chosen = cheapest_maximum_matching(graph, mask, cost);
    double total = 0;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const auto e = static_cast<std::size_t>(chosen[k]);
      CHECK(has_bit(mask, e));
      CHECK(left.insert(graph.left[e]).second);
      CHECK(right.insert(graph.right[e]).second);
      CHECK(k == 0 || chosen[k - 1] < chosen[k]);
      total += cost[e];
    }
    CHECK_EQ(static_cast<int>(chosen.size()), size);
    CHECK_NEAR(total, expected, 1e-9);
  }
}

// The largest weight that edges from `e` on can add to a matching.
double heaviest_from(const Graph& graph, const Mask& mask, const std::vector<double>& weight,
                     std::size_t e, std::set<int>& left, std::set<int>& right) {
  if (e == graph.num_edges()) return 0.0;
  double best = heaviest_from(graph, mask, weight, e + 1, left, right);
  const int l = graph.left[e], r = graph.right[e];
  if (!has_bit(mask, e) || left.count(l) || right.count(r)) return best;
  left.insert(l);
  right.insert(r);
  best = std::max(best, weight[e] + heaviest_from(graph, mask, weight, e + 1, left, right));
  left.erase(l);
  right.erase(r);
  return best;
}

// Edges outside the mask have large weights, so that using one by mistake is noticed.
void test_heaviest() {
  Source random(3);
  int smaller = 0;
  for (int g = 0; g < 600; ++g) {
    const Graph graph =
        random_graph(random, 1 + random.pick(6), 1 + random.pick(6), random.in(0.1, 0.5));
    const Mask mask = random_mask(random, graph.num_edges(), g ? 0.8 : 0.0);
    std::vector<double> weight(graph.words() * 64, 100.0);
    const bool ties = random.chance(0.3);
    for_each_bit(mask, [&](int e) {
      const double spread = random.chance(0.5) ? 1.0 : 5.0;
      weight[static_cast<std::size_t>(e)] = ties ? random.pick(3) : spread * random.uniform();
    });
    std::set<int> left, right;
    const double expected = heaviest_from(graph, mask, weight, 0, left, right);

    const auto chosen = heaviest_matching(graph, mask, weight);
    double total = 0;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const auto e = static_cast<std::size_t>(chosen[k]);
      CHECK(has_bit(mask, e));
      CHECK(left.insert(graph.left[e]).second);
      CHECK(right.insert(graph.right[e]).second);
      CHECK(k == 0 || chosen[k - 1] < chosen[k]);
      total += weight[e];
    }
    CHECK_NEAR(total, expected, 1e-9);
    smaller += static_cast<int>(chosen.size()) < Kuhn{graph, mask}.cardinality() ? 1 : 0;
  }
  CHECK(smaller > 5);  // the heaviest is not always one of the largest
}

// One heavy edge beats two light ones that it excludes, but not two that are heavier together.
void test_heaviest_is_not_the_largest() {
  const Graph path = make_graph({{0, 0}, {1, 0}, {1, 1}}, 2, 2);
  const Mask mask = {0b111};
  const double heavy[] = {1.0, 3.0, 1.5}, light[] = {1.0, 2.0, 1.5};
  CHECK(heaviest_matching(path, mask, heavy) == std::vector<int64_t>{1});
  CHECK((heaviest_matching(path, mask, light) == std::vector<int64_t>{0, 2}));
}

}  // namespace

int main() {
  test_cardinality();
  test_long_chain();
  test_cheapest();
  test_heaviest();
  test_heaviest_is_not_the_largest();
  return check::finish();
}

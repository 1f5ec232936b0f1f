// Minimal samples: one partner per vertex, a function of seed and iteration alone.
#include <set>

#include "check.h"
#include "manymatch/ransac/proposals.h"
#include "random_graph.h"

using namespace manymatch;

namespace {

constexpr int kSize = 5;
using Sample = std::vector<int>;

bool one_to_one(const Graph& graph, const Sample& sample) {
  std::set<int> left, right;
  for (int e : sample) {
    left.insert(graph.left[static_cast<std::size_t>(e)]);
    right.insert(graph.right[static_cast<std::size_t>(e)]);
  }
  return left.size() == sample.size() && right.size() == sample.size();
}

std::vector<int> all_edges(const Graph& graph) {
  std::vector<int> edges(graph.num_edges());
  std::iota(edges.begin(), edges.end(), 0);
  return edges;
}

void test_same_in_any_order() {
  Source random(6);
  for (int g = 0; g < 30; ++g) {
    const Graph graph = random_graph(random, 8 + random.pick(20), 8 + random.pick(20), 0.3);
    std::vector<int> allowed;
    for (int e : all_edges(graph)) {
      if (random.chance(0.8)) allowed.push_back(e);
    }
    if (matching_of_edges(graph, allowed) < kSize) continue;
    const Proposals proposals(graph, allowed, false);
    Proposals::Scratch forward = proposals.scratch(), backward = proposals.scratch();
    const std::vector<int> untouched = forward.all.order;
    const uint64_t seed = random.next();
    constexpr int kDraws = 200;
    std::vector<Sample> samples(kDraws, Sample(kSize)), again = samples;
    std::set<Sample> different;
    int64_t wasted = 0;
    for (int i = 0; i < kDraws; ++i) {
      Sample& s = samples[static_cast<std::size_t>(i)];
      CHECK(proposals.draw(seed, i, kSize, forward, s.data(), &wasted));
      CHECK(one_to_one(graph, s));
      for (int e : s) CHECK(std::binary_search(allowed.begin(), allowed.end(), e));
      CHECK(forward.all.order == untouched);
      different.insert(s);
    }
    for (int i = kDraws - 1; i >= 0; --i) {
      proposals.draw(seed, i, kSize, backward, again[static_cast<std::size_t>(i)].data(), &wasted);
    }
    CHECK(samples == again);
    CHECK(different.size() > kDraws / 2);
    Sample other(kSize);
    proposals.draw(seed + 1, 0, kSize, forward, other.data(), &wasted);
    Sample third(kSize);
    proposals.draw(seed + 1, 1, kSize, forward, third.data(), &wasted);
    CHECK(other != samples[0] || third != samples[1]);
  }
}

// Twenty left vertices on four right ones hold no five: drawing gives up and says what it cost.
void test_star() {
  Edges edges;
  for (int l = 0; l < 20; ++l) {
    for (int r = 0; r < 4; ++r) edges.emplace_back(l, r);
  }
  const Graph graph = make_graph(edges, 20, 4);
  const ConstrainedSampler sampler(graph, all_edges(graph));
  CHECK_EQ(sampler.num_active(), 20);
  SamplerScratch scratch;
  sampler.prepare(scratch);
  const std::vector<int> untouched = scratch.order;
  Rng rng(7, 0, Rng::kSample);
  Sample sample(kSize);
  int64_t wasted = 0;
  CHECK(!sampler.draw(rng, kSize, scratch, sample.data(), &wasted));
  CHECK_EQ(wasted, 200 * 20);  // ten attempts per active vertex, each looks at all of them
  CHECK(scratch.order == untouched);
  sample.resize(4);
  CHECK(sampler.draw(rng, 4, scratch, sample.data(), &wasted));
  CHECK(one_to_one(graph, sample));
}

// With one edge per vertex all are equally likely to come first: a coarse look at the law.
void test_uniform_over_left() {
  Edges edges;
  for (int i = 0; i < 10; ++i) edges.emplace_back(i, i);
  const Graph graph = make_graph(edges, 10, 10);
  const Proposals proposals(graph, all_edges(graph), false);
  Proposals::Scratch scratch = proposals.scratch();
  std::vector<int> count(10, 0);
  Sample sample(kSize);
  int64_t wasted = 0;
  for (int i = 0; i < 4000; ++i) {
    proposals.draw(8, i, kSize, scratch, sample.data(), &wasted);
    ++count[static_cast<std::size_t>(sample[0])];
  }
  for (int c : count) CHECK_NEAR(c, 400, 100);  // more than five standard deviations
}

void test_uniform_edges_and_guidance() {
  Source random(9);
  const Graph graph = random_graph(random, 10, 10, 0.5);
  const std::vector<int> few = {3, 5, 8, 9, 11}, all = all_edges(graph);
  Sample sample(kSize);
  int64_t wasted = 0;
  int guided = 0;
  for (double share : {0.0, 0.5, 1.0}) {
    Proposals proposals(graph, all, true);
    proposals.guide(graph, few, share);
    Proposals::Scratch scratch = proposals.scratch();
    for (int i = 0; i < 400; ++i) {
      CHECK(proposals.draw(10, i, kSize, scratch, sample.data(), &wasted));
      CHECK_EQ(std::set<int>(sample.begin(), sample.end()).size(), sample.size());
      Sample ordered = sample;
      std::sort(ordered.begin(), ordered.end());
      guided += ordered == few ? 1 : 0;
    }
    CHECK_NEAR(guided, share < 0.25 ? 0 : share < 0.75 ? 200 : 400, share == 0.5 ? 60 : 0);
    guided = 0;
  }
}

}  // namespace

int main() {
  test_same_in_any_order();
  test_star();
  test_uniform_over_left();
  test_uniform_edges_and_guidance();
  return check::finish();
}

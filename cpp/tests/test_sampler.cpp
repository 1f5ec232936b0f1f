// Minimal samples: one partner per vertex, determined by seed and iteration only.
#include <set>

#include "check.h"
#include "manymatch/ransac/sampler.h"
#include "random_graph.h"

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
      CHECK(proposals.draw(seed, i, forward, s, &wasted));
      CHECK(one_to_one(graph, s));
      for (int e : s) CHECK(std::binary_search(allowed.begin(), allowed.end(), e));
      CHECK(forward.all.order == untouched);
      different.insert(s);
    }
    for (int i = kDraws - 1; i >= 0; --i) {
      proposals.draw(seed, i, backward, again[static_cast<std::size_t>(i)], &wasted);
    }
    CHECK(samples == again);
    CHECK(different.size() > kDraws / 2);
    Sample other(kSize);
    proposals.draw(seed + 1, 0, forward, other, &wasted);
    Sample third(kSize);
    proposals.draw(seed + 1, 1, forward, third, &wasted);
    CHECK(other != samples[0] || third != samples[1]);
  }
}

// Twenty left vertices share four right ones, so there is no sample of five: drawing gives up and
// reports its cost.
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
  CHECK(!sampler.draw(rng, scratch, sample, &wasted));
  CHECK_EQ(wasted, 200 * 20);  // ten attempts per active vertex, each looks at all of them
  CHECK(scratch.order == untouched);
  sample.resize(4);
  CHECK(sampler.draw(rng, scratch, std::span(sample).first(4), &wasted));
  CHECK(one_to_one(graph, sample));
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
      CHECK(proposals.draw(10, i, scratch, sample, &wasted));
      CHECK_EQ(std::set<int>(sample.begin(), sample.end()).size(), sample.size());
      Sample ordered = sample;
      std::sort(ordered.begin(), ordered.end());
      guided += ordered == few ? 1 : 0;
    }
    CHECK_NEAR(guided, share < 0.25 ? 0 : share < 0.75 ? 200 : 400, share == 0.5 ? 60 : 0);
    guided = 0;
  }
}

// Vertices in three groups, and each guide within its own group: a sample shows which guide drew
// it.
struct Mixture {
  static constexpr int kVertices = 60, kGroups = 3;
  const double shares[kGroups] = {0.45, 0.3, 0.25};  // the rest falls to no guide
  Graph graph;
  std::vector<int> group[kGroups];
  Proposals proposals;

  Mixture() : graph(make()), proposals(graph, all_edges(graph), false) {
    for (int e : all_edges(graph)) {
      const int g = graph.left[static_cast<std::size_t>(e)] % kGroups;
      group[g].push_back(e);
    }
    for (int g = 0; g + 1 < kGroups; ++g) proposals.guide(graph, group[g], shares[g]);
  }
  // Partners are in the same group.
  static Graph make() {
    Source random(11);
    Edges edges;
    for (int l = 0; l < kVertices; ++l) {
      std::set<int> partners;
      for (int k = 0; k <= random.pick(3); ++k) {
        partners.insert(kGroups * random.pick(kVertices / kGroups) + l % kGroups);
      }
      for (int r : partners) edges.emplace_back(l, r);
    }
    random.shuffle(edges);
    return make_graph(edges, kVertices, kVertices);
  }
};

void test_mixture_draws_its_shares_from_the_named_edges() {
  const Mixture mixture;
  Proposals::Scratch scratch = mixture.proposals.scratch();
  const Proposals plain(mixture.graph, all_edges(mixture.graph), false);
  Proposals::Scratch plain_scratch = plain.scratch();
  Sample sample(kSize), unguided(kSize);
  int64_t wasted = 0;
  constexpr int kDraws = 4000;
  int pure[Mixture::kGroups] = {}, free = 0;
  for (int i = 0; i < kDraws; ++i) {
    CHECK(mixture.proposals.draw(12, i, scratch, sample, &wasted));
    CHECK(one_to_one(mixture.graph, sample));
    plain.draw(12, i, plain_scratch, unguided, &wasted);
    free += sample == unguided ? 1 : 0;
    for (int g = 0; g < Mixture::kGroups; ++g) {
      pure[g] += std::all_of(sample.begin(), sample.end(), [&](int e) {
        return mixture.graph.left[static_cast<std::size_t>(e)] % Mixture::kGroups == g;
      });
    }
  }
  // One in eighty samples from all edges is within one group; five standard deviations are 160.
  const double rest = mixture.shares[2];
  for (int g = 0; g + 1 < Mixture::kGroups; ++g) {
    CHECK_NEAR(pure[g], kDraws * mixture.shares[g], 160);
  }
  CHECK(pure[2] < kDraws * rest / 20);   // the third group is never drawn on purpose
  CHECK_NEAR(free, kDraws * rest, 160);  // iterations of no guide draw as if there were none
}

// A guide draws the same samples as a sampler with its edges.
void test_a_guide_is_a_sampler_of_its_edges() {
  const Mixture mixture;
  Proposals guided(mixture.graph, all_edges(mixture.graph), false);
  guided.guide(mixture.graph, mixture.group[1], 1.0);
  const Proposals alone(mixture.graph, mixture.group[1], false);
  Proposals::Scratch one = guided.scratch(), two = alone.scratch();
  Sample a(kSize), b(kSize);
  int64_t wasted = 0;
  for (int i = 0; i < 200; ++i) {
    CHECK(guided.draw(13, i, one, a, &wasted));
    CHECK(alone.draw(13, i, two, b, &wasted));
    CHECK(a == b);
  }
}

struct Counted {
  double share, deviation;  // of inliers among the draws, and how uncertain that is
};

// All left vertices are equally likely, and so are the edges of a vertex.
Counted count(const Graph& graph, const std::vector<int>& edges, const Mask& inliers) {
  double total = 0;
  int vertices = 0;
  for (int l = 0; l < graph.num0; ++l) {
    int all = 0, good = 0;
    for (int e : edges) {
      if (graph.left[static_cast<std::size_t>(e)] != l) continue;
      ++all;
      good += has_bit(inliers, static_cast<std::size_t>(e)) ? 1 : 0;
    }
    vertices += all > 0;
    total += all ? static_cast<double>(good) / all : 0.0;
  }
  const double share = total / vertices;
  return {share, std::sqrt(share * (1.0 - share) / vertices)};
}

void test_clean_chance_by_count() {
  const Mixture mixture;
  Source random(14);
  for (double density : {0.0, 0.2, 0.6, 0.95, 1.0}) {
    const Mask inliers = random_mask(random, mixture.graph.num_edges(), density);
    double expected = 0;
    for (int g = 0; g < Mixture::kGroups; ++g) {
      const Counted c =
          count(mixture.graph, g < 2 ? mixture.group[g] : all_edges(mixture.graph), inliers);
      expected +=
          mixture.shares[g] *
          std::pow(std::max(c.share - Proposals::kBiasDeviations * c.deviation, 0.0), kSize);
    }
    CHECK_NEAR(mixture.proposals.clean_chance(inliers, kSize), expected, 1e-12);
  }
  const Mask none(mixture.graph.words(), 0),
      all = random_mask(random, mixture.graph.num_edges(), 2);
  CHECK_EQ(mixture.proposals.clean_chance(none, kSize), 0.0);
  CHECK_NEAR(mixture.proposals.clean_chance(all, kSize), 1.0, 1e-12);
}

// Samples hardly ever meet one of these many vertices twice, so that the share of clean samples is
// as predicted, or slightly less.
void test_clean_chance_by_drawing() {
  const int n = 3000;
  Source random(15);
  Edges edges;
  for (int l = 0; l < n; ++l) {
    std::set<int> partners = {l};
    for (int k = random.pick(3); k > 0; --k) partners.insert(random.pick(n));
    for (int r : partners) edges.emplace_back(l, r);
  }
  random.shuffle(edges);
  const Graph graph = make_graph(edges, n, n);
  Mask inliers(graph.words(), 0);
  std::vector<int> guide;
  for (int e : all_edges(graph)) {
    const auto [l, r] = edges[static_cast<std::size_t>(e)];
    const bool inlier = random.chance(l == r ? 0.9 : 0.4);
    if (inlier) inliers[static_cast<std::size_t>(e) / 64] |= uint64_t{1} << (e % 64);
    if (l == r && l < n / 2) guide.push_back(e);
  }
  Proposals proposals(graph, all_edges(graph), false);
  proposals.guide(graph, guide, 0.5);
  Proposals::Scratch scratch = proposals.scratch();
  Sample sample(kSize);
  int64_t wasted = 0;
  constexpr int kDraws = 20000;
  int clean = 0;
  for (int i = 0; i < kDraws; ++i) {
    proposals.draw(16, i, scratch, sample, &wasted);
    clean += std::all_of(sample.begin(), sample.end(),
                         [&](int e) { return has_bit(inliers, static_cast<std::size_t>(e)); });
  }
  const double seen = static_cast<double>(clean) / kDraws;
  const double predicted = proposals.clean_chance(inliers, kSize);
  const double noise = std::sqrt(seen * (1.0 - seen) / kDraws);
  CHECK(seen > 0.2 && seen < 0.8);
  CHECK(predicted < seen + 3.0 * noise);
  CHECK(predicted > 0.9 * seen - 3.0 * noise);
}

}  // namespace

int main() {
  test_mixture_draws_its_shares_from_the_named_edges();
  test_a_guide_is_a_sampler_of_its_edges();
  test_clean_chance_by_count();
  test_clean_chance_by_drawing();
  test_same_in_any_order();
  test_star();
  test_uniform_edges_and_guidance();
  return check::finish();
}

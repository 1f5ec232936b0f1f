// The last stage of "auto" on the translation problem.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "check.h"
#include "manymatch/ransac/settle.h"
#include "translation.h"

namespace {

constexpr double kDelta = 0.01;

// Points moved by one of two shifts with little noise, and wrong partners anywhere.
struct Scene {
  TranslationData data;
  Graph graph;
  std::vector<double> prior;

  static constexpr Shift kShift{3.0, -2.0}, kOther{1.0, 1.0};

  Scene(uint64_t seed, int first, int second, int wrong, double noise) : graph({}, {}, 0, 0) {
    Source random(seed);
    Edges edges;
    data.eps = 0.05;
    const auto add = [&](const Shift& shift) {
      const int i = static_cast<int>(data.x0.size());
      data.x0.push_back(random.in(0.0, 10.0));
      data.y0.push_back(random.in(0.0, 10.0));
      data.x1.push_back(data.x0.back() + shift.dx + noise * (random.in(-1, 1) + random.in(-1, 1)));
      data.y1.push_back(data.y0.back() + shift.dy + noise * (random.in(-1, 1) + random.in(-1, 1)));
      edges.emplace_back(i, i);
    };
    for (int i = 0; i < first; ++i) add(kShift);
    for (int i = 0; i < second; ++i) add(kOther);
    for (int i = 0; i < wrong; ++i) {
      add({kShift.dx + random.in(-1.0, 1.0), kShift.dy + random.in(-1.0, 1.0)});
    }
    const int n = static_cast<int>(data.x0.size());
    graph = make_graph(edges, n, n);
    prior.assign(edges.size(), 0.3);
  }

  // The mean shift of the first edges.
  Shift mean(int count) const {
    Shift sum;
    for (int i = 0; i < count; ++i) {
      sum.dx += (data.x1[at(i)] - data.x0[at(i)]) / count;
      sum.dy += (data.y1[at(i)] - data.y0[at(i)]) / count;
    }
    return sum;
  }
};

using Supported = SupportedModel<Shift>;
using Other = Settlement<TranslationProblem>::Other;

struct Outcome {
  Shift model;
  double support, scale;
  Noise noise;
  std::vector<Other> others;
};

Outcome settle(const Scene& scene, Shift model, std::vector<Supported> refined = {},
               double most_scale = 1.0, uint64_t seed = 1, std::vector<double> single_prior = {},
               std::vector<int> source = {}) {
  if (single_prior.empty()) single_prior = scene.prior;
  const TranslationProblem problem(scene.graph, scene.data);
  Workers workers(2);
  Settlement<TranslationProblem> settlement(problem, scene.data, scene.prior, single_prior, kDelta,
                                            most_scale, seed, workers, nullptr,
                                            {std::move(source), {}});
  Interrupt interrupt;
  settlement.run(model, std::move(refined), interrupt);
  const double support = settlement.support(), scale = settlement.scale();
  const Noise noise = settlement.noise();
  return {model, support, scale, noise, settlement.others()};
}

// Support of a model by the definition; no two edges have a common vertex here.
double support_of(const Scene& scene, const Shift& model, double scale) {
  double total = 0.0;
  for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
    const double dx = scene.data.x1[e] - scene.data.x0[e] - model.dx;
    const double dy = scene.data.y1[e] - scene.data.y0[e] - model.dy;
    const double r2 = (dx * dx + dy * dy) / (scene.data.eps * scene.data.eps);
    const double odds = scene.prior[e] / (1.0 - scene.prior[e]);
    const double variance = scale * scale;
    total += std::log1p(odds / kDelta * 0.5 / variance * std::exp(-0.5 * r2 / variance));
  }
  return total;
}

// The core approximates the weight of an edge.
double tolerance(double support) { return 2.0 + 0.03 * support; }

double distance(const Shift& a, const Shift& b) { return std::hypot(a.dx - b.dx, a.dy - b.dy); }

// Finds the optimum from up to three thresholds away, without any refined model.
void test_moves_to_the_optimum() {
  constexpr int kTrue = 60;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Scene scene(seed, kTrue, 0, 120, 0.005);
    const Shift optimum = scene.mean(kTrue);
    for (double beside : {0.0, 0.5, 1.5, 3.0}) {
      const double angle = static_cast<double>(seed);
      const Shift start{Scene::kShift.dx + beside * scene.data.eps * std::cos(angle),
                        Scene::kShift.dy + beside * scene.data.eps * std::sin(angle)};
      const Outcome outcome = settle(scene, start);
      CHECK(distance(outcome.model, optimum) < 0.004);
      CHECK_NEAR(outcome.support, support_of(scene, outcome.model, outcome.scale),
                 tolerance(outcome.support));
      // The sum of two uniform numbers has the variance 2 / 3.
      CHECK_NEAR(outcome.noise.scale * scene.data.eps, 0.005 * std::sqrt(2.0 / 3.0), 0.0015);
    }
  }
}

// The result has at least the support of all given models, at the measured noise.
void test_never_lowers_the_support() {
  int better = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Source random(1000 + seed);
    const Scene scene(100 + seed, 20 + random.pick(40), 0, 100, random.in(0.002, 0.03));
    std::vector<Supported> given;
    for (int i = 0; i < 4; ++i) {
      given.push_back({{3.0 + random.in(-0.15, 0.15), -2.0 + random.in(-0.15, 0.15)}, 1.0});
    }
    const Outcome outcome = settle(scene, given[0].model, {given.begin() + 1, given.end()});
    for (const Supported& other : given) {
      const double before = support_of(scene, other.model, outcome.scale);
      CHECK(outcome.support >= before - tolerance(before));
      better += outcome.support > before + 1.0;
    }
  }
  CHECK(better > 100);
}

void test_others_are_distinct_and_sorted() {
  int listed = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Source random(2000 + seed);
    const Scene scene(200 + seed, 40, 30, 60, 0.01);
    // Both shifts several times, and some models without support.
    std::vector<Supported> refined;
    for (int i = 0; i < 9; ++i) {
      const Shift around = i % 3 == 0   ? Scene::kShift
                           : i % 3 == 1 ? Scene::kOther
                                        : Shift{random.in(-5.0, 5.0), random.in(-5.0, 5.0)};
      const double off = 0.02;
      refined.push_back({{around.dx + random.in(-off, off), around.dy + random.in(-off, off)},
                         random.in(0.0, 1.0)});
    }
    const Outcome outcome = settle(scene, refined[0].model, refined);
    CHECK(distance(outcome.model, Scene::kShift) < 0.01);
    CHECK(!outcome.others.empty());
    CHECK(distance(outcome.others[0].model, Scene::kOther) < 0.01);
    CHECK(outcome.others[0].support < outcome.support);
    for (std::size_t i = 0; i < outcome.others.size(); ++i) {
      const Other& other = outcome.others[i];
      CHECK_NEAR(other.advantage, other.support - outcome.support, 1e-9);
      CHECK(!TranslationProblem::same(other.model, outcome.model));
      CHECK_NEAR(other.support, support_of(scene, other.model, outcome.scale),
                 tolerance(other.support));
      for (std::size_t j = 0; j < i; ++j) {
        CHECK(!TranslationProblem::same(other.model, outcome.others[j].model));
        CHECK(outcome.others[j].support >= other.support);
      }
      ++listed;
    }
  }
  CHECK(listed >= 30);
}

// A refined model with more support replaces the selected one.
void test_better_refined_model_wins() {
  const Scene scene(300, 40, 30, 60, 0.01);
  const Outcome outcome = settle(scene, Scene::kOther, {{Scene::kShift, 0.0}});
  CHECK(distance(outcome.model, Scene::kShift) < 0.01);
  CHECK(!outcome.others.empty());
  CHECK(distance(outcome.others[0].model, Scene::kOther) < 0.01);
}

// The advantage of another model is computed with the priors of single edges.
void test_advantage_by_single_edges() {
  constexpr int kFirst = 40, kSecond = 30;
  Scene scene(301, kFirst, kSecond, 0, 0.01);
  const std::vector<double> single = scene.prior;
  for (int e = kFirst; e < kFirst + kSecond; ++e) scene.prior[at(e)] *= 0.3;
  const Outcome outcome = settle(scene, Scene::kShift, {{Scene::kOther, 0.0}}, 1.0, 1, single);
  CHECK(!outcome.others.empty());
  const Other& other = outcome.others[0];
  CHECK(distance(other.model, Scene::kOther) < 0.01);
  CHECK(other.advantage > other.support - outcome.support + 0.9 * kSecond);
  scene.prior = single;
  const double best = support_of(scene, outcome.model, outcome.scale);
  CHECK_NEAR(other.advantage, support_of(scene, other.model, outcome.scale) - best,
             tolerance(best));
}

void test_bounds_of_the_scale() {
  const Scene noisy(400, 60, 0, 60, 0.05), exact(401, 60, 0, 60, 1e-6);
  for (double most : {1.0, 0.5, 0.25}) {
    if (most < 0.7) CHECK_EQ(settle(noisy, Scene::kShift, {}, most).scale, most);
    const double least = settle(exact, Scene::kShift, {}, most).scale;
    CHECK(least > 0.0 && least < most);
    CHECK_NEAR(least / most, settle(exact, Scene::kShift).scale, 1e-12);
  }
  // The reported noise is not bounded.
  CHECK(settle(noisy, Scene::kShift, {}, 0.25).noise.scale > 0.5);
}

// Edges of a noisy source do not spoil what the edges of an exact source determine.
void test_sources_of_different_noise() {
  constexpr int kExact = 40, kNoisy = 200;
  double together = 0.0, apart = 0.0, alone = 0.0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Scene scene(700 + seed, kExact + kNoisy, 0, 100, 0.002);
    Source random(seed);
    std::vector<int> source(scene.graph.num_edges(), 1);
    std::fill_n(source.begin(), kExact, 0);
    for (std::size_t e = kExact; e < kExact + kNoisy; ++e) {
      scene.data.x1[e] += 0.02 * (random.in(-1, 1) + random.in(-1, 1));
      scene.data.y1[e] += 0.02 * (random.in(-1, 1) + random.in(-1, 1));
    }
    const Outcome with = settle(scene, Scene::kShift, {}, 1.0, 1, {}, source);
    together += distance(settle(scene, Scene::kShift).model, Scene::kShift);
    apart += distance(with.model, Scene::kShift);
    alone += distance(scene.mean(kExact), Scene::kShift);
  }
  CHECK(apart < 0.5 * together);
  CHECK(apart < 1.2 * alone);
}

// Edges of one kind that are said to have two sources give nearly the same model.
void test_sources_of_equal_noise() {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Scene scene(800 + seed, 120, 0, 100, 0.01);
    std::vector<int> source(scene.graph.num_edges());
    for (std::size_t e = 0; e < source.size(); ++e) source[e] = static_cast<int>(e % 2);
    const Outcome with = settle(scene, Scene::kShift, {}, 1.0, 1, {}, source);
    CHECK(distance(with.model, settle(scene, Scene::kShift).model) < 0.002);
  }
}

// The same seed gives the same numbers; another seed gives nearly the same model.
void test_seed() {
  const Scene scene(500, 40, 0, 200, 0.01);
  const Shift start{3.05, -2.05};
  const Outcome a = settle(scene, start), b = settle(scene, start);
  CHECK(a.model.dx == b.model.dx && a.model.dy == b.model.dy && a.support == b.support);
  const Outcome c = settle(scene, start, {}, 1.0, 2);
  CHECK(distance(a.model, c.model) < 0.01);
}

// Too few edges for a sample, and no edge near the model.
void test_too_few_edges() {
  const Scene few(600, 2, 0, 0, 0.01);
  CHECK(std::isfinite(settle(few, Scene::kShift).support));
  const Outcome none = settle(few, {-7.0, 7.0});
  CHECK_EQ(none.support, 0.0);
  CHECK(none.others.empty());
}

}  // namespace

int main() {
  test_moves_to_the_optimum();
  test_never_lowers_the_support();
  test_others_are_distinct_and_sorted();
  test_better_refined_model_wins();
  test_advantage_by_single_edges();
  test_bounds_of_the_scale();
  test_sources_of_different_noise();
  test_sources_of_equal_noise();
  test_seed();
  test_too_few_edges();
  return check::finish();
}

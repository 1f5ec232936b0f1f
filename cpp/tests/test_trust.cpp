// How far sources are trusted: by definition, and for a whole graph with several of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "check.h"
#include "manymatch/score/trust.h"
#include "two_view_pair.h"

using namespace manymatch;

namespace {

// Edges with a source and a prior, and models as the residuals of all edges, in thresholds.
struct Judged {
  int sources;
  ResidualLaw law;
  std::vector<int> source;
  std::vector<double> prior;
  std::vector<std::vector<double>> residuals;

  std::vector<double> factors() const {
    SourceTrust trust(source, prior, sources, law);
    for (const std::vector<double>& of_model : residuals) {
      Mask inliers(mask_words(source.size()), 0);
      std::vector<double> squared;
      for (std::size_t e = 0; e < of_model.size(); ++e) {
        squared.push_back(of_model[e] * of_model[e]);
        if (of_model[e] <= 1.0) set_bit(inliers, static_cast<int>(e));
      }
      trust.look_at(inliers, squared);
    }
    return trust.factors();
  }
};

Judged random_judged(Source& random) {
  Judged judged{1 + random.pick(4), {1 + random.pick(3)}, {}, {}, {}};
  const int edges = 1 + random.pick(150), models = random.pick(5);
  std::vector<double> right;  // share of each source
  for (int s = 0; s < judged.sources; ++s) right.push_back(random.uniform());
  for (int e = 0; e < edges; ++e) {
    judged.source.push_back(random.pick(judged.sources));
    judged.prior.push_back(random.in(0.01, 0.5));
  }
  for (int m = 0; m < models; ++m) {
    std::vector<double> of_model;
    for (int e = 0; e < edges; ++e) {
      of_model.push_back(random.chance(right[at(judged.source[at(e)])]) ? random.in(0.0, 1.0)
                                                                        : random.in(0.0, 20.0));
    }
    judged.residuals.push_back(of_model);
  }
  return judged;
}

// What a band of one dimension more is wider: the measure of all places at most so far away.
double ball(double radius, int dimensions) { return std::pow(radius, dimensions); }

// The definition, source by source, model by model and edge by edge.
std::vector<double> by_definition(const Judged& judged) {
  std::vector<double> shares;  // of what the priors promise
  for (int s = 0; s < judged.sources; ++s) {
    double best = 0.0;
    for (const std::vector<double>& of_model : judged.residuals) {
      double total = 0.0, squares = 0.0, near = 0.0, far = 0.0;
      for (std::size_t e = 0; e < of_model.size(); ++e) {
        if (judged.source[e] != s) continue;
        const double prior = judged.prior[e], distance = of_model[e];
        total += prior;
        squares += prior * prior;
        if (distance <= 1.0) near += prior;
        if (distance > SourceTrust::kFirstWrong && distance < SourceTrust::kLastWrong) far += prior;
      }
      if (total == 0.0) continue;
      const int d = judged.law.dimensions;
      const double chance =
          far / (ball(SourceTrust::kLastWrong, d) - ball(SourceTrust::kFirstWrong, d));
      const double unit = squares / total;
      const double deviation = std::sqrt(unit * std::max(chance, unit));
      const double excess = near - chance - SourceTrust::kChanceDeviations * deviation;
      best = std::max(best, excess / total / unit);
    }
    shares.push_back(best);
  }
  const double largest = *std::max_element(shares.begin(), shares.end());
  std::vector<double> factors;
  for (double share : shares) {
    factors.push_back(largest > 0.0 ? SourceTrust::factor_of(share / largest) : 1.0);
  }
  return factors;
}

void test_definition() {
  Source random(91);
  int judging = 0;
  for (int i = 0; i < 300; ++i) {
    const Judged judged = random_judged(random);
    const std::vector<double> found = judged.factors(), expected = by_definition(judged);
    CHECK_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) {
      CHECK_NEAR(found[s], expected[s], 1e-12);
      CHECK(found[s] >= SourceTrust::kLeastTrust && found[s] <= 1.0);
    }
    CHECK_EQ(*std::max_element(found.begin(), found.end()), 1.0);
    judging += *std::min_element(found.begin(), found.end()) < 1.0;
  }
  CHECK(judging > 100);
}

void test_factor_of() {
  CHECK_EQ(SourceTrust::factor_of(1.0), 1.0);
  CHECK_EQ(SourceTrust::factor_of(0.0), SourceTrust::kLeastTrust);
  for (double share = 0.0; share < 1.0; share += 0.01) {
    CHECK(SourceTrust::factor_of(share) <= SourceTrust::factor_of(share + 0.01));
  }
}

// Sources in another order have the same factors in that order.
void test_order_of_sources() {
  Source random(92);
  for (int i = 0; i < 100; ++i) {
    const Judged judged = random_judged(random);
    std::vector<int> to(at(judged.sources));
    std::iota(to.begin(), to.end(), 0);
    random.shuffle(to);
    Judged other = judged;
    for (int& s : other.source) s = to[at(s)];
    const std::vector<double> one = judged.factors(), two = other.factors();
    for (std::size_t s = 0; s < one.size(); ++s) CHECK_EQ(one[s], two[at(to[s])]);
  }
}

// Two sources with the same edges are trusted alike.
void test_equal_sources() {
  Source random(93);
  for (int i = 0; i < 100; ++i) {
    const Judged judged = random_judged(random);
    Judged twice{2 * judged.sources, judged.law, {}, {}, {}};
    twice.residuals.resize(judged.residuals.size());
    for (int copy = 0; copy < 2; ++copy) {
      for (int s : judged.source) twice.source.push_back(2 * s + copy);
      twice.prior.insert(twice.prior.end(), judged.prior.begin(), judged.prior.end());
      for (std::size_t m = 0; m < judged.residuals.size(); ++m) {
        twice.residuals[m].insert(twice.residuals[m].end(), judged.residuals[m].begin(),
                                  judged.residuals[m].end());
      }
    }
    const std::vector<double> one = judged.factors(), two = twice.factors();
    for (std::size_t s = 0; s < one.size(); ++s) {
      CHECK_EQ(two[2 * s], two[2 * s + 1]);
      CHECK_EQ(two[2 * s], one[s]);
    }
  }
}

// A source whose edges are anywhere gets the least trust, however many models it is compared with.
void test_noise() {
  Source random(94);
  for (int dimensions : {1, 2, 3}) {
    Judged judged{2, {dimensions}, {}, {}, {}};
    for (int e = 0; e < 800; ++e) {
      judged.source.push_back(e % 2);
      judged.prior.push_back(0.2);
    }
    for (int m = 0; m < 30; ++m) {
      std::vector<double> of_model;
      for (int e = 0; e < 800; ++e) {
        const bool right = e % 2 == 0 && m == 7 && random.chance(0.7);
        // Equally dense everywhere within 30 thresholds.
        const double anywhere = 30.0 * std::pow(random.uniform(), 1.0 / dimensions);
        of_model.push_back(right ? random.uniform() : anywhere);
      }
      judged.residuals.push_back(of_model);
    }
    const std::vector<double> found = judged.factors();
    CHECK_EQ(found[0], 1.0);
    CHECK_EQ(found[1], SourceTrust::kLeastTrust);
  }
}

// Two scenes in one graph, one with a pose and one without.
struct Stacked {
  Pair pair = random_pair(95, 90, 1);
  std::vector<int32_t> source;

  Stacked() {
    source.assign(pair.edges.size() / 2, 0);
    Source random(96);
    for (int i = 0; i < 150; ++i) {
      const int32_t vertex = static_cast<int32_t>(pair.x0.size() / 2);
      for (std::vector<double>* side : {&pair.x0, &pair.x1}) {
        side->insert(side->end(), {random.in(-0.5, 0.5), random.in(-0.5, 0.5)});
      }
      pair.edges.insert(pair.edges.end(), {vertex, vertex});
      source.push_back(1);
    }
  }
  PoseEstimate run(int threads, bool with_sources) const {
    GraphInput input = pair.input();
    if (with_sources) input.source = source;
    Interrupt interrupt;
    return manymatch::estimate<RelativePoseProblem>(input, pair.points(), Method::kAuto,
                                                    quick_options(threads), interrupt);
  }
};

void test_stacked_graph() {
  const Stacked stacked;
  const PoseEstimate one = stacked.run(1, true);
  CHECK(one.success && distance(one.model.R, one.model.t, stacked.pair.pose) < 0.01);
  CHECK_EQ(one.trust.size(), std::size_t{2});
  CHECK_EQ(one.trust[0], 1.0);
  CHECK_EQ(one.trust[1], SourceTrust::kLeastTrust);
  CHECK(stacked.run(1, false).trust.empty());
  for (int threads : {2, 8}) {
    const PoseEstimate several = stacked.run(threads, true);
    CHECK(std::memcmp(&several.model, &one.model, sizeof one.model) == 0);
    CHECK(several.trust == one.trust);
    CHECK(several.matched == one.matched && several.inliers == one.inliers);
    CHECK_EQ(several.iterations, one.iterations);
    CHECK_EQ(several.support, one.support);
  }
}

}  // namespace

int main() {
  test_definition();
  test_factor_of();
  test_order_of_sources();
  test_equal_sources();
  test_noise();
  test_stacked_graph();
  return check::finish();
}

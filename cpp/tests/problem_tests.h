// Tests that every geometric problem must pass on every instruction set.
//
// A test program describes its problem by a struct, here called Case, and calls
// test_problem<Case>(). Members of a case:
//   Problem: the problem; data(points): its data, if they are more than points.
//   Truth: a random true model. Truth(random, kind) makes one of kind 0 (ordinary) to 3
//   (difficult);
//     `model` is the model, match(random, noise, wrong) a true or wrong correspondence of it.
//   expected: residual and validity of a correspondence by the definition.
//   kRows, kParameters: residuals per edge and parameters of a refinement; jacobian, residuals,
//     normal_equations: its kernels; moved: the model after a step.
//   nearby: a model close to the true one; refine: a refinement that must lead back to it; error:
//     the distance of two models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "check.h"
#include "manymatch/ransac/lo_ransac.h"
#include "random_graph.h"
#include "two_view.h"

using namespace manymatch;

// One correspondence; points in an image use two coordinates.
struct Match {
  double a[3], b[3];
};

// By the definition: the squared residual (NaN if undefined), and whether the other conditions of
// an inlier hold.
struct Expected {
  double r2;
  bool valid = true;
};

// Default limits; a case may redefine them.
struct UsualLimits {
  static constexpr int kBorderline = 0;  // edges per scene whose validity may change by rounding
  static constexpr double kScreened = 1.02;    // most edges that pass the screen, per inlier
  static constexpr bool kHugeMayFit = false;   // points with coordinates of 1e300 can be inliers
  static constexpr bool kDifferences = false;  // there is no kernel for derivatives
  static constexpr double kSumsTolerance = 1e-11;  // of normal equations, per edge
  static constexpr double kRefined = 1e-6;         // distance from the truth after a refinement
};

// A problem whose screen passes everything if `exact`, so that the loop scores every hypothesis
// exactly. One type for both cases, so that the loop is compiled once.
template <class P>
struct Screened : P {
  Screened(const Graph& graph, const typename P::Data& data, bool exactly = false)
      : P(graph, data), exact(exactly) {}

  int screen(const typename P::Model& model, int enough, std::span<uint64_t> mask) const {
    if (!exact) return P::screen(model, enough, mask);
    std::fill(mask.begin(), mask.end(), 0);
    const int edges = static_cast<int>(this->graph().num_edges());
    for (int e = 0; e < edges; ++e) set_bit(mask, e);
    return edges;
  }

  bool exact;
};

template <class Case>
class ProblemTests {
 public:
  using P = Screened<typename Case::Problem>;
  using Model = typename P::Model;
  using Truth = typename Case::Truth;

  static void run() {
    for_each_instruction_set([](const char*) {
      test_definition();
      test_screen_is_a_superset();
      test_bad_points();
      test_solving_does_not_depend_on_the_batch();
      for (int count : {1, 7, 8, 9, 50}) test_derivatives_and_normal_equations(count);
      test_refinement_finds_the_truth();
      test_workspace_history_changes_nothing();
      test_screening_changes_nothing();
    });
    for (int count : {5, 64, 301}) test_instruction_sets_agree(count);
  }

 private:
  static constexpr int kDimension0 = P::kDimension0, kDimension1 = P::kDimension1;
  static constexpr int kRows = Case::kRows, kParameters = Case::kParameters;
  static constexpr int kSums = kParameters * (kParameters + 1) / 2 + kParameters + 1;
  static constexpr Loss kLosses[] = {Loss::kSquared, Loss::kTruncated, Loss::kCauchy};

  // Noisy correspondences of one model, every third one wrong; edge i joins point i with point i.
  struct Scene {
    std::vector<double> x0, x1;
    Graph graph{{}, {}, 0, 0};

    Scene(Source& random, const Truth& truth, int count, double noise) {
      Edges edges;
      for (int i = 0; i < count; ++i) {
        const Match m = truth.match(random, noise, i % 3 == 0);
        x0.insert(x0.end(), m.a, m.a + kDimension0);
        x1.insert(x1.end(), m.b, m.b + kDimension1);
        edges.emplace_back(i, i);
      }
      graph = make_graph(edges, count, count);
    }
    typename P::Data data(double eps) const {
      const VertexPoints points{x0, x1, eps};
      if constexpr (requires { Case::data(points); }) {
        return Case::data(points);
      } else {
        return typename P::Data(points);
      }
    }
    std::size_t edges() const { return graph.num_edges(); }
    Mask mask() const { return Mask(graph.words()); }
    std::vector<double> residuals() const { return std::vector<double>(graph.words() * 64); }
  };

  static bool equal(const Model& a, const Model& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
  static bool contains(const Mask& all, const Mask& some) {
    for (std::size_t w = 0; w < all.size(); ++w) {
      if (some[w] & ~all[w]) return false;
    }
    return true;
  }

  static void test_definition() {
    Source random(64);
    int inliers = 0, invalid = 0;
    for (int repeat = 0; repeat < 40; ++repeat) {
      const Truth truth(random, repeat % 2);
      const Scene scene(random, truth, 150, 0.01);
      const P problem(scene.graph, scene.data(0.01));
      Mask mask = scene.mask();
      std::vector<double> r2 = scene.residuals();
      const int count = problem.inliers(truth.model, mask, r2);
      CHECK_EQ(count, count_bits(mask));
      inliers += count;
      int different = 0;
      for (std::size_t e = 0; e < scene.edges(); ++e) {
        const Expected expected =
            Case::expected(truth.model, &scene.x0[kDimension0 * e], &scene.x1[kDimension1 * e]);
        invalid += !expected.valid;
        if (std::isnan(expected.r2)) {
          CHECK(std::isnan(r2[e]) && !has_bit(mask, e));
          continue;
        }
        CHECK_NEAR(r2[e], expected.r2, 1e-9 * expected.r2 + 1e-15);
        different += (expected.r2 < 1e-4 && expected.valid) != has_bit(mask, e);
      }
      CHECK(different <= Case::kBorderline);
      for (std::size_t e = scene.edges(); e < r2.size(); ++e) CHECK(!has_bit(mask, e));
    }
    CHECK(inliers > 500);
    CHECK_EQ(invalid > 0, Case::kValidity);
  }

  // Tries thresholds that are just above the residual of an edge.
  static void test_screen_is_a_superset() {
    Source random(65);
    int kept = 0, offered = 0;
    for (int kind = 0; kind < 4; ++kind) {
      for (int repeat = 0; repeat < 10; ++repeat) {
        const Truth truth(random, kind);
        Scene scene(random, truth, 300, std::pow(10.0, random.in(-7, -1)));
        const bool scaled = repeat % 3 == 2;
        if (scaled) {
          for (double& x : scene.x0) x *= 50;
        }
        std::vector<double> thresholds = {1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e12};
        Mask exact = scene.mask(), loose = exact;
        std::vector<double> r2 = scene.residuals();
        P(scene.graph, scene.data(1.0)).inliers(truth.model, exact, r2);
        for (std::size_t e = 0; e < scene.edges(); e += 5) {
          if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
        }
        for (double eps : thresholds) {
          const P problem(scene.graph, scene.data(eps));
          const int inliers = problem.inliers(truth.model, exact, {});
          for (int enough : {0, inliers + 1, 1 << 30}) {
            const int count = problem.screen(truth.model, enough, loose);
            CHECK_EQ(count, count_bits(loose));
            CHECK(contains(loose, exact));
            if (enough == 0 && kind < 3 && !scaled && eps > 1e-3 && eps < 1e-1) {
              kept += count;
              offered += inliers;
            }
          }
        }
      }
    }
    std::cerr << kept << " edges screened, " << offered << " inliers\n";
    CHECK(offered > 500 && kept < Case::kScreened * offered);
  }

  // NaN, infinite and huge coordinates make an edge an outlier of every model.
  static void test_bad_points() {
    Source random(66);
    const Truth truth(random, 0);
    Scene scene(random, truth, 90, 0.0);
    const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
    for (std::size_t e = 0; e < 24; ++e) {
      if (e % 2) scene.x0[kDimension0 * e + e / 8 % kDimension0] = bad[e / 2 % 4];
      if (e % 2 == 0) scene.x1[kDimension1 * e + e / 8 % kDimension1] = bad[e / 2 % 4];
    }
    const P problem(scene.graph, scene.data(1e-3));
    Mask exact = scene.mask(), loose = exact;
    std::vector<double> r2 = scene.residuals();
    CHECK(problem.inliers(truth.model, exact, r2) > 10);
    problem.screen(truth.model, 0, loose);
    CHECK(contains(loose, exact));
    for (std::size_t e = 0; e < 24; ++e) {
      if (Case::kHugeMayFit && e / 2 % 4 == 3) continue;
      CHECK(!has_bit(exact, e) && !has_bit(loose, e) && !(r2[e] < 1e100));
    }
  }

  // A sample has the same models, bit for bit, alone and in a batch.
  static void test_solving_does_not_depend_on_the_batch() {
    Source random(62);
    constexpr int kSamples = 37, kSize = P::kSampleSize;
    const Truth truth(random, 0);
    const Scene scene(random, truth, kSamples * kSize, 1e-4);
    const P problem(scene.graph, scene.data(0.1));
    typename P::Workspace space = problem.workspace();
    std::vector<int> samples(kSamples * kSize);
    std::iota(samples.begin(), samples.end(), 0);
    std::erase_if(samples, [](int e) { return e % 3 == 0; });  // keep the true ones
    samples.resize(samples.size() / kSize * kSize);
    Solutions<Model> together, alone;
    problem.solve(samples, space, together);
    std::size_t next = 0;
    for (std::size_t i = 0; i < samples.size() / kSize; ++i) {
      problem.solve(std::span(samples).subspan(kSize * i, kSize), space, alone);
      for (std::size_t s = 0; s < alone.models.size(); ++s, ++next) {
        CHECK(next < together.models.size() && together.sample[next] == static_cast<int>(i) &&
              alone.sample[s] == 0 && equal(alone.models[s], together.models[next]));
      }
    }
    CHECK_EQ(next, together.models.size());
    CHECK(next > 5);
    problem.solve({}, space, alone);
    CHECK(alone.models.empty());
  }

  // Noisy true correspondences in the form of a refinement; some weights are zero.
  struct Columns {
    RefineColumns columns;
    AlignedVector<double> weights;
    std::size_t count;

    Columns(Source& random, const Truth& truth, int edges, double noise) : count(at(edges)) {
      weights.assign((count + 7) / 8 * 8, 0.0);
      columns.resize(count, weights.size(), kDimension0, kDimension1);
      for (std::size_t i = 0; i < count; ++i) {
        const Match m = truth.match(random, noise, false);
        columns.x0[i] = m.a[0], columns.y0[i] = m.a[1];
        columns.x1[i] = m.b[0], columns.y1[i] = m.b[1];
        if (kDimension0 == 3) columns.z0[i] = m.a[2];
        if (kDimension1 == 3) columns.z1[i] = m.b[2];
        weights[i] = i % 5 == 4 ? 0.0 : random.in(0.1, 2.0);
      }
    }
    RefineArrays arrays() const { return columns.arrays(weights); }
  };

  struct Rows {
    std::vector<double> r, J;
    Rows(const Columns& c, const Model& model)
        : r(kRows * c.weights.size()), J(kRows * kParameters * c.weights.size()) {
      Case::jacobian(c.arrays(), model, r.data(), J.data());
    }
  };

  // Compares derivatives with finite differences, and normal equations with derivatives.
  static void test_derivatives_and_normal_equations(int count) {
    Source random(70 + static_cast<uint64_t>(count));
    const Truth truth(random, 0);
    const Columns c(random, truth, count, 0.02);
    const Rows rows(c, truth.model);
    const std::size_t used = kRows * c.count;
    for (int k = 0; k < (Case::kDifferences ? 0 : kParameters); ++k) {
      double forward[kParameters] = {}, back[kParameters] = {};
      forward[k] = 1e-6;
      back[k] = -1e-6;
      const Rows up(c, Case::moved(truth.model, forward)), down(c, Case::moved(truth.model, back));
      for (std::size_t i = 0; i < used; ++i) {
        const double difference = (up.r[i] - down.r[i]) / 2e-6;
        CHECK_NEAR(rows.J[kParameters * i + at(k)], difference, 1e-6 * (1 + std::abs(difference)));
      }
    }
    constexpr double eps2 = 1e-4;
    std::vector<double> r2(c.weights.size());
    Case::residuals(c.arrays(), truth.model, r2.data());
    for (Loss loss : kLosses) {
      double out[kSums], expected[kSums] = {};
      Case::normal_equations(c.arrays(), truth.model, loss, eps2, out);
      for (std::size_t i = 0; i < c.count; ++i) {
        const double* r = &rows.r[kRows * i];
        const double square = std::inner_product(r, r + kRows, r, 0.0);
        CHECK_NEAR(r2[i], square, 1e-12 * square + 1e-20);
        double robust = 1.0, cost = square;
        if (loss == Loss::kTruncated && !(square < eps2)) robust = 0.0, cost = eps2;
        if (loss == Loss::kCauchy) robust = 1.0 / (1.0 + square / eps2), cost = 0.0;
        for (std::size_t row = 0; row < kRows; ++row) {
          const double* J = &rows.J[kParameters * (kRows * i + row)];
          const double w = c.weights[i] * robust;
          int slot = 0;
          for (int a = 0; a < kParameters; ++a) {
            for (int b = a; b < kParameters; ++b) expected[slot++] += w * J[a] * J[b];
          }
          for (int a = 0; a < kParameters; ++a) expected[slot++] += w * J[a] * r[row];
        }
        expected[kSums - 1] += c.weights[i] * cost;
      }
      for (int k = 0; k < kSums; ++k) {
        CHECK_NEAR(out[k], expected[k], Case::kSumsTolerance * count * (1 + std::abs(expected[k])));
      }
    }
  }

  // With exact points, a refinement finds the true model.
  static void test_refinement_finds_the_truth() {
    Source random(67);
    for (int repeat = 0; repeat < 10; ++repeat) {
      const Truth truth(random, 0);
      Columns c(random, truth, 60, 0.0);
      Model model = Case::nearby(random, truth.model);
      const LmResult result = Case::refine(model, c.columns, c.weights);
      CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
      CHECK(Case::error(model, truth.model) < Case::kRefined);
    }
  }

  // Results do not depend on earlier uses of a workspace: a remembered refinement equals a computed
  // one.
  static void test_workspace_history_changes_nothing() {
    Source random(52);
    const Truth truth(random, 0);
    const Scene scene(random, truth, 60, 0.008);
    const P problem(scene.graph, scene.data(0.01));
    Refiner<P> refiner(problem, Weighting::kByDegree);
    typename P::Workspace used = problem.workspace();
    for (int repeat = 0; repeat < 200; ++repeat) {
      double step[kParameters];
      for (double& s : step) s = random.in(-1e-3, 1e-3);
      Model a = Case::moved(truth.model, step), b = a;
      typename P::Workspace fresh = problem.workspace();
      const LmResult with = refiner.local_refine(a, used);
      const LmResult without = refiner.local_refine(b, fresh);
      CHECK(equal(a, b) && with.cost == without.cost && with.iterations == without.iterations);
    }
  }

  struct Found {
    SearchResult<Model> result;
    std::vector<typename Pool<Model>::Entry> pool;
  };
  static Found search(const Scene& scene, double eps, bool exact, int threads) {
    const P problem(scene.graph, scene.data(eps), exact);
    const HcmTerms terms(scene.graph, 0.3, 0.01);
    std::vector<int> all(scene.edges());
    std::iota(all.begin(), all.end(), 0);
    const Proposals proposals(scene.graph, all, false);
    Options options;
    options.min_iterations = 600;
    options.max_iterations = 1500;
    Workers workers(threads);
    Interrupt interrupt;
    Pool<Model> pool(30);
    Found out;
    out.result = LoRansac<P, HcmScorer>(
                     problem, proposals, options, Weighting::kByDegree,
                     [&] { return HcmScorer(scene.graph, terms); }, workers, interrupt)
                     .run(&pool);
    out.pool = pool.entries();
    return out;
  }

  // The loop finds the same model as one that scores every hypothesis in float64, for any number of
  // threads.
  static void test_screening_changes_nothing() {
    Source random(53);
    std::size_t kept = 0;
    for (double eps : {1e-6, 1e-5, 1e-3, 0.02}) {
      const Scene scene(random, Truth(random, 0), 200, 1.2 * eps);
      const Found exact = search(scene, eps, true, 1);
      CHECK(exact.result.found);
      for (int threads : {1, 2}) {
        const Found screened = search(scene, eps, false, threads);
        CHECK(equal(screened.result.model, exact.result.model));
        CHECK_EQ(screened.result.iterations, exact.result.iterations);
        CHECK_EQ(screened.result.refinements, exact.result.refinements);
        CHECK_EQ(screened.pool.size(), exact.pool.size());
        for (const auto& a : exact.pool) {
          CHECK(std::any_of(screened.pool.begin(), screened.pool.end(), [&](const auto& b) {
            return a.score == b.score && equal(a.model, b.model);
          }));
          ++kept;
        }
      }
    }
    CHECK(kept > 200);
  }

  // Instruction sets with fused operations give the same bits; the baseline differs by rounding.
  static void test_instruction_sets_agree(int count) {
    Source random(71);
    const Truth truth(random, 0);
    const Columns c(random, truth, count, 1e-3);
    const Scene scene(random, truth, 200, 0.02);
    const P problem(scene.graph, scene.data(0.01));
    typename P::Workspace space = problem.workspace();
    std::vector<int> samples(kBatch / 4 * P::kSampleSize);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int>(7 * i % 200);
    std::vector<double> first;
    for_each_instruction_set([&](const char* name) {
      const bool baseline = std::strcmp(name, "baseline") == 0;
      const Rows rows(c, truth.model);
      std::vector<double> all, r2(c.weights.size());
      Case::residuals(c.arrays(), truth.model, r2.data());
      // Values beyond the edges belong to the padding and may be anything.
      all.insert(all.end(), rows.r.data(), rows.r.data() + kRows * c.count);
      all.insert(all.end(), rows.J.data(), rows.J.data() + kRows * kParameters * c.count);
      all.insert(all.end(), r2.data(), r2.data() + c.count);
      for (Loss loss : kLosses) {
        double out[kSums];
        Case::normal_equations(c.arrays(), truth.model, loss, 1e-6, out);
        all.insert(all.end(), out, out + kSums);
      }
      Mask mask = scene.mask();
      std::vector<double> distances = scene.residuals();
      all.push_back(problem.inliers(truth.model, mask, distances));
      for (double d : distances) all.push_back(std::isnan(d) ? -1.0 : d);
      if (!baseline) {  // rounding decides whether a nearly double root exists
        Solutions<Model> solutions;
        problem.solve(samples, space, solutions);
        for (const Model& model : solutions.models) {
          const std::size_t begin = all.size();
          static_assert(sizeof model % sizeof(double) == 0);
          all.resize(begin + sizeof model / sizeof(double));
          std::memcpy(&all[begin], &model, sizeof model);
        }
      }
      if (first.empty()) {
        first = all;
      } else if (!baseline) {
        CHECK(all.size() == first.size() &&
              std::memcmp(first.data(), all.data(), all.size() * sizeof(double)) == 0);
      } else {
        for (std::size_t i = 0; i < std::min(all.size(), first.size()); ++i) {
          CHECK_NEAR(all[i], first[i], 1e-9 * (1e-3 + std::abs(first[i])));
        }
      }
    });
  }
};

template <class Case>
void test_problem() {
  ProblemTests<Case>::run();
}

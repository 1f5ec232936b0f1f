// Every method of the estimator on a problem that is not part of the library.
#include <cstring>
#include <numeric>
#include <set>

#include "check.h"
#include "manymatch/estimator.h"
#include "translation.h"

namespace {

constexpr Method kMethods[] = {Method::kAuto, Method::kHcmMcm, Method::kHcm, Method::kMcm,
                               Method::kCm};

using Found = ModelEstimate<Shift>;

struct Scene : Toy {
  std::vector<int32_t> ends, rank;
  std::vector<double> points0, points1;  // in pixels

  Scene() {
    for (const auto& [l, r] : edges) {
      ends.insert(ends.end(), {l, r});
      rank.push_back(l == r ? 1 : 2);
    }
    for (std::size_t i = 0; i < data.x0.size(); ++i) {
      points0.insert(points0.end(), {50 * data.x0[i], 50 * data.y0[i]});
      points1.insert(points1.end(), {50 * data.x1[i], 50 * data.y1[i]});
    }
  }
  GraphInput input(bool hints) const {
    GraphInput in{kPoints, kPoints, ends, {}, {}};
    if (hints) {
      in.rank = rank;
      in.points0 = points0;
      in.points1 = points1;
    }
    return in;
  }
};

Options quick_options(int threads) {
  Options options;
  options.min_iterations = 300;
  options.max_iterations = 3000;
  options.pool_size = 20;
  options.seed = 5;
  options.threads = threads;
  return options;
}

Found run(const Scene& scene, const GraphInput& input, Method method, const Options& options) {
  Interrupt interrupt;
  return estimate<TranslationProblem>(input, scene.data, method, options, interrupt);
}

bool same(const Found& a, const Found& b) {
  return a.model.dx == b.model.dx && a.model.dy == b.model.dy && a.inliers == b.inliers &&
         a.matched == b.matched && a.hcm == b.hcm && a.iterations == b.iterations &&
         a.refinements == b.refinements && a.kept == b.kept && a.failure == b.failure;
}

void test_methods(const Scene& scene) {
  for (Method method : kMethods) {
    for (bool hints : {false, true}) {
      const GraphInput input = scene.input(hints);
      const Found one = run(scene, input, method, quick_options(1));
      CHECK(one.success && one.failure.empty());
      CHECK_NEAR(one.model.dx, 3.0, 0.01);
      CHECK_NEAR(one.model.dy, -2.0, 0.01);
      CHECK(one.cardinality >= 38 && one.cardinality <= Toy::kPoints);
      int right = 0;
      for (int64_t e : one.matched) {
        const auto& [l, r] = scene.edges[static_cast<std::size_t>(e)];
        right += l == r;
      }
      CHECK(right >= one.cardinality - 1);
      CHECK_EQ(one.kept.size(), method == Method::kAuto && hints ? scene.edges.size() : 0);
      for (int threads : {2, 8}) {
        CHECK(same(run(scene, input, method, quick_options(threads)), one));
      }
      const ModelScore exact = score<TranslationProblem>(input, scene.data, one.model, 0.3, 0.01);
      CHECK_EQ(exact.hcm, one.hcm);
      CHECK_EQ(exact.cardinality, one.cardinality);
      CHECK(exact.inliers == one.inliers);
    }
  }
}

// Parts of "auto" can be switched off one by one.
void test_parts(const Scene& scene) {
  for (unsigned part = 1; part <= kPolishPart; part *= 2) {
    Options options = quick_options(2);
    options.disabled = part;
    const Found found = run(scene, scene.input(true), Method::kAuto, options);
    CHECK(found.success);
    CHECK_NEAR(found.model.dx, 3.0, 0.02);
    CHECK_EQ(found.kept.empty(), part == kFilterPart);
  }
}

void test_many(const Scene& scene) {
  const std::vector<GraphInput> inputs(3, scene.input(true));
  const std::vector<TranslationData> data(3, scene.data);
  std::vector<Options> options(3, quick_options(1));
  options[1].seed = 8;
  for (Method method : kMethods) {
    Interrupt interrupt;
    const auto all = estimate_many<TranslationProblem>(inputs, data, method, options, 2, interrupt);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(same(all[i], run(scene, inputs[i], method, options[i])));
    }
  }
}

// Failure messages name the sample size and the model of this problem.
void test_failures(const Scene& scene) {
  const std::vector<int32_t> one_edge = {0, 0}, star = {0, 0, 0, 1, 0, 2};
  GraphInput input{Toy::kPoints, Toy::kPoints, one_edge, {}, {}};
  const Options options = quick_options(1);
  for (Method method : kMethods) {
    CHECK(run(scene, input, method, options).failure == "the graph has 1 edge, two are needed");
  }
  input.edges = star;
  CHECK(run(scene, input, Method::kAuto, options).failure ==
        "at most 1 edge can hold at the same time (one partner per keypoint), two are needed");
  CHECK(run(scene, input, Method::kCm, options).failure ==
        "the best shift has 1 match, two are needed");
}

// If a polish moves the model away from its inliers, the estimate is the unpolished model.
void test_spoiled_polish_falls_back_to_unpolished_model(Scene scene) {
  scene.data.spoil_polish = 1e6;
  for (Method method : kMethods) {
    for (unsigned disabled : {0U, unsigned{kPolishPart}}) {
      Options options = quick_options(1);
      options.disabled = disabled;
      const Found found = run(scene, scene.input(true), method, options);
      CHECK(found.success && found.cardinality >= 38);
      CHECK_NEAR(found.model.dx, 3.0, 0.02);
    }
  }
}

}  // namespace

int main() {
  const Scene scene;
  test_methods(scene);
  test_parts(scene);
  test_many(scene);
  test_failures(scene);
  test_spoiled_polish_falls_back_to_unpolished_model(scene);
  return check::finish();
}

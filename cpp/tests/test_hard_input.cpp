// Input without a pose, or with hardly one: the estimator returns a valid answer or a reason.
#include <limits>

#include "check.h"
#include "two_view_pair.h"

namespace {

void check_sound(const Pair& pair, const PoseEstimate& estimate) {
  CHECK_EQ(estimate.success, estimate.failure.empty());
  CHECK(is_finite(estimate.model) && std::isfinite(estimate.hcm));
  Pose pose = estimate.model;
  normalise(pose);
  CHECK(distance(estimate.model.R, estimate.model.t, pose) < 1e-9);
  CHECK_EQ(estimate.inliers.size(), pair.edges.size() / 2);
  CHECK_EQ(static_cast<int>(estimate.matched.size()), estimate.cardinality);
  CHECK(estimate.cardinality <= estimate.num_inliers);
  CHECK(estimate.cardinality >= 5 || (!estimate.success && estimate.num_inliers == 0));
}

// Runs all methods with one and three threads. `expect`: 1 success, 0 failure, -1 either.
void run_all(const Pair& pair, int expect) {
  for (Method method : kMethods) {
    Options options = quick_options();
    options.max_iterations = 1000;
    Interrupt interrupt;
    const PoseEstimate one = estimate_pose(pair, method, options, interrupt);
    check_sound(pair, one);
    options.threads = 3;
    const PoseEstimate three = estimate_pose(pair, method, options, interrupt);
    CHECK_EQ(three.success, one.success);
    CHECK_EQ(distance(three.model.R, three.model.t, one.model), 0.0);
    CHECK(three.matched == one.matched);
    if (expect >= 0) CHECK_EQ(one.success, expect == 1);
    if (expect == 1) CHECK(distance(one.model.R, one.model.t, pair.pose) < 0.02);
  }
}

void test_bad_points() {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity(),
                        1e300,
                        -1e155,
                        1e30,
                        1e5};
  for (double value : bad) {
    Pair pair = random_pair(71, 60, 1);
    for (std::size_t i = 0; i < 60; i += 6) pair.x0[i] = pair.x1[i + 25] = value;
    run_all(pair, 1);
    for (double& x : pair.x0) x = value;
    run_all(pair, -1);
    for (double& x : pair.x1) x = value;
    run_all(pair, -1);
  }
}

void test_hub() {
  Pair pair = random_pair(72, 60, 1);
  for (int i = 1; i < 60; ++i) {
    for (const auto& [l, r] : Edges{{0, i}, {i, 0}}) {
      bool known = false;
      for (std::size_t e = 0; e < pair.edges.size(); e += 2) {
        known |= pair.edges[e] == l && pair.edges[e + 1] == r;
      }
      if (!known) pair.edges.insert(pair.edges.end(), {l, r});
    }
  }
  run_all(pair, 1);
}

void test_too_few() {
  for (int points : {0, 1, 4}) run_all(random_pair(73, points, 0), 0);
  run_all(random_pair(74, 5, 0), -1);
  Pair none = random_pair(75, 10, 0);
  none.edges.clear();
  run_all(none, 0);
}

// Stars: at most four edges can be true together, which only CM ignores.
void test_stars() {
  for (int centres : {1, 4}) {
    Pair pair = random_pair(76, 30, 0);
    pair.edges.clear();
    for (int i = 0; i < 30; ++i) {
      for (int c = 0; c < centres; ++c) pair.edges.insert(pair.edges.end(), {i, c});
    }
    if (centres == 1) pair.x1.resize(2);
    for (Method method : kMethods) {
      Interrupt interrupt;
      const PoseEstimate e = estimate_pose(pair, method, quick_options(), interrupt);
      check_sound(pair, e);
      if (method != Method::kCm) CHECK(!e.success && e.iterations == 0);
    }
  }
}

void test_no_geometry() {
  Pair equal = random_pair(77, 40, 1);
  for (double& x : equal.x0) x = 0.25;
  for (double& x : equal.x1) x = 0.25;
  run_all(equal, -1);
  Pair still = random_pair(78, 40, 0);
  still.x1 = still.x0;  // no motion at all
  run_all(still, -1);
  Pair line = random_pair(79, 40, 1);
  for (std::size_t i = 0; i < line.x0.size(); i += 2) line.x0[i + 1] = line.x1[i + 1] = 0.0;
  run_all(line, -1);
  Pair noise = random_pair(80, 40, 1);
  Source random(81);
  for (double& x : noise.x1) x = random.in(-1, 1);
  run_all(noise, -1);
}

// Cameras that hardly move: noise decides the signs of the depths.
void test_nearly_static() {
  for (uint64_t seed = 100; seed < 140; ++seed) {
    Pair pair = random_pair(seed, seed % 2 ? 8 : 30, 0);
    Source random(seed);
    for (std::size_t i = 0; i < pair.x0.size(); ++i) {
      pair.x1[i] = pair.x0[i] + random.in(-1, 1) * pair.eps * (seed % 4 + 1) / 4;
    }
    run_all(pair, -1);
  }
}

void test_score_without_edges() {
  for (int points : {0, 5}) {
    Pair pair = random_pair(82, points, 0);
    pair.edges.clear();
    const ModelScore score =
        manymatch::score<RelativePoseProblem>(pair.input(), pair.points(), Pose{}, 0.3, 0.01);
    CHECK_EQ(score.hcm, 0.0);
    CHECK(score.cardinality == 0 && score.num_inliers == 0);
    CHECK(score.inliers.empty() && score.r2.empty());
  }
}

}  // namespace

int main() {
  test_bad_points();
  test_hub();
  test_too_few();
  test_stars();
  test_no_geometry();
  test_nearly_static();
  test_score_without_edges();
  return check::finish();
}

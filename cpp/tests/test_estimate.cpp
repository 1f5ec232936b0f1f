// The whole estimator finds the pose, gives the same result for any number of threads, and can be
// interrupted.
#include <cstring>

#include "check.h"
#include "manymatch/estimate.h"
#include "two_view_pair.h"

namespace {

PoseEstimate run(const Pair& pair, Method method, const Options& options) {
  Interrupt interrupt;
  return estimate_pose(pair, method, options, interrupt);
}

bool same(const PoseEstimate& a, const PoseEstimate& b) {
  return a.success == b.success && std::memcmp(&a.model, &b.model, sizeof a.model) == 0 &&
         a.inliers == b.inliers && a.matched == b.matched && a.hcm == b.hcm &&
         a.cardinality == b.cardinality && a.num_inliers == b.num_inliers &&
         a.iterations == b.iterations && a.refinements == b.refinements && a.failure == b.failure;
}

void test_methods_and_threads() {
  const Pair pair = random_pair(51, 80, 2);
  for (Method method : kMethods) {
    const PoseEstimate one = run(pair, method, quick_options());
    CHECK(one.success && one.failure.empty() && !one.interrupted);
    CHECK(distance(one.model.R, one.model.t, pair.pose) < 0.01);
    CHECK(one.cardinality >= 78 && one.cardinality <= 80);
    CHECK_EQ(static_cast<int>(one.matched.size()), one.cardinality);
    const ModelScore score =
        manymatch::score<RelativePoseProblem>(pair.input(), pair.points(), one.model, 0.3, 0.01);
    CHECK_EQ(score.hcm, one.hcm);
    CHECK_EQ(score.cardinality, one.cardinality);
    CHECK_EQ(score.num_inliers, one.num_inliers);
    CHECK(score.inliers == one.inliers);
    std::set<int> left, right;
    for (int64_t e : one.matched) {
      CHECK(one.inliers[static_cast<std::size_t>(e)]);
      CHECK(left.insert(pair.edges[static_cast<std::size_t>(2 * e)]).second);
      CHECK(right.insert(pair.edges[static_cast<std::size_t>(2 * e + 1)]).second);
    }
    for (int threads : {1, 2, 8}) CHECK(same(run(pair, method, quick_options(threads)), one));
  }
}

// Ranks and proposals change the samples, not the pose.
void test_rank_and_proposals() {
  const Pair pair = random_pair(52, 80, 2);
  GraphInput input = pair.input();
  std::vector<int32_t> rank;
  std::vector<uint8_t> proposals;
  for (std::size_t e = 0; e < pair.edges.size(); e += 2) {
    rank.push_back(pair.edges[e] == pair.edges[e + 1] ? 1 : 2);
    proposals.push_back(pair.edges[e] < 60);
  }
  input.rank = rank;
  input.proposals = proposals;
  Options options = quick_options();
  options.guidance = 0.5;
  for (Method method : kMethods) {
    Interrupt interrupt;
    const PoseEstimate estimate =
        manymatch::estimate<RelativePoseProblem>(input, pair.points(), method, options, interrupt);
    CHECK(estimate.success && distance(estimate.model.R, estimate.model.t, pair.pose) < 0.01);
  }
}

void test_many() {
  std::vector<Pair> pairs;
  for (uint64_t seed = 60; seed < 65; ++seed) pairs.push_back(random_pair(seed, 40, 1));
  pairs.push_back(random_pair(65, 3, 0));  // fails
  std::vector<GraphInput> inputs;
  std::vector<VertexPoints> points;
  for (const Pair& pair : pairs) {
    inputs.push_back(pair.input());
    points.push_back(pair.points());
  }
  const std::vector<Options> options(pairs.size(), quick_options());
  for (Method method : kMethods) {
    for (int threads : {1, 3}) {
      Interrupt interrupt;
      const auto together =
          estimate_many<RelativePoseProblem>(inputs, points, method, options, threads, interrupt);
      CHECK_EQ(together.size(), pairs.size());
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        CHECK(same(together[i], run(pairs[i], method, options[i])));
      }
      CHECK(!together.back().success);
    }
  }
}

// Without the interrupt these searches would take hours.
void test_interrupt() {
  const Pair pair = random_pair(53, 60, 2);
  for (Method method : kMethods) {
    for (int threads : {1, 2}) {
      Options options = quick_options(threads);
      options.min_iterations = options.max_iterations = int64_t{1} << 40;
      int polls = 0;
      Interrupt interrupt([&polls] { return ++polls == 2; });
      const PoseEstimate estimate = estimate_pose(pair, method, options, interrupt);
      CHECK(estimate.interrupted && !estimate.success);
      CHECK_EQ(polls, 2);
      Interrupt another([] { return true; });
      const std::vector<GraphInput> inputs(3, pair.input());
      const std::vector<VertexPoints> points(3, pair.points());
      const std::vector<Options> each(3, options);
      estimate_many<RelativePoseProblem>(inputs, points, method, each, threads, another);
      CHECK(another.requested());
    }
  }
}

}  // namespace

int main() {
  test_methods_and_threads();
  test_rank_and_proposals();
  test_many();
  test_interrupt();
  return check::finish();
}

// The plain HCM of the benchmarks equals the exact score on every instruction set.
#include "check.h"
#include "manymatch/score/scorers.h"
#include "plain_graph.h"
#include "two_view_pair.h"

namespace {

constexpr double kQ = 0.3, kDelta = 0.01;

void test_plain_score_is_exact() {
  Source random(91);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Pair pair = random_pair(seed, 60, static_cast<int>(seed));
    const Graph graph = pair.input().graph();
    const HcmTerms terms(graph, kQ, kDelta);
    const RelativePoseProblem problem(graph, pair.points());
    PlainGraph plain(graph, Priors(graph, kQ, kDelta), pair.points());
    Mask mask(graph.words());
    for (int i = 0; i < 5; ++i) {
      double tangent[6], step[5];
      tangent_plane(pair.pose.t, tangent);
      for (double& s : step) s = random.in(-1e-3, 1e-3);
      const Pose pose = perturb(pair.pose, tangent, step);
      const double exact =
          score<RelativePoseProblem>(pair.input(), pair.points(), pose, kQ, kDelta).hcm;
      CHECK_NEAR(plain.hcm(pose), exact, 1e-12 * exact);
      // The search evaluates a superset of the inliers.
      problem.screen(pose, 0, mask);
      CHECK(HcmScorer(graph, terms).score(mask, {}) >= exact * (1 - 1e-12));
    }
  }
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) { test_plain_score_is_exact(); });
  return check::finish();
}

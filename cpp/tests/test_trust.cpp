// Trust in sources on a whole graph with two of them. The Python tests compare it with its
// definition.
#include <cstring>

#include "check.h"
#include "manymatch/score/trust.h"
#include "two_view_pair.h"

namespace {

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
  test_stacked_graph();
  return check::finish();
}

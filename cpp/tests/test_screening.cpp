// Screening in float32 loses no hypothesis that float64 would keep: compares the pools.
//
// The same search runs as it is and with every hypothesis scored in float64. Two more searches with
// a deliberately wrong bound show that the test notices a lost hypothesis.
#include <cstring>
#include <numeric>

#include "check.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "manymatch/ransac/lo_ransac.h"
#include "two_view_pair.h"

namespace {

// kExact passes everything, so that the loop scores every hypothesis exactly. kCareless subtracts
// the slack for rounding from the threshold instead of adding it. kForgetful misses one edge in
// forty.
enum class Screening { kAsItIs, kExact, kCareless, kForgetful };

// One type for all kinds, so that the loop is compiled once per scorer.
struct Screened : RelativePoseProblem {
  Screened(const Graph& g, const VertexPoints& given, Screening how = Screening::kAsItIs)
      : RelativePoseProblem(g, given), screening(how), points(6) {
    for (std::size_t e = 0; e < g.num_edges(); ++e) {
      const double* ends[] = {&given.x0[2 * at(g.left[e])], &given.x1[2 * at(g.right[e])]};
      for (std::size_t side = 0; side < 2; ++side) {
        const double x = ends[side][0], y = ends[side][1];
        const double values[] = {x, y, 1.0 / std::sqrt(x * x + y * y + 1.0)};
        for (std::size_t k = 0; k < 3; ++k) {
          points[3 * side + k].push_back(static_cast<float>(values[k]));
        }
      }
    }
    for (auto& column : points) column.resize(g.words() * 64, NAN);
  }

  int screen(const Pose& pose, int enough, std::span<uint64_t> mask) const {
    if (screening == Screening::kAsItIs) return RelativePoseProblem::screen(pose, enough, mask);
    if (screening == Screening::kCareless) {
      EdgeArrays arrays{};
      arrays.x0f = points[0].data();
      arrays.y0f = points[1].data();
      arrays.n0f = points[2].data();
      arrays.x1f = points[3].data();
      arrays.y1f = points[4].data();
      arrays.n1f = points[5].data();
      arrays.words = graph().words();
      return kernels<RelativePoseKernels>().screen(arrays, {pose.R, pose.t}, eps(), -3e-6, enough,
                                                   mask.data());
    }
    const bool exact = screening == Screening::kExact;
    if (exact) std::fill(mask.begin(), mask.end(), 0);
    if (!exact) RelativePoseProblem::screen(pose, 0, mask);
    for (std::size_t e = 0; e < graph().num_edges(); ++e) {
      if (exact) set_bit(mask, static_cast<int>(e));
      if (!exact && e % 40 == 7) mask[e / 64] &= ~(uint64_t{1} << (e % 64));
    }
    return count_bits(mask);
  }

  Screening screening;
  std::vector<std::vector<float>> points;
};

struct Outcome {
  SearchResult<Pose> result;
  std::vector<Pool<Pose>::Entry> pool;
};

template <class Scorer>
Outcome search(Screening screening, const Pair& pair, const Graph& graph,
               const std::function<Scorer()>& scorer, int pool_size, int threads) {
  const Screened problem(graph, pair.points(), screening);
  std::vector<int> all(graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(graph, all, false);
  Options options;
  options.seed = 11;
  options.min_iterations = 600;
  options.max_iterations = 1500;
  Workers workers(threads);
  Interrupt interrupt;
  Pool<Pose> pool(std::max(pool_size, 1));
  Outcome out;
  out.result = LoRansac<Screened, Scorer>(problem, proposals, options, Weighting::kByDegree, scorer,
                                          workers, interrupt)
                   .run(pool_size ? &pool : nullptr);
  out.pool = pool.entries();
  return out;
}

bool same(const Pose& a, const Pose& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Number of hypotheses in the first pool that are missing in the second.
int lost(const Outcome& exact, const Outcome& screened) {
  int count = 0;
  for (const auto& a : exact.pool) {
    count += std::none_of(screened.pool.begin(), screened.pool.end(), [&](const auto& b) {
      return a.score == b.score && same(a.model, b.model);
    });
  }
  return count;
}

bool same(const SearchResult<Pose>& a, const SearchResult<Pose>& b) {
  return a.found == b.found && same(a.model, b.model) && a.value.score == b.value.score &&
         a.value.inliers == b.value.inliers && a.iterations == b.iterations &&
         a.refinements == b.refinements;
}

// A pair whose threshold is about its noise, down to noise near the precision of float32.
Pair noisy_pair(uint64_t seed) {
  const int points = 60 + static_cast<int>(seed % 5) * 40, wrong = static_cast<int>(seed % 3);
  Pair pair = random_pair(seed, points, wrong, 0.0);
  Source random(seed + 1000);
  const double thresholds[] = {8e-6, 1e-5, 1e-4, 1e-3};
  pair.eps = thresholds[seed % 4];
  for (double& x : pair.x1) x += random.in(-2, 2) * pair.eps;
  return pair;
}

Graph graph_of(const Pair& pair) {
  Edges edges;
  for (std::size_t e = 0; e < pair.edges.size(); e += 2) {
    edges.emplace_back(pair.edges[e], pair.edges[e + 1]);
  }
  const auto size = [](const std::vector<double>& x) { return static_cast<int>(x.size() / 2); };
  return make_graph(edges, size(pair.x0), size(pair.x1));
}

void test() {
  int kept = 0, lost_screened = 0, lost_careless = 0, lost_forgetful = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Pair pair = noisy_pair(seed);
    const Graph graph = graph_of(pair);
    const HcmTerms terms(graph, 0.3, 0.01);
    const std::function<HcmScorer()> hcm = [&] { return HcmScorer(graph, terms); };
    const int pool = seed % 2 ? 100 : 20, threads = seed % 3 ? 1 : 2;
    const Outcome exact = search<HcmScorer>(Screening::kExact, pair, graph, hcm, pool, 1);
    const auto screened = search<HcmScorer>(Screening::kAsItIs, pair, graph, hcm, pool, threads);
    CHECK(exact.result.found && same(exact.result, screened.result));
    kept += static_cast<int>(exact.pool.size());
    lost_screened += lost(exact, screened);
    lost_careless +=
        lost(exact, search<HcmScorer>(Screening::kCareless, pair, graph, hcm, pool, 1));
    lost_forgetful +=
        lost(exact, search<HcmScorer>(Screening::kForgetful, pair, graph, hcm, pool, 1));

    const std::function<McmScorer()> mcm = [&] { return McmScorer(graph); };
    CHECK(same(search<McmScorer>(Screening::kExact, pair, graph, mcm, 0, 1).result,
               search<McmScorer>(Screening::kAsItIs, pair, graph, mcm, 0, threads).result));
    const std::function<CmScorer()> cm = [&] { return CmScorer(pair.eps * pair.eps); };
    CHECK(same(search<CmScorer>(Screening::kExact, pair, graph, cm, 0, 1).result,
               search<CmScorer>(Screening::kAsItIs, pair, graph, cm, 0, threads).result));
  }
  std::cerr << kept << " hypotheses kept in float64, " << lost_screened << " lost by the screen, "
            << lost_careless << " with the slack turned around, " << lost_forgetful
            << " when it misses edges\n";
  CHECK(kept > 1000);
  CHECK_EQ(lost_screened, 0);
  CHECK(lost_careless > 0);
  CHECK(lost_forgetful > 0);
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) { test(); });
  return check::finish();
}

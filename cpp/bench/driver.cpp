// Does a fixed piece of work, for counting instructions and for comparing machines.
//
//   driver TASK COUNT    e.g. driver hcm-mcm 4000
//
// The work is inside `manymatch_counted`, so that a profiler can exclude the preparation. Prints
// the results to the last bit.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "manymatch/associate/neighbours.h"
#include "manymatch/associate/unit_rows.h"
#include "manymatch/filter/gms.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "manymatch/ransac/sampler.h"
#include "manymatch/refine/refiner.h"
#include "manymatch/score/scorers.h"
#include "plain_graph.h"
#include "synthetic_pair.h"

using namespace manymatch;

extern "C" void manymatch_counted(const std::function<void()>& work) { work(); }

namespace {

// Called through a volatile pointer, so that the compiler does not inline or clone the function.
void (*volatile counted)(const std::function<void()>&) = manymatch_counted;

constexpr int kEdges = 1024;
constexpr double kRatio = 0.1, kQ = 0.3, kDelta = 0.01;

void estimate(Method method, int count) {
  const Pair pair = synthetic_pair(1, kEdges, kRatio);
  Options options;
  options.min_iterations = options.max_iterations = count;
  Interrupt interrupt;
  PoseEstimate found;
  counted([&] { found = estimate_pose(pair, method, options, interrupt); });
  for (double r : found.model.R) std::printf("%a ", r);
  for (double t : found.model.t) std::printf("%a ", t);
  std::printf("hcm %a cardinality %d\n", found.hcm, found.cardinality);
}

// Hypotheses of random samples, as in the search.
struct Hypotheses {
  static constexpr int kSampleSize = RelativePoseProblem::kSampleSize;
  static constexpr std::size_t kSamples = at(kSampleSize * kBatch);  // edges of one batch
  Pair pair = synthetic_pair(1, kEdges, kRatio);
  Graph graph = graph_of(pair);
  RelativePoseProblem problem{graph, pair.points()};
  RelativePoseProblem::Workspace space = problem.workspace();
  Refiner<RelativePoseProblem> refiner{problem, Weighting::kByDegree};
  std::vector<int> samples;
  int batches;

  explicit Hypotheses(int count) : batches((count + kBatch - 1) / kBatch) {
    std::vector<int> all(graph.num_edges());
    std::iota(all.begin(), all.end(), 0);
    const Proposals proposals(graph, all, false);
    Proposals::Scratch scratch = proposals.scratch();
    samples.resize(at(kSampleSize * kBatch * batches));
    int64_t wasted = 0;
    for (int i = 0; i < kBatch * batches; ++i)
      proposals.draw(0, i, scratch, std::span(samples).subspan(at(kSampleSize * i), kSampleSize),
                     &wasted);
  }

  void solve(std::vector<Pose>& out) {
    Solutions<Pose> solutions;
    for (int b = 0; b < batches; ++b) {
      problem.solve(std::span(samples).subspan(at(b) * kSamples, kSamples), space, solutions);
      out.insert(out.end(), solutions.models.begin(), solutions.models.end());
    }
  }
};

void five_point(int count) {
  Hypotheses h(count);
  std::vector<Pose> poses;
  counted([&] { h.solve(poses); });
  double sum = 0;
  for (const Pose& pose : poses) sum += pose.t[0];
  std::printf("%zu poses %a\n", poses.size(), sum);
}

// `make(hypotheses)` returns the function that scores one pose.
template <class Make>
void evaluations(int count, Make&& make) {
  Hypotheses h(std::min(count, 4096));
  std::vector<Pose> poses;
  h.solve(poses);
  auto evaluate = make(h);
  double sum = 0;
  counted([&] {
    for (int i = 0; i < count; ++i)
      sum += evaluate(poses[static_cast<std::size_t>(i) % poses.size()]);
  });
  std::printf("%a\n", sum);
}

template <class Scorer>
auto screened(Hypotheses& h, Scorer scorer) {
  return [&h, scorer, mask = Mask(h.graph.words())](const Pose& pose) mutable {
    h.problem.screen(pose, 0, mask);
    return scorer.score(mask, {});
  };
}

void hcm(int count) {
  Hypotheses source(kBatch);
  const HcmTerms terms(source.graph, kQ, kDelta);
  evaluations(count, [&](Hypotheses& h) { return screened(h, HcmScorer(source.graph, terms)); });
}

void mcm(int count) {
  evaluations(count, [](Hypotheses& h) { return screened(h, McmScorer(h.graph)); });
}

void plain(int count) {
  evaluations(count, [](Hypotheses& h) {
    PlainGraph graph(h.graph, Priors(h.graph, kQ, kDelta), h.pair.points());
    return [graph](const Pose& pose) mutable { return graph.hcm(pose); };
  });
}

void refine(int count) {
  Hypotheses h(kBatch);
  Source random(3);
  std::vector<Pose> poses(static_cast<std::size_t>(count), h.pair.pose);
  for (Pose& pose : poses) {
    double tangent[6], step[5];
    tangent_plane(pose.t, tangent);
    for (double& s : step) s = random.in(-1e-3, 1e-3);
    pose = perturb(pose, tangent, step);
  }
  counted([&] {
    for (Pose& pose : poses) h.refiner.local_refine(pose, h.space);
  });
  double sum = 0;
  for (const Pose& pose : poses) sum += pose.t[0];
  std::printf("%a\n", sum);
}

void gms(int count) {
  const Pair pair = synthetic_pair(2, 2 * kEdges, 0.3);
  const Graph graph = graph_of(pair);
  std::vector<double> points[2] = {pair.x0, pair.x1};
  for (auto& side : points) {
    for (std::size_t i = 0; i < side.size(); ++i) side[i] = 800 * side[i] + (i % 2 ? 480 : 512);
  }
  const double size[2] = {1024, 960};
  int kept = 0;
  counted([&] {
    for (int i = 0; i < count; ++i) {
      kept += gms_filter(graph, points[0], points[1], size, size, {}).num_kept;
    }
  });
  std::printf("%d kept\n", kept);
}

void neighbours(int count) {
  constexpr std::size_t n = 512, dimension = 32;
  Source random(4);
  std::vector<float> rows[2];
  for (auto& side : rows) {
    side.resize(n * dimension);
    for (float& x : side) x = static_cast<float>(random.in(-1, 1));
    for (std::size_t i = 0; i < n; ++i) {
      const std::vector<float> row(&side[i * dimension], &side[i * dimension] + dimension);
      unit_row(std::span(row), std::span(&side[i * dimension], dimension));
    }
  }
  bool valid[n];
  std::fill_n(valid, n, true);
  std::size_t edges = 0;
  counted([&] {
    for (int i = 0; i < count; ++i) {
      NeighbourSearch search({rows[0].data(), valid, n, dimension, {}, n},
                             {rows[1].data(), valid, n, dimension, {}, n}, 5, 5, 1);
      edges += search.edges(Operator::kMutual, 2048).rank.size();
    }
  });
  std::printf("%zu edges\n", edges);
}

const std::map<std::string, void (*)(int)> kTasks = {
    {"auto", [](int n) { estimate(Method::kAuto, n); }},
    {"hcm-mcm", [](int n) { estimate(Method::kHcmMcm, n); }},
    {"hcm", [](int n) { estimate(Method::kHcm, n); }},
    {"mcm", [](int n) { estimate(Method::kMcm, n); }},
    {"cm", [](int n) { estimate(Method::kCm, n); }},
    {"five-point", five_point},
    {"hcm-evaluation", hcm},
    {"mcm-evaluation", mcm},
    {"plain-hcm-evaluation", plain},
    {"refine", refine},
    {"gms", gms},
    {"neighbours", neighbours},
};

}  // namespace

int main(int argc, char** argv) {
  const auto task = kTasks.find(argc == 3 ? argv[1] : "");
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (task == kTasks.end() || count < 1) {
    std::fputs("driver TASK COUNT, where TASK is one of", stderr);
    for (const auto& [name, run] : kTasks) std::fprintf(stderr, " %s", name.c_str());
    std::fputs("\n", stderr);
    return 2;
  }
  std::printf("%s on %s: ", argv[1], name_of(instruction_set()));
  task->second(count);
  return 0;
}

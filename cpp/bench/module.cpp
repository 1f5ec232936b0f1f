// Timers of single evaluations, for the benchmarks.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "manymatch/problems/relative_pose.h"
#include "manymatch/score/scorers.h"
#include "plain_hcm.h"

namespace manymatch {

namespace {

using Rotations = In<double, nb::shape<-1, 3, 3>>;
using Translations = In<double, nb::shape<-1, 3>>;

// Seconds per evaluation over all poses, the minimum over repeats, and the scores.
using Measured = std::tuple<double, Out<double>>;

template <class Evaluate>
Measured measure(const std::vector<Pose>& poses, int repeats, Evaluate&& evaluate) {
  std::vector<double> scores(poses.size());
  double best = 1e300;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < poses.size(); ++i) scores[i] = evaluate(poses[i]);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return {best / static_cast<double>(poses.size()), to_numpy(std::move(scores))};
}

std::vector<Pose> to_poses(const Rotations& R, const Translations& t, int repeats) {
  check_length("t", t.shape(0), R.shape(0));
  if (R.shape(0) == 0 || repeats < 1) throw nb::value_error("R and repeats must not be empty");
  std::vector<Pose> poses(R.shape(0));
  for (std::size_t i = 0; i < poses.size(); ++i) {
    std::copy_n(R.data() + 9 * i, 9, poses[i].R);
    std::copy_n(t.data() + 3 * i, 3, poses[i].t);
  }
  return poses;
}

// Screen and score, as in the search loop.
template <class Scorer>
Measured screened(const RelativePoseProblem& problem, Scorer scorer, const std::vector<Pose>& poses,
                  int repeats) {
  Mask mask(problem.graph().words());
  return measure(poses, repeats, [&](const Pose& pose) {
    problem.screen(pose, 0, mask.data());
    return scorer.score(mask.data(), nullptr);
  });
}

Measured benchmark_hcm(const Points& x0, const Points& x1, const Edges& edges, double eps, double q,
                       double delta, const Rotations& R, const Translations& t, int repeats) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const RelativePoseProblem problem(graph, x0.data(), x1.data(), eps, true);
  const HcmTerms terms(graph, q, delta);
  return screened(problem, HcmScorer(graph, terms), to_poses(R, t, repeats), repeats);
}

Measured benchmark_mcm(const Points& x0, const Points& x1, const Edges& edges, double eps,
                       const Rotations& R, const Translations& t, int repeats) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const RelativePoseProblem problem(graph, x0.data(), x1.data(), eps, true);
  return screened(problem, McmScorer(graph), to_poses(R, t, repeats), repeats);
}

Measured benchmark_plain_hcm(const Points& x0, const Points& x1, const Edges& edges, double eps,
                             double q, double delta, const Rotations& R, const Translations& t,
                             int repeats) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const PlainGraph plain(graph, Priors(graph, q, delta), x0.data(), x1.data(), eps);
  std::vector<double> sum0(plain.a0.size()), sum1(plain.a1.size());
  const PlainHcm evaluate = plain_hcm();
  return measure(to_poses(R, t, repeats), repeats, [&](const Pose& pose) {
    return evaluate(plain, pose.R, pose.t, sum0.data(), sum1.data());
  });
}

}  // namespace

void bind_benchmark(nb::module_& m) {
  m.def("benchmark_hcm", &benchmark_hcm, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"),
        nb::arg("eps"), nb::arg("q"), nb::arg("delta"), nb::arg("R"), nb::arg("t"),
        nb::arg("repeats"),
        "Seconds per HCM evaluation as in the search, the minimum over repeats, and the scores of "
        "the screened inliers.");
  m.def("benchmark_mcm", &benchmark_mcm, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"),
        nb::arg("eps"), nb::arg("R"), nb::arg("t"), nb::arg("repeats"), "The same for MCM.");
  m.def("benchmark_plain_hcm", &benchmark_plain_hcm, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"),
        nb::arg("eps"), nb::arg("q"), nb::arg("delta"), nb::arg("R"), nb::arg("t"),
        nb::arg("repeats"),
        "The same for HCM written straight from its definition in float64, and the exact scores.");
}

}  // namespace manymatch

// The module `_bench`, which is not installed: code that the benchmarks compare with the core.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "plain_graph.h"
#include "poses.h"

namespace manymatch {

namespace {

std::tuple<double, Out<double>> plain_hcm(const Points& x0, const Points& x1, const Edges& edges,
                                          double eps, double q, double delta, const Matrices3& R,
                                          const Vectors3& t, int repeats) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  PlainGraph plain(graph, Priors(graph, q, delta), {view_of(x0), view_of(x1), eps});
  const std::vector<Pose> poses = to_poses(R, t);
  if (poses.empty() || repeats < 1) throw nb::value_error("R and repeats must not be empty");
  std::vector<double> scores(poses.size());
  double best = 1e300;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < poses.size(); ++i) scores[i] = plain.hcm(poses[i]);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return {best / static_cast<double>(poses.size()), to_numpy(std::move(scores))};
}

}  // namespace
}  // namespace manymatch

NB_MODULE(_bench, m) {
  namespace nb = nanobind;
  m.def(
      "plain_hcm", &manymatch::plain_hcm, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"),
      nb::arg("eps"), nb::arg("q"), nb::arg("delta"), nb::arg("R"), nb::arg("t"),
      nb::arg("repeats"),
      "Seconds per HCM evaluation by its definition in float64, the minimum over repeats, and the "
      "scores.");
}

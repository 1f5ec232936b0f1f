// Geometry: residuals, five-point, refinement.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "arrays.h"
#include "manymatch/kernels.h"
#include "manymatch/problems/relative_pose.h"

namespace manymatch {

namespace {

// Correspondences as a graph whose edge i joins point i with point i.
Graph identity_graph(const Points& x0, const Points& x1) {
  check_length("x1", x1.shape(0), x0.shape(0));
  std::vector<int> index(x0.shape(0));
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int>(i);
  const int n = static_cast<int>(index.size());
  return {index, index, n, n};
}

std::tuple<Out<double>, Out<bool>> sampson(const Points& x0, const Points& x1, const Matrix3& R,
                                           const Vector3& t) {
  const Graph graph = identity_graph(x0, x1);
  // With an infinite threshold only cheirality decides.
  const RelativePoseProblem problem(graph, x0.data(), x1.data(),
                                    std::numeric_limits<double>::infinity(), false);
  Mask mask(graph.words());
  std::vector<double> r2(graph.words() * 64);
  problem.inliers(to_pose(R, t), mask.data(), r2.data());
  r2.resize(graph.num_edges());
  std::vector<uint8_t> in_front(graph.num_edges(), 0);
  for_each_bit(mask.data(), mask.size(), [&](int e) { in_front[static_cast<std::size_t>(e)] = 1; });
  return {to_numpy(std::move(r2)), flags_to_numpy(in_front)};
}

std::tuple<Out<int64_t>, Out<double>, Out<double>> five_point(
    const In<double, nb::shape<-1, 5, 3>>& b0, const In<double, nb::shape<-1, 5, 3>>& b1) {
  check_length("b1", b1.shape(0), b0.shape(0));
  std::vector<int64_t> problem;
  std::vector<double> R, t;
  auto batch = std::make_unique<FivePointBatch>();
  auto solutions = std::make_unique<FivePointSolutions>();
  const std::size_t total = b0.shape(0);
  for (std::size_t first = 0; first < total; first += kFivePointBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kFivePointBatch, total - first));
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch->count); ++i) {
      for (std::size_t k = 0; k < 5; ++k) {
        for (std::size_t c = 0; c < 3; ++c) {
          batch->b0[k][c][i] = b0(first + i, k, c);
          batch->b1[k][c][i] = b1(first + i, k, c);
        }
      }
    }
    kernels().five_point(*batch, *solutions);
    for (int s = 0; s < solutions->count; ++s) {
      problem.push_back(static_cast<int64_t>(first) + solutions->problem[s]);
      R.insert(R.end(), solutions->R[s], solutions->R[s] + 9);
      t.insert(t.end(), solutions->t[s], solutions->t[s] + 3);
    }
  }
  const std::size_t count = problem.size();
  return {to_numpy(std::move(problem)), to_numpy(std::move(R), {count, 3, 3}),
          to_numpy(std::move(t), {count, 3})};
}

Gathered gathered_from(const Points& x0, const Points& x1, const double* weight) {
  check_length("x1", x1.shape(0), x0.shape(0));
  Gathered g;
  for (std::size_t i = 0; i < x0.shape(0); ++i) {
    g.add(x0(i, 0), x0(i, 1), x1(i, 0), x1(i, 1), weight ? weight[i] : 1.0);
  }
  g.pad();
  return g;
}

Loss to_loss(const std::string& name) {
  if (name == "truncated") return Loss::kTruncated;
  if (name == "cauchy") return Loss::kCauchy;
  if (name == "squared") return Loss::kSquared;
  throw nb::value_error(("loss must be truncated, cauchy or squared, got " + name).c_str());
}

std::tuple<Out<double>, Out<double>, double, double, int> refine(
    const Points& x0, const Points& x1, const Vector& weight, const Matrix3& R, const Vector3& t,
    double eps, const std::string& loss, int max_iterations) {
  check_length("weight", weight.shape(0), x0.shape(0));
  check_positive("eps", eps);
  Gathered g = gathered_from(x0, x1, weight.data());
  Pose pose = to_pose(R, t);
  const LmResult result = refine_pose(pose, g, to_loss(loss), eps * eps, max_iterations);
  return {rotation_to_numpy(pose), translation_to_numpy(pose), result.initial_cost, result.cost,
          result.iterations};
}

using Refined = std::tuple<Out<double>, Out<double>, double, double, Out<bool>, Out<double>>;

Refined refine_graph(const Points& x0, const Points& x1, const Edges& edges, double eps,
                     const Matrix3& R, const Vector3& t, bool polish) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const RelativePoseProblem problem(graph, x0.data(), x1.data(), eps, true);
  RelativePoseProblem::Workspace space = problem.workspace();
  Pose pose = to_pose(R, t);
  const LmResult result =
      polish ? problem.final_polish(pose, space) : problem.local_refine(pose, space);
  std::vector<uint8_t> used(graph.num_edges(), 0);
  std::vector<double> weight(graph.num_edges(), 0.0);
  for (std::size_t i = 0; i < space.gathered.edges.size(); ++i) {
    const auto e = static_cast<std::size_t>(space.gathered.edges[i]);
    used[e] = 1;
    weight[e] = space.gathered.weight[i];
  }
  return {rotation_to_numpy(pose), translation_to_numpy(pose), result.initial_cost, result.cost,
          flags_to_numpy(used),    to_numpy(std::move(weight))};
}

std::tuple<Out<double>, Out<double>> sampson_jacobian(const Points& x0, const Points& x1,
                                                      const Matrix3& R, const Vector3& t) {
  const Gathered g = gathered_from(x0, x1, nullptr);
  const Pose pose = to_pose(R, t);
  double tangent[6];
  tangent_plane(pose.t, tangent);
  std::vector<double> r(g.padded), J(g.padded * 5);
  kernels().jacobian(g.arrays(), pose.R, pose.t, tangent, r.data(), J.data());
  const std::size_t n = x0.shape(0);
  r.resize(n);
  J.resize(n * 5);
  return {to_numpy(std::move(r)), to_numpy(std::move(J), {n, 5})};
}

std::tuple<Out<double>, Out<double>, double> normal_equations(const Points& x0, const Points& x1,
                                                              const Vector& weight,
                                                              const Matrix3& R, const Vector3& t,
                                                              double eps, const std::string& loss) {
  check_length("weight", weight.shape(0), x0.shape(0));
  check_positive("eps", eps);
  Gathered g = gathered_from(x0, x1, weight.data());
  const Pose pose = to_pose(R, t);
  double tangent[6], out[21];
  tangent_plane(pose.t, tangent);
  kernels().normal_equations(g.arrays(), pose.R, pose.t, tangent, to_loss(loss), eps * eps, out);
  std::vector<double> JtJ(25), Jtr(out + 15, out + 20);
  int slot = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = i; j < 5; ++j, ++slot) JtJ[5 * i + j] = JtJ[5 * j + i] = out[slot];
  }
  Pose copy = pose;  // the Cauchy cost is summed by the optimiser
  const double cost = refine_pose(copy, g, to_loss(loss), eps * eps, 0).cost;
  return {to_numpy(std::move(JtJ), {5, 5}), to_numpy(std::move(Jtr)), cost};
}

std::tuple<Out<double>, Out<double>> perturb_pose(const Matrix3& R, const Vector3& t,
                                                  const In<double, nb::shape<5>>& step) {
  const Pose pose = to_pose(R, t);
  double tangent[6];
  tangent_plane(pose.t, tangent);
  const Pose moved = perturb(pose, tangent, step.data());
  return {rotation_to_numpy(moved), translation_to_numpy(moved)};
}

}  // namespace

void bind_geometry(nb::module_& m) {
  m.def("sampson", &sampson, nb::arg("x0"), nb::arg("x1"), nb::arg("R"), nb::arg("t"),
        "Squared Sampson distances (NaN where undefined) and whether both depths are positive.");
  m.def("five_point", &five_point, nb::arg("b0"), nb::arg("b1"),
        "All poses of each five-ray problem that see the five points: (problem, R, t).");
  m.def("refine", &refine, nb::arg("x0"), nb::arg("x1"), nb::arg("weight"), nb::arg("R"),
        nb::arg("t"), nb::arg("eps"), nb::arg("loss"), nb::arg("max_iterations"),
        "Levenberg-Marquardt on correspondences: (R, t, initial cost, cost, iterations).");
  m.def(
      "local_refine",
      [](const Points& x0, const Points& x1, const Edges& edges, double eps, const Matrix3& R,
         const Vector3& t) { return refine_graph(x0, x1, edges, eps, R, t, false); },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("R"), nb::arg("t"),
      "LocalRefine: (R, t, initial cost, cost, used edges, weights).");
  m.def(
      "final_polish",
      [](const Points& x0, const Points& x1, const Edges& edges, double eps, const Matrix3& R,
         const Vector3& t) { return refine_graph(x0, x1, edges, eps, R, t, true); },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("R"), nb::arg("t"),
      "FinalPolish: (R, t, initial cost, cost, used edges, weights).");
  m.def("sampson_jacobian", &sampson_jacobian, nb::arg("x0"), nb::arg("x1"), nb::arg("R"),
        nb::arg("t"), "Signed Sampson distances and their derivatives for perturb().");
  m.def("normal_equations", &normal_equations, nb::arg("x0"), nb::arg("x1"), nb::arg("weight"),
        nb::arg("R"), nb::arg("t"), nb::arg("eps"), nb::arg("loss"),
        "(J'WJ, J'Wr, cost) of the weighted robust problem.");
  m.def("perturb", &perturb_pose, nb::arg("R"), nb::arg("t"), nb::arg("step"),
        "R exp([step[:3]]x), and t moved in its tangent plane by step[3:].");
}

}  // namespace manymatch

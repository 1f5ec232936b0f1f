// Relative pose: the estimator, the exact score, and its parts (residuals, five-point, refinement).
#include <limits>

#include "estimate.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "manymatch/refine/refiner.h"
#include "manymatch/score/scorers.h"
#include "poses.h"

namespace manymatch {

namespace {

const RelativePoseKernels& pose_kernels() { return kernels<RelativePoseKernels>(); }

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
  // With an infinite threshold, only the depths decide which edges are inliers.
  const RelativePoseProblem problem(
      graph, {view_of(x0), view_of(x1), std::numeric_limits<double>::infinity()});
  Mask mask(graph.words());
  std::vector<double> r2(graph.words() * 64);
  problem.inliers(to_pose(R, t), mask, r2);
  r2.resize(graph.num_edges());
  return {to_numpy(std::move(r2)), flags_to_numpy(flags_of(mask, graph.num_edges()))};
}

// The score of a superset of the inliers found in float32, as in the search, or of the inliers.
template <Scorer S>
std::vector<double> screened(const RelativePoseProblem& problem, S scorer,
                             const std::vector<Pose>& poses, bool complete) {
  Mask mask(problem.graph().words());
  std::vector<double> r2(problem.graph().words() * 64);
  std::vector<double> scores;
  scores.reserve(poses.size());
  for (const Pose& pose : poses) {
    if (complete) {
      problem.inliers(pose, mask, r2);
    } else {
      problem.screen(pose, 0, mask);
    }
    scores.push_back(scorer.score(mask, {}));
  }
  return scores;
}

Out<double> screened_scores(const Points& x0, const Points& x1, const Edges& edges, double eps,
                            double q, double delta, const Matrices3& R, const Vectors3& t,
                            const std::string& mechanism, bool complete) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const RelativePoseProblem problem(graph, {view_of(x0), view_of(x1), eps});
  const std::vector<Pose> poses = to_poses(R, t);
  if (mechanism == "mcm") return to_numpy(screened(problem, McmScorer(graph), poses, complete));
  if (mechanism != "hcm") throw nb::value_error("mechanism must be hcm or mcm");
  const HcmTerms terms(graph, q, delta);
  return to_numpy(screened(problem, HcmScorer(graph, terms), poses, complete));
}

std::tuple<Out<int64_t>, Out<double>, Out<double>> five_point(
    const In<double, nb::shape<-1, 5, 3>>& b0, const In<double, nb::shape<-1, 5, 3>>& b1) {
  check_length("b1", b1.shape(0), b0.shape(0));
  std::vector<double> R, t;
  auto sample = solve_samples<FivePointBatch, FivePointSolutions>(
      b0.shape(0),
      [&](FivePointBatch& batch, std::size_t i, std::size_t s) {
        for (std::size_t k = 0; k < 5; ++k) {
          for (std::size_t c = 0; c < 3; ++c) {
            batch.b0[k][c][i] = b0(s, k, c);
            batch.b1[k][c][i] = b1(s, k, c);
          }
        }
      },
      pose_kernels().five_point,
      [&](const FivePointSolutions& found, int k) {
        append(R, found.R[k]);
        append(t, found.t[k]);
      });
  const std::size_t count = sample.size();
  return {to_numpy(std::move(sample)), to_numpy(std::move(R), {count, 3, 3}),
          to_numpy(std::move(t), {count, 3})};
}

std::tuple<Out<double>, Out<double>, double, double, int> refine(
    const Points& x0, const Points& x1, const Vector& weight, const Matrix3& R, const Vector3& t,
    double eps, const std::string& loss, int max_iterations) {
  check_length("weight", weight.shape(0), x0.shape(0));
  check_positive("eps", eps);
  RefineInput edges(x0, x1, view_of(weight));
  Pose pose = to_pose(R, t);
  const LmResult result =
      refine_pose(pose, edges.columns, edges.weights, to_loss(loss), eps * eps, max_iterations);
  return {rotation_to_numpy(pose), translation_to_numpy(pose), result.initial_cost, result.cost,
          result.iterations};
}

using Refined = std::tuple<Out<double>, Out<double>, double, double, Out<bool>, Out<double>>;

Refined refine_graph(const Points& x0, const Points& x1, const Edges& edges, double eps,
                     const Matrix3& R, const Vector3& t, bool polish) {
  check_positive("eps", eps);
  const Graph graph = to_graph(edges, x0.shape(0), x1.shape(0));
  const RelativePoseProblem problem(graph, {view_of(x0), view_of(x1), eps});
  RelativePoseProblem::Workspace space = problem.workspace();
  Refiner<RelativePoseProblem> refiner(problem, Weighting::kByDegree);
  Pose pose = to_pose(R, t);
  const LmResult result =
      polish ? refiner.final_polish(pose, space) : refiner.local_refine(pose, space);
  const GatheredEdges& gathered = refiner.gathered();
  std::vector<uint8_t> used(graph.num_edges(), 0);
  std::vector<double> weight(graph.num_edges(), 0.0);
  for (std::size_t i = 0; i < gathered.edges().size(); ++i) {
    const std::size_t e = at(gathered.edges()[i]);
    used[e] = 1;
    weight[e] = gathered.weights()[i];
  }
  return {rotation_to_numpy(pose), translation_to_numpy(pose), result.initial_cost, result.cost,
          flags_to_numpy(used),    to_numpy(std::move(weight))};
}

std::tuple<Out<double>, Out<double>> sampson_jacobian(const Points& x0, const Points& x1,
                                                      const Matrix3& R, const Vector3& t) {
  const RefineInput edges(x0, x1, {});
  const Pose pose = to_pose(R, t);
  double tangent[6];
  tangent_plane(pose.t, tangent);
  const RefineArrays arrays = edges.arrays();
  std::vector<double> r(arrays.padded), J(arrays.padded * 5);
  pose_kernels().jacobian(arrays, {pose.R, pose.t}, tangent, r.data(), J.data());
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
  RefineInput edges(x0, x1, view_of(weight));
  const Pose pose = to_pose(R, t);
  double tangent[6], out[21];
  tangent_plane(pose.t, tangent);
  pose_kernels().normal_equations(edges.arrays(), {pose.R, pose.t}, tangent, to_loss(loss),
                                  eps * eps, out);
  std::vector<double> JtJ(25), Jtr(out + 15, out + 20);
  int slot = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = i; j < 5; ++j, ++slot) JtJ[5 * i + j] = JtJ[5 * j + i] = out[slot];
  }
  Pose copy = pose;  // the optimiser sums the cost of Cauchy's loss
  const double cost =
      refine_pose(copy, edges.columns, edges.weights, to_loss(loss), eps * eps, 0).cost;
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

void bind_relative_pose(nb::module_& m) {
  bind_problem<RelativePoseProblem>(
      m, "RelativePoseEstimate", "estimate_relative_pose",
      "Relative poses of pairs with points on the normalised planes.", [](const Pose& pose) {
        return std::tuple(rotation_to_numpy(pose), translation_to_numpy(pose));
      });
  bind_score<RelativePoseProblem, Matrix3, Vector3>(
      m, "score", "Exact score of a pose: (hcm, cardinality, inliers, squared residuals).", to_pose,
      nb::arg("R"), nb::arg("t"));
  m.def("screened_scores", &screened_scores, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"),
        nb::arg("eps"), nb::arg("q"), nb::arg("delta"), nb::arg("R"), nb::arg("t"),
        nb::arg("mechanism"), nb::arg("complete") = false,
        "Upper bounds of the scores (hcm or mcm) of many poses. The search computes them first and "
        "evaluates only promising poses exactly. If complete, every score is exact.");
  m.def("sampson", &sampson, nb::arg("x0"), nb::arg("x1"), nb::arg("R"), nb::arg("t"),
        "Squared Sampson distances (NaN where undefined) and whether both depths are positive.");
  m.def("five_point", &five_point, nb::arg("b0"), nb::arg("b1"),
        "All poses of each five-ray sample with the points in front of both cameras: (sample, R, "
        "t).");
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

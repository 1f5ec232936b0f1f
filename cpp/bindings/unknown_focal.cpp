// Relative pose with unknown focal lengths: the estimator, the exact score, and its parts.
#include "estimate.h"
#include "manymatch/problems/unknown_focal/problem.h"
#include "poses.h"

namespace manymatch {

namespace {

using Focals = In<double, nb::shape<2>>;

FocalPose to_focal_pose(const Matrix3& R, const Vector3& t, const Focals& f) {
  return {to_pose(R, t), {f(0), f(1)}};
}

std::tuple<Out<double>, Out<double>, Out<double>, Out<double>> to_python(const FocalPose& model) {
  return {rotation_to_numpy(model.pose), translation_to_numpy(model.pose),
          to_numpy(std::vector<double>(model.f, model.f + 2)),
          to_numpy(std::vector<double>(model.spread, model.spread + 2))};
}

std::tuple<Out<double>, Out<double>> focal_jacobian(const Points& x0, const Points& x1,
                                                    const Matrix3& R, const Vector3& t,
                                                    const Focals& f) {
  const RefineInput edges(x0, x1, {});
  const FocalPose model = to_focal_pose(R, t, f);
  double tangent[6];
  tangent_plane(model.pose.t, tangent);
  constexpr std::size_t N = kPoseParameters<double>;
  const std::size_t count = x0.shape(0);
  std::vector<double> r(edges.weights.size()), J(edges.weights.size() * N);
  kernels<UnknownFocalKernels>().jacobian(edges.arrays(),
                                          {model.pose.R, model.pose.t, model.f[0], model.f[1]},
                                          tangent, r.data(), J.data());
  r.resize(count);
  J.resize(count * N);
  return {to_numpy(std::move(r)), to_numpy(std::move(J), {count, N})};
}

using Refined = std::tuple<Out<double>, Out<double>, Out<double>, double, double, int>;

Refined refine_focal(const Points& x0, const Points& x1, const Vector& weight, const Matrix3& R,
                     const Vector3& t, const Focals& f, const Vector& parameters, double eps,
                     const std::string& loss, int max_iterations) {
  check_length("weight", weight.shape(0), x0.shape(0));
  check_positive("eps", eps);
  RefineInput edges(x0, x1, view_of(weight));
  FocalPose model = to_focal_pose(R, t, f);
  const FocalPoints points({{}, {}, eps}, view_of(parameters));
  const LmResult result = refine_focal_pose(model, points.priors, edges.columns, edges.weights,
                                            to_loss(loss), eps * eps, max_iterations);
  auto [rotation, translation, focals, spread] = to_python(model);
  return {std::move(rotation), std::move(translation), std::move(focals), result.initial_cost,
          result.cost,         result.iterations};
}

}  // namespace

void bind_unknown_focal(nb::module_& m) {
  bind_problem<UnknownFocalProblem>(
      m, "UnknownFocalEstimate", "estimate_unknown_focal",
      "Relative poses and focal lengths of pairs with points relative to the principal points, in "
      "the same unit in both images. A pair's parameters are the median and the standard deviation "
      "of the logarithm of each focal length (0: known), and whether both cameras share one focal "
      "length. A model is rotation, translation, focal lengths, and the spread of their logarithms "
      "among likely models.",
      to_python);
  m.def(
      "score_unknown_focal",
      [](const Table& x0, const Table& x1, const Edges& edges, double eps, double q, double delta,
         const Matrix3& R, const Vector3& t, const Focals& f, const Vector& parameters) {
        return score_pair<UnknownFocalProblem>(x0, x1, edges, eps, q, delta, to_focal_pose(R, t, f),
                                               parameters);
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), nb::arg("R"), nb::arg("t"), nb::arg("f"), nb::arg("parameters"),
      "Exact score of a pose with focal lengths: (hcm, cardinality, inliers, squared residuals).");
  m.def("focal_jacobian", &focal_jacobian, nb::arg("x0"), nb::arg("x1"), nb::arg("R"), nb::arg("t"),
        nb::arg("f"),
        "Signed Sampson distances and their derivatives, five for perturb() and two for the "
        "logarithms of the focal lengths.");
  m.def("refine_focal", &refine_focal, nb::arg("x0"), nb::arg("x1"), nb::arg("weight"),
        nb::arg("R"), nb::arg("t"), nb::arg("f"), nb::arg("parameters"), nb::arg("eps"),
        nb::arg("loss"), nb::arg("max_iterations"),
        "Levenberg-Marquardt on correspondences with priors of the focal lengths: (R, t, f, "
        "initial cost, cost, iterations).");
}

}  // namespace manymatch

// Relative pose with unknown focal lengths: the estimator, the exact score, and its parts.
#include "estimate.h"
#include "manymatch/problems/unknown_focal/estimate.h"
#include "poses.h"

namespace manymatch {

namespace {

using Focals = In<double, nb::shape<2>>;

FocalPose to_focal_pose(const Matrix3& R, const Vector3& t, const Focals& f) {
  return {to_pose(R, t), {f(0), f(1)}};
}

std::tuple<Out<double>, Out<double>, Out<double>> to_python(const FocalPose& model) {
  return {rotation_to_numpy(model.pose), translation_to_numpy(model.pose),
          to_numpy(std::vector<double>(model.f, model.f + 2))};
}

std::tuple<Out<double>, Out<double>> focal_jacobian(const Points& x0, const Points& x1,
                                                    const Matrix3& R, const Vector3& t,
                                                    const Focals& f) {
  const std::size_t count = x0.shape(0);
  check_length("x1", x1.shape(0), count);
  RefineColumns columns;
  AlignedVector<double> weights((count + kRefineLanes - 1) / kRefineLanes * kRefineLanes, 0.0);
  columns.resize(count, weights.size());
  for (std::size_t i = 0; i < count; ++i) {
    columns.x0[i] = x0(i, 0);
    columns.y0[i] = x0(i, 1);
    columns.x1[i] = x1(i, 0);
    columns.y1[i] = x1(i, 1);
  }
  const FocalPose model = to_focal_pose(R, t, f);
  double tangent[6];
  tangent_plane(model.pose.t, tangent);
  constexpr std::size_t N = kPoseParameters<double>;
  std::vector<double> r(weights.size()), J(weights.size() * N);
  kernels<UnknownFocalKernels>().jacobian(
      columns.arrays(weights), {model.pose.R, model.pose.t, model.f[0], model.f[1]}, tangent,
      r.data(), J.data());
  r.resize(count);
  J.resize(count * N);
  return {to_numpy(std::move(r)), to_numpy(std::move(J), {count, N})};
}

}  // namespace

void bind_unknown_focal(nb::module_& m) {
  bind_problem<UnknownFocalProblem>(
      m, "UnknownFocalEstimate", "estimate_unknown_focal",
      "Relative poses and focal lengths of pairs with points about the principal points, in one "
      "unit. A pair's parameters are the median and the standard deviation of the logarithm of "
      "each focal length (0: known), and whether they are one. One pair uses the threads within, "
      "several use one each.",
      to_python);
  m.def(
      "score_unknown_focal",
      [](const Table& x0, const Table& x1, const Edges& edges, double eps, double q, double delta,
         const Matrix3& R, const Vector3& t, const Focals& f, const Vector& parameters) {
        return score_pair<UnknownFocalProblem>(x0, x1, edges, eps, q, delta,
                                               to_focal_pose(R, t, f), parameters);
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), nb::arg("R"), nb::arg("t"), nb::arg("f"), nb::arg("parameters"),
      "Exact score of a pose with focal lengths: (hcm, cardinality, inliers, squared residuals).");
  m.def("focal_jacobian", &focal_jacobian, nb::arg("x0"), nb::arg("x1"), nb::arg("R"), nb::arg("t"),
        nb::arg("f"),
        "Signed Sampson distances and their derivatives, five for perturb() and two for the "
        "logarithms of the focal lengths.");
}

}  // namespace manymatch

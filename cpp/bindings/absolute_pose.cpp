// Absolute pose: the estimator, the exact score, the minimal solver and the derivatives.
#include "estimate.h"
#include "manymatch/problems/absolute_pose/problem.h"
#include "poses.h"

namespace manymatch {

namespace {

using Points3 = In<double, nb::shape<-1, 3>>;
using Triples = In<double, nb::shape<-1, 3, 2>>;
using Triangles = In<double, nb::shape<-1, 3, 3>>;

AbsolutePose to_absolute_pose(const Matrix3& R, const Vector3& t, double f) {
  AbsolutePose pose;
  std::copy_n(R.data(), 9, pose.R);
  std::copy_n(t.data(), 3, pose.t);
  pose.f = f;
  return pose;
}

std::tuple<Out<double>, Out<double>, double> to_python(const AbsolutePose& pose) {
  return {to_numpy(std::vector<double>(pose.R, pose.R + 9), {3, 3}),
          to_numpy(std::vector<double>(pose.t, pose.t + 3)), pose.f};
}

std::tuple<Out<int64_t>, Out<double>, Out<double>> three_point(const Triples& x,
                                                               const Triangles& X) {
  check_length("X", X.shape(0), x.shape(0));
  std::vector<double> R, t;
  auto sample = solve_samples<PerspectiveBatch, PerspectiveSolutions>(
      x.shape(0),
      [&](PerspectiveBatch& batch, std::size_t i, std::size_t s) {
        for (std::size_t k = 0; k < 3; ++k) {
          batch.x[k][i] = x(s, k, 0);
          batch.y[k][i] = x(s, k, 1);
          for (std::size_t c = 0; c < 3; ++c) batch.X[k][c][i] = X(s, k, c);
        }
      },
      kernels<AbsolutePoseKernels>().three_point,
      [&](const PerspectiveSolutions& found, int k) {
        append(R, found.R[k]);
        append(t, found.t[k]);
      });
  const std::size_t count = sample.size();
  return {to_numpy(std::move(sample)), to_numpy(std::move(R), {count, 3, 3}),
          to_numpy(std::move(t), {count, 3})};
}

std::tuple<Out<double>, Out<double>> reprojection_jacobian(const Points& x0, const Points3& x1,
                                                           const Matrix3& R, const Vector3& t,
                                                           double f) {
  const std::size_t count = x0.shape(0);
  const RefineInput edges(x0, x1, {});
  double P[12];
  projection_matrix(to_absolute_pose(R, t, f), P);
  constexpr std::size_t kRow = 2 * kFocalParameters;
  std::vector<double> r(2 * edges.weights.size()), J(kRow * edges.weights.size());
  kernels<AbsolutePoseKernels>().jacobian(edges.arrays(), P, f, 1.0, r.data(), J.data());
  r.resize(2 * count);
  J.resize(kRow * count);
  return {to_numpy(std::move(r), {count, 2}),
          to_numpy(std::move(J), {count, 2, at(kFocalParameters)})};
}

}  // namespace

void bind_absolute_pose(nb::module_& m) {
  bind_problem<AbsolutePoseProblem>(
      m, "AbsolutePoseEstimate", "estimate_absolute_pose",
      "Absolute poses of pairs with x0 on a normalised plane and x1 in the world; x1 should be "
      "centred and scaled to about one. `parameters` is the standard deviation of the logarithm of "
      "the focal length, if that is unknown. A model is (R, t, f).",
      to_python);
  bind_score<AbsolutePoseProblem, Matrix3, Vector3, double>(
      m, "score_absolute_pose",
      "Exact score of an absolute pose: (hcm, cardinality, inliers, squared residuals).",
      to_absolute_pose, nb::arg("R"), nb::arg("t"), nb::arg("f") = 1.0);
  m.def("three_point", &three_point, nb::arg("x"), nb::arg("X"),
        "All poses of each sample of three points on the normalised plane and in the world: "
        "(sample, R, t).");
  m.def("reprojection_jacobian", &reprojection_jacobian, nb::arg("x0"), nb::arg("x1"), nb::arg("R"),
        nb::arg("t"), nb::arg("f") = 1.0,
        "Residuals (N, 2) f (R X + t) - x on the plane, and their derivatives (N, 2, 7) by w, dt "
        "and df of exp([w]x) (R X + t) + dt, f exp(df).");
}

}  // namespace manymatch

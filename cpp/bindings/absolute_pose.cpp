// Absolute pose: the estimator, the exact score, the minimal solver and the derivatives.
#include "estimate.h"
#include "manymatch/problems/absolute_pose/problem.h"

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
  std::vector<int64_t> problem;
  std::vector<double> R, t;
  auto batch = std::make_unique<PerspectiveBatch>();
  auto solutions = std::make_unique<PerspectiveSolutions>();
  const std::size_t total = x.shape(0);
  for (std::size_t first = 0; first < total; first += kPerspectiveBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kPerspectiveBatch, total - first));
    for (std::size_t i = 0; i < at(batch->count); ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        batch->x[k][i] = x(first + i, k, 0);
        batch->y[k][i] = x(first + i, k, 1);
        for (std::size_t c = 0; c < 3; ++c) batch->X[k][c][i] = X(first + i, k, c);
      }
    }
    kernels<AbsolutePoseKernels>().three_point(*batch, *solutions);
    for (int s = 0; s < solutions->count; ++s) {
      problem.push_back(static_cast<int64_t>(first) + solutions->sample[s]);
      R.insert(R.end(), solutions->R[s], solutions->R[s] + 9);
      t.insert(t.end(), solutions->t[s], solutions->t[s] + 3);
    }
  }
  const std::size_t count = problem.size();
  return {to_numpy(std::move(problem)), to_numpy(std::move(R), {count, 3, 3}),
          to_numpy(std::move(t), {count, 3})};
}

std::tuple<Out<double>, Out<double>> reprojection_jacobian(const Points& x0, const Points3& x1,
                                                           const Matrix3& R, const Vector3& t,
                                                           double f) {
  const std::size_t count = x0.shape(0);
  check_length("x1", x1.shape(0), count);
  AlignedVector<double> weights((count + kRefineLanes - 1) / kRefineLanes * kRefineLanes, 0.0);
  RefineColumns columns;
  columns.resize(count, weights.size(), 2, 3);
  for (std::size_t i = 0; i < count; ++i) {
    columns.x0[i] = x0(i, 0);
    columns.y0[i] = x0(i, 1);
    columns.x1[i] = x1(i, 0);
    columns.y1[i] = x1(i, 1);
    columns.z1[i] = x1(i, 2);
    weights[i] = 1.0;
  }
  double P[12];
  projection_matrix(to_absolute_pose(R, t, f), P);
  constexpr std::size_t kRow = 2 * kFocalParameters;
  std::vector<double> r(2 * weights.size()), J(kRow * weights.size());
  kernels<AbsolutePoseKernels>().jacobian(columns.arrays(weights), P, f, 1.0, r.data(), J.data());
  r.resize(2 * count);
  J.resize(kRow * count);
  return {to_numpy(std::move(r), {count, 2}),
          to_numpy(std::move(J), {count, 2, at(kFocalParameters)})};
}

}  // namespace

void bind_absolute_pose(nb::module_& m) {
  bind_problem<AbsolutePoseProblem>(
      m, "AbsolutePoseEstimate", "estimate_absolute_pose",
      "Absolute poses of pairs whose x0 is on a normalised plane and whose x1 is in the world, "
      "best "
      "about its centre and in a unit of its size. `parameters` is the standard deviation of the "
      "logarithm of the focal length, if that is unknown. A model is (R, t, f). One pair uses the "
      "threads within, several use one each.",
      to_python);
  m.def(
      "score_absolute_pose",
      [](const Table& x0, const Table& x1, const Edges& edges, double eps, double q, double delta,
         const Matrix3& R, const Vector3& t, double f) {
        return score_pair<AbsolutePoseProblem>(x0, x1, edges, eps, q, delta,
                                               to_absolute_pose(R, t, f));
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), nb::arg("R"), nb::arg("t"), nb::arg("f") = 1.0,
      "Exact score of an absolute pose: (hcm, cardinality, inliers, squared residuals).");
  m.def("three_point", &three_point, nb::arg("x"), nb::arg("X"),
        "All poses of each sample of three points on the normalised plane and in the world: "
        "(sample, R, t).");
  m.def("reprojection_jacobian", &reprojection_jacobian, nb::arg("x0"), nb::arg("x1"), nb::arg("R"),
        nb::arg("t"), nb::arg("f") = 1.0,
        "Residuals (N, 2) f (R X + t) - x on the plane, and their derivatives (N, 2, 7) by w, dt "
        "and df of exp([w]x) (R X + t) + dt, f exp(df).");
}

}  // namespace manymatch

// Fundamental matrix: the estimator, the exact score, the minimal solver, and planes.
#include "estimate.h"
#include "manymatch/problems/fundamental/problem.h"
#include "poses.h"

namespace manymatch {

namespace {

Fundamental to_fundamental(const Matrix3& F, const Vector& e) {
  check_length("e", e.shape(0), 3);
  Fundamental model;
  std::copy_n(F.data(), 9, model.F);
  std::copy_n(e.data(), 3, model.e);
  return model;
}

std::tuple<Out<int64_t>, Out<double>, Out<double>> seven_point(
    const In<double, nb::shape<-1, 7, 2>>& x0, const In<double, nb::shape<-1, 7, 2>>& x1) {
  check_length("x1", x1.shape(0), x0.shape(0));
  std::vector<double> F, e;
  auto sample = solve_samples<SevenPointBatch, SevenPointSolutions>(
      x0.shape(0),
      [&](SevenPointBatch& batch, std::size_t i, std::size_t s) {
        fill_planar(batch, i, x0, x1, s);
      },
      kernels<FundamentalKernels>().seven_point,
      [&](const SevenPointSolutions& found, int k) {
        append(F, found.F[k]);
        append(e, found.e[k]);
      });
  const std::size_t count = sample.size();
  return {to_numpy(std::move(sample)), to_numpy(std::move(F), {count, 3, 3}),
          to_numpy(std::move(e), {count, 3})};
}

int on_a_plane(const Points& x0, const Points& x1, double eps, const Matrix3& F, const Vector& e) {
  RefineInput edges(x0, x1, {});
  return dominant_plane(to_fundamental(F, e), edges.columns, x0.shape(0), eps * eps).count;
}

}  // namespace

void bind_fundamental(nb::module_& m) {
  bind_problem<FundamentalProblem>(
      m, "FundamentalEstimate", "estimate_fundamental",
      "Fundamental matrices of pairs whose points are centred and have the same unit in both "
      "images. A model is (F, e) with e the epipole in image 1.",
      [](const Fundamental& model) {
        return std::make_tuple(to_numpy(std::vector<double>(model.F, model.F + 9), {3, 3}),
                               to_numpy(std::vector<double>(model.e, model.e + 3)));
      });
  bind_score<FundamentalProblem, Matrix3, Vector>(
      m, "score_fundamental",
      "Exact score of a fundamental matrix with the epipole e of image 1, whose sign matters: "
      "(hcm, cardinality, inliers, squared residuals).",
      to_fundamental, nb::arg("F"), nb::arg("e"));
  m.def("seven_point", &seven_point, nb::arg("x0"), nb::arg("x1"),
        "The fundamental matrices of each sample of seven correspondences that have all seven on "
        "one side: (sample, F, e).");
  m.def("on_a_plane", &on_a_plane, nb::arg("x0"), nb::arg("x1"), nb::arg("eps"), nb::arg("F"),
        nb::arg("e"),
        "Number of correspondences within eps of the best plane that is compatible with F.");
}

}  // namespace manymatch

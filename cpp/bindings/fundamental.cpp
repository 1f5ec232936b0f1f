// Fundamental matrix: the estimator, the exact score, the minimal solver, and planes.
#include "estimate.h"
#include "manymatch/problems/fundamental/problem.h"

namespace manymatch {

namespace {

// The epipole's sign cannot be seen from F: the side that more points are on.
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
  std::vector<int64_t> problem;
  std::vector<double> F, e;
  auto batch = std::make_unique<SevenPointBatch>();
  auto solutions = std::make_unique<SevenPointSolutions>();
  const std::size_t total = x0.shape(0);
  for (std::size_t first = 0; first < total; first += kSevenPointBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kSevenPointBatch, total - first));
    for (std::size_t i = 0; i < at(batch->count); ++i) {
      for (std::size_t k = 0; k < 7; ++k) {
        batch->x0[k][i] = x0(first + i, k, 0);
        batch->y0[k][i] = x0(first + i, k, 1);
        batch->x1[k][i] = x1(first + i, k, 0);
        batch->y1[k][i] = x1(first + i, k, 1);
      }
    }
    kernels<FundamentalKernels>().seven_point(*batch, *solutions);
    for (int s = 0; s < solutions->count; ++s) {
      problem.push_back(static_cast<int64_t>(first) + solutions->sample[s]);
      F.insert(F.end(), solutions->F[s], solutions->F[s] + 9);
      e.insert(e.end(), solutions->e[s], solutions->e[s] + 3);
    }
  }
  const std::size_t count = problem.size();
  return {to_numpy(std::move(problem)), to_numpy(std::move(F), {count, 3, 3}),
          to_numpy(std::move(e), {count, 3})};
}

int on_a_plane(const Table& x0, const Table& x1, double eps, const Matrix3& F, const Vector& e) {
  check_length("x1", x1.shape(0), x0.shape(0));
  check_dimension("x0", x0.shape(1), 2);
  check_dimension("x1", x1.shape(1), 2);
  const std::size_t count = x0.shape(0);
  RefineColumns columns;
  columns.resize(count, (count + kRefineLanes - 1) / kRefineLanes * kRefineLanes);
  for (std::size_t i = 0; i < count; ++i) {
    columns.x0[i] = x0(i, 0), columns.y0[i] = x0(i, 1);
    columns.x1[i] = x1(i, 0), columns.y1[i] = x1(i, 1);
  }
  return dominant_plane(to_fundamental(F, e), columns, count, eps * eps).count;
}

}  // namespace

void bind_fundamental(nb::module_& m) {
  bind_problem<FundamentalProblem>(
      m, "FundamentalEstimate", "estimate_fundamental",
      "Fundamental matrices of pairs whose points are in one unit and about their centres. One "
      "pair uses the threads within, several use one each. A model is (F, e) with e the epipole in "
      "image 1.",
      [](const Fundamental& model) {
        return std::make_tuple(to_numpy(std::vector<double>(model.F, model.F + 9), {3, 3}),
                               to_numpy(std::vector<double>(model.e, model.e + 3)));
      });
  m.def(
      "score_fundamental",
      [](const Table& x0, const Table& x1, const Edges& edges, double eps, double q, double delta,
         const Matrix3& F, const Vector& e) {
        return score_pair<FundamentalProblem>(x0, x1, edges, eps, q, delta, to_fundamental(F, e));
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), nb::arg("F"), nb::arg("e"),
      "Exact score of a fundamental matrix with the epipole e of image 1, whose sign matters: "
      "(hcm, cardinality, inliers, squared residuals).");
  m.def("seven_point", &seven_point, nb::arg("x0"), nb::arg("x1"),
        "The fundamental matrices of each sample of seven correspondences that have all of them "
        "on one side: (sample, F, e).");
  m.def("on_a_plane", &on_a_plane, nb::arg("x0"), nb::arg("x1"), nb::arg("eps"), nb::arg("F"),
        nb::arg("e"), "How many of the correspondences are within eps of one plane that F allows.");
}

}  // namespace manymatch

// Homography: the estimator, the exact score, and the minimal solver.
#include "estimate.h"
#include "manymatch/problems/homography/estimate.h"

namespace manymatch {

namespace {

Homography to_homography(const Matrix3& H) {
  Homography model;
  std::copy_n(H.data(), 9, model.H);
  return model;
}

std::tuple<Out<int64_t>, Out<double>> four_point(const In<double, nb::shape<-1, 4, 2>>& x0,
                                                 const In<double, nb::shape<-1, 4, 2>>& x1) {
  check_length("x1", x1.shape(0), x0.shape(0));
  std::vector<int64_t> problem;
  std::vector<double> H;
  auto batch = std::make_unique<FourPointBatch>();
  auto solutions = std::make_unique<FourPointSolutions>();
  const std::size_t total = x0.shape(0);
  for (std::size_t first = 0; first < total; first += kFourPointBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kFourPointBatch, total - first));
    for (std::size_t i = 0; i < at(batch->count); ++i) {
      for (std::size_t k = 0; k < 4; ++k) {
        batch->x0[k][i] = x0(first + i, k, 0);
        batch->y0[k][i] = x0(first + i, k, 1);
        batch->x1[k][i] = x1(first + i, k, 0);
        batch->y1[k][i] = x1(first + i, k, 1);
      }
    }
    kernels<HomographyKernels>().four_point(*batch, *solutions);
    for (int s = 0; s < solutions->count; ++s) {
      problem.push_back(static_cast<int64_t>(first) + solutions->sample[s]);
      H.insert(H.end(), solutions->H[s], solutions->H[s] + 9);
    }
  }
  const std::size_t count = problem.size();
  return {to_numpy(std::move(problem)), to_numpy(std::move(H), {count, 3, 3})};
}

}  // namespace

void bind_homography(nb::module_& m) {
  using HomographyEstimate = ModelEstimate<Homography>;
  bind_problem<HomographyProblem>(
      m, "HomographyEstimate", "estimate_homography",
      "Homographies of pairs whose points are in one unit and about their centres. One pair uses "
      "the threads within, several use one each.",
      [](const Homography& model) {
        return to_numpy(std::vector<double>(model.H, model.H + 9), {3, 3});
      });
  m.def(
      "score_homography",
      [](const Table& x0, const Table& x1, const Edges& edges, double eps, double q, double delta,
         const Matrix3& H) {
        return score_pair<HomographyProblem>(x0, x1, edges, eps, q, delta, to_homography(H));
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), nb::arg("H"),
      "Exact score of a homography, whose sign matters: (hcm, cardinality, inliers, squared "
      "residuals).");
  m.def("four_point", &four_point, nb::arg("x0"), nb::arg("x1"),
        "The homography of each sample of four correspondences that has one: (sample, H).");
}

}  // namespace manymatch

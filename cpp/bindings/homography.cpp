// Homography: the estimator, the exact score, and the minimal solver.
#include "estimate.h"
#include "manymatch/problems/homography/problem.h"

namespace manymatch {

namespace {

Homography to_homography(const Matrix3& H) {
  Homography model;
  std::copy_n(H.data(), 9, model.H);
  return model;
}

// Of samples of four correspondences, or affine maps of three.
template <int Points>
std::tuple<Out<int64_t>, Out<double>> solve_samples(
    const In<double, nb::shape<-1, Points, 2>>& x0,
    const In<double, nb::shape<-1, Points, 2>>& x1) {
  check_length("x1", x1.shape(0), x0.shape(0));
  std::vector<int64_t> problem;
  std::vector<double> H;
  auto batch = std::make_unique<FourPointBatch>();
  auto solutions = std::make_unique<FourPointSolutions>();
  const std::size_t total = x0.shape(0);
  for (std::size_t first = 0; first < total; first += kFourPointBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kFourPointBatch, total - first));
    for (std::size_t i = 0; i < at(batch->count); ++i) {
      for (std::size_t k = 0; k < Points; ++k) {
        batch->x0[k][i] = x0(first + i, k, 0);
        batch->y0[k][i] = x0(first + i, k, 1);
        batch->x1[k][i] = x1(first + i, k, 0);
        batch->y1[k][i] = x1(first + i, k, 1);
      }
    }
    const HomographyKernels& table = kernels<HomographyKernels>();
    (Points == 4 ? table.four_point : table.three_point)(*batch, *solutions);
    for (int s = 0; s < solutions->count; ++s) {
      problem.push_back(static_cast<int64_t>(first) + solutions->sample[s]);
      H.insert(H.end(), solutions->H[s], solutions->H[s] + 9);
    }
  }
  const std::size_t count = problem.size();
  return {to_numpy(std::move(problem)), to_numpy(std::move(H), {count, 3, 3})};
}

// Pairs with parameters are to have an affine map.
std::vector<ModelEstimate<Homography>> estimate_planar(const std::vector<const Pair*>& pairs,
                                                       const std::string& method,
                                                       const std::vector<Options>& options,
                                                       int threads) {
  check_length("options", options.size(), pairs.size());
  std::vector<ModelEstimate<Homography>> out(pairs.size());
  for (const bool affine : {false, true}) {
    std::vector<const Pair*> chosen;
    std::vector<Options> own;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i]->parameters.has_value() != affine) continue;
      chosen.push_back(pairs[i]);
      own.push_back(options[i]);
      places.push_back(i);
    }
    if (chosen.empty()) continue;
    auto found = affine ? estimate_pairs<AffineProblem>(chosen, method, own, threads)
                        : estimate_pairs<HomographyProblem>(chosen, method, own, threads);
    for (std::size_t k = 0; k < places.size(); ++k) out[places[k]] = std::move(found[k]);
  }
  return out;
}

}  // namespace

void bind_homography(nb::module_& m) {
  bind_problem<HomographyProblem>(
      m, "HomographyEstimate", "estimate_projective",
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
  m.def("estimate_homography", &estimate_planar, nb::arg("pairs"), nb::arg("method"),
        nb::arg("options"), nb::arg("threads"),
        "The same, affine ones for the pairs that have parameters.");
  m.def("four_point", &solve_samples<4>, nb::arg("x0"), nb::arg("x1"),
        "The homography of each sample of four correspondences that has one: (sample, H).");
  m.def("three_point_affine", &solve_samples<3>, nb::arg("x0"), nb::arg("x1"),
        "The affine map of each sample of three correspondences that has one: (sample, H).");
}

}  // namespace manymatch

// Homography: the estimator, the exact score, and the minimal solvers.
#include "estimate.h"
#include "manymatch/problems/homography/problem.h"

namespace manymatch {

namespace {

Homography to_homography(const Matrix3& H) {
  Homography model;
  std::copy_n(H.data(), 9, model.H);
  return model;
}

// Homographies of samples of four correspondences, or affine maps of samples of three.
template <int Points>
std::tuple<Out<int64_t>, Out<double>> minimal_maps(const In<double, nb::shape<-1, Points, 2>>& x0,
                                                   const In<double, nb::shape<-1, Points, 2>>& x1) {
  check_length("x1", x1.shape(0), x0.shape(0));
  const HomographyKernels& table = kernels<HomographyKernels>();
  std::vector<double> H;
  auto sample = solve_samples<FourPointBatch, FourPointSolutions>(
      x0.shape(0),
      [&](FourPointBatch& batch, std::size_t i, std::size_t s) {
        fill_planar(batch, i, x0, x1, s);
      },
      Points == 4 ? table.four_point : table.three_point,
      [&](const FourPointSolutions& found, int k) { append(H, found.H[k]); });
  const std::size_t count = sample.size();
  return {to_numpy(std::move(sample)), to_numpy(std::move(H), {count, 3, 3})};
}

// Estimates affine maps for the pairs that have parameters, homographies for the others.
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
      "Homographies of pairs whose points are centred and have the same unit in both images.",
      [](const Homography& model) {
        return to_numpy(std::vector<double>(model.H, model.H + 9), {3, 3});
      });
  bind_score<HomographyProblem, Matrix3>(
      m, "score_homography",
      "Exact score of a homography, whose sign matters: (hcm, cardinality, inliers, squared "
      "residuals).",
      to_homography, nb::arg("H"));
  m.def("estimate_homography", &estimate_planar, nb::arg("pairs"), nb::arg("method"),
        nb::arg("options"), nb::arg("threads"),
        "Like estimate_projective, but affine maps for the pairs that have parameters.");
  m.def("four_point", &minimal_maps<4>, nb::arg("x0"), nb::arg("x1"),
        "The homography of each sample of four correspondences that has one: (sample, H).");
  m.def("three_point_affine", &minimal_maps<3>, nb::arg("x0"), nb::arg("x1"),
        "The affine map of each sample of three correspondences that has one: (sample, H).");
}

}  // namespace manymatch

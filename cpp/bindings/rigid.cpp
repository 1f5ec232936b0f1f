// Rigid transforms and similarities: the estimators, the exact scores, and the minimal solvers.
#include <cmath>

#include "estimate.h"
#include "manymatch/problems/rigid/problem.h"
#include "manymatch/problems/rigid/surfaces.h"

namespace manymatch {

namespace {

using Matrix4 = In<double, nb::shape<4, 4>>;
using Triples = In<double, nb::shape<-1, 3, 3>>;

std::vector<double> to_rows(const TransformNumbers& transform) {
  std::vector<double> rows(16, 0.0);
  for (std::size_t i = 0; i < 3; ++i) {
    std::copy_n(transform.A + 3 * i, 3, rows.begin() + static_cast<std::ptrdiff_t>(4 * i));
    rows[4 * i + 3] = transform.t[i];
  }
  rows[15] = 1.0;
  return rows;
}

template <bool kFreeScale>
Transform<kFreeScale> to_transform(const Matrix4& matrix) {
  Transform<kFreeScale> transform;
  double norm2 = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      transform.A[3 * i + j] = matrix(i, j);
      norm2 += matrix(i, j) * matrix(i, j);
    }
    transform.t[i] = matrix(i, 3);
  }
  transform.scale = kFreeScale ? std::sqrt(norm2 / 3.0) : 1.0;
  return transform;
}

template <bool kFreeScale>
std::tuple<Out<int64_t>, Out<double>> three_point(const Triples& x0, const Triples& x1,
                                                  double tolerance, double least_height) {
  check_length("x1", x1.shape(0), x0.shape(0));
  const RigidKernels& table = kernels<RigidKernels>();
  const auto solve = kFreeScale ? table.similarity_three_point : table.rigid_three_point;
  std::vector<double> transforms;
  auto sample = solve_samples<ThreePointBatch, ThreePointSolutions>(
      x0.shape(0),
      [&](ThreePointBatch& batch, std::size_t i, std::size_t s) {
        for (std::size_t k = 0; k < 3; ++k) {
          for (std::size_t c = 0; c < 3; ++c) {
            batch.x0[k][c][i] = x0(s, k, c);
            batch.x1[k][c][i] = x1(s, k, c);
          }
        }
      },
      [&](const ThreePointBatch& batch, ThreePointSolutions& found) {
        solve(batch, {tolerance, least_height}, found);
      },
      [&](const ThreePointSolutions& found, int k) {
        const std::vector<double> rows = to_rows(found.transform[k]);
        transforms.insert(transforms.end(), rows.begin(), rows.end());
      });
  const std::size_t count = sample.size();
  return {to_numpy(std::move(sample)), to_numpy(std::move(transforms), {count, 4, 4})};
}

template <bool kFreeScale>
void bind_transform(nb::module_& m, const char* class_name, const std::string& name) {
  using P = TransformProblem<kFreeScale>;
  bind_problem<P>(
      m, class_name, ("estimate_" + name).c_str(), "Transforms of pairs of centred clouds.",
      [](const Transform<kFreeScale>& model) { return to_numpy(to_rows(model), {4, 4}); });
  bind_score<P, Matrix4>(
      m, ("score_" + name).c_str(),
      "Exact score of a transform: (hcm, cardinality, inliers, squared residuals).",
      to_transform<kFreeScale>, nb::arg("transform"));
  m.def((name + "_three_point").c_str(), &three_point<kFreeScale>, nb::arg("x0"), nb::arg("x1"),
        nb::arg("tolerance"), nb::arg("least_height"),
        "The transform of each sample of three correspondences that has one: (sample, transform).");
}

TransformNumbers numbers_of(const double* rows) {
  TransformNumbers transform;
  double norm2 = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      transform.A[3 * i + j] = rows[4 * i + j];
      norm2 += rows[4 * i + j] * rows[4 * i + j];
    }
    transform.t[i] = rows[4 * i + 3];
  }
  transform.scale = std::sqrt(norm2 / 3.0);
  return transform;
}

using Matrices4 = In<double, nb::shape<-1, 4, 4>>;

// The overlap of two clouds under each of the transforms (M, 4, 4).
Out<double> cloud_overlap(const Table& x0, const Table& x1, double least_radius,
                          const Matrices4& transforms) {
  check_dimension("x0", x0.shape(1), 3);
  check_dimension("x1", x1.shape(1), 3);
  const CloudOverlap overlap(view_of(x0), view_of(x1), least_radius);
  std::vector<double> shares;
  for (std::size_t k = 0; overlap.known() && k < transforms.shape(0); ++k) {
    shares.push_back(overlap.share(numbers_of(transforms.data() + 16 * k)));
  }
  return to_numpy(std::move(shares));
}

// Gap between the surfaces and, with the places of the sensors (2, 3), the shares in front of what
// either saw; by transform. NaN places are unknown.
Out<double> cloud_surfaces(const Table& x0, const Table& x1, double least_spacing,
                           const Matrices4& transforms,
                           const In<double, nb::shape<2, 3>>& viewpoints) {
  check_dimension("x0", x0.shape(1), 3);
  check_dimension("x1", x1.shape(1), 3);
  CloudSurfaces surfaces(view_of(x0), view_of(x1), least_spacing);
  std::vector<double> rows;
  for (std::size_t k = 0; surfaces.known() && k < transforms.shape(0); ++k) {
    const TransformNumbers transform = numbers_of(transforms.data() + 16 * k);
    rows.push_back(surfaces.gap(transform));
    for (int side = 0; side < 2; ++side) {
      const double* place = viewpoints.data() + 3 * side;
      const bool given = std::isfinite(place[0] + place[1] + place[2]);
      rows.push_back(given ? surfaces.in_front(transform, side, place) : 0.0);
    }
  }
  const std::size_t count = rows.size() / 3;
  return to_numpy(std::move(rows), {count, 3});
}

}  // namespace

void bind_rigid(nb::module_& m) {
  bind_transform<false>(m, "RigidEstimate", "rigid");
  bind_transform<true>(m, "SimilarityEstimate", "similarity");
  m.def("cloud_overlap", &cloud_overlap, nb::arg("x0"), nb::arg("x1"), nb::arg("least_radius"),
        nb::arg("transforms"),
        "Share of the points that are near the other cloud, by transform; empty if unknown.");
  m.def(
      "cloud_surfaces", &cloud_surfaces, nb::arg("x0"), nb::arg("x1"), nb::arg("least_spacing"),
      nb::arg("transforms"), nb::arg("viewpoints"),
      "By transform (M, 3): gap between the surfaces in spacings, and the shares of the points of "
      "cloud 1 and 0 in front of what the sensors of cloud 0 and 1 saw; empty if unknown.");
}

}  // namespace manymatch

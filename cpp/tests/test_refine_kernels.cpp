// Residuals, derivatives and normal equations on every instruction set.
#include <cstring>

#include "check.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "two_view.h"

using namespace manymatch;

namespace {

struct Gathered : RefineColumns {
  AlignedVector<double> weight;
  std::size_t padded;

  Gathered(Source& random, const Pose& pose, int count, double noise)
      : padded((at(count) + kRefineLanes - 1) / kRefineLanes * kRefineLanes) {
    resize(at(count), padded);
    weight.assign(padded, 0.0);
    for (std::size_t i = 0; i < at(count); ++i) {
      const auto [X, X1] = random_point(random, pose, 1.0);
      x0[i] = X.x / X.z;
      y0[i] = X.y / X.z;
      x1[i] = X1.x / X1.z + noise * random.in(-1, 1);
      y1[i] = X1.y / X1.z + noise * random.in(-1, 1);
      weight[i] = random.in(0.1, 2.0);
    }
  }
  RefineArrays arrays() const { return RefineColumns::arrays(weight); }
};

struct Rows {
  std::vector<double> r, J;
  Rows(const Gathered& g, const Pose& pose) : r(g.padded), J(5 * g.padded) {
    double tangent[6];
    tangent_plane(pose.t, tangent);
    kernels<RelativePoseKernels>().jacobian(g.arrays(), {pose.R, pose.t}, tangent, r.data(),
                                            J.data());
  }
};

void test_derivatives(const Gathered& g, const Pose& pose, int count) {
  const Rows rows(g, pose);
  double tangent[6];
  tangent_plane(pose.t, tangent);
  for (int k = 0; k < 5; ++k) {
    double forward[5] = {}, back[5] = {};
    forward[k] = 1e-6;
    back[k] = -1e-6;
    const Rows up(g, perturb(pose, tangent, forward)), down(g, perturb(pose, tangent, back));
    for (int i = 0; i < count; ++i) {
      CHECK_NEAR(rows.J[5 * i + k], (up.r[i] - down.r[i]) / 2e-6, 1e-5);
    }
  }
}

void test_normal_equations(const Gathered& g, const Pose& pose, int count, double eps2) {
  const Rows rows(g, pose);
  double tangent[6], out[21];
  tangent_plane(pose.t, tangent);
  std::vector<double> r2(g.padded);
  kernels<RelativePoseKernels>().residuals(g.arrays(), {pose.R, pose.t}, r2.data());
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    kernels<RelativePoseKernels>().normal_equations(g.arrays(), {pose.R, pose.t}, tangent, loss,
                                                    eps2, out);
    double expected[21] = {};
    for (int i = 0; i < count; ++i) {
      CHECK_NEAR(r2[i], rows.r[i] * rows.r[i], 1e-12 * r2[i]);
      const bool inside = r2[i] < eps2;
      const double robust = loss == Loss::kSquared     ? 1.0
                            : loss == Loss::kTruncated ? inside
                                                       : 1.0 / (1.0 + r2[i] / eps2);
      const double w = g.weight[i] * robust;
      int slot = 0;
      for (int a = 0; a < 5; ++a) {
        for (int b = a; b < 5; ++b) expected[slot++] += w * rows.J[5 * i + a] * rows.J[5 * i + b];
        expected[15 + a] += w * rows.J[5 * i + a] * rows.r[i];
      }
      if (loss == Loss::kSquared) expected[20] += g.weight[i] * r2[i];
      if (loss == Loss::kTruncated) expected[20] += g.weight[i] * (inside ? r2[i] : eps2);
    }
    for (int k = 0; k < 21; ++k) CHECK_NEAR(out[k], expected[k], 1e-11 * count);
  }
}

void test_refinement(Source& random) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Pose truth = random_pose(random, 0.4);
    Gathered g(random, truth, 40, 0.0);
    double tangent[6], step[5];
    tangent_plane(truth.t, tangent);
    for (double& s : step) s = random.in(-0.01, 0.01);
    Pose pose = perturb(truth, tangent, step);
    const LmResult result = refine_pose(pose, g, g.weight, Loss::kCauchy, 1e-2, 100);
    CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
    CHECK(distance(pose.R, pose.t, truth) < 1e-6);
  }
}

void test_sets_agree(const Gathered& g, const Pose& pose) {
  double tangent[6];
  tangent_plane(pose.t, tangent);
  std::vector<double> first;
  for_each_instruction_set([&](const char* name) {
    const Rows rows(g, pose);
    std::vector<double> all = rows.r;
    all.insert(all.end(), rows.J.begin(), rows.J.end());
    std::vector<double> r2(g.padded);
    kernels<RelativePoseKernels>().residuals(g.arrays(), {pose.R, pose.t}, r2.data());
    all.insert(all.end(), r2.begin(), r2.end());
    for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
      double out[21];
      kernels<RelativePoseKernels>().normal_equations(g.arrays(), {pose.R, pose.t}, tangent, loss,
                                                      1e-6, out);
      all.insert(all.end(), out, out + 21);
    }
    if (first.empty()) {
      first = all;
    } else if (std::strcmp(name, "baseline") != 0) {
      CHECK(std::memcmp(first.data(), all.data(), all.size() * sizeof(double)) == 0);
    } else {
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK_NEAR(all[i], first[i], 1e-9 * (1e-3 + std::abs(first[i])));
      }
    }
  });
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    Source random(31);
    for (int count : {1, 7, 8, 9, 50}) {
      const Pose pose = random_pose(random, 0.5);
      const Gathered g(random, pose, count, 3e-3);
      test_derivatives(g, pose, count);
      test_normal_equations(g, pose, count, 1e-6);
    }
    test_refinement(random);
  });
  Source random(32);
  for (int count : {5, 64, 301}) {
    const Pose pose = random_pose(random, 0.5);
    test_sets_agree(Gathered(random, pose, count, 1e-3), pose);
  }
  return check::finish();
}

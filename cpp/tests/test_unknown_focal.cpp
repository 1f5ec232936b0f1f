// Kernels, samples and refinement of poses with unknown focal lengths, on every instruction set.
#include <cstring>
#include <numeric>

#include "check.h"
#include "manymatch/problems/unknown_focal/problem.h"
#include "two_view.h"

using namespace manymatch;

namespace {

constexpr int N = kPoseParameters<double>;

// Points of two cameras of given focal lengths, edge i joining point i with point i.
struct Pair {
  FocalPose model;
  std::vector<double> x0, x1;
  Graph graph;

  static Graph identity(int count) {
    std::vector<int> index(at(count));
    std::iota(index.begin(), index.end(), 0);
    return {index, index, count, count};
  }

  Pair(Source& random, int count, double noise, bool shared)
      : model{random_pose(random, 0.6), {random.in(0.5, 2.0), 0.0}}, graph(identity(count)) {
    model.f[1] = shared ? model.f[0] : random.in(0.5, 2.0);
    for (int i = 0; i < count; ++i) {
      const auto [X, X1] = random_point(random, model.pose, 0.8);
      for (double c : {X.x, X.y}) x0.push_back(model.f[0] * c / X.z + noise * random.in(-1, 1));
      for (double c : {X1.x, X1.y}) x1.push_back(model.f[1] * c / X1.z + noise * random.in(-1, 1));
    }
  }

  FocalPoints points(double eps, std::span<const double> parameters) const {
    return {VertexPoints{x0, x1, eps}, parameters};
  }
  RefineColumns columns() const {
    RefineColumns out;
    const std::size_t count = graph.num_edges();
    out.resize(count, (count + kRefineLanes - 1) / kRefineLanes * kRefineLanes);
    for (std::size_t i = 0; i < count; ++i) {
      out.x0[i] = x0[2 * i];
      out.y0[i] = x0[2 * i + 1];
      out.x1[i] = x1[2 * i];
      out.y1[i] = x1[2 * i + 1];
    }
    return out;
  }
};

FocalPose moved(const FocalPose& model, const double* step) {
  double tangent[6];
  tangent_plane(model.pose.t, tangent);
  return {perturb(model.pose, tangent, step),
          {model.f[0] * std::exp(step[5]), model.f[1] * std::exp(step[6])}};
}

TwoViews<double> views(const FocalPose& m) { return {m.pose.R, m.pose.t, m.f[0], m.f[1]}; }

struct Rows {
  std::vector<double> r, J;
  Rows(const RefineColumns& columns, std::span<const double> weights, const FocalPose& model)
      : r(weights.size()), J(at(N) * weights.size()) {
    double tangent[6];
    tangent_plane(model.pose.t, tangent);
    kernels<UnknownFocalKernels>().jacobian(columns.arrays(weights), views(model), tangent,
                                            r.data(), J.data());
  }
};

// The float32 screen misses no inlier, down to thresholds where float32 can hardly tell.
void test_screen(Source& random) {
  const double parameters[] = {1.0, 0.5, 1.0, 0.5, 0.0};
  int inliers = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const double eps = std::pow(10.0, random.in(-5, -2));
    const Pair pair(random, 50 + trial, 2.0 * eps, trial % 2 == 0);
    const FocalPoints points = pair.points(eps, parameters);
    const UnknownFocalProblem problem(pair.graph, points);
    Mask loose(pair.graph.words()), exact(pair.graph.words());
    for (int k = 0; k < 20; ++k) {
      double step[N];
      for (double& s : step) s = (k ? 0.3 : 0.0) * eps * random.in(-1, 1);
      const FocalPose model = moved(pair.model, step);
      problem.screen(model, 0, loose);
      inliers += problem.inliers(model, exact, {});
      for (std::size_t w = 0; w < exact.size(); ++w) CHECK((exact[w] & ~loose[w]) == 0);
    }
  }
  CHECK(inliers > 10000);
}

// With focal lengths of one, residuals and inliers are those of points on the normalised planes.
void test_unit_focal(Source& random) {
  Pair pair(random, 200, 1e-3, true);
  const double parameters[] = {1.0, 0.5, 1.0, 0.5, 1.0};
  const FocalPoints points = pair.points(2e-3, parameters);
  const UnknownFocalProblem problem(pair.graph, points);
  const RelativePoseProblem known(pair.graph, VertexPoints{pair.x0, pair.x1, 2e-3});
  const FocalPose model{pair.model.pose, {1.0, 1.0}};
  Mask a(pair.graph.words()), b(a);
  std::vector<double> r(a.size() * 64), s(r);
  problem.inliers(model, a, r);
  known.inliers(model.pose, b, s);
  CHECK(std::memcmp(r.data(), s.data(), 200 * sizeof(double)) == 0);
  CHECK(a == b);
}

void test_derivatives(Source& random) {
  const Pair pair(random, 60, 1e-2, false);
  const RefineColumns columns = pair.columns();
  AlignedVector<double> weights(columns.x0.size(), 0.0);
  for (std::size_t i = 0; i < 60; ++i) weights[i] = random.in(0.1, 2.0);
  const Rows rows(columns, weights, pair.model);
  for (int k = 0; k < N; ++k) {
    double forward[N] = {}, back[N] = {};
    forward[k] = 1e-6;
    back[k] = -1e-6;
    const Rows up(columns, weights, moved(pair.model, forward));
    const Rows down(columns, weights, moved(pair.model, back));
    for (int i = 0; i < 60; ++i) {
      CHECK_NEAR(rows.J[at(N * i + k)], (up.r[at(i)] - down.r[at(i)]) / 2e-6, 1e-5);
    }
  }
  constexpr int kTriangle = N * (N + 1) / 2;
  double tangent[6], out[kTriangle + N + 1];
  tangent_plane(pair.model.pose.t, tangent);
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    const double eps2 = 2e-5;
    kernels<UnknownFocalKernels>().normal_equations(columns.arrays(weights), views(pair.model),
                                                    tangent, loss, eps2, out);
    double expected[kTriangle + N] = {};
    for (std::size_t i = 0; i < 60; ++i) {
      const double r2 = rows.r[i] * rows.r[i];
      const double robust = loss == Loss::kSquared     ? 1.0
                            : loss == Loss::kTruncated ? r2 < eps2
                                                       : 1.0 / (1.0 + r2 / eps2);
      int slot = 0;
      for (int a = 0; a < N; ++a) {
        const double w = weights[i] * robust * rows.J[at(N) * i + at(a)];
        for (int b = a; b < N; ++b) expected[slot++] += w * rows.J[at(N) * i + at(b)];
        expected[kTriangle + a] += w * rows.r[i];
      }
    }
    for (int i = 0; i < kTriangle + N; ++i) {
      CHECK_NEAR(out[i], expected[i], 1e-9 * (1.0 + std::abs(expected[i])));
    }
  }
}

// Exact samples whose focal lengths are known have the right pose among their models.
void test_samples(Source& random) {
  int wrong = 0, total = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const Pair pair(random, kBatch * 5, 0.0, false);
    const double parameters[] = {pair.model.f[0], 0.0, pair.model.f[1], 1e-15, 0.0};
    const FocalPoints points = pair.points(1e-3, parameters);
    const UnknownFocalProblem problem(pair.graph, points);
    auto space = problem.workspace();
    Solutions<FocalPose> solutions;
    std::vector<int> samples(kBatch * 5);
    std::iota(samples.begin(), samples.end(), 0);
    problem.solve(samples, space, solutions);
    std::vector<double> best(kBatch, 1.0);
    for (std::size_t i = 0; i < solutions.models.size(); ++i) {
      const FocalPose& m = solutions.models[i];
      double& b = best[at(solutions.sample[i])];
      b = std::min(b, distance(m.pose.R, m.pose.t, pair.model.pose));
    }
    for (double b : best) wrong += b > 1e-5;
    total += kBatch;
  }
  CHECK(wrong <= total / 1000);
}

// Exact points lead a refinement back to pose and focal lengths: shared, one known, both unknown.
void test_refinement(Source& random) {
  for (int kind = 0; kind < 4; ++kind) {
    for (int trial = 0; trial < 20; ++trial) {
      const Pair pair(random, 100, 0.0, kind == 0);
      RefineColumns columns = pair.columns();
      AlignedVector<double> weights(columns.x0.size(), 0.0);
      std::fill_n(weights.begin(), 100, 1.0);
      // The middle of the prior is the truth.
      const double* f = pair.model.f;
      const double parameters[] = {f[0], kind == 1 ? 0.0 : 0.5, f[1], kind == 2 ? 0.0 : 0.5,
                                   kind == 0 ? 1.0 : 0.0};
      const FocalPoints points = pair.points(1e-2, parameters);
      double step[N];
      for (double& s : step) s = 0.01 * random.in(-1, 1);
      if (kind == 0) step[6] = step[5];
      if (kind == 1) step[5] = 0.0;
      if (kind == 2) step[6] = 0.0;
      FocalPose model = moved(pair.model, step);
      const LmResult result =
          refine_focal_pose(model, points.priors, columns, weights, Loss::kSquared, 1e-4, 200);
      CHECK(result.cost < 1e-8 && result.cost <= result.initial_cost);
      CHECK(distance(model.pose.R, model.pose.t, pair.model.pose) < 1e-3);
      for (int side = 0; side < 2; ++side) CHECK_NEAR(model.f[side], f[side], 2e-3 * f[side]);
      if (kind == 0) CHECK(model.f[0] == model.f[1]);
      if (kind == 1) CHECK(model.f[0] == f[0]);
      if (kind == 2) CHECK(model.f[1] == f[1]);
    }
  }
}

// Parameters that make no sense are refused.
void test_parameters() {
  const std::vector<double> bad[] = {{1, 0.5, 1, 0.5},
                                     {0, 0.5, 1, 0.5, 0},
                                     {1, -0.5, 1, 0.5, 0},
                                     {1, 0.5, 2, 0.5, 1},
                                     {1, 0.0, 1, 0.0, 1}};
  for (const std::vector<double>& parameters : bad) {
    bool refused = false;
    try {
      FocalPoints({{}, {}, 1.0}, parameters);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    Source random(5);
    test_screen(random);
    test_unit_focal(random);
    test_derivatives(random);
    test_samples(random);
    test_refinement(random);
  });
  test_parameters();
  return check::finish();
}

// Relative pose with known and with unknown focal lengths: the tests of every problem, the poses of
// samples, and the refinement of focal lengths.
#include "manymatch/problems/unknown_focal/problem.h"
#include "problem_tests.h"

namespace {

struct RelativePoseCase : UsualLimits {
  using Problem = RelativePoseProblem;
  static constexpr int kRows = 1, kParameters = 5;
  static constexpr bool kValidity = true;
  // Rounding can decide whether a depth is above its limit.
  static constexpr int kBorderline = 1;
  static constexpr double kScreened = 1.2;

  struct Truth {
    Pose model;
    double wide;  // of the coordinates

    Truth(Source& random, int kind) : model(random_pose(random, 0.4)), wide(kind == 3 ? 500 : 1) {
      if (kind == 1 && random.chance(0.5)) model = Pose{};  // an epipole in both images
      if (kind == 2) std::copy_n(Pose{}.R, 9, model.R);     // no rotation
    }
    Match match(Source& random, double noise, bool wrong) const {
      while (true) {
        auto [X, X1] = random_point(random, model, wide);
        if (noise > 0 && random.chance(1.0 / 7)) {
          // About at the limit of the depth, 0.01 of the baseline.
          X = 0.01 * (1.0 + random.in(-1e-5, 1e-5)) * unit(X);
          X1 = transform(model, X);
          if (X1.z < 0.05) continue;
        } else if (wrong) {
          X1 = {X1.z * random.in(-wide, wide), X1.z * random.in(-wide, wide), X1.z};
        }
        return {{X.x / X.z, X.y / X.z},
                {X1.x / X1.z + wide * noise * random.in(-1, 1),
                 X1.y / X1.z + wide * noise * random.in(-1, 1)}};
      }
    }
  };

  static Expected expected(const Pose& pose, const double* a, const double* b) {
    Pose turn = pose;
    turn.t[0] = turn.t[1] = turn.t[2] = 0;
    const Vec x0{a[0], a[1], 1}, x1{b[0], b[1], 1}, u = transform(turn, x0);
    const double* t = pose.t;
    const Vec e{t[1] * u.z - t[2] * u.y, t[2] * u.x - t[0] * u.z, t[0] * u.y - t[1] * u.x};
    const Vec w{x1.y * t[2] - x1.z * t[1], x1.z * t[0] - x1.x * t[2], x1.x * t[1] - x1.y * t[0]};
    const double g0 = pose.R[0] * w.x + pose.R[3] * w.y + pose.R[6] * w.z;
    const double g1 = pose.R[1] * w.x + pose.R[4] * w.y + pose.R[7] * w.z;
    const double c = x1.x * e.x + x1.y * e.y + x1.z * e.z;
    const double r2 = c * c / (e.x * e.x + e.y * e.y + g0 * g0 + g1 * g1);
    const Vec v = unit(u), n = unit(x1);
    const double aa = -(v.x * n.x + v.y * n.y + v.z * n.z);
    const double p = -(v.x * t[0] + v.y * t[1] + v.z * t[2]);
    const double s = n.x * t[0] + n.y * t[1] + n.z * t[2];
    const double bound = 0.01 * (1 - aa * aa);
    return {r2, p - aa * s > bound && s - aa * p > bound};
  }

  struct Tangent {
    double numbers[6];
    explicit Tangent(const Pose& pose) { tangent_plane(pose.t, numbers); }
  };
  static const RelativePoseKernels& table() { return kernels<RelativePoseKernels>(); }
  static void jacobian(const RefineArrays& edges, const Pose& pose, double* r, double* J) {
    table().jacobian(edges, {pose.R, pose.t}, Tangent(pose).numbers, r, J);
  }
  static void residuals(const RefineArrays& edges, const Pose& pose, double* r2) {
    table().residuals(edges, {pose.R, pose.t}, r2);
  }
  static void normal_equations(const RefineArrays& edges, const Pose& pose, Loss loss, double eps2,
                               double* out) {
    table().normal_equations(edges, {pose.R, pose.t}, Tangent(pose).numbers, loss, eps2, out);
  }
  static Pose moved(const Pose& pose, const double* step) {
    return perturb(pose, Tangent(pose).numbers, step);
  }
  static Pose nearby(Source& random, const Pose& pose) {
    double step[5];
    for (double& s : step) s = random.in(-0.01, 0.01);
    return moved(pose, step);
  }
  static LmResult refine(Pose& pose, RefineColumns& columns, std::span<const double> weights) {
    return refine_pose(pose, columns, weights, Loss::kCauchy, 1e-2, 100);
  }
  static double error(const Pose& a, const Pose& b) { return distance(a.R, a.t, b); }
};

constexpr int N = kPoseParameters<double>;

FocalPose moved(const FocalPose& model, const double* step) {
  return {RelativePoseCase::moved(model.pose, step),
          {model.f[0] * std::exp(step[5]), model.f[1] * std::exp(step[6])}};
}

struct UnknownFocalCase : UsualLimits {
  using Problem = UnknownFocalProblem;
  static constexpr int kRows = 1, kParameters = N;
  static constexpr bool kValidity = true;
  static constexpr int kBorderline = 1;
  static constexpr double kScreened = 1.2, kRefined = 1e-3;

  struct Truth {
    FocalPose model;
    RelativePoseCase::Truth known;

    Truth(Source& random, int kind) : known(random, kind) {
      model = {known.model, {random.in(0.5, 2.0), random.in(0.5, 2.0)}};
    }
    Match match(Source& random, double noise, bool wrong) const {
      Match m = known.match(random, noise, wrong);
      for (int c = 0; c < 2; ++c) m.a[c] *= model.f[0], m.b[c] *= model.f[1];
      return m;
    }
  };

  static FocalPoints data(const VertexPoints& points) {
    static constexpr double kParametersOfPriors[] = {1.0, 0.5, 1.0, 0.5, 0.0};
    return {points, kParametersOfPriors};
  }
  // The Sampson distance of F = K1^-T E K0^-1 in the images.
  static Expected expected(const FocalPose& m, const double* a, const double* b) {
    const double u[2] = {a[0] / m.f[0], a[1] / m.f[0]}, v[2] = {b[0] / m.f[1], b[1] / m.f[1]};
    double E[9];
    const double *R = m.pose.R, *t = m.pose.t;
    for (int c = 0; c < 3; ++c) {
      E[c] = t[1] * R[6 + c] - t[2] * R[3 + c];
      E[3 + c] = t[2] * R[c] - t[0] * R[6 + c];
      E[6 + c] = t[0] * R[3 + c] - t[1] * R[c];
    }
    double value = 0, slope = 0;
    for (int i = 0; i < 3; ++i) {
      const double row = E[3 * i] * u[0] + E[3 * i + 1] * u[1] + E[3 * i + 2];
      const double column = E[i] * v[0] + E[3 + i] * v[1] + E[6 + i];
      value += (i < 2 ? v[i] : 1.0) * row;
      if (i == 2) break;
      slope += row * row / (m.f[1] * m.f[1]) + column * column / (m.f[0] * m.f[0]);
    }
    return {value * value / slope, RelativePoseCase::expected(m.pose, u, v).valid};
  }
  static TwoViews<double> views(const FocalPose& m) { return {m.pose.R, m.pose.t, m.f[0], m.f[1]}; }
  static const UnknownFocalKernels& table() { return kernels<UnknownFocalKernels>(); }
  static void jacobian(const RefineArrays& edges, const FocalPose& model, double* r, double* J) {
    table().jacobian(edges, views(model), RelativePoseCase::Tangent(model.pose).numbers, r, J);
  }
  static void residuals(const RefineArrays& edges, const FocalPose& model, double* r2) {
    table().residuals(edges, views(model), r2);
  }
  static void normal_equations(const RefineArrays& edges, const FocalPose& model, Loss loss,
                               double eps2, double* out) {
    table().normal_equations(edges, views(model), RelativePoseCase::Tangent(model.pose).numbers,
                             loss, eps2, out);
  }
  static FocalPose moved(const FocalPose& model, const double* step) {
    return ::moved(model, step);
  }
  static FocalPose nearby(Source& random, const FocalPose& model) {
    double step[N] = {};
    for (int i = 0; i < 5; ++i) step[i] = random.in(-0.01, 0.01);
    return moved(model, step);
  }
  // With known focal lengths; test_focal_refinement tests unknown ones.
  static LmResult refine(FocalPose& model, RefineColumns& columns,
                         std::span<const double> weights) {
    const double* f = model.f;
    const double parameters[] = {f[0], 0.0, f[1], 1e-15, 0.0};
    const FocalPriors priors = FocalPoints({{}, {}, 1.0}, parameters).priors;
    return refine_focal_pose(model, priors, columns, weights, Loss::kCauchy, 1e-2, 100);
  }
  static double error(const FocalPose& a, const FocalPose& b) {
    return distance(a.pose.R, a.pose.t, b.pose);
  }
};

// Points seen by two cameras with given focal lengths; edge i joins point i with point i.
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

// If the focal lengths are 1, residuals and inliers are those of RelativePoseProblem.
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

// The models of an exact sample with known focal lengths include the right pose.
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

// With exact points, a refinement finds pose and focal lengths: shared, one known, both unknown,
// both known.
void test_focal_refinement(Source& random) {
  for (int kind = 0; kind < 5; ++kind) {
    for (int trial = 0; trial < 20; ++trial) {
      const Pair pair(random, 100, 0.0, kind == 0);
      RefineColumns columns = pair.columns();
      AlignedVector<double> weights(columns.x0.size(), 0.0);
      std::fill_n(weights.begin(), 100, 1.0);
      // The median of the prior is the true focal length.
      const double* f = pair.model.f;
      const bool held0 = kind == 1 || kind == 4, held1 = kind == 2 || kind == 4;
      const double parameters[] = {f[0], held0 ? 0.0 : 0.5, f[1], held1 ? 0.0 : 0.5,
                                   kind == 0 ? 1.0 : 0.0};
      const FocalPoints points = pair.points(1e-2, parameters);
      double step[N];
      for (double& s : step) s = 0.01 * random.in(-1, 1);
      if (kind == 0) step[6] = step[5];
      if (held0) step[5] = 0.0;
      if (held1) step[6] = 0.0;
      FocalPose model = moved(pair.model, step);
      const LmResult result =
          refine_focal_pose(model, points.priors, columns, weights, Loss::kSquared, 1e-4, 200);
      CHECK(result.cost < 1e-8 && result.cost <= result.initial_cost);
      CHECK(distance(model.pose.R, model.pose.t, pair.model.pose) < 1e-3);
      for (int side = 0; side < 2; ++side) CHECK_NEAR(model.f[side], f[side], 2e-3 * f[side]);
      if (kind == 0) CHECK(model.f[0] == model.f[1]);
      if (held0) CHECK(model.f[0] == f[0]);
      if (held1) CHECK(model.f[1] == f[1]);
    }
  }
}

// Held focal lengths cover the prior in equal steps; known focal lengths stay as they are.
void test_held_focal_lengths() {
  constexpr int kLast = FocalPoints::kHeld - 1;
  const FocalPose model{{}, {0.8, 1.2}};
  for (int kind = 0; kind < 3; ++kind) {  // shared, the second unknown, both unknown
    const double parameters[] = {1.5, kind == 1 ? 0.0 : 0.5, 1.5, 0.5, kind == 0 ? 1.0 : 0.0};
    const FocalPoints points({{}, {}, 1.0}, parameters);
    const FocalPose start = kind == 0 ? FocalPose{{}, {0.8, 0.8}} : model;
    double before = 0.0;
    for (int k = 0; k <= kLast; ++k) {
      const FocalPoints held = points.held(k, start);
      CHECK(!held.priors.unknown(0) && !held.priors.unknown(1) && !held.priors.shared);
      FocalPose moved = start;
      held.hold(moved);
      const double expected = 1.5 * std::exp(0.5 * (4.0 * k / kLast - 2.0));
      CHECK_NEAR(moved.f[kind == 1 ? 1 : 0], expected, 1e-12);
      CHECK_NEAR(moved.f[0], kind == 1 ? 1.5 : expected, 1e-12);
      if (kind == 2) CHECK_NEAR(moved.f[1] / moved.f[0], 1.5, 1e-12);
      CHECK_NEAR(held.cost_of_holding(moved), 0.0, 1e-9);
      CHECK(moved.f[1] > before);
      before = moved.f[1];
    }
  }
}

// Loss, leads_elsewhere, the spread of focal lengths and the penalty of diverging axes, each
// compared with its definition.
void test_comparison(Source& random) {
  constexpr double kDegree = 0.017453292519943295;
  const Pair pair(random, 100, 0.0, true);
  const double parameters[] = {1.0, 0.5, 1.0, 0.5, 1.0};
  const FocalPoints points = pair.points(1e-2, parameters);
  const UnknownFocalProblem problem(pair.graph, points);
  double farthest = 0.0;
  for (const auto& x : {pair.x0, pair.x1}) {
    double most = 0.0;
    for (std::size_t i = 0; i < 100; ++i) most = std::max(most, std::hypot(x[2 * i], x[2 * i + 1]));
    farthest += std::atan(most);
  }
  const FocalPose first{{}, {1.0, 1.0}};
  for (double degrees : {0.0, 3.0, 8.0, 20.0, 60.0, 120.0}) {
    const double a = degrees * kDegree;
    FocalPose other = first;
    const double R[9] = {std::cos(a), 0, std::sin(a), 0, 1, 0, -std::sin(a), 0, std::cos(a)};
    std::copy_n(R, 9, other.pose.R);
    CHECK_NEAR(UnknownFocalProblem::loss(first, other), std::min(degrees, 10.0) * kDegree, 1e-7);
    CHECK(UnknownFocalProblem::loss(first, other) == UnknownFocalProblem::loss(other, first));
    CHECK(UnknownFocalProblem::leads_elsewhere(first, other) == (degrees > 10.0));
    const double beyond = a - std::max(farthest - 20.0 * kDegree, 0.0);
    CHECK_NEAR(problem.log_prior(other), -std::max(beyond, 0.0) / kDegree, 1e-4);
  }
  FocalPose longer = first;
  longer.f[0] = longer.f[1] = std::exp(0.3);
  CHECK(UnknownFocalProblem::leads_elsewhere(first, longer));
  CHECK_NEAR(problem.log_prior(longer), 16.0 * -2.0 * std::log(1.36), 1e-9);
  FocalPose chosen = first;
  UnknownFocalProblem::note_spread(chosen, {{first, 100.0}, {longer, 84.0}});
  const double share = std::exp(-1.0) / (1.0 + std::exp(-1.0));
  CHECK_NEAR(chosen.spread[0], 0.3 * std::sqrt(share), 1e-12);
  CHECK(chosen.spread[0] == chosen.spread[1]);
}

// Invalid parameters are refused.
void test_invalid_parameters() {
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
    test_unit_focal(random);
    test_samples(random);
    test_focal_refinement(random);
    test_comparison(random);
  });
  test_held_focal_lengths();
  test_invalid_parameters();
  test_problem<RelativePoseCase>();
  test_problem<UnknownFocalCase>();
  return check::finish();
}

// Rigid transforms and similarities: the tests of every problem, the solvers, and the completion of
// samples.
#include <array>
#include <memory>

#include "manymatch/problems/rigid/problem.h"
#include "problem_tests.h"

namespace {

using Point = std::array<double, 3>;

const RigidKernels& table() { return kernels<RigidKernels>(); }

Point map_point(const TransformNumbers& T, const Point& p) {
  Point q;
  for (std::size_t i = 0; i < 3; ++i) {
    q[i] = T.A[3 * i] * p[0] + T.A[3 * i + 1] * p[1] + T.A[3 * i + 2] * p[2] + T.t[i];
  }
  return q;
}

Point random_cube_point(Source& random) {
  return {random.in(-1, 1), random.in(-1, 1), random.in(-1, 1)};
}

template <bool kFreeScale>
Transform<kFreeScale> random_transform(Source& random) {
  double step[7];
  for (int i = 0; i < 3; ++i) step[i] = random.in(-2.5, 2.5);
  for (int i = 3; i < 6; ++i) step[i] = random.in(-1, 1);
  step[6] = random.in(-1.5, 1.5);
  return perturb(Transform<kFreeScale>(), step);
}

double distance(const TransformNumbers& a, const TransformNumbers& b) {
  double worst = std::abs(a.scale - b.scale);
  for (int i = 0; i < 9; ++i) worst = std::max(worst, std::abs(a.A[i] - b.A[i]));
  for (int i = 0; i < 3; ++i) worst = std::max(worst, std::abs(a.t[i] - b.t[i]));
  return worst;
}

// A must be scale R with a proper rotation R.
void check_sound(const TransformNumbers& T) {
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      double dot = 0;
      for (int k = 0; k < 3; ++k) dot += T.A[3 * i + k] * T.A[3 * j + k];
      CHECK_NEAR(dot / (T.scale * T.scale), i == j, 1e-12);
    }
  }
  const double* A = T.A;
  CHECK(A[0] * (A[4] * A[8] - A[5] * A[7]) - A[1] * (A[3] * A[8] - A[5] * A[6]) +
            A[2] * (A[3] * A[7] - A[4] * A[6]) >
        0);
}

template <bool kFreeScale>
struct Batch {
  std::unique_ptr<ThreePointBatch> batch = std::make_unique<ThreePointBatch>();
  std::vector<Transform<kFreeScale>> truth;

  void set(int k, int i, const Point& a, const Point& b) const {
    for (std::size_t c = 0; c < 3; ++c) {
      batch->x0[k][c][i] = a[c];
      batch->x1[k][c][i] = b[c];
    }
  }
  Point point0(int k, int i) const {
    return {batch->x0[k][0][i], batch->x0[k][1][i], batch->x0[k][2][i]};
  }
  Point point1(int k, int i) const {
    return {batch->x1[k][0][i], batch->x1[k][1][i], batch->x1[k][2][i]};
  }
  Batch(Source& random, int count, double noise = 0.0) {
    batch->count = count;
    for (int i = 0; i < count; ++i) {
      truth.push_back(random_transform<kFreeScale>(random));
      for (int k = 0; k < 3; ++k) {
        const Point p = random_cube_point(random);
        Point q = map_point(truth.back(), p);
        for (double& c : q) c += noise * random.in(-1, 1);
        set(k, i, p, q);
      }
    }
  }
};

template <bool kFreeScale>
std::unique_ptr<ThreePointSolutions> solve(const ThreePointBatch& batch, double tolerance = 0.1,
                                           double least_height = 0.0) {
  auto out = std::make_unique<ThreePointSolutions>();
  (kFreeScale ? table().similarity_three_point : table().rigid_three_point)(
      batch, {tolerance, least_height}, *out);
  return out;
}

template <bool kFreeScale>
void test_solver_is_right() {
  Source random(61);
  int wrong = 0, flat = 0, total = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Batch<kFreeScale> problems(random, kThreePointBatch);
    const auto out = solve<kFreeScale>(*problems.batch, 1e-6);
    int s = 0;
    for (int i = 0; i < kThreePointBatch; ++i, ++total) {
      if (s < out->count && out->sample[s] == i) {
        check_sound(out->transform[s]);
        wrong += distance(out->transform[s++], problems.truth[at(i)]) < 1e-9 ? 0 : 1;
      } else {
        ++flat;
      }
    }
    CHECK_EQ(s, out->count);
  }
  std::cerr << wrong << " of " << total << " wrong, " << flat << " refused as nearly collinear\n";
  CHECK(wrong * 1000 <= total);
  CHECK(flat * 1000 <= total);
}

// The sum of squares that the solver minimises.
double symmetric_squares(const TransformNumbers& T, const std::vector<Point>& x0,
                         const std::vector<Point>& x1) {
  double sum = 0;
  for (std::size_t i = 0; i < x0.size(); ++i) {
    const Point q = map_point(T, x0[i]);
    for (std::size_t c = 0; c < 3; ++c) sum += (q[c] - x1[i][c]) * (q[c] - x1[i][c]) / T.scale;
  }
  return sum;
}

// On noisy samples, a step in any direction increases the sum of squares.
template <bool kFreeScale>
void test_solver_is_least_squares() {
  Source random(62);
  const Batch<kFreeScale> problems(random, kThreePointBatch, 0.05);
  const auto out = solve<kFreeScale>(*problems.batch, 1.0);
  CHECK(out->count > 50);
  for (int s = 0; s < out->count; ++s) {
    const int i = out->sample[s];
    std::vector<Point> x0, x1;
    for (int k = 0; k < 3; ++k) {
      x0.push_back(problems.point0(k, i));
      x1.push_back(problems.point1(k, i));
    }
    const Transform<kFreeScale> T{out->transform[s]};
    const double best = symmetric_squares(T, x0, x1);
    for (int parameter = 0; parameter < (kFreeScale ? 7 : 6); ++parameter) {
      for (double size : {-1e-4, 1e-4}) {
        double step[7] = {};
        step[parameter] = size;
        CHECK(symmetric_squares(perturb(T, step), x0, x1) > best - 1e-15);
      }
    }
  }
}

// Samples with different sides, with collinear, coincident or non-finite points, or too small, have
// no solution.
template <bool kFreeScale>
void test_refused_samples() {
  Source random(64);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const Batch<kFreeScale> problems(random, kThreePointBatch);
  ThreePointBatch& batch = *problems.batch;
  for (int i = 0; i < kThreePointBatch; ++i) {
    const auto& truth = problems.truth[at(i)];
    const Point far{0.9, 0.1, -0.8};
    switch (i % 8) {
      case 0:  // one point is elsewhere
        problems.set(0, i, far, map_point(truth, {0.1, 2.1, 3.2}));
        break;
      case 1:  // on a line
        for (int k = 0; k < 3; ++k) {
          const Point p{0.3 * k, 0.2 * k - 0.5, 0.1 * k};
          problems.set(k, i, p, map_point(truth, p));
        }
        break;
      case 2:  // two in one place
        problems.set(1, i, problems.point0(2, i), problems.point1(2, i));
        break;
      case 3:
        batch.x1[i / 8 % 3][i % 3][i] = nan;
        break;
      case 4:
        batch.x0[i / 8 % 3][i % 3][i] = infinity;
        break;
      case 5:  // all in one place
        for (int k = 0; k < 3; ++k) problems.set(k, i, {0.5, 0.5, 0.1}, {0.1, 0.2, 0.3});
        break;
      case 6:  // too small
        for (int k = 0; k < 3; ++k) {
          const Point p{k == 1 ? 0.01 : 0.0, k == 2 ? 0.01 : 0.0, 0.3};
          problems.set(k, i, p, map_point(truth, p));
        }
        break;
      default:
        for (int k = 0; k < 3; ++k) {
          const Point p{k == 1 ? 0.7 : 0.0, k == 2 ? 0.6 : 0.0, 0.3};
          problems.set(k, i, p, map_point(truth, p));
        }
        break;
    }
  }
  const auto out = solve<kFreeScale>(batch, 1e-3, 0.05);
  int good = 0;
  for (int s = 0; s < out->count; ++s) {
    CHECK_EQ(out->sample[s] % 8, 7);
    good += distance(out->transform[s], problems.truth[at(out->sample[s])]) < 1e-9;
  }
  CHECK_EQ(good, 8);
  batch.count = 0;
  CHECK_EQ(solve<kFreeScale>(batch)->count, 0);
}

// Sides may differ by up to the tolerance.
void test_tolerance() {
  Source random(65);
  const Batch<false> problems(random, 0);
  problems.batch->count = 2;
  const auto longer = [](double extra) { return Point{1.0 + extra, 0.0, 0.0}; };
  for (int i = 0; i < 2; ++i) {
    problems.set(0, i, {0, 0, 0}, {0, 0, 0});
    problems.set(1, i, {1, 0, 0}, longer(i == 0 ? 0.0999 : 0.1001));
    problems.set(2, i, {0.5, 1, 0}, {0.5, 1, 0});
  }
  const auto out = solve<false>(*problems.batch, 0.1);
  CHECK_EQ(out->count, 1);
  CHECK_EQ(out->sample[0], 0);
}

template <bool kFreeScale>
struct RigidCase : UsualLimits {
  using Problem = TransformProblem<kFreeScale>;
  using Model = Transform<kFreeScale>;
  static constexpr int kRows = 3, kParameters = kFreeScale ? 7 : 6;
  static constexpr bool kValidity = false, kDifferences = true;
  static constexpr double kSumsTolerance = 1e-8;

  struct Truth {
    Model model;

    Truth(Source& random, int) : model(random_transform<kFreeScale>(random)) {}
    Match match(Source& random, double noise, bool wrong) const {
      const Point p = random_cube_point(random);
      const Point q = map_point(model, wrong ? random_cube_point(random) : p);
      Match out;
      for (std::size_t c = 0; c < 3; ++c) {
        out.a[c] = p[c];
        out.b[c] = q[c] + noise * random.in(-1, 1);
      }
      return out;
    }
  };

  // The geometric mean of the distances in the two spaces.
  static Expected expected(const Model& T, const double* a, const double* b) {
    const Point q = map_point(T, {a[0], a[1], a[2]});
    double there = 0, back = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      there += (q[i] - b[i]) * (q[i] - b[i]);
      double x = 0;  // the inverse is A' / scale^2
      for (std::size_t j = 0; j < 3; ++j) x += T.A[3 * j + i] * (b[j] - T.t[j]);
      x /= T.scale * T.scale;
      back += (x - a[i]) * (x - a[i]);
    }
    return {std::sqrt(there * back)};
  }
  // Three residuals of an edge whose squares sum to r^2.
  static Point rows(const RefineArrays& edges, std::size_t i, const Model& T) {
    const Point q = map_point(T, {edges.x0[i], edges.y0[i], edges.z0[i]});
    const double root = std::sqrt(T.scale);
    return {(q[0] - edges.x1[i]) / root, (q[1] - edges.y1[i]) / root, (q[2] - edges.z1[i]) / root};
  }
  static void jacobian(const RefineArrays& edges, const Model& model, double* r, double* J) {
    for (std::size_t i = 0; i < edges.padded; ++i) {
      const Point here = rows(edges, i, model);
      std::copy_n(here.data(), 3, r + 3 * i);
      for (std::size_t k = 0; k < kParameters; ++k) {
        double forward[7] = {}, back[7] = {};
        forward[k] = 1e-5;
        back[k] = -1e-5;
        const Point up = rows(edges, i, perturb(model, forward));
        const Point down = rows(edges, i, perturb(model, back));
        for (std::size_t row = 0; row < 3; ++row) {
          J[kParameters * (3 * i + row) + k] = (up[row] - down[row]) / 2e-5;
        }
      }
    }
  }
  static void residuals(const RefineArrays& edges, const Model& model, double* r2) {
    table().residuals(edges, model, r2);
  }
  static void normal_equations(const RefineArrays& edges, const Model& model, Loss loss,
                               double eps2, double* out) {
    double sums[kSpaceSums];
    table().sums(edges, model, loss, eps2, sums);
    transform_normal_equations<kFreeScale>(sums, model.scale, out);
  }
  static Model moved(const Model& model, const double* step) {
    double all[7] = {};
    std::copy_n(step, kParameters, all);
    return perturb(model, all);
  }
  static Model nearby(Source& random, const Model& model) {
    double step[7];
    for (double& s : step) s = random.in(-0.1, 0.1);
    return perturb(model, step);
  }
  static LmResult refine(Model& model, RefineColumns& columns, std::span<const double> weights) {
    const LmResult result = refine_transform(model, columns, weights, Loss::kCauchy, 1e-2, 100);
    check_sound(model);
    return result;
  }
  static double error(const Model& a, const Model& b) { return distance(a, b); }
};

// Whether two edges can be in one sample, by the definition: their distances in the two clouds
// differ by less than the threshold, and neither is shorter than the least height of a sample.
bool consistent(const Graph& graph, const std::vector<double>& x0, const std::vector<double>& x1,
                double eps, int e, int f) {
  const auto length = [](const std::vector<double>& x, int a, int b) {
    return std::hypot(x[at(3 * a)] - x[at(3 * b)], x[at(3 * a + 1)] - x[at(3 * b + 1)],
                      x[at(3 * a + 2)] - x[at(3 * b + 2)]);
  };
  const double l0 = length(x0, graph.left[at(e)], graph.left[at(f)]);
  const double l1 = length(x1, graph.right[at(e)], graph.right[at(f)]);
  const double least = RigidProblem::limits(eps).least_height;
  return std::abs(l0 - l1) < eps && l0 >= least && l1 >= least;
}

// Completed samples are consistent, use allowed edges only, and are equally likely. The probability
// of a clean sample equals that found by enumeration.
void test_completion() {
  Source random(72);
  const RigidCase<false>::Truth truth(random, 0);
  std::vector<double> x0, x1;
  Edges edges;
  for (int i = 0; i < 70; ++i) {
    const Match m = truth.match(random, 0.005, i % 3 == 0);
    x0.insert(x0.end(), m.a, m.a + 3);
    x1.insert(x1.end(), m.b, m.b + 3);
    edges.emplace_back(i, i);
  }
  for (int i = 0; i < 30; ++i) edges.emplace_back(i, (i + 1) % 70);  // a second edge of a vertex
  const Graph graph = make_graph(edges, 70, 70);
  const double eps = 0.05;
  const RigidProblem problem(graph, {x0, x1, eps});
  const auto completion = problem.completion();
  const int count = static_cast<int>(edges.size());
  Mask allowed(graph.words(), 0), inliers(graph.words());
  for (int e = 0; e < count; e += 1 + e % 2) set_bit(allowed, e);
  problem.inliers(truth.model, inliers, {});
  const auto can = [&](int e, int f) { return consistent(graph, x0, x1, eps, e, f); };

  const int first = 1;
  std::vector<int> seconds, drawn(at(count), 0);
  for (int f = 0; f < count; ++f) {
    if (has_bit(allowed, at(f)) && can(first, f)) seconds.push_back(f);
  }
  constexpr int kDraws = 20000;
  int complete = 0;
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(5, static_cast<uint64_t>(i), Rng::kSample);
    int sample[3] = {first, -1, -1};
    if (!completion->complete(rng, allowed, sample)) continue;
    ++complete;
    ++drawn[at(sample[1])];
    for (int k = 1; k < 3; ++k) {
      CHECK(has_bit(allowed, at(sample[k])));
      CHECK(can(first, sample[k]));
    }
    CHECK(can(sample[1], sample[2]));
  }
  CHECK(complete > kDraws / 2 && seconds.size() > 10);
  for (int f : seconds) {
    bool third = false;
    for (int g : seconds) third |= can(f, g);
    const double expected = third ? kDraws / static_cast<double>(seconds.size()) : 0.0;
    CHECK_NEAR(drawn[at(f)], expected, 5.0 * std::sqrt(expected));
  }

  // So few inliers that the probability averages over all of them.
  Mask few(graph.words(), 0);
  for (int e = 0, taken = 0; e < count && taken < 30; ++e) {
    if (has_bit(allowed, at(e)) && has_bit(inliers, at(e))) {
      set_bit(few, e);
      ++taken;
    }
  }
  double chance = 0.0;
  int firsts = 0;
  for (int e = 0; e < count; ++e) {
    if (!has_bit(allowed, at(e)) || !has_bit(few, at(e))) continue;
    ++firsts;
    int second = 0;
    double right = 0.0;
    for (int f = 0; f < count; ++f) {
      if (!has_bit(allowed, at(f)) || !can(e, f)) continue;
      ++second;
      int third = 0, clean = 0;
      for (int g = 0; g < count; ++g) {
        if (!has_bit(allowed, at(g)) || !can(e, g) || !can(f, g)) continue;
        ++third;
        clean += has_bit(few, at(g));
      }
      if (third && has_bit(few, at(f))) right += static_cast<double>(clean) / third;
    }
    if (second) chance += right / second;
  }
  CHECK(firsts > 10);
  CHECK_NEAR(completion->clean_chance(allowed, few), chance / firsts, 1e-12);
  CHECK(chance > 0.0);
  CHECK_EQ(completion->clean_chance(allowed, Mask(graph.words(), 0)), 0.0);
}

template <bool kFreeScale>
void test_solver() {
  test_solver_is_right<kFreeScale>();
  test_solver_is_least_squares<kFreeScale>();
  test_refused_samples<kFreeScale>();
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_solver<false>();
    test_solver<true>();
    test_tolerance();
    test_completion();
  });
  test_problem<RigidCase<false>>();
  test_problem<RigidCase<true>>();
  return check::finish();
}

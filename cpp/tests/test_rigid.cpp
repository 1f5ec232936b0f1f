// Rigid transforms and similarities: solver, inliers, screening, derivatives and refinement on
// every instruction set.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "check.h"
#include "manymatch/problems/rigid/problem.h"
#include "manymatch/ransac/lo_ransac.h"
#include "random_graph.h"
#include "two_view.h"

using namespace manymatch;

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

// A = scale R with a proper rotation R.
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

// Squares that the solver makes least: over the rotations and translations, and scales if free.
double symmetric_squares(const TransformNumbers& T, const std::vector<Point>& x0,
                         const std::vector<Point>& x1) {
  double sum = 0;
  for (std::size_t i = 0; i < x0.size(); ++i) {
    const Point q = map_point(T, x0[i]);
    for (std::size_t c = 0; c < 3; ++c) sum += (q[c] - x1[i][c]) * (q[c] - x1[i][c]) / T.scale;
  }
  return sum;
}

// On noisy samples no step in any direction is better.
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

template <bool kFreeScale>
void test_alone_and_in_a_batch() {
  Source random(63);
  const Batch<kFreeScale> problems(random, 37, 0.01);
  const auto together = solve<kFreeScale>(*problems.batch);
  int next = 0;
  for (int i = 0; i < 37; ++i) {
    const Batch<kFreeScale> one(random, 0);
    one.batch->count = 1;
    for (int k = 0; k < 3; ++k) one.set(k, 0, problems.point0(k, i), problems.point1(k, i));
    const auto alone = solve<kFreeScale>(*one.batch);
    for (int s = 0; s < alone->count; ++s, ++next) {
      CHECK(next < together->count && together->sample[next] == i);
      CHECK(std::memcmp(&alone->transform[s], &together->transform[next],
                        sizeof alone->transform[s]) == 0);
    }
  }
  CHECK_EQ(next, together->count);
}

// Sides that disagree, collinear, coincident and small triangles, and what is not a number.
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

// Sides may differ by the tolerance and no more.
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

// Correspondences of one transform with noise; some are anything.
struct Scene {
  std::vector<double> x0, x1;
  Graph graph{{}, {}, 0, 0};

  Scene(Source& random, const TransformNumbers& model, int points, double noise) {
    Edges edges;
    for (int i = 0; i < points; ++i) {
      const Point p = random_cube_point(random);
      Point q = map_point(model, p);
      if (i % 3 == 0) q = map_point(model, random_cube_point(random));
      for (double& c : q) c += noise * random.in(-1, 1);
      x0.insert(x0.end(), p.begin(), p.end());
      x1.insert(x1.end(), q.begin(), q.end());
      edges.emplace_back(i, i);
    }
    graph = make_graph(edges, points, points);
  }
  VertexPoints points(double eps) const { return {x0, x1, eps}; }
};

// By the definition: the geometric mean of the distances in the two spaces.
double residual2(const TransformNumbers& T, const double* a, const double* b) {
  const Point q = map_point(T, {a[0], a[1], a[2]});
  double there = 0, back = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    there += (q[i] - b[i]) * (q[i] - b[i]);
    double x = 0;  // the inverse is A' / scale^2
    for (std::size_t j = 0; j < 3; ++j) x += T.A[3 * j + i] * (b[j] - T.t[j]);
    x /= T.scale * T.scale;
    back += (x - a[i]) * (x - a[i]);
  }
  return std::sqrt(there * back);
}

template <bool kFreeScale>
void test_definition() {
  Source random(66);
  int inliers = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto model = random_transform<kFreeScale>(random);
    const Scene scene(random, model, 150, 0.01);
    const TransformProblem<kFreeScale> problem(scene.graph, scene.points(0.01));
    Mask mask(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    const int count = problem.inliers(model, mask, r2);
    CHECK_EQ(count, count_bits(mask));
    inliers += count;
    for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
      const double expected = residual2(model, &scene.x0[3 * e], &scene.x1[3 * e]);
      CHECK_NEAR(r2[e], expected, 1e-9 * expected + 1e-18);
      CHECK_EQ(expected < 1e-4, has_bit(mask, e));
    }
    for (std::size_t e = scene.graph.num_edges(); e < r2.size(); ++e) CHECK(!has_bit(mask, e));
  }
  CHECK(inliers > 500);
}

// The threshold is put right above the residual of one edge after the other.
template <bool kFreeScale>
void test_screen_is_a_superset() {
  Source random(67);
  int kept = 0, offered = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const auto model = random_transform<kFreeScale>(random);
    Scene scene(random, model, 300, std::pow(10.0, random.in(-7, -1)));
    if (repeat % 4 == 2) {
      for (double& x : scene.x0) x *= 50;
    }
    std::vector<double> thresholds = {1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e12};
    Mask exact(scene.graph.words()), loose(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    TransformProblem<kFreeScale>(scene.graph, scene.points(1.0)).inliers(model, exact, r2);
    for (std::size_t e = 0; e < scene.graph.num_edges(); e += 5) {
      if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
    }
    for (double eps : thresholds) {
      const TransformProblem<kFreeScale> problem(scene.graph, scene.points(eps));
      const int inliers = problem.inliers(model, exact, {});
      const int count = problem.screen(model, 0, loose);
      CHECK_EQ(count, count_bits(loose));
      bool superset = true;
      for (std::size_t w = 0; w < exact.size(); ++w) superset &= !(exact[w] & ~loose[w]);
      CHECK(superset);
      if (repeat % 4 < 2 && eps > 1e-3 && eps < 1e-1) {
        kept += count;
        offered += inliers;
      }
    }
  }
  std::cerr << kept << " edges screened, " << offered << " inliers\n";
  CHECK(offered > 500 && kept < 1.02 * offered);
}

// Points that are not numbers, and too large to square, are outliers of every transform.
void test_bad_points() {
  Source random(68);
  const auto model = random_transform<true>(random);
  Scene scene(random, model, 70, 0.0);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (std::size_t e = 0; e < 16; ++e)
    (e % 2 ? scene.x0 : scene.x1)[3 * e + e % 3] = bad[e / 2 % 4];
  const SimilarityProblem problem(scene.graph, scene.points(1e-3));
  Mask mask(scene.graph.words());
  std::vector<double> r2(scene.graph.words() * 64);
  CHECK(problem.inliers(model, mask, r2) > 10);
  for (std::size_t e = 0; e < 16; ++e) CHECK(!has_bit(mask, e) && !(r2[e] < 1e100));
  problem.screen(model, 0, mask);
  for (std::size_t e = 0; e < 16; ++e) CHECK(!has_bit(mask, e));
}

struct Columns {
  RefineColumns columns;
  AlignedVector<double> weights;

  Columns(Source& random, const TransformNumbers& model, int count, double noise) {
    const auto n = static_cast<std::size_t>(count);
    weights.assign((n + 7) / 8 * 8, 0.0);
    columns.resize(n, weights.size(), 3, 3);
    for (std::size_t i = 0; i < n; ++i) {
      const Point p = random_cube_point(random), q = map_point(model, p);
      columns.x0[i] = p[0];
      columns.y0[i] = p[1];
      columns.z0[i] = p[2];
      columns.x1[i] = q[0] + noise * random.in(-1, 1);
      columns.y1[i] = q[1] + noise * random.in(-1, 1);
      columns.z1[i] = q[2] + noise * random.in(-1, 1);
      weights[i] = random.in(0.1, 2.0);
    }
  }
  RefineArrays arrays() const { return columns.arrays(weights); }
  // Three residuals of an edge, whose squares sum up to r^2.
  Point rows(std::size_t i, const TransformNumbers& T) const {
    const Point q = map_point(T, {columns.x0[i], columns.y0[i], columns.z0[i]});
    const double root = std::sqrt(T.scale);
    return {(q[0] - columns.x1[i]) / root, (q[1] - columns.y1[i]) / root,
            (q[2] - columns.z1[i]) / root};
  }
};

// Against derivatives by differences, one edge after the other.
template <bool kFreeScale>
void test_normal_equations(const Columns& c, const Transform<kFreeScale>& model, int count,
                           double eps2) {
  constexpr int N = kFreeScale ? 7 : 6;
  constexpr int kTotal = N * (N + 1) / 2 + N + 1;
  std::vector<double> r2(c.weights.size());
  table().residuals(c.arrays(), model, r2.data());
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    double sums[kSpaceSums], out[kTotal], expected[kTotal] = {};
    table().sums(c.arrays(), model, loss, eps2, sums);
    transform_normal_equations<kFreeScale>(sums, model.scale, out);
    for (std::size_t i = 0; i < at(count); ++i) {
      const Point r = c.rows(i, model);
      const double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
      CHECK_NEAR(r2[i], square, 1e-12 * square + 1e-20);
      double J[3][N];
      for (int k = 0; k < N; ++k) {
        double forward[7] = {}, back[7] = {};
        forward[k] = 1e-5;
        back[k] = -1e-5;
        const Point up = c.rows(i, perturb(model, forward));
        const Point down = c.rows(i, perturb(model, back));
        for (std::size_t row = 0; row < 3; ++row) J[row][k] = (up[row] - down[row]) / 2e-5;
      }
      const bool inside = r2[i] < eps2;
      const double robust = loss == Loss::kSquared     ? 1.0
                            : loss == Loss::kTruncated ? inside
                                                       : 1.0 / (1.0 + r2[i] / eps2);
      const double w = c.weights[i] * robust;
      for (std::size_t row = 0; row < 3; ++row) {
        int slot = 0;
        for (int a = 0; a < N; ++a) {
          for (int b = a; b < N; ++b) expected[slot++] += w * J[row][a] * J[row][b];
        }
        for (int a = 0; a < N; ++a) expected[slot++] += w * J[row][a] * r[row];
      }
      if (loss == Loss::kSquared) expected[kTotal - 1] += c.weights[i] * r2[i];
      if (loss == Loss::kTruncated) expected[kTotal - 1] += c.weights[i] * (inside ? r2[i] : eps2);
    }
    for (int k = 0; k < kTotal; ++k) {
      CHECK_NEAR(out[k], expected[k], 1e-8 * count * (1 + std::abs(expected[k])));
    }
  }
}

template <bool kFreeScale>
void test_refinement(Source& random) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto truth = random_transform<kFreeScale>(random);
    Columns c(random, truth, 40, 0.0);
    double step[7];
    for (double& s : step) s = random.in(-0.1, 0.1);
    auto model = perturb(truth, step);
    const LmResult result = refine_transform(model, c.columns, c.weights, Loss::kCauchy, 1e-2, 100);
    CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
    CHECK(distance(model, truth) < 1e-6);
    check_sound(model);
  }
}

// Lets everything through, so that the loop scores every hypothesis exactly.
template <bool kFreeScale>
struct Exact : TransformProblem<kFreeScale> {
  using TransformProblem<kFreeScale>::TransformProblem;

  int screen(const Transform<kFreeScale>&, int, std::span<uint64_t> mask) const {
    std::fill(mask.begin(), mask.end(), 0);
    for (int e = 0; e < static_cast<int>(this->graph().num_edges()); ++e) set_bit(mask, e);
    return static_cast<int>(this->graph().num_edges());
  }
};

template <class P>
SearchResult<typename P::Model> search(const Scene& scene, double eps, int threads) {
  const P problem(scene.graph, scene.points(eps));
  const HcmTerms terms(scene.graph, 0.3, 0.01);
  std::vector<int> all(scene.graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(scene.graph, all, false);
  Options options;
  options.min_iterations = 600;
  options.max_iterations = 1500;
  Workers workers(threads);
  Interrupt interrupt;
  Pool<typename P::Model> pool(30);
  return LoRansac<P, HcmScorer>(
             problem, proposals, options, Weighting::kByDegree,
             [&] { return HcmScorer(scene.graph, terms); }, workers, interrupt)
      .run(&pool);
}

// The loop finds the same with every hypothesis scored in float64, for any number of threads.
template <bool kFreeScale>
void test_screening_loses_nothing() {
  Source random(69);
  for (double eps : {1e-6, 1e-3, 0.02}) {
    const auto model = random_transform<kFreeScale>(random);
    const Scene scene(random, model, 200, 1.2 * eps);
    const auto exact = search<Exact<kFreeScale>>(scene, eps, 1);
    CHECK(exact.found);
    for (int threads : {1, 2}) {
      const auto screened = search<TransformProblem<kFreeScale>>(scene, eps, threads);
      CHECK(std::memcmp(&screened.model, &exact.model, sizeof exact.model) == 0);
      CHECK_EQ(screened.iterations, exact.iterations);
      CHECK_EQ(screened.refinements, exact.refinements);
    }
  }
}

// Whether two edges can hold together, by the definition: lengths that differ by less than the
// threshold, and neither shorter than the least height of a sample.
bool consistent(const Scene& scene, double eps, int e, int f) {
  const auto length = [](const std::vector<double>& x, int a, int b) {
    return std::hypot(x[at(3 * a)] - x[at(3 * b)], x[at(3 * a + 1)] - x[at(3 * b + 1)],
                      x[at(3 * a + 2)] - x[at(3 * b + 2)]);
  };
  const Graph& graph = scene.graph;
  const double l0 = length(scene.x0, graph.left[at(e)], graph.left[at(f)]);
  const double l1 = length(scene.x1, graph.right[at(e)], graph.right[at(f)]);
  const double least = RigidProblem::limits(eps).least_height;
  return std::abs(l0 - l1) < eps && l0 >= least && l1 >= least;
}

// Completed samples are consistent and from the allowed edges, each as often as any other; and the
// chance of clean ones is that of all samples counted.
void test_completion() {
  Source random(72);
  const auto model = random_transform<false>(random);
  Scene scene(random, model, 70, 0.005);
  Edges edges;
  for (int i = 0; i < 70; ++i) edges.emplace_back(i, i);
  for (int i = 0; i < 30; ++i) edges.emplace_back(i, (i + 1) % 70);  // a second edge of a vertex
  scene.graph = make_graph(edges, 70, 70);
  const double eps = 0.05;
  const RigidProblem problem(scene.graph, scene.points(eps));
  const auto completion = problem.completion();
  const int count = static_cast<int>(edges.size());
  Mask allowed(scene.graph.words(), 0), inliers(scene.graph.words());
  for (int e = 0; e < count; e += 1 + e % 2) set_bit(allowed, e);
  problem.inliers(model, inliers, {});
  const auto can = [&](int e, int f) { return consistent(scene, eps, e, f); };

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

  // A few first edges only, so that all of them are looked at.
  Mask few(scene.graph.words(), 0);
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
  CHECK_EQ(completion->clean_chance(allowed, Mask(scene.graph.words(), 0)), 0.0);
}

// Instruction sets with fused operations agree to the bit, the baseline nearly.
template <bool kFreeScale>
void test_sets_agree() {
  Source random(70);
  const auto model = random_transform<kFreeScale>(random);
  const Columns c(random, model, 301, 1e-3);
  const Scene scene(random, model, 200, 0.02);
  const TransformProblem<kFreeScale> problem(scene.graph, scene.points(0.01));
  const Batch<kFreeScale> problems(random, kThreePointBatch, 0.01);
  std::vector<double> first;
  for_each_instruction_set([&](const char* name) {
    std::vector<double> all(c.weights.size());
    table().residuals(c.arrays(), model, all.data());
    for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
      double out[kSpaceSums];
      table().sums(c.arrays(), model, loss, 1e-6, out);
      all.insert(all.end(), out, out + kSpaceSums);
    }
    Mask mask(scene.graph.words());
    std::vector<double> distances(scene.graph.words() * 64);
    all.push_back(problem.inliers(model, mask, distances));
    for (double d : distances) all.push_back(std::isnan(d) ? -1.0 : d);
    const auto solved = solve<kFreeScale>(*problems.batch);
    for (int s = 0; s < solved->count; ++s) {
      all.push_back(solved->sample[s]);
      all.insert(all.end(), solved->transform[s].A, solved->transform[s].A + 9);
      all.insert(all.end(), solved->transform[s].t, solved->transform[s].t + 3);
    }
    if (first.empty()) {
      first = all;
    } else if (std::strcmp(name, "baseline") != 0) {
      CHECK(first.size() == all.size() &&
            std::memcmp(first.data(), all.data(), all.size() * sizeof(double)) == 0);
    } else {
      CHECK_EQ(first.size(), all.size());
      for (std::size_t i = 0; i < std::min(first.size(), all.size()); ++i) {
        CHECK_NEAR(all[i], first[i], 1e-9 * (1e-3 + std::abs(first[i])));
      }
    }
  });
}

template <bool kFreeScale>
void test_all() {
  test_solver_is_right<kFreeScale>();
  test_solver_is_least_squares<kFreeScale>();
  test_alone_and_in_a_batch<kFreeScale>();
  test_refused_samples<kFreeScale>();
  test_definition<kFreeScale>();
  test_screen_is_a_superset<kFreeScale>();
  Source random(71);
  for (int count : {1, 7, 8, 9, 50}) {
    const auto model = random_transform<kFreeScale>(random);
    test_normal_equations(Columns(random, model, count, 0.02), model, count, 1e-4);
  }
  test_refinement<kFreeScale>(random);
  test_screening_loses_nothing<kFreeScale>();
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_all<false>();
    test_all<true>();
    test_tolerance();
    test_bad_points();
    test_completion();
  });
  test_sets_agree<false>();
  test_sets_agree<true>();
  return check::finish();
}

// Fundamental matrix: solver, inliers, screening, derivatives, refinement and completion of planes
// on every instruction set.
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "check.h"
#include "manymatch/problems/fundamental/problem.h"
#include "manymatch/ransac/lo_ransac.h"
#include "random_graph.h"
#include "two_view.h"

using namespace manymatch;

namespace {

constexpr int kParameters = FactoredFundamental::kParameters;

const FundamentalKernels& table() { return kernels<FundamentalKernels>(); }

// F = [t]x R with norm one; points in front of both cameras make the epipole of image 1 t or -t.
Fundamental of_pose(const Pose& pose) {
  Fundamental out;
  const double *R = pose.R, *t = pose.t;
  for (int c = 0; c < 3; ++c) {
    out.F[c] = t[1] * R[6 + c] - t[2] * R[3 + c];
    out.F[3 + c] = t[2] * R[c] - t[0] * R[6 + c];
    out.F[6 + c] = t[0] * R[3 + c] - t[1] * R[c];
  }
  for (double& f : out.F) f *= std::sqrt(0.5);
  std::copy_n(t, 3, out.e);
  return out;
}

double determinant(const double* F) {
  return F[0] * (F[4] * F[8] - F[5] * F[7]) - F[1] * (F[3] * F[8] - F[5] * F[6]) +
         F[2] * (F[3] * F[7] - F[4] * F[6]);
}

double distance(const double* a, const double* b) {
  double plus = 0, minus = 0;
  for (int i = 0; i < 9; ++i) {
    plus = std::max(plus, std::abs(a[i] + b[i]));
    minus = std::max(minus, std::abs(a[i] - b[i]));
  }
  return std::min(plus, minus);
}

struct Points {
  double x0, y0, x1, y1;
};

Points seen(Source& random, const Pose& pose, double noise = 0.0) {
  const Seen s = random_point(random, pose, 0.9);
  return {s.X.x / s.X.z, s.X.y / s.X.z, s.X1.x / s.X1.z + noise * random.in(-1, 1),
          s.X1.y / s.X1.z + noise * random.in(-1, 1)};
}

// By the definition, in plain numbers.
double sampson2(const Fundamental& model, const Points& p) {
  const double a[3] = {p.x0, p.y0, 1}, b[3] = {p.x1, p.y1, 1};
  double C = 0, den = 0;
  for (int i = 0; i < 3; ++i) {
    double row = 0, column = 0;
    for (int j = 0; j < 3; ++j) {
      row += model.F[3 * i + j] * a[j];
      column += model.F[3 * j + i] * b[j];
    }
    C += b[i] * row;
    if (i < 2) den += row * row + column * column;
  }
  return C * C / den;
}

// The sign of (e x x1) . (F x0), all three components.
double side(const Fundamental& model, const Points& p) {
  const double a[3] = {p.x0, p.y0, 1}, b[3] = {p.x1, p.y1, 1};
  double total = 0;
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    double row = 0;
    for (int c = 0; c < 3; ++c) row += model.F[3 * i + c] * a[c];
    total += (model.e[j] * b[k] - model.e[k] * b[j]) * row;
  }
  return total;
}

Fundamental taken(const SevenPointSolutions& out, int s) {
  Fundamental model;
  std::copy_n(out.F[s], 9, model.F);
  std::copy_n(out.e[s], 3, model.e);
  return model;
}

struct Batch {
  std::unique_ptr<SevenPointBatch> batch = std::make_unique<SevenPointBatch>();
  std::vector<Fundamental> truth;

  void set(int k, int i, const Points& p) const {
    batch->x0[k][i] = p.x0;
    batch->y0[k][i] = p.y0;
    batch->x1[k][i] = p.x1;
    batch->y1[k][i] = p.y1;
  }
  Points get(int k, int i) const {
    return {batch->x0[k][i], batch->y0[k][i], batch->x1[k][i], batch->y1[k][i]};
  }
  Batch(Source& random, int count) {
    batch->count = count;
    for (int i = 0; i < count; ++i) {
      const Pose pose = random_pose(random, 0.4);
      truth.push_back(of_pose(pose));
      for (int k = 0; k < 7; ++k) set(k, i, seen(random, pose));
    }
  }
};

std::unique_ptr<SevenPointSolutions> solve(const SevenPointBatch& batch) {
  auto out = std::make_unique<SevenPointSolutions>();
  table().seven_point(batch, *out);
  return out;
}

// What holds for the answer to any input.
void check_sound(const Batch& problems, const SevenPointSolutions& out) {
  for (int s = 0; s < out.count; ++s) {
    const int i = out.sample[s];
    CHECK(i >= 0 && i < problems.batch->count && (s == 0 || out.sample[s - 1] <= i));
    const Fundamental model = taken(out, s);
    double norm2 = 0, length2 = 0, left = 0;
    for (double f : model.F) norm2 += f * f;
    for (int c = 0; c < 3; ++c) {
      length2 += model.e[c] * model.e[c];
      double product = 0;
      for (int r = 0; r < 3; ++r) product += model.e[r] * model.F[3 * r + c];
      left = std::max(left, std::abs(product));
    }
    CHECK_NEAR(norm2, 1.0, 1e-12);
    CHECK_NEAR(length2, 1.0, 1e-12);
    CHECK(left < 1e-9);
    CHECK_NEAR(determinant(model.F), 0.0, 1e-13);
    for (int k = 0; k < 7; ++k) CHECK(side(model, problems.get(k, i)) > 0);
  }
}

void test_solver_is_right() {
  Source random(61);
  int wrong = 0, total = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Batch problems(random, kSevenPointBatch);
    const auto out = solve(*problems.batch);
    check_sound(problems, *out);
    std::vector<double> best(kSevenPointBatch, 1.0);
    for (int s = 0; s < out->count; ++s) {
      const std::size_t i = at(out->sample[s]);
      best[i] = std::min(best[i], distance(out->F[s], problems.truth[i].F));
    }
    for (double b : best) wrong += b < 1e-8 ? 0 : 1;
    total += kSevenPointBatch;
  }
  std::cerr << wrong << " of " << total << " wrong\n";
  CHECK(wrong * 1000 <= total);
}

void test_alone_and_in_a_batch() {
  Source random(62);
  const Batch problems(random, 37);
  const auto together = solve(*problems.batch);
  int next = 0;
  for (int i = 0; i < 37; ++i) {
    const Batch one(random, 0);
    one.batch->count = 1;
    for (int k = 0; k < 7; ++k) one.set(k, 0, problems.get(k, i));
    const auto alone = solve(*one.batch);
    for (int s = 0; s < alone->count; ++s, ++next) {
      CHECK(next < together->count && together->sample[next] == i);
      CHECK(std::memcmp(alone->F[s], together->F[next], sizeof alone->F[s]) == 0);
      CHECK(std::memcmp(alone->e[s], together->e[next], sizeof alone->e[s]) == 0);
    }
  }
  CHECK_EQ(next, together->count);
}

// What is not a number has no answer and does not spoil that of its neighbours.
void test_bad_samples() {
  Source random(63);
  const Batch problems(random, kSevenPointBatch);
  const auto before = solve(*problems.batch);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (int i = 0; i < kSevenPointBatch; i += 2) problems.batch->x1[i / 2 % 7][i] = bad[i / 2 % 4];
  for (int i = 0; i < kSevenPointBatch; i += 8) {  // all in one place
    for (int k = 0; k < 7; ++k) problems.set(k, i, {0.5, 0.5, 0.1, 0.2});
  }
  const auto out = solve(*problems.batch);
  int s = 0, same = 0;
  for (int b = 0; b < before->count; ++b) {
    if (before->sample[b] % 2 == 0) continue;
    while (s < out->count && out->sample[s] % 2 == 0) ++s;
    CHECK(s < out->count && std::memcmp(out->F[s], before->F[b], sizeof out->F[s]) == 0);
    ++s, ++same;
  }
  CHECK(same >= kSevenPointBatch / 2);
  problems.batch->count = 0;
  CHECK_EQ(solve(*problems.batch)->count, 0);
}

// Correspondences of one pose with noise; every third is anything.
struct Scene {
  std::vector<double> x0, x1;
  std::vector<Points> points;
  Graph graph{{}, {}, 0, 0};

  Scene(Source& random, const Pose& pose, int count, double noise) {
    for (int i = 0; i < count; ++i) {
      Points p = seen(random, pose, noise);
      if (i % 3 == 0) p.x1 = random.in(-1, 1), p.y1 = random.in(-1, 1);
      points.push_back(p);
    }
    finish();
  }
  explicit Scene(std::vector<Points> given) : points(std::move(given)) { finish(); }
  void finish() {
    Edges edges;
    for (const Points& p : points) {
      x0.insert(x0.end(), {p.x0, p.y0});
      x1.insert(x1.end(), {p.x1, p.y1});
      edges.emplace_back(edges.size(), edges.size());
    }
    graph = make_graph(edges, static_cast<int>(points.size()), static_cast<int>(points.size()));
  }
  VertexPoints data(double eps) const { return {x0, x1, eps}; }
};

// The sign of the epipole that most of the noiseless points ask for.
Fundamental oriented(const Fundamental& model, const Scene& scene) {
  int front = 0;
  for (const Points& p : scene.points) front += side(model, p) > 0 ? 1 : -1;
  Fundamental out = model;
  if (front < 0) {
    for (double& c : out.e) c = -c;
  }
  return out;
}

void test_definition() {
  Source random(64);
  int count = 0, behind = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const Pose pose = random_pose(random, 0.4);
    const Scene scene(random, pose, 150, 0.01);
    const Fundamental model = oriented(of_pose(pose), scene);
    const FundamentalProblem problem(scene.graph, scene.data(0.01));
    Mask mask(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    const int inliers = problem.inliers(model, mask, r2);
    CHECK_EQ(inliers, count_bits(mask));
    count += inliers;
    for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
      const double expected = sampson2(model, scene.points[e]);
      CHECK_NEAR(r2[e], expected, 1e-9 * expected + 1e-18);
      const bool front = side(model, scene.points[e]) > 0;
      // Far from the lines, two components need not tell what three do: they are outliers.
      if (expected < 1e-4) CHECK_EQ(front, has_bit(mask, e));
      if (expected >= 1e-4) CHECK(!has_bit(mask, e));
      behind += expected < 1e-4 && !front;
    }
    for (std::size_t e = scene.graph.num_edges(); e < r2.size(); ++e) CHECK(!has_bit(mask, e));
  }
  CHECK(count > 500 && behind > 0);
}

// The threshold is put right above the residual of one edge after the other.
void test_screen_is_a_superset() {
  Source random(65);
  int kept = 0, offered = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const Pose pose = random_pose(random, 0.4);
    Scene scene(random, pose, 300, std::pow(10.0, random.in(-7, -1)));
    const Fundamental model = oriented(of_pose(pose), scene);
    if (repeat % 4 == 2) {
      for (double& x : scene.x0) x *= 50;
    }
    std::vector<double> thresholds = {1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e12};
    Mask exact(scene.graph.words()), loose(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    FundamentalProblem(scene.graph, scene.data(1.0)).inliers(model, exact, r2);
    for (std::size_t e = 0; e < scene.graph.num_edges(); e += 5) {
      if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
    }
    for (double eps : thresholds) {
      const FundamentalProblem problem(scene.graph, scene.data(eps));
      const int inliers = problem.inliers(model, exact, {});
      for (int enough : {0, inliers + 1, 1 << 30}) {
        const int count = problem.screen(model, enough, loose);
        CHECK_EQ(count, count_bits(loose));
        bool superset = true;
        for (std::size_t w = 0; w < exact.size(); ++w) superset &= !(exact[w] & ~loose[w]);
        CHECK(superset);
        if (enough == 0 && repeat % 4 != 2 && eps > 1e-3 && eps < 1e-1) {
          kept += count;
          offered += inliers;
        }
      }
    }
  }
  std::cerr << kept << " edges screened, " << offered << " inliers\n";
  CHECK(offered > 500 && kept < 1.02 * offered);
}

void test_bad_points() {
  Source random(66);
  const Pose pose = random_pose(random, 0.4);
  Scene scene(random, pose, 90, 0.0);
  const Fundamental model = oriented(of_pose(pose), scene);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (std::size_t e = 0; e < 16; ++e)
    (e % 2 ? scene.x0 : scene.x1)[2 * e + e / 8] = bad[e / 2 % 4];
  const FundamentalProblem problem(scene.graph, scene.data(1e-3));
  Mask mask(scene.graph.words());
  CHECK(problem.inliers(model, mask, {}) > 10);
  for (std::size_t e = 0; e < 16; ++e) CHECK(!has_bit(mask, e) || e / 2 % 4 == 3);
  Mask loose(scene.graph.words());
  problem.screen(model, 0, loose);
  for (std::size_t w = 0; w < mask.size(); ++w) CHECK(!(mask[w] & ~loose[w]));
}

struct Columns {
  RefineColumns columns;
  AlignedVector<double> weights;

  Columns(Source& random, const Pose& pose, int count, double noise) {
    weights.assign((at(count) + 7) / 8 * 8, 0.0);
    columns.resize(at(count), weights.size());
    for (std::size_t i = 0; i < at(count); ++i) {
      const Points p = seen(random, pose, noise);
      columns.x0[i] = p.x0, columns.y0[i] = p.y0;
      columns.x1[i] = p.x1, columns.y1[i] = p.y1;
      weights[i] = random.in(0.1, 2.0);
    }
  }
  RefineArrays arrays() const { return columns.arrays(weights); }
};

struct Rows {
  std::vector<double> r, J;
  Rows(const Columns& c, const double* F) : r(c.weights.size()), J(9 * c.weights.size()) {
    table().jacobian(c.arrays(), F, r.data(), J.data());
  }
};

void test_derivatives(const Columns& c, const Fundamental& model, int count) {
  const Rows rows(c, model.F);
  for (int k = 0; k < 9; ++k) {
    Fundamental up = model, down = model;
    up.F[k] += 1e-6;
    down.F[k] -= 1e-6;
    const Rows above(c, up.F), below(c, down.F);
    for (int i = 0; i < count; ++i) {
      const double difference = (above.r[at(i)] - below.r[at(i)]) / 2e-6;
      CHECK_NEAR(rows.J[at(9 * i + k)], difference, 1e-6 * (1 + std::abs(difference)));
    }
  }
  const FactoredFundamental factored(model);
  CHECK(distance(factored.model().F, model.F) < 1e-9);
  double B[9][kParameters];
  factored.derivatives(B);
  for (int k = 0; k < kParameters; ++k) {
    double step[kParameters] = {};
    step[k] = 1e-6;
    const Fundamental up = factored.moved(step).model();
    step[k] = -1e-6;
    const Fundamental down = factored.moved(step).model();
    for (int i = 0; i < 9; ++i) CHECK_NEAR(B[i][k], (up.F[i] - down.F[i]) / 2e-6, 1e-8);
    CHECK_NEAR(determinant(up.F), 0.0, 1e-14);
  }
}

void test_normal_equations(const Columns& c, const Fundamental& model, int count, double eps2) {
  const Rows rows(c, model.F);
  std::vector<double> r2(c.weights.size());
  table().residuals(c.arrays(), model.F, r2.data());
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    double out[kMatrixSums], expected[kMatrixSums] = {};
    table().normal_equations(c.arrays(), model.F, loss, eps2, out);
    for (std::size_t i = 0; i < at(count); ++i) {
      CHECK_NEAR(r2[i], rows.r[i] * rows.r[i], 1e-12 * r2[i] + 1e-20);
      const bool inside = r2[i] < eps2;
      const double robust = loss == Loss::kSquared     ? 1.0
                            : loss == Loss::kTruncated ? inside
                                                       : 1.0 / (1.0 + r2[i] / eps2);
      const double w = c.weights[i] * robust, *J = &rows.J[9 * i];
      int slot = 0;
      for (int a = 0; a < 9; ++a) {
        for (int b = a; b < 9; ++b) expected[slot++] += w * J[a] * J[b];
      }
      for (int a = 0; a < 9; ++a) expected[slot++] += w * J[a] * rows.r[i];
      if (loss == Loss::kSquared) expected[slot] += c.weights[i] * r2[i];
      if (loss == Loss::kTruncated) expected[slot] += c.weights[i] * (inside ? r2[i] : eps2);
    }
    for (int k = 0; k < kMatrixSums; ++k) {
      CHECK_NEAR(out[k], expected[k], 1e-11 * count * (1 + std::abs(expected[k])));
    }
  }
}

void test_refinement(Source& random) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Pose pose = random_pose(random, 0.4);
    const Fundamental truth = of_pose(pose);
    Columns c(random, pose, 60, 0.0);
    double step[kParameters];
    for (double& s : step) s = random.in(-0.02, 0.02);
    Fundamental model = FactoredFundamental(truth).moved(step).model();
    const LmResult result =
        refine_fundamental(model, c.columns, c.weights, Loss::kCauchy, 1e-2, 100);
    CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
    CHECK(distance(model.F, truth.F) < 1e-5);
    CHECK_NEAR(determinant(model.F), 0.0, 1e-14);
  }
}

// Most points on a plane: a matrix of seven of them has any epipole, and its refinement must find
// the true one with the help of the others.
void test_planes_are_completed() {
  Source random(67);
  int found = 0, before = 0, total = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const Pose pose = random_pose(random, 0.3);
    std::vector<Points> points;
    while (points.size() < 120) {
      const double x = random.in(-0.8, 0.8), y = random.in(-0.8, 0.8);
      const double z = points.size() < 80 ? 4.0 / (1.0 + 0.3 * x - 0.2 * y) : random.in(1.5, 6);
      const Vec X1 = transform(pose, {z * x, z * y, z});
      if (X1.z < 0.5 || std::abs(X1.x) > X1.z || std::abs(X1.y) > X1.z) continue;
      points.push_back(
          {x, y, X1.x / X1.z + 2e-4 * random.in(-1, 1), X1.y / X1.z + 2e-4 * random.in(-1, 1)});
      if (points.size() > 100) points.back().x1 = random.in(-1, 1);  // wrong
    }
    const Scene scene(points);
    const Fundamental truth = oriented(of_pose(pose), scene);
    const FundamentalProblem problem(scene.graph, scene.data(1e-3));
    Refiner<FundamentalProblem> refiner(problem, Weighting::kEqual);
    FundamentalProblem::Workspace space = problem.workspace();
    Solutions<Fundamental> solutions;
    std::vector<int> sample;
    for (int k = 0; k < 7; ++k) sample.push_back(11 * k);  // all on the plane
    problem.solve(sample, space, solutions);
    Mask mask(scene.graph.words());
    for (Fundamental model : solutions.models) {
      if (problem.inliers(model, mask, {}) < 60) continue;
      ++total;
      before += distance(model.F, truth.F) < 0.05;
      Fundamental again = model;
      refiner.local_refine(model, space);
      found += distance(model.F, truth.F) < 0.05;
      FundamentalProblem::Workspace fresh = problem.workspace();
      refiner.local_refine(again, fresh);
      CHECK(std::memcmp(&again, &model, sizeof model) == 0);
      break;
    }
    RefineColumns columns;
    columns.resize(80, 80);
    for (std::size_t i = 0; i < 80; ++i) {
      columns.x0[i] = points[i].x0, columns.y0[i] = points[i].y0;
      columns.x1[i] = points[i].x1, columns.y1[i] = points[i].y1;
    }
    CHECK(dominant_plane(truth, columns, 80, 4e-6).count > 70);
  }
  std::cerr << found << " of " << total << " planes completed, " << before << " right before\n";
  CHECK(total > 20 && found * 10 >= 9 * total && before * 2 < total);
}

// Lets everything through, so that the loop scores every hypothesis exactly.
struct Exact : FundamentalProblem {
  using FundamentalProblem::FundamentalProblem;

  int screen(const Fundamental&, int, std::span<uint64_t> mask) const {
    std::fill(mask.begin(), mask.end(), 0);
    for (int e = 0; e < static_cast<int>(graph().num_edges()); ++e) set_bit(mask, e);
    return static_cast<int>(graph().num_edges());
  }
};

template <class P>
SearchResult<Fundamental> search(const Scene& scene, double eps, int threads) {
  const P problem(scene.graph, scene.data(eps));
  const HcmTerms terms(scene.graph, 0.3, 0.01);
  std::vector<int> all(scene.graph.num_edges());
  std::iota(all.begin(), all.end(), 0);
  const Proposals proposals(scene.graph, all, false);
  Options options;
  options.min_iterations = 600;
  options.max_iterations = 1500;
  Workers workers(threads);
  Interrupt interrupt;
  Pool<Fundamental> pool(30);
  return LoRansac<P, HcmScorer>(
             problem, proposals, options, Weighting::kByDegree,
             [&] { return HcmScorer(scene.graph, terms); }, workers, interrupt)
      .run(&pool);
}

// The loop finds the same with every hypothesis scored in float64, for any number of threads.
void test_screening_loses_nothing() {
  Source random(68);
  for (double eps : {1e-6, 1e-5, 1e-3, 0.02}) {
    const Scene scene(random, random_pose(random, 0.4), 200, 1.5 * eps);
    const auto exact = search<Exact>(scene, eps, 1);
    CHECK(exact.found);
    for (int threads : {1, 2}) {
      const auto screened = search<FundamentalProblem>(scene, eps, threads);
      CHECK(std::memcmp(&screened.model, &exact.model, sizeof(Fundamental)) == 0);
      CHECK_EQ(screened.iterations, exact.iterations);
      CHECK_EQ(screened.refinements, exact.refinements);
    }
  }
}

void test_sets_agree(const Columns& c, const Pose& pose) {
  Source random(69);
  const Scene scene(random, pose, 200, 0.02);
  const Fundamental model = oriented(of_pose(pose), scene);
  const FundamentalProblem problem(scene.graph, scene.data(0.01));
  const Batch problems(random, kSevenPointBatch);
  std::vector<double> first;
  for_each_instruction_set([&](const char* name) {
    const Rows rows(c, model.F);
    std::vector<double> all = rows.r;
    all.insert(all.end(), rows.J.begin(), rows.J.end());
    for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
      double out[kMatrixSums];
      table().normal_equations(c.arrays(), model.F, loss, 1e-6, out);
      all.insert(all.end(), out, out + kMatrixSums);
    }
    Mask mask(scene.graph.words());
    std::vector<double> distances(scene.graph.words() * 64);
    all.push_back(problem.inliers(model, mask, distances));
    for (double d : distances) all.push_back(std::isnan(d) ? -1.0 : d);
    if (std::strcmp(name, "baseline") != 0) {  // a nearly double root may be there or not
      const auto out = solve(*problems.batch);
      all.push_back(out->count);
      all.insert(all.end(), out->F[0], out->F[0] + 9 * out->count);
    }
    if (first.empty()) {
      first = all;
    } else if (std::strcmp(name, "baseline") != 0) {
      CHECK(all.size() == first.size() &&
            std::memcmp(first.data(), all.data(), all.size() * sizeof(double)) == 0);
    } else {
      for (std::size_t i = 0; i < std::min(all.size(), first.size()); ++i) {
        CHECK_NEAR(all[i], first[i], 1e-9 * (1e-3 + std::abs(first[i])));
      }
    }
  });
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_solver_is_right();
    test_alone_and_in_a_batch();
    test_bad_samples();
    test_definition();
    test_screen_is_a_superset();
    test_bad_points();
    Source random(70);
    for (int count : {1, 7, 8, 9, 50}) {
      const Pose pose = random_pose(random, 0.4);
      const Columns c(random, pose, count, 0.02);
      test_derivatives(c, of_pose(pose), count);
      test_normal_equations(c, of_pose(pose), count, 1e-4);
    }
    test_refinement(random);
    test_planes_are_completed();
    test_screening_loses_nothing();
  });
  Source random(71);
  for (int count : {5, 64, 301}) {
    const Pose pose = random_pose(random, 0.4);
    test_sets_agree(Columns(random, pose, count, 1e-3), pose);
  }
  return check::finish();
}

// Homography: solver, inliers, screening, derivatives and refinement on every instruction set.
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "check.h"
#include "manymatch/problems/homography/problem.h"
#include "manymatch/ransac/lo_ransac.h"
#include "random_graph.h"
#include "two_view.h"

using namespace manymatch;

namespace {

const HomographyKernels& table() { return kernels<HomographyKernels>(); }

struct Point {
  double x, y;
};

// H x, and the third coordinate.
Point apply(const Homography& model, const Point& p, double* w = nullptr) {
  const double* H = model.H;
  const double third = H[6] * p.x + H[7] * p.y + H[8];
  if (w) *w = third;
  return {(H[0] * p.x + H[1] * p.y + H[2]) / third, (H[3] * p.x + H[4] * p.y + H[5]) / third};
}

double determinant(const double* H) {
  return H[0] * (H[4] * H[8] - H[5] * H[7]) - H[1] * (H[3] * H[8] - H[5] * H[6]) +
         H[2] * (H[3] * H[7] - H[4] * H[6]);
}

Homography inverse(const Homography& model) {
  const double* H = model.H;
  Homography out;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const int r0 = (j + 1) % 3, r1 = (j + 2) % 3, c0 = (i + 1) % 3, c1 = (i + 2) % 3;
      out.H[3 * i + j] = H[3 * r0 + c0] * H[3 * r1 + c1] - H[3 * r0 + c1] * H[3 * r1 + c0];
    }
  }
  normalise(out);
  return out;
}

// Rotation, scale, shear, perspective: the square [-1, 1]^2 stays on one side of the horizon.
Homography random_homography(Source& random, double perspective) {
  while (true) {
    const double angle = random.in(-3.2, 3.2), scale = std::exp(random.in(-1, 1));
    const double c = scale * std::cos(angle), s = scale * std::sin(angle), k = random.in(0.5, 1.5);
    const double H[9] = {c * k + random.in(-0.2, 0.2),
                         -s,
                         random.in(-0.5, 0.5),
                         s * k,
                         c + random.in(-0.2, 0.2),
                         random.in(-0.5, 0.5),
                         random.in(-perspective, perspective),
                         random.in(-perspective, perspective),
                         1.0};
    Homography model;
    std::copy_n(H, 9, model.H);
    normalise(model);
    if (determinant(H) > 0.02 && std::abs(H[6]) + std::abs(H[7]) < 0.9) return model;
  }
}

double distance(const double* a, const Homography& b) {
  double worst = 0;
  for (int i = 0; i < 9; ++i) worst = std::max(worst, std::abs(a[i] - b.H[i]));
  return worst;
}

Point random_point(Source& random) { return {random.in(-1, 1), random.in(-1, 1)}; }

struct Batch {
  std::unique_ptr<FourPointBatch> batch = std::make_unique<FourPointBatch>();
  std::vector<Homography> truth;

  void set(int k, int i, const Point& a, const Point& b) const {
    batch->x0[k][i] = a.x;
    batch->y0[k][i] = a.y;
    batch->x1[k][i] = b.x;
    batch->y1[k][i] = b.y;
  }
  Batch(Source& random, int count) {
    batch->count = count;
    for (int i = 0; i < count; ++i) {
      truth.push_back(random_homography(random, 0.4));
      for (int k = 0; k < 4; ++k) {
        const Point p = random_point(random);
        set(k, i, p, apply(truth.back(), p));
      }
    }
  }
};

std::unique_ptr<FourPointSolutions> solve(const FourPointBatch& batch) {
  auto out = std::make_unique<FourPointSolutions>();
  table().four_point(batch, *out);
  return out;
}

// What holds for the answer to any input: norm one, no mirror, the four points on the right side of
// the horizon and mapped to their partners.
void check_sound(const FourPointBatch& batch, const FourPointSolutions& out) {
  for (int s = 0; s < out.count; ++s) {
    const int i = out.sample[s];
    CHECK(i >= 0 && i < batch.count && (s == 0 || out.sample[s - 1] < i));
    Homography model;
    std::copy_n(out.H[s], 9, model.H);
    double norm2 = 0;
    for (double h : model.H) norm2 += h * h;
    CHECK_NEAR(norm2, 1.0, 1e-12);
    CHECK(determinant(model.H) > 0);
    for (int k = 0; k < 4; ++k) {
      double w;
      apply(model, {batch.x0[k][i], batch.y0[k][i]}, &w);
      CHECK(w > 0);
    }
  }
}

void test_solver_is_right() {
  Source random(41);
  int wrong = 0, flat = 0, total = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Batch problems(random, kFourPointBatch);
    const auto out = solve(*problems.batch);
    check_sound(*problems.batch, *out);
    int s = 0;
    for (int i = 0; i < kFourPointBatch; ++i, ++total) {
      if (s < out->count && out->sample[s] == i) {
        wrong += distance(out->H[s++], problems.truth[static_cast<std::size_t>(i)]) < 1e-9 ? 0 : 1;
      } else {
        ++flat;
      }
    }
    CHECK_EQ(s, out->count);
  }
  std::cerr << wrong << " of " << total << " wrong, " << flat << " refused as nearly collinear\n";
  CHECK(wrong * 1000 <= total);
  CHECK(flat * 1000 <= 5 * total);
}

void test_alone_and_in_a_batch() {
  Source random(42);
  const Batch problems(random, 37);
  const auto together = solve(*problems.batch);
  int next = 0;
  for (int i = 0; i < 37; ++i) {
    const Batch one(random, 0);
    one.batch->count = 1;
    for (int k = 0; k < 4; ++k) {
      one.set(k, 0, {problems.batch->x0[k][i], problems.batch->y0[k][i]},
              {problems.batch->x1[k][i], problems.batch->y1[k][i]});
    }
    const auto alone = solve(*one.batch);
    for (int s = 0; s < alone->count; ++s, ++next) {
      CHECK(next < together->count && together->sample[next] == i);
      CHECK(std::memcmp(alone->H[s], together->H[next], sizeof alone->H[s]) == 0);
    }
  }
  CHECK_EQ(next, together->count);
}

// Mirrored, twisted, collinear and coincident samples, and what is not a number, have no answer.
void test_refused_samples() {
  Source random(43);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const Batch problems(random, kFourPointBatch);
  FourPointBatch& batch = *problems.batch;
  for (int i = 0; i < kFourPointBatch; ++i) {
    switch (i % 8) {
      case 0:  // mirrored
        for (int k = 0; k < 4; ++k) batch.x1[k][i] = -batch.x1[k][i];
        break;
      case 1:  // twisted: a square whose corners change places
        for (int k = 0; k < 4; ++k) problems.set(k, i, {k % 2 * 1.0, k / 2 * 1.0}, {0, 0});
        problems.set(0, i, {0, 0}, {0, 0});
        problems.set(1, i, {1, 0}, {1, 0});
        problems.set(2, i, {0, 1}, {1, 1});
        problems.set(3, i, {1, 1}, {0, 1});
        break;
      case 2:  // three on a line
        for (int k = 0; k < 3; ++k) batch.y0[k][i] = 0.3 * batch.x0[k][i] + 0.1;
        break;
      case 3:  // two in one place
        batch.x0[1][i] = batch.x0[2][i];
        batch.y0[1][i] = batch.y0[2][i];
        break;
      case 4:
        batch.x1[i / 8 % 4][i] = nan;
        break;
      case 5:
        batch.y0[i / 8 % 4][i] = infinity;
        break;
      case 6:  // all in one place
        for (int k = 0; k < 4; ++k) problems.set(k, i, {0.5, 0.5}, {0.1, 0.2});
        break;
      default:
        break;
    }
  }
  const auto out = solve(batch);
  check_sound(batch, *out);
  int good = 0;
  for (int s = 0; s < out->count; ++s) {
    CHECK_EQ(out->sample[s] % 8, 7);
    good += distance(out->H[s], problems.truth[static_cast<std::size_t>(out->sample[s])]) < 1e-9;
  }
  CHECK_EQ(good, 8);
  batch.count = 0;
  CHECK_EQ(solve(batch)->count, 0);
}

// Correspondences of one homography with noise; some are anything.
struct Scene {
  std::vector<double> x0, x1;
  Graph graph{{}, {}, 0, 0};

  Scene(Source& random, const Homography& model, int points, double noise) {
    Edges edges;
    for (int i = 0; i < points; ++i) {
      const Point p = random_point(random);
      Point q = apply(model, p);
      if (i % 3 == 0) q = {random.in(-4, 4), random.in(-4, 4)};  // some beyond the horizon
      x0.insert(x0.end(), {p.x, p.y});
      x1.insert(x1.end(), {q.x + noise * random.in(-1, 1), q.y + noise * random.in(-1, 1)});
      edges.emplace_back(i, i);
    }
    graph = make_graph(edges, points, points);
  }
  VertexPoints points(double eps) const { return {x0, x1, eps}; }
};

// By the definition; infinite where a third coordinate is not positive.
double residual2(const Homography& model, const double* a, const double* b) {
  double w, v;
  const Point forward = apply(model, {a[0], a[1]}, &w);
  const Point back = apply(inverse(model), {b[0], b[1]}, &v);
  if (!(w > 0 && v > 0)) return std::numeric_limits<double>::infinity();
  const auto square = [](double t) { return t * t; };
  return 0.5 * (square(forward.x - b[0]) + square(forward.y - b[1]) + square(back.x - a[0]) +
                square(back.y - a[1]));
}

void test_definition() {
  Source random(44);
  int inliers = 0, undefined = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Homography model = random_homography(random, repeat % 2 ? 0.4 : 3.0);
    const Scene scene(random, model, 150, 0.01);
    const HomographyProblem problem(scene.graph, scene.points(0.01));
    Mask mask(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    const int count = problem.inliers(model, mask, r2);
    CHECK_EQ(count, count_bits(mask));
    inliers += count;
    for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
      const double expected = residual2(model, &scene.x0[2 * e], &scene.x1[2 * e]);
      if (std::isinf(expected)) {
        CHECK(std::isnan(r2[e]) && !has_bit(mask, e));
        ++undefined;
      } else {
        CHECK_NEAR(r2[e], expected, 1e-9 * expected + 1e-18);
        CHECK_EQ(expected < 1e-4, has_bit(mask, e));
      }
    }
    for (std::size_t e = scene.graph.num_edges(); e < r2.size(); ++e) CHECK(!has_bit(mask, e));
    Homography mirrored = model;  // third coordinates change sign: nothing is left
    for (double& h : mirrored.H) h = -h;
    CHECK_EQ(problem.inliers(mirrored, mask, {}), 0);
  }
  CHECK(inliers > 500 && undefined > 10);
}

// The threshold is put right above the residual of one edge after the other.
void test_screen_is_a_superset() {
  Source random(45);
  int kept = 0, offered = 0;
  for (double perspective : {0.0, 0.4, 3.0}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Homography model = random_homography(random, perspective);
      if (repeat % 4 == 3) {  // nearly singular
        for (int c = 0; c < 3; ++c) model.H[c] = model.H[3 + c] + random.in(-1e-4, 1e-4);
        normalise(model);
      }
      const double noise = std::pow(10.0, random.in(-7, -1));
      Scene scene(random, model, 300, noise);
      if (repeat % 4 == 2) {
        for (double& x : scene.x0) x *= 50;
      }
      std::vector<double> thresholds = {1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e12};
      Mask exact(scene.graph.words()), loose(scene.graph.words());
      std::vector<double> r2(scene.graph.words() * 64);
      HomographyProblem(scene.graph, scene.points(1.0)).inliers(model, exact, r2);
      for (std::size_t e = 0; e < scene.graph.num_edges(); e += 5) {
        if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
      }
      for (double eps : thresholds) {
        const HomographyProblem problem(scene.graph, scene.points(eps));
        const int inliers = problem.inliers(model, exact, {});
        for (int enough : {0, inliers + 1, 1 << 30}) {
          const int count = problem.screen(model, enough, loose);
          CHECK_EQ(count, count_bits(loose));
          bool superset = true;
          for (std::size_t w = 0; w < exact.size(); ++w) superset &= !(exact[w] & ~loose[w]);
          CHECK(superset);
          if (enough == 0 && repeat % 4 < 2 && eps > 1e-3 && eps < 1e-1) {
            kept += count;
            offered += inliers;
          }
        }
      }
    }
  }
  std::cerr << kept << " edges screened, " << offered << " inliers\n";
  CHECK(offered > 500 && kept < 1.02 * offered);
}

// Points that are not numbers, and too large to square, are outliers of every homography.
void test_bad_points() {
  Source random(46);
  const Homography model = random_homography(random, 0.3);
  Scene scene(random, model, 70, 0.0);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (std::size_t e = 0; e < 16; ++e)
    (e % 2 ? scene.x0 : scene.x1)[2 * e + e / 8] = bad[e / 2 % 4];
  const HomographyProblem problem(scene.graph, scene.points(1e-3));
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

  Columns(Source& random, const Homography& model, int count, double noise) {
    const auto n = static_cast<std::size_t>(count);
    weights.assign((n + 7) / 8 * 8, 0.0);
    columns.resize(n, weights.size());
    for (std::size_t i = 0; i < n; ++i) {
      const Point p = random_point(random), q = apply(model, p);
      columns.x0[i] = p.x;
      columns.y0[i] = p.y;
      columns.x1[i] = q.x + noise * random.in(-1, 1);
      columns.y1[i] = q.y + noise * random.in(-1, 1);
      weights[i] = random.in(0.1, 2.0);
    }
  }
  RefineArrays arrays() const { return columns.arrays(weights); }
};

constexpr int kParameters = kHomographyParameters;
constexpr int kSums = kHomographyTriangle + kHomographyParameters + 1;

struct Rows {
  std::vector<double> r, J;
  Rows(const Columns& c, const Homography& model)
      : r(4 * c.weights.size()), J(4 * kParameters * c.weights.size()) {
    table().jacobian(c.arrays(), model.H, r.data(), J.data());
  }
};

void test_derivatives(const Columns& c, const Homography& model, int count) {
  const Rows rows(c, model);
  for (int k = 0; k < kParameters; ++k) {
    double forward[kParameters] = {}, back[kParameters] = {};
    forward[k] = 1e-6;
    back[k] = -1e-6;
    const Rows up(c, perturb(model, forward)), down(c, perturb(model, back));
    for (int i = 0; i < 4 * count; ++i) {
      const double difference = (up.r[i] - down.r[i]) / 2e-6;
      CHECK_NEAR(rows.J[kParameters * i + k], difference, 1e-6 * (1 + std::abs(difference)));
    }
  }
}

void test_normal_equations(const Columns& c, const Homography& model, int count, double eps2) {
  const Rows rows(c, model);
  std::vector<double> r2(c.weights.size());
  table().residuals(c.arrays(), model.H, r2.data());
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    double out[kSums], expected[kSums] = {};
    table().normal_equations(c.arrays(), model.H, loss, eps2, out);
    for (int i = 0; i < count; ++i) {
      double sum = 0;
      for (int row = 0; row < 4; ++row) sum += rows.r[4 * i + row] * rows.r[4 * i + row];
      CHECK_NEAR(r2[i], sum, 1e-12 * sum + 1e-20);
      const bool inside = r2[i] < eps2;
      const double robust = loss == Loss::kSquared     ? 1.0
                            : loss == Loss::kTruncated ? inside
                                                       : 1.0 / (1.0 + r2[i] / eps2);
      for (int row = 4 * i; row < 4 * i + 4; ++row) {
        const double w = c.weights[static_cast<std::size_t>(i)] * robust;
        const double* J = &rows.J[kParameters * row];
        int slot = 0;
        for (int a = 0; a < kParameters; ++a) {
          for (int b = a; b < kParameters; ++b) expected[slot++] += w * J[a] * J[b];
        }
        for (int a = 0; a < kParameters; ++a) expected[slot++] += w * J[a] * rows.r[row];
      }
      const double weight = c.weights[static_cast<std::size_t>(i)];
      if (loss == Loss::kSquared) expected[kSums - 1] += weight * r2[i];
      if (loss == Loss::kTruncated) expected[kSums - 1] += weight * (inside ? r2[i] : eps2);
    }
    for (int k = 0; k < kSums; ++k) {
      CHECK_NEAR(out[k], expected[k], 1e-11 * count * (1 + std::abs(expected[k])));
    }
  }
}

void test_refinement(Source& random) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Homography truth = random_homography(random, 0.4);
    Columns c(random, truth, 40, 0.0);
    double step[kParameters];
    for (double& s : step) s = random.in(-0.02, 0.02);
    Homography model = perturb(truth, step);
    const LmResult result =
        refine_homography(model, c.columns, c.weights, Loss::kCauchy, 1e-2, 100);
    CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
    CHECK(distance(model.H, truth) < 1e-6);
    Homography direct;
    CHECK(direct_linear_transform(c.columns, c.weights, direct));
    CHECK(distance(direct.H, truth) < 1e-7);
  }
}

void test_affine(Source& random) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    Homography truth = random_homography(random, 0.0);
    Columns c(random, truth, 40, 0.0);
    auto batch = std::make_unique<FourPointBatch>();
    auto solved = std::make_unique<FourPointSolutions>();
    batch->count = 13;
    for (int i = 0; i < 13; ++i) {
      for (int k = 0; k < 3; ++k) {
        const std::size_t at = static_cast<std::size_t>(3 * i + k);
        batch->x0[k][i] = c.columns.x0[at], batch->y0[k][i] = c.columns.y0[at];
        batch->x1[k][i] = c.columns.x1[at], batch->y1[k][i] = c.columns.y1[at];
      }
    }
    table().three_point(*batch, *solved);
    CHECK(solved->count >= 11);
    for (int s = 0; s < solved->count; ++s) CHECK(distance(solved->H[s], truth) < 1e-9);
    double step[kParameters] = {};
    for (int p = 0; p < 6; ++p) step[p] = random.in(-0.02, 0.02);
    Homography model = perturb(truth, step);
    const LmResult result = refine_affine(model, c.columns, c.weights, Loss::kCauchy, 1e-2, 100);
    CHECK(result.cost < 1e-12 && result.cost < result.initial_cost);
    CHECK(distance(model.H, truth) < 1e-6);
    CHECK(model.H[6] == 0.0 && model.H[7] == 0.0);
    Homography direct;
    CHECK(direct_affine(c.columns, c.weights, direct));
    CHECK(distance(direct.H, truth) < 1e-9);
  }
}

// A refinement that is remembered is the one that would have been computed.
void test_remembered_refinements() {
  Source random(52);
  const Homography model = random_homography(random, 0.3);
  const Scene scene(random, model, 60, 0.008);
  const HomographyProblem problem(scene.graph, scene.points(0.01));
  Refiner<HomographyProblem> refiner(problem, Weighting::kByDegree);
  HomographyProblem::Workspace used = problem.workspace();
  for (int repeat = 0; repeat < 300; ++repeat) {
    double step[kParameters];
    for (double& s : step) s = random.in(-1e-3, 1e-3);
    Homography a = perturb(model, step), b = a;
    HomographyProblem::Workspace fresh = problem.workspace();
    const LmResult with = refiner.local_refine(a, used);
    const LmResult without = refiner.local_refine(b, fresh);
    CHECK(std::memcmp(&a, &b, sizeof a) == 0);
    CHECK(with.cost == without.cost && with.iterations == without.iterations);
  }
}

// Lets everything through, so that the loop scores every hypothesis exactly.
struct Exact : HomographyProblem {
  using HomographyProblem::HomographyProblem;

  int screen(const Homography&, int, std::span<uint64_t> mask) const {
    std::fill(mask.begin(), mask.end(), 0);
    for (int e = 0; e < static_cast<int>(graph().num_edges()); ++e) set_bit(mask, e);
    return static_cast<int>(graph().num_edges());
  }
};

struct Found {
  SearchResult<Homography> result;
  std::vector<Pool<Homography>::Entry> pool;
};

template <class P>
Found search(const Scene& scene, double eps, int threads) {
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
  Pool<Homography> pool(30);
  Found out;
  out.result = LoRansac<P, HcmScorer>(
                   problem, proposals, options, Weighting::kByDegree,
                   [&] { return HcmScorer(scene.graph, terms); }, workers, interrupt)
                   .run(&pool);
  out.pool = pool.entries();
  return out;
}

// The loop finds the same with every hypothesis scored in float64, for any number of threads.
void test_screening_loses_nothing() {
  Source random(53);
  std::size_t kept = 0;
  for (double eps : {1e-6, 1e-5, 1e-3, 0.02}) {
    const Scene scene(random, random_homography(random, 0.4), 200, 1.5 * eps);
    const Found exact = search<Exact>(scene, eps, 1);
    CHECK(exact.result.found);
    for (int threads : {1, 2}) {
      const Found screened = search<HomographyProblem>(scene, eps, threads);
      CHECK(std::memcmp(&screened.result.model, &exact.result.model, sizeof(Homography)) == 0);
      CHECK_EQ(screened.result.iterations, exact.result.iterations);
      CHECK_EQ(screened.result.refinements, exact.result.refinements);
      CHECK_EQ(screened.pool.size(), exact.pool.size());
      for (const auto& a : exact.pool) {
        CHECK(std::any_of(screened.pool.begin(), screened.pool.end(), [&](const auto& b) {
          return a.score == b.score && std::memcmp(&a.model, &b.model, sizeof a.model) == 0;
        }));
        ++kept;
      }
    }
  }
  CHECK(kept > 200);
}

void test_solver_agrees() {
  Source random(47);
  const Batch problems(random, kFourPointBatch);
  std::unique_ptr<FourPointSolutions> fused;
  for_each_instruction_set([&](const char* name) {
    auto out = solve(*problems.batch);
    if (std::strcmp(name, "baseline") != 0 && !fused) {
      fused = std::move(out);
    } else if (fused) {
      CHECK_EQ(out->count, fused->count);
      for (int s = 0; s < std::min(out->count, fused->count); ++s) {
        CHECK_EQ(out->sample[s], fused->sample[s]);
        Homography model;
        std::copy_n(fused->H[s], 9, model.H);
        CHECK(distance(out->H[s], model) <= (std::strcmp(name, "baseline") == 0 ? 1e-9 : 0.0));
      }
    }
  });
}

void test_sets_agree(const Columns& c, const Homography& model) {
  Source random(48);
  const Scene scene(random, model, 200, 0.02);
  const HomographyProblem problem(scene.graph, scene.points(0.01));
  std::vector<double> first;
  for_each_instruction_set([&](const char* name) {
    const Rows rows(c, model);
    std::vector<double> all = rows.r;
    all.insert(all.end(), rows.J.begin(), rows.J.end());
    std::vector<double> r2(c.weights.size());
    table().residuals(c.arrays(), model.H, r2.data());
    all.insert(all.end(), r2.begin(), r2.end());
    for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
      double out[kSums];
      table().normal_equations(c.arrays(), model.H, loss, 1e-6, out);
      all.insert(all.end(), out, out + kSums);
    }
    Mask mask(scene.graph.words());
    std::vector<double> distances(scene.graph.words() * 64);
    all.push_back(problem.inliers(model, mask, distances));
    for (double d : distances) all.push_back(std::isnan(d) ? -1.0 : d);
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
    test_solver_is_right();
    test_alone_and_in_a_batch();
    test_refused_samples();
    test_definition();
    test_screen_is_a_superset();
    test_bad_points();
    Source random(50);
    for (int count : {1, 7, 8, 9, 50}) {
      const Homography model = random_homography(random, 0.4);
      const Columns c(random, model, count, 0.02);
      test_derivatives(c, model, count);
      test_normal_equations(c, model, count, 1e-4);
    }
    test_refinement(random);
    test_affine(random);
    test_remembered_refinements();
    test_screening_loses_nothing();
  });
  test_solver_agrees();
  Source random(51);
  for (int count : {5, 64, 301}) {
    const Homography model = random_homography(random, 0.4);
    test_sets_agree(Columns(random, model, count, 1e-3), model);
  }
  return check::finish();
}

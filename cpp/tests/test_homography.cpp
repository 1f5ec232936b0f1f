// Homographies and affine maps: the tests of every problem, the solvers, and the direct linear
// transforms.
#include <memory>

#include "manymatch/problems/homography/problem.h"
#include "problem_tests.h"

namespace {

const HomographyKernels& table() { return kernels<HomographyKernels>(); }

struct Point {
  double x, y;
};

// The image of a point under H; `w` gets the third coordinate.
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

// Random rotation, scale, shear and perspective that keep [-1, 1]^2 on one side of the horizon.
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

// Must hold for any input: norm one, no mirroring, the four points on the right side of the
// horizon.
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

// Mirrored, twisted, collinear, coincident and non-finite samples have no solution.
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

template <class P>
struct HomographyCase : UsualLimits {
  using Problem = P;
  static constexpr bool kAffine = P::kSampleSize == 3;
  static constexpr bool kValidity = !kAffine;
  static constexpr int kRows = 4, kParameters = kHomographyParameters;

  struct Truth {
    Homography model;

    Truth(Source& random, int kind)
        : model(random_homography(random, kAffine || kind == 2 ? 0.0
                                          : kind == 1          ? 3.0
                                                               : 0.4)) {
      if (kind != 3) return;  // nearly singular
      for (int c = 0; c < 3; ++c) model.H[c] = model.H[3 + c] + random.in(-1e-4, 1e-4);
      normalise(model);
    }
    Match match(Source& random, double noise, bool wrong) const {
      const Point p = random_point(random);
      Point q = apply(model, p);
      if (wrong) q = {random.in(-4, 4), random.in(-4, 4)};  // some beyond the horizon
      return {{p.x, p.y}, {q.x + noise * random.in(-1, 1), q.y + noise * random.in(-1, 1)}};
    }
  };

  static Expected expected(const Homography& model, const double* a, const double* b) {
    double w, v;
    const Point forward = apply(model, {a[0], a[1]}, &w);
    const Point back = apply(inverse(model), {b[0], b[1]}, &v);
    if (!(w > 0 && v > 0)) return {NAN, false};
    const auto square = [](double t) { return t * t; };
    return {0.5 * (square(forward.x - b[0]) + square(forward.y - b[1]) + square(back.x - a[0]) +
                   square(back.y - a[1]))};
  }
  static void jacobian(const RefineArrays& edges, const Homography& model, double* r, double* J) {
    table().jacobian(edges, model.H, r, J);
  }
  static void residuals(const RefineArrays& edges, const Homography& model, double* r2) {
    table().residuals(edges, model.H, r2);
  }
  static void normal_equations(const RefineArrays& edges, const Homography& model, Loss loss,
                               double eps2, double* out) {
    table().normal_equations(edges, model.H, loss, eps2, out);
  }
  static Homography moved(const Homography& model, const double* step) {
    return perturb(model, step);
  }
  static Homography nearby(Source& random, const Homography& model) {
    double step[kParameters] = {};
    for (int p = 0; p < (kAffine ? 6 : 8); ++p) step[p] = random.in(-0.02, 0.02);
    return perturb(model, step);
  }
  static LmResult refine(Homography& model, RefineColumns& columns,
                         std::span<const double> weights) {
    const LmResult result = (kAffine ? refine_affine : refine_homography)(model, columns, weights,
                                                                          Loss::kCauchy, 1e-2, 100);
    CHECK(!kAffine || (model.H[6] == 0.0 && model.H[7] == 0.0));
    Homography direct;
    CHECK((kAffine ? direct_affine : direct_linear_transform)(columns, weights, direct));
    CHECK(error(direct, model) < 1e-6);
    return result;
  }
  static double error(const Homography& a, const Homography& b) { return distance(a.H, b); }
};

// Three correspondences determine an affine map.
void test_affine_solver() {
  Source random(49);
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Homography truth = random_homography(random, 0.0);
    auto batch = std::make_unique<FourPointBatch>();
    auto solved = std::make_unique<FourPointSolutions>();
    batch->count = 13;
    for (int i = 0; i < 13; ++i) {
      for (int k = 0; k < 3; ++k) {
        const Point p = random_point(random), q = apply(truth, p);
        batch->x0[k][i] = p.x, batch->y0[k][i] = p.y;
        batch->x1[k][i] = q.x, batch->y1[k][i] = q.y;
      }
    }
    table().three_point(*batch, *solved);
    CHECK(solved->count >= 11);
    for (int s = 0; s < solved->count; ++s) CHECK(distance(solved->H[s], truth) < 1e-9);
  }
}

// The third coordinates change sign with the homography: -H has no inliers.
void test_negated_homography_has_no_inliers() {
  Source random(44);
  const HomographyCase<HomographyProblem>::Truth truth(random, 0);
  std::vector<double> x0, x1;
  Edges edges;
  for (int i = 0; i < 50; ++i) {
    const Match m = truth.match(random, 0.0, false);
    x0.insert(x0.end(), m.a, m.a + 2);
    x1.insert(x1.end(), m.b, m.b + 2);
    edges.emplace_back(i, i);
  }
  const Graph graph = make_graph(edges, 50, 50);
  const HomographyProblem problem(graph, {x0, x1, 0.01});
  Mask mask(graph.words());
  CHECK_EQ(problem.inliers(truth.model, mask, {}), 50);
  Homography mirrored = truth.model;
  for (double& h : mirrored.H) h = -h;
  CHECK_EQ(problem.inliers(mirrored, mask, {}), 0);
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_solver_is_right();
    test_refused_samples();
    test_affine_solver();
    test_negated_homography_has_no_inliers();
  });
  test_problem<HomographyCase<HomographyProblem>>();
  test_problem<HomographyCase<AffineProblem>>();
  return check::finish();
}

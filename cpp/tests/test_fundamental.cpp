// Fundamental matrix: the tests of every problem, the solver, the factored matrix, and the
// completion of planes.
#include <memory>

#include "manymatch/problems/fundamental/problem.h"
#include "problem_tests.h"

namespace {

constexpr int kParameters = FactoredFundamental::kParameters;

const FundamentalKernels& table() { return kernels<FundamentalKernels>(); }

// F = [t]x R with norm one. The epipole in image 1 is t or -t, depending on the points.
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

// By the definition.
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

// (e x x1) . (F x0) with all three components; its sign is the side.
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

// Must hold for any input.
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

// A sample with non-finite points has no solution and does not affect its neighbours.
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

struct FundamentalCase : UsualLimits {
  using Problem = FundamentalProblem;
  // Derivatives by the nine entries of F.
  static constexpr int kRows = 1, kParameters = 9;
  static constexpr bool kValidity = true, kHugeMayFit = true;
  static constexpr double kRefined = 1e-5;

  struct Truth {
    Pose pose;
    Fundamental model;

    Truth(Source& random, int) : pose(random_pose(random, 0.4)), model(of_pose(pose)) {
      if (side(model, seen(random, pose)) > 0) return;  // points in front of both cameras
      for (double& c : model.e) c = -c;
    }
    Match match(Source& random, double noise, bool wrong) const {
      Points p = seen(random, pose, noise);
      if (wrong) p.x1 = random.in(-1, 1), p.y1 = random.in(-1, 1);
      return {{p.x0, p.y0}, {p.x1, p.y1}};
    }
  };

  static Expected expected(const Fundamental& model, const double* a, const double* b) {
    const Points p{a[0], a[1], b[0], b[1]};
    return {sampson2(model, p), side(model, p) > 0};
  }
  static void jacobian(const RefineArrays& edges, const Fundamental& model, double* r, double* J) {
    table().jacobian(edges, model.F, r, J);
  }
  static void residuals(const RefineArrays& edges, const Fundamental& model, double* r2) {
    table().residuals(edges, model.F, r2);
  }
  static void normal_equations(const RefineArrays& edges, const Fundamental& model, Loss loss,
                               double eps2, double* out) {
    table().normal_equations(edges, model.F, loss, eps2, out);
  }
  static Fundamental moved(const Fundamental& model, const double* step) {
    Fundamental out = model;
    for (int k = 0; k < 9; ++k) out.F[k] += step[k];
    return out;
  }
  static Fundamental nearby(Source& random, const Fundamental& model) {
    double step[FactoredFundamental::kParameters];
    for (double& s : step) s = random.in(-0.02, 0.02);
    return FactoredFundamental(model).moved(step).model();
  }
  static LmResult refine(Fundamental& model, RefineColumns& columns,
                         std::span<const double> weights) {
    const LmResult result = refine_fundamental(model, columns, weights, Loss::kCauchy, 1e-2, 100);
    CHECK_NEAR(determinant(model.F), 0.0, 1e-14);
    return result;
  }
  static double error(const Fundamental& a, const Fundamental& b) { return distance(a.F, b.F); }
};

void test_factored() {
  Source random(70);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Fundamental model = of_pose(random_pose(random, 0.4));
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
}

// Most points are on a plane. Seven of them leave the epipole undetermined; the refinement must
// find it with the help of the other points.
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
    std::vector<double> x0, x1;
    Edges edges;
    for (const Points& p : points) {
      x0.insert(x0.end(), {p.x0, p.y0});
      x1.insert(x1.end(), {p.x1, p.y1});
      edges.emplace_back(edges.size(), edges.size());
    }
    const Graph graph = make_graph(edges, 120, 120);
    const Fundamental truth = of_pose(pose);
    const FundamentalProblem problem(graph, {x0, x1, 1e-3});
    Refiner<FundamentalProblem> refiner(problem, Weighting::kEqual);
    FundamentalProblem::Workspace space = problem.workspace();
    Solutions<Fundamental> solutions;
    std::vector<int> sample;
    for (int k = 0; k < 7; ++k) sample.push_back(11 * k);  // all on the plane
    problem.solve(sample, space, solutions);
    Mask mask(graph.words());
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

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_solver_is_right();
    test_bad_samples();
    test_planes_are_completed();
  });
  test_factored();
  test_problem<FundamentalCase>();
  return check::finish();
}

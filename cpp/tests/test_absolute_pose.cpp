// Absolute pose: the tests of every problem, the solver, and the focal lengths.
#include <memory>

#include "manymatch/problems/absolute_pose/problem.h"
#include "problem_tests.h"

namespace {

const AbsolutePoseKernels& table() { return kernels<AbsolutePoseKernels>(); }

AbsolutePose random_camera(Source& random, double f = 1.0) {
  AbsolutePose pose;
  const double w[3] = {random.in(-3, 3), random.in(-3, 3), random.in(-3, 3)};
  rotate(pose.R, w);
  orthonormalise(pose.R);
  for (double& c : pose.t) c = random.in(-2, 2);
  pose.f = f;
  return pose;
}

// A point of the world in the frame of the camera.
Vec seen_from(const AbsolutePose& pose, const Vec& X) {
  Pose plain;
  std::copy_n(pose.R, 9, plain.R);
  std::copy_n(pose.t, 3, plain.t);
  return transform(plain, X);
}

// The point of the world that projects to (x, y) at depth z.
Vec in_world(const AbsolutePose& pose, double x, double y, double z) {
  const double Y[3] = {x * z / pose.f - pose.t[0], y * z / pose.f - pose.t[1], z - pose.t[2]};
  double X[3];
  for (int i = 0; i < 3; ++i) {
    X[i] = pose.R[i] * Y[0] + pose.R[3 + i] * Y[1] + pose.R[6 + i] * Y[2];
  }
  return {X[0], X[1], X[2]};
}

// The squared residual by the definition; infinite behind the camera.
double residual2(const AbsolutePose& pose, const double* x, const double* X) {
  const Vec Y = seen_from(pose, {X[0], X[1], X[2]});
  if (!(Y.z > 0)) return std::numeric_limits<double>::infinity();
  const double dx = pose.f * Y.x / Y.z - x[0], dy = pose.f * Y.y / Y.z - x[1];
  return dx * dx + dy * dy;
}

double distance(const double* R, const double* t, const AbsolutePose& pose) {
  double worst = 0;
  for (int i = 0; i < 9; ++i) worst = std::max(worst, std::abs(R[i] - pose.R[i]));
  for (int i = 0; i < 3; ++i) worst = std::max(worst, std::abs(t[i] - pose.t[i]));
  return worst;
}

struct Batch {
  std::unique_ptr<PerspectiveBatch> batch = std::make_unique<PerspectiveBatch>();
  std::vector<AbsolutePose> truth;

  void set(int k, int i, double x, double y, const Vec& X) const {
    batch->x[k][i] = x;
    batch->y[k][i] = y;
    batch->X[k][0][i] = X.x;
    batch->X[k][1][i] = X.y;
    batch->X[k][2][i] = X.z;
  }
  Batch(Source& random, int count, double wide = 1.0, double near = 1.0, double far = 6.0) {
    batch->count = count;
    for (int i = 0; i < count; ++i) {
      truth.push_back(random_camera(random));
      for (int k = 0; k < 3; ++k) {
        const double x = random.in(-wide, wide), y = random.in(-wide, wide);
        set(k, i, x, y, in_world(truth.back(), x, y, random.in(near, far)));
      }
    }
  }
};

std::unique_ptr<PerspectiveSolutions> solve(const PerspectiveBatch& batch) {
  auto out = std::make_unique<PerspectiveSolutions>();
  table().three_point(batch, *out);
  return out;
}

// Must hold for any input: the answers are rotations that put the three points in front of the
// camera and project them to where they are seen.
void check_sound(const PerspectiveBatch& batch, const PerspectiveSolutions& out) {
  for (int s = 0; s < out.count; ++s) {
    const int i = out.sample[s];
    CHECK(i >= 0 && i < batch.count && (s == 0 || out.sample[s - 1] <= i));
    AbsolutePose pose;
    std::copy_n(out.R[s], 9, pose.R);
    std::copy_n(out.t[s], 3, pose.t);
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 3; ++b) {
        double product = 0;
        for (int c = 0; c < 3; ++c) product += pose.R[3 * a + c] * pose.R[3 * b + c];
        CHECK_NEAR(product, a == b ? 1.0 : 0.0, 1e-12);
      }
    }
    double depth = 0;
    for (int k = 0; k < 3; ++k) {
      const double x[2] = {batch.x[k][i], batch.y[k][i]};
      const double X[3] = {batch.X[k][0][i], batch.X[k][1][i], batch.X[k][2][i]};
      CHECK(residual2(pose, x, X) < 1e-16);
      depth += seen_from(pose, {X[0], X[1], X[2]}).z / 3;
    }
    CHECK_NEAR(out.depth[s], depth, 1e-9 * depth);
  }
}

void test_solver_is_right() {
  Source random(61);
  int wrong = 0, total = 0;
  const double shapes[4][3] = {{1, 1, 6}, {0.05, 9, 11}, {0.5, 4, 4.01}, {3, 0.1, 50}};
  for (int repeat = 0; repeat < 200; ++repeat) {
    const double* shape = shapes[repeat % 4];
    const Batch problems(random, kPerspectiveBatch, shape[0], shape[1], shape[2]);
    const auto out = solve(*problems.batch);
    check_sound(*problems.batch, *out);
    for (int i = 0, s = 0; i < kPerspectiveBatch; ++i, ++total) {
      double best = 1e9;
      int roots = 0;
      for (; s < out->count && out->sample[s] == i; ++s, ++roots) {
        best = std::min(best, distance(out->R[s], out->t[s], problems.truth[at(i)]));
      }
      CHECK(roots <= kThreePointRoots);
      wrong += best < 1e-5 ? 0 : 1;
    }
  }
  std::cerr << wrong << " of " << total << " samples without their pose\n";
  CHECK(wrong * 1000 <= total);
}

// Samples with collinear, coincident or non-finite points have no solution.
void test_refused_samples() {
  Source random(63);
  const Batch problems(random, kPerspectiveBatch);
  PerspectiveBatch& batch = *problems.batch;
  for (int i = 0; i < kPerspectiveBatch; ++i) {
    switch (i % 8) {
      case 0:  // on a line
        for (int c = 0; c < 3; ++c) batch.X[2][c][i] = 0.5 * (batch.X[0][c][i] + batch.X[1][c][i]);
        break;
      case 1:  // two in one place
        for (int c = 0; c < 3; ++c) batch.X[2][c][i] = batch.X[1][c][i];
        break;
      case 2:  // all in one place
        for (int k = 0; k < 3; ++k) problems.set(k, i, 0.1, 0.2, {1, 2, 3});
        break;
      case 3:
        batch.x[i / 8 % 3][i] = std::numeric_limits<double>::quiet_NaN();
        break;
      case 4:
        batch.X[i / 8 % 3][1][i] = std::numeric_limits<double>::infinity();
        break;
      default:
        break;
    }
  }
  const auto out = solve(batch);
  check_sound(batch, *out);
  for (int s = 0; s < out->count; ++s) CHECK(out->sample[s] % 8 >= 5);
  CHECK(out->count >= 24);
  batch.count = 0;
  CHECK_EQ(solve(batch)->count, 0);
}

struct AbsolutePoseCase : UsualLimits {
  using Problem = AbsolutePoseProblem;
  static constexpr int kRows = 2, kParameters = 7;
  static constexpr bool kValidity = true;

  struct Truth {
    AbsolutePose model;
    double far;  // wrong points are anything, also behind the camera or far away

    Truth(Source& random, int kind)
        : model(random_camera(random, kind == 1 ? random.in(0.3, 3) : 1.0)),
          far(kind == 2 ? 1e5 : 1.0) {
      if (kind == 3) model.t[0] += 1e4;
    }
    Match match(Source& random, double noise, bool wrong) const {
      const double x = random.in(-1, 1), y = random.in(-1, 1);
      Vec X = in_world(model, x, y, random.in(1, 5));
      if (wrong) X = far * Vec{random.in(-4, 4), random.in(-4, 4), random.in(-4, 4)};
      return {{x + noise * random.in(-1, 1), y + noise * random.in(-1, 1)}, {X.x, X.y, X.z}};
    }
  };

  static Expected expected(const AbsolutePose& pose, const double* x, const double* X) {
    const double r2 = residual2(pose, x, X);
    return {std::isinf(r2) ? NAN : r2, !std::isinf(r2)};
  }
  static void jacobian(const RefineArrays& edges, const AbsolutePose& pose, double* r, double* J) {
    double P[12];
    projection_matrix(pose, P);
    table().jacobian(edges, P, pose.f, pose.depth, r, J);
  }
  static void residuals(const RefineArrays& edges, const AbsolutePose& pose, double* r2) {
    double P[12];
    projection_matrix(pose, P);
    table().residuals(edges, P, r2);
  }
  // Without the focal length, the sums are the same except for the last parameter.
  static void normal_equations(const RefineArrays& edges, const AbsolutePose& pose, Loss loss,
                               double eps2, double* out) {
    double P[12], fixed[28];
    projection_matrix(pose, P);
    table().normal_equations(edges, P, pose.f, pose.depth, true, loss, eps2, out);
    table().normal_equations(edges, P, pose.f, pose.depth, false, loss, eps2, fixed);
    int six = 0, seven = 0;
    for (int a = 0; a < 8; ++a) {  // the last row is the gradient
      for (int b = a == 7 ? 0 : a; b < 7; ++b, ++seven) {
        if (a == 6 || b == 6) continue;
        CHECK_NEAR(fixed[six], out[seven], 1e-9 * (1 + std::abs(out[seven])));
        ++six;
      }
    }
    CHECK_EQ(six, 27);
    CHECK_NEAR(fixed[27], out[35], 1e-9 * (1 + std::abs(out[35])));
  }
  static AbsolutePose moved(const AbsolutePose& pose, const double* step) {
    return perturb(pose, step, true);
  }
  static AbsolutePose nearby(Source& random, const AbsolutePose& pose) {
    double step[7];
    for (double& s : step) s = random.in(-0.05, 0.05);
    return perturb(pose, step, false);
  }
  static LmResult refine(AbsolutePose& pose, RefineColumns& columns,
                         std::span<const double> weights) {
    // Also starts from another focal length and refines it.
    AbsolutePose zoomed = pose;
    zoomed.f *= 1.05;
    refine_absolute_pose(zoomed, columns, weights, Loss::kSquared, 1.0, 100, 0.5, 1e-9);
    const LmResult result =
        refine_absolute_pose(pose, columns, weights, Loss::kSquared, 1.0, 100, 0.0, 1e-9);
    CHECK(pose.f == 1.0);
    CHECK_NEAR(zoomed.f, 1.0, 1e-6);
    CHECK(error(zoomed, pose) < 1e-6);
    return result;
  }
  static double error(const AbsolutePose& a, const AbsolutePose& b) {
    return distance(a.R, a.t, b);
  }
};

// Points seen by a camera; edge i joins point i with point i.
struct Scene {
  std::vector<double> x0, x1;
  Graph graph{{}, {}, 0, 0};

  Scene(Source& random, const AbsolutePose& pose, int points) {
    AbsolutePoseCase::Truth truth(random, 0);
    truth.model = pose;
    Edges edges;
    for (int i = 0; i < points; ++i) {
      const Match m = truth.match(random, 0.0, i % 3 == 0);
      x0.insert(x0.end(), m.a, m.a + 2);
      x1.insert(x1.end(), m.b, m.b + 3);
      edges.emplace_back(i, i);
    }
    graph = make_graph(edges, points, points);
  }
};

// A refinement finds focal lengths other than one. Two points do not determine it: the prior does.
void test_refined_focal_lengths() {
  Source random(67);
  for (int repeat = 0; repeat < 10; ++repeat) {
    const int count = repeat == 0 ? 2 : 40;
    const AbsolutePose truth = random_camera(random, repeat == 0 ? 1.5 : random.in(0.7, 1.4));
    const Scene scene(random, truth, 3 * count);
    RefineColumns columns;
    AlignedVector<double> used((at(count) + 7) / 8 * 8, 0.0);
    std::fill_n(used.begin(), count, 1.0);
    columns.resize(at(count), used.size(), 2, 3);
    for (std::size_t i = 0, e = 1; i < at(count); ++i, e += i % 2 ? 1 : 2) {
      columns.x0[i] = scene.x0[2 * e], columns.y0[i] = scene.x0[2 * e + 1];
      columns.x1[i] = scene.x1[3 * e], columns.y1[i] = scene.x1[3 * e + 1];
      columns.z1[i] = scene.x1[3 * e + 2];
    }
    double step[7];
    for (double& s : step) s = repeat == 0 ? 0.0 : random.in(-0.05, 0.05);
    AbsolutePose pose = perturb(truth, step, true);
    refine_absolute_pose(pose, columns, used, Loss::kSquared, 1.0, repeat == 0 ? 500 : 100, 0.5,
                         repeat == 0 ? 0.01 : 1e-9);
    if (repeat == 0) {
      CHECK_NEAR(pose.f, 1.0, 0.05);
    } else {
      CHECK(distance(pose.R, pose.t, truth) < 1e-6);
      CHECK_NEAR(pose.f, truth.f, 1e-6);
    }
  }
}

// Focal lengths of samples cover the prior and depend only on the sample and its place.
void test_focal_lengths_of_samples() {
  Source random(68);
  const AbsolutePose truth = random_camera(random, 1.3);
  const Scene scene(random, truth, 60);
  const double sigma = 0.4;
  const AbsolutePoseData data({scene.x0, scene.x1, 1e-3}, std::span(&sigma, 1));
  const AbsolutePoseProblem problem(scene.graph, data);
  AbsolutePoseProblem::Workspace space = problem.workspace();
  std::vector<int> samples;
  for (int i = 0; i < kBatch; ++i) {
    for (int k = 0; k < 3; ++k) samples.push_back((3 * i + 7 * k + 1) % 60);
  }
  Solutions<AbsolutePose> first, second;
  problem.solve(samples, space, first);
  problem.solve(samples, space, second);
  CHECK(!first.models.empty() && first.models.size() == second.models.size());
  double below = 0, total = 0, last = 0;
  for (std::size_t i = 0; i < first.models.size(); ++i) {
    const double f = first.models[i].f;
    CHECK(f == second.models[i].f && f >= last);
    below += f < 1.0;
    total += 1;
    last = f;
  }
  CHECK(below / total > 0.3 && below / total < 0.7 && last > 1.5);
  AbsolutePose best = truth;
  const AbsolutePoseProblem near(scene.graph, AbsolutePoseProblem::data_near(data, best, 0));
  near.solve(samples, space, second);
  for (const AbsolutePose& pose : second.models) CHECK(std::abs(std::log(pose.f / 1.3)) < 0.2);
  CHECK_NEAR(problem.log_prior(best), -0.5 * std::pow(std::log(1.3) / sigma, 2), 1e-12);
}

void test_same_and_apart() {
  Source random(69);
  const AbsolutePose pose = random_camera(random);
  const double turned[7] = {0.03, 0, 0, 0, 0, 0, 0}, far[7] = {0, 0.1, 0, 0, 0, 0, 0};
  const double moved[7] = {0, 0, 0, 0.05, 0, 0.05, 0}, away[7] = {0, 0, 0, 0, 0.2, 0, 0};
  CHECK(AbsolutePoseProblem::same(pose, pose));
  CHECK(AbsolutePoseProblem::same(pose, perturb(pose, turned, false)));
  CHECK(AbsolutePoseProblem::same(pose, perturb(pose, moved, false)));
  CHECK(AbsolutePoseProblem::apart(pose, perturb(pose, far, false)));
  CHECK(AbsolutePoseProblem::apart(pose, perturb(pose, away, false)));
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_solver_is_right();
    test_refused_samples();
    test_refined_focal_lengths();
    test_focal_lengths_of_samples();
  });
  test_same_and_apart();
  test_problem<AbsolutePoseCase>();
  return check::finish();
}

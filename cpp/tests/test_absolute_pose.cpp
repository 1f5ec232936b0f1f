// Absolute pose: solver, inliers, screening, derivatives and refinement on every instruction set.
#include <cstring>
#include <limits>
#include <memory>

#include "check.h"
#include "manymatch/problems/absolute_pose/problem.h"
#include "random_graph.h"
#include "two_view.h"

using namespace manymatch;

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

// Where a point of the world is in the frame of the camera.
Vec seen_from(const AbsolutePose& pose, const Vec& X) {
  Pose plain;
  std::copy_n(pose.R, 9, plain.R);
  std::copy_n(pose.t, 3, plain.t);
  return transform(plain, X);
}

// The point of the world at (x, y) z in the frame of the camera.
Vec in_world(const AbsolutePose& pose, double x, double y, double z) {
  const double Y[3] = {x * z / pose.f - pose.t[0], y * z / pose.f - pose.t[1], z - pose.t[2]};
  double X[3];
  for (int i = 0; i < 3; ++i) {
    X[i] = pose.R[i] * Y[0] + pose.R[3 + i] * Y[1] + pose.R[6 + i] * Y[2];
  }
  return {X[0], X[1], X[2]};
}

// By the definition; infinite behind the camera.
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

// What holds for the answer to any input: rotations that put the three points in front of the
// camera and where they are seen.
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

void test_alone_and_in_a_batch() {
  Source random(62);
  const Batch problems(random, 37);
  const auto together = solve(*problems.batch);
  int next = 0;
  for (int i = 0; i < 37; ++i) {
    const Batch one(random, 0);
    one.batch->count = 1;
    for (int k = 0; k < 3; ++k) {
      const PerspectiveBatch& all = *problems.batch;
      one.set(k, 0, all.x[k][i], all.y[k][i], {all.X[k][0][i], all.X[k][1][i], all.X[k][2][i]});
    }
    const auto alone = solve(*one.batch);
    for (int s = 0; s < alone->count; ++s, ++next) {
      CHECK(next < together->count && together->sample[next] == i);
      CHECK(std::memcmp(alone->R[s], together->R[next], sizeof alone->R[s]) == 0);
      CHECK(std::memcmp(alone->t[s], together->t[next], sizeof alone->t[s]) == 0);
    }
  }
  CHECK_EQ(next, together->count);
}

// Collinear and coincident samples, and what is not a number, have no answer.
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

// Points that a camera sees with noise; some are anything, also behind it or far away.
struct Scene {
  std::vector<double> x0, x1;
  Graph graph{{}, {}, 0, 0};

  Scene(Source& random, const AbsolutePose& pose, int points, double noise, double far = 1.0) {
    Edges edges;
    for (int i = 0; i < points; ++i) {
      const double x = random.in(-1, 1), y = random.in(-1, 1);
      Vec X = in_world(pose, x, y, random.in(1, 5));
      if (i % 3 == 0) X = far * Vec{random.in(-4, 4), random.in(-4, 4), random.in(-4, 4)};
      x0.insert(x0.end(), {x + noise * random.in(-1, 1), y + noise * random.in(-1, 1)});
      x1.insert(x1.end(), {X.x, X.y, X.z});
      edges.emplace_back(i, i);
    }
    graph = make_graph(edges, points, points);
  }
  AbsolutePoseData data(double eps) const { return AbsolutePoseData({x0, x1, eps}); }
};

void test_definition() {
  Source random(64);
  int inliers = 0, behind = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const AbsolutePose pose = random_camera(random, repeat % 2 ? 1.0 : random.in(0.5, 2));
    const Scene scene(random, pose, 150, 0.01);
    const AbsolutePoseProblem problem(scene.graph, scene.data(0.01));
    Mask mask(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    const int count = problem.inliers(pose, mask, r2);
    CHECK_EQ(count, count_bits(mask));
    inliers += count;
    for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
      const double expected = residual2(pose, &scene.x0[2 * e], &scene.x1[3 * e]);
      if (std::isinf(expected)) {
        CHECK(std::isnan(r2[e]) && !has_bit(mask, e));
        ++behind;
      } else {
        CHECK_NEAR(r2[e], expected, 1e-9 * expected + 1e-15);
        CHECK_EQ(expected < 1e-4, has_bit(mask, e));
      }
    }
    for (std::size_t e = scene.graph.num_edges(); e < r2.size(); ++e) CHECK(!has_bit(mask, e));
  }
  CHECK(inliers > 500 && behind > 100);
}

// The threshold is put right above the residual of one edge after the other.
void test_screen_is_a_superset() {
  Source random(65);
  int kept = 0, offered = 0;
  for (double far : {1.0, 1e5}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      AbsolutePose pose = random_camera(random, repeat % 3 ? 1.0 : random.in(0.3, 3));
      if (repeat % 4 == 3) pose.t[repeat % 3] += 1e4;
      const double noise = std::pow(10.0, random.in(-7, -1));
      const Scene scene(random, pose, 300, noise, far);
      std::vector<double> thresholds = {1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e12};
      Mask exact(scene.graph.words()), loose(scene.graph.words());
      std::vector<double> r2(scene.graph.words() * 64);
      AbsolutePoseProblem(scene.graph, scene.data(1.0)).inliers(pose, exact, r2);
      for (std::size_t e = 0; e < scene.graph.num_edges(); e += 5) {
        if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
      }
      for (double eps : thresholds) {
        const AbsolutePoseProblem problem(scene.graph, scene.data(eps));
        const int inliers = problem.inliers(pose, exact, {});
        const int count = problem.screen(pose, 0, loose);
        CHECK_EQ(count, count_bits(loose));
        bool superset = true;
        for (std::size_t w = 0; w < exact.size(); ++w) superset &= !(exact[w] & ~loose[w]);
        CHECK(superset);
        if (repeat % 4 < 3 && eps > 1e-3 && eps < 1e-1) {
          kept += count;
          offered += inliers;
        }
      }
    }
  }
  std::cerr << kept << " edges screened, " << offered << " inliers\n";
  CHECK(offered > 500 && kept < 1.02 * offered);
}

// Points that are not numbers, and too large to square, are outliers of every pose.
void test_bad_points() {
  Source random(66);
  const AbsolutePose pose = random_camera(random);
  Scene scene(random, pose, 70, 0.0);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (std::size_t i = 0; i < 4; ++i) {
    scene.x0[2 * (3 * i + 1)] = bad[i];
    scene.x1[3 * (3 * i + 2) + 1] = bad[i];
  }
  const AbsolutePoseProblem problem(scene.graph, scene.data(1e-3));
  Mask mask(scene.graph.words());
  problem.screen(pose, 0, mask);
  Mask exact(scene.graph.words());
  problem.inliers(pose, exact, {});
  for (std::size_t e = 0; e < 12; ++e) CHECK(!has_bit(exact, e) || e % 3 == 0);
  for (std::size_t w = 0; w < mask.size(); ++w) CHECK(!(exact[w] & ~mask[w]));
}

// Edges of a refinement with weights of which some are zero.
struct Columns {
  RefineColumns columns;
  AlignedVector<double> weights;

  Columns(Source& random, const AbsolutePose& pose, int count, double noise) {
    const Scene scene(random, pose, 3 * count, noise);
    weights.assign((at(count) + 7) / 8 * 8, 0.0);
    columns.resize(at(count), weights.size(), 2, 3);
    for (std::size_t i = 0, e = 1; i < at(count); ++i, e += i % 2 ? 1 : 2) {
      columns.x0[i] = scene.x0[2 * e];
      columns.y0[i] = scene.x0[2 * e + 1];
      columns.x1[i] = scene.x1[3 * e];
      columns.y1[i] = scene.x1[3 * e + 1];
      columns.z1[i] = scene.x1[3 * e + 2];
      weights[i] = i % 5 == 4 ? 0.0 : random.in(0.2, 2.0);
    }
  }
};

void test_derivatives(const Columns& c, AbsolutePose pose, int count) {
  pose.depth = 1.7;
  double P[12];
  std::vector<double> r(2 * c.weights.size()), J(14 * c.weights.size());
  projection_matrix(pose, P);
  const RefineArrays edges = c.columns.arrays(c.weights);
  table().jacobian(edges, P, pose.f, pose.depth, r.data(), J.data());
  constexpr double kStep = 1e-6;
  for (std::size_t p = 0; p < 7; ++p) {
    double step[7] = {};
    std::vector<double> ahead(r.size()), behind(r.size()), unused(J.size());
    step[p] = kStep;
    projection_matrix(perturb(pose, step, true), P);
    table().jacobian(edges, P, 1.0, 1.0, ahead.data(), unused.data());
    step[p] = -kStep;
    projection_matrix(perturb(pose, step, true), P);
    table().jacobian(edges, P, 1.0, 1.0, behind.data(), unused.data());
    for (std::size_t i = 0; i < 2 * at(count); ++i) {
      const double expected = (ahead[i] - behind[i]) / (2 * kStep);
      CHECK_NEAR(J[7 * i + p], expected, 1e-7 * (1 + std::abs(expected)));
    }
  }
}

// The sums against the derivatives of single edges.
void test_normal_equations(const Columns& c, const AbsolutePose& pose, int count, double eps2) {
  double P[12];
  projection_matrix(pose, P);
  const RefineArrays edges = c.columns.arrays(c.weights);
  std::vector<double> r(2 * c.weights.size()), J(14 * c.weights.size()), r2(c.weights.size());
  table().jacobian(edges, P, pose.f, pose.depth, r.data(), J.data());
  table().residuals(edges, P, r2.data());
  for (Loss loss : {Loss::kSquared, Loss::kTruncated, Loss::kCauchy}) {
    for (std::size_t N : {std::size_t{6}, std::size_t{7}}) {
      std::vector<double> expected(N * (N + 1) / 2 + N + 1, 0.0), out(expected.size());
      for (std::size_t i = 0; i < at(count); ++i) {
        const double square = r[2 * i] * r[2 * i] + r[2 * i + 1] * r[2 * i + 1];
        CHECK_NEAR(r2[i], square, 1e-12 * (1 + square));
        double robust = 1.0, cost = square;
        if (loss == Loss::kTruncated && !(square < eps2)) robust = 0.0, cost = eps2;
        if (loss == Loss::kCauchy) robust = 1.0 / (1.0 + square / eps2), cost = 0.0;
        std::size_t slot = 0;
        const double* row0 = &J[14 * i];
        const double* row1 = row0 + 7;
        const double w = c.weights[i] * robust;
        for (std::size_t p = 0; p < N; ++p) {
          for (std::size_t q = p; q < N; ++q) {
            expected[slot++] += w * (row0[p] * row0[q] + row1[p] * row1[q]);
          }
        }
        for (std::size_t p = 0; p < N; ++p) {
          expected[slot++] += w * (row0[p] * r[2 * i] + row1[p] * r[2 * i + 1]);
        }
        expected[slot] += c.weights[i] * cost;
      }
      table().normal_equations(edges, P, pose.f, pose.depth, N == 7, loss, eps2, out.data());
      for (std::size_t k = 0; k < out.size(); ++k) {
        CHECK_NEAR(out[k], expected[k], 1e-9 * (1 + std::abs(expected[k])));
      }
    }
  }
}

// From a pose nearby back to the one that made the points, with and without the focal length.
void test_refinement() {
  Source random(67);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const bool with_focal = repeat % 2;
    const AbsolutePose truth = random_camera(random, with_focal ? random.in(0.7, 1.4) : 1.0);
    Columns c(random, truth, 40, 0.0);
    double step[7];
    for (double& s : step) s = random.in(-0.05, 0.05);
    AbsolutePose pose = perturb(truth, step, with_focal);
    const double sigma = with_focal ? 0.5 : 0.0;
    refine_absolute_pose(pose, c.columns, c.weights, Loss::kSquared, 1.0, 100, sigma, 1e-9);
    CHECK(distance(pose.R, pose.t, truth) < 1e-6);
    CHECK_NEAR(pose.f, truth.f, 1e-6);
    CHECK(with_focal || pose.f == 1.0);
  }
  // Two points say nothing about the focal length: the prior does.
  const AbsolutePose truth = random_camera(random, 1.5);
  Columns c(random, truth, 2, 0.0);
  AbsolutePose pose = truth;
  refine_absolute_pose(pose, c.columns, c.weights, Loss::kSquared, 1.0, 500, 0.5, 0.01);
  CHECK_NEAR(pose.f, 1.0, 0.05);
}

// Focal lengths of samples cover the prior, and depend on nothing but sample and place.
void test_focal_lengths_of_samples() {
  Source random(68);
  const AbsolutePose truth = random_camera(random, 1.3);
  const Scene scene(random, truth, 60, 0.0);
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
  const AbsolutePoseProblem near(scene.graph, data.near(best, 0));
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

// The same bits with every set that has fused operations, nearly the same with the baseline.
void test_sets_agree() {
  std::vector<double> first;
  for_each_instruction_set([&](const char* name) {
    Source random(70);
    std::vector<double> all;
    for (int count : {5, 64, 301}) {
      const AbsolutePose pose = random_camera(random, 1.1);
      const Columns c(random, pose, count, 1e-3);
      double P[12], sums[36];
      projection_matrix(pose, P);
      table().normal_equations(c.columns.arrays(c.weights), P, pose.f, 1.0, true, Loss::kCauchy,
                               1e-4, sums);
      all.insert(all.end(), sums, sums + 36);
    }
    const Batch problems(random, kPerspectiveBatch);
    const auto out = solve(*problems.batch);
    all.push_back(out->count);
    for (int s = 0; s < out->count; ++s) all.insert(all.end(), out->R[s], out->R[s] + 9);
    if (first.empty()) {
      first = all;
      return;
    }
    CHECK_EQ(all.size(), first.size());
    for (std::size_t i = 0; i < std::min(all.size(), first.size()); ++i) {
      if (std::strcmp(name, "baseline") != 0) {
        CHECK(std::memcmp(&first[i], &all[i], sizeof(double)) == 0);
      } else {
        CHECK_NEAR(all[i], first[i], 1e-7 * (1e-3 + std::abs(first[i])));
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
    Source random(71);
    for (int count : {1, 7, 8, 9, 50}) {
      const AbsolutePose pose = random_camera(random, random.in(0.5, 2));
      const Columns c(random, pose, count, 0.02);
      test_derivatives(c, pose, count);
      test_normal_equations(c, pose, count, 1e-4);
    }
    test_refinement();
    test_focal_lengths_of_samples();
    test_same_and_apart();
  });
  test_sets_agree();
  return check::finish();
}

// Screening never misses an inlier; inliers are those of the definition.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "two_view.h"

using namespace manymatch;

namespace {

struct Scene {
  std::vector<double> x0, x1;
  Graph graph{{}, {}, 0, 0};

  void add(const Vec& a, const Vec& b) {
    x0.insert(x0.end(), {a.x / a.z, a.y / a.z});
    x1.insert(x1.end(), {b.x / b.z, b.y / b.z});
  }
  void connect() {  // point i with point i
    Edges edges;
    const int n = static_cast<int>(x0.size() / 2);
    for (int i = 0; i < n; ++i) edges.emplace_back(i, i);
    graph = make_graph(edges, n, n);
  }
};

// Points near their epipolar lines, points with depths close to the limit, and anything else.
Scene random_scene(Source& random, const Pose& pose, int points, double wide, double noise) {
  Scene scene;
  for (int i = 0; i < points; ++i) {
    const Seen seen = random_point(random, pose, wide);
    Vec X1 = seen.X1;
    if (i % 3 == 0) X1 = {X1.z * random.in(-wide, wide), X1.z * random.in(-wide, wide), X1.z};
    X1.x += X1.z * noise * random.in(-1, 1);
    X1.y += X1.z * noise * random.in(-1, 1);
    Vec X = seen.X;
    if (i % 7 == 1) {  // 0.01 of the baseline in front of camera 0, give or take rounding
      X = 0.01 * (1.0 + random.in(-1e-5, 1e-5)) * unit(X);
      X1 = transform(pose, X);
      if (X1.z < 0.05) continue;
    }
    scene.add(X, X1);
  }
  scene.connect();
  return scene;
}

bool is_inlier(const Pose& pose, const double* a, const double* b, double eps2, double* r2) {
  Pose turn = pose;
  turn.t[0] = turn.t[1] = turn.t[2] = 0;
  const Vec x0{a[0], a[1], 1}, x1{b[0], b[1], 1}, u = transform(turn, x0);
  const double* t = pose.t;
  const Vec e{t[1] * u.z - t[2] * u.y, t[2] * u.x - t[0] * u.z, t[0] * u.y - t[1] * u.x};
  const Vec w{x1.y * t[2] - x1.z * t[1], x1.z * t[0] - x1.x * t[2], x1.x * t[1] - x1.y * t[0]};
  const double g0 = pose.R[0] * w.x + pose.R[3] * w.y + pose.R[6] * w.z;
  const double g1 = pose.R[1] * w.x + pose.R[4] * w.y + pose.R[7] * w.z;
  const double c = x1.x * e.x + x1.y * e.y + x1.z * e.z;
  *r2 = c * c / (e.x * e.x + e.y * e.y + g0 * g0 + g1 * g1);
  const Vec v = unit(u), n = unit(x1);
  const double aa = -(v.x * n.x + v.y * n.y + v.z * n.z);
  const double p = -(v.x * t[0] + v.y * t[1] + v.z * t[2]);
  const double s = n.x * t[0] + n.y * t[1] + n.z * t[2];
  const double bound = 0.01 * (1 - aa * aa);
  return *r2 < eps2 && p - aa * s > bound && s - aa * p > bound;
}

void test_definition() {
  Source random(21);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Pose pose = random_pose(random, 0.6);
    const Scene scene = random_scene(random, pose, 100, 1.0, 2e-3);
    const RelativePoseProblem problem(scene.graph, {scene.x0, scene.x1, 1e-3});
    Mask mask(scene.graph.words());
    std::vector<double> r2(scene.graph.words() * 64);
    const int count = problem.inliers(pose, mask, r2);
    CHECK_EQ(count, count_bits(mask));
    int different = 0;
    for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
      double expected;
      const bool inlier = is_inlier(pose, &scene.x0[2 * e], &scene.x1[2 * e], 1e-6, &expected);
      CHECK_NEAR(r2[e], expected, 1e-9 * expected + 1e-18);
      different += inlier != has_bit(mask, e) ? 1 : 0;
    }
    CHECK(different <= 1);  // a depth may lie within rounding of its limit
  }
}

// The threshold is put right above the residual of one edge after the other.
void test_screen_is_a_superset() {
  Source random(22);
  int kept = 0, offered = 0;
  for (double wide : {0.5, 1.0, 20.0, 500.0}) {
    for (int repeat = 0; repeat < 12; ++repeat) {
      Pose pose = random_pose(random, 0.4);
      if (repeat % 4 == 1) pose = Pose{};  // straight ahead: an epipole in both images
      if (repeat % 4 == 2) std::copy_n(Pose{}.R, 9, pose.R);  // no rotation
      const double noise = std::pow(10.0, random.in(-6, 0)) * wide;
      const Scene scene = random_scene(random, pose, 300, wide, noise);
      std::vector<double> thresholds = {1e-9, 3e-6, 1e-5, 1e-3, 1.0, 1e3, 1e12};
      Mask exact(scene.graph.words()), loose(scene.graph.words());
      std::vector<double> r2(scene.graph.words() * 64);
      RelativePoseProblem(scene.graph, {scene.x0, scene.x1, 1.0}).inliers(pose, exact, r2);
      for (std::size_t e = 0; e < scene.graph.num_edges(); e += 3) {
        if (r2[e] > 0) thresholds.push_back(std::sqrt(r2[e]) * (1 + 1e-12));
      }
      for (double eps : thresholds) {
        const RelativePoseProblem problem(scene.graph, {scene.x0, scene.x1, eps});
        const int inliers = problem.inliers(pose, exact, {});
        for (int enough : {0, inliers + 1, 1 << 30}) {
          const int count = problem.screen(pose, enough, loose);
          CHECK_EQ(count, count_bits(loose));
          bool superset = true;
          for (std::size_t w = 0; w < exact.size(); ++w) superset &= !(exact[w] & ~loose[w]);
          CHECK(superset);
          if (enough == 0 && wide <= 1.0 && eps > 1e-4 && eps < 1e-2) {
            kept += count;
            offered += inliers;
          }
        }
      }
    }
  }
  CHECK(offered > 1000 &&
        kept < 1.2 * offered);  // it is worth something: the rest are depths at the limit
}

void test_sets_agree() {
  Source random(23);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Pose pose = random_pose(random, 0.6);
    const Scene scene = random_scene(random, pose, 200, 1.0, 2e-3);
    const RelativePoseProblem problem(scene.graph, {scene.x0, scene.x1, 1e-3});
    std::vector<double> first, r2(scene.graph.words() * 64);
    Mask first_mask, mask(scene.graph.words());
    for_each_instruction_set([&](const char* name) {
      problem.inliers(pose, mask, r2);
      if (first.empty()) {
        first = r2;
        first_mask = mask;
      } else if (std::strcmp(name, "baseline") != 0) {
        CHECK(mask == first_mask);
        CHECK(std::memcmp(first.data(), r2.data(), r2.size() * sizeof(double)) == 0);
      } else {
        for (std::size_t e = 0; e < scene.graph.num_edges(); ++e) {
          CHECK_NEAR(r2[e], first[e], 1e-9 * first[e] + 1e-18);
        }
      }
    });
  }
}

// Points that are not numbers, and too large to square, are outliers of every pose.
void test_bad_points() {
  Source random(24);
  const Pose pose = random_pose(random, 0.3);
  Scene scene = random_scene(random, pose, 70, 1.0, 0.0);
  const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  for (std::size_t e = 0; e < 16; ++e)
    (e % 2 ? scene.x0 : scene.x1)[2 * e + e / 8] = bad[e / 2 % 4];
  const RelativePoseProblem problem(scene.graph, {scene.x0, scene.x1, 1e-3});
  Mask mask(scene.graph.words());
  std::vector<double> r2(scene.graph.words() * 64);
  CHECK(problem.inliers(pose, mask, r2) > 10);
  for (std::size_t e = 0; e < 16; ++e) CHECK(!has_bit(mask, e) && std::isnan(r2[e]));
  problem.screen(pose, 0, mask);
  for (std::size_t e = 0; e < 16; ++e) CHECK(!has_bit(mask, e));
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_definition();
    test_screen_is_a_superset();
    test_bad_points();
  });
  test_sets_agree();
  return check::finish();
}

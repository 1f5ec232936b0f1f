// A synthetic pair for the tests of the whole estimator.
#pragma once

#include <set>

#include "manymatch/estimate.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "two_view.h"

using namespace manymatch;

struct Pair {
  std::vector<double> x0, x1;
  std::vector<int32_t> edges;
  Pose pose;
  double eps = 1e-3;

  GraphInput input() const {
    return {static_cast<int>(x0.size() / 2), static_cast<int>(x1.size() / 2), edges, {}, {}};
  }
  VertexPoints points() const { return {x0, x1, eps}; }
};

// Each point has its true partner and up to `wrong` others; image 1 has noise.
inline Pair random_pair(uint64_t seed, int points, int wrong, double noise = 1e-4) {
  Source random(seed);
  Pair pair;
  pair.pose = random_pose(random, 0.3);
  Edges edges;
  for (int i = 0; i < points; ++i) {
    const Seen seen = random_point(random, pair.pose, 0.8);
    pair.x0.insert(pair.x0.end(), {seen.X.x / seen.X.z, seen.X.y / seen.X.z});
    pair.x1.insert(pair.x1.end(), {seen.X1.x / seen.X1.z + random.in(-noise, noise),
                                   seen.X1.y / seen.X1.z + random.in(-noise, noise)});
    std::set<int> partners = {i};
    for (int k = 0; k < wrong; ++k) partners.insert(random.pick(points));
    for (int j : partners) edges.emplace_back(i, j);
  }
  random.shuffle(edges);
  for (const auto& [l, r] : edges) pair.edges.insert(pair.edges.end(), {l, r});
  return pair;
}

inline Options quick_options(int threads = 1) {
  Options options;
  options.min_iterations = 500;
  options.max_iterations = 3000;
  options.pool_size = 20;
  options.seed = 5;
  options.threads = threads;
  return options;
}

using PoseEstimate = ModelEstimate<Pose>;

inline PoseEstimate estimate_pose(const Pair& pair, Method method, const Options& options,
                                  Interrupt& interrupt) {
  return estimate<RelativePoseProblem>(pair.input(), pair.points(), method, options, interrupt);
}

constexpr Method kMethods[] = {Method::kAuto, Method::kHcmMcm, Method::kHcm, Method::kMcm,
                               Method::kCm};

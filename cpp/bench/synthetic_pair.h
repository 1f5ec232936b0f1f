// A synthetic pair with about a given number of edges and a given share of true ones.
#pragma once

#include <algorithm>

#include "two_view_pair.h"

inline Pair synthetic_pair(uint64_t seed, int num_edges, double inlier_ratio) {
  Source random(seed);
  Pair pair;
  pair.pose = random_pose(random, 0.2);
  pair.eps = 1.25e-3;  // a pixel at a focal length of 800
  const int num_true = static_cast<int>(inlier_ratio * num_edges);
  const int points = std::max(num_true, num_edges / 4);
  for (int i = 0; i < points; ++i) {
    const Seen seen = random_point(random, pair.pose, 0.6);
    for (const auto& [x, X] : {std::pair{&pair.x0, seen.X}, std::pair{&pair.x1, seen.X1}}) {
      x->insert(x->end(), {X.x / X.z + random.in(-0.5, 0.5) * pair.eps,
                           X.y / X.z + random.in(-0.5, 0.5) * pair.eps});
    }
  }
  // At most five edges per keypoint, as with five mutual neighbours.
  constexpr int kMost = 5;
  std::set<std::pair<int, int>> unique;
  std::vector<int> degree0(static_cast<std::size_t>(points)), degree1(degree0);
  const auto connect = [&](int left, int right) {
    int &d0 = degree0[static_cast<std::size_t>(left)],
        &d1 = degree1[static_cast<std::size_t>(right)];
    if (d0 == kMost || d1 == kMost || !unique.emplace(left, right).second) return;
    ++d0;
    ++d1;
  };
  for (int i = 0; i < num_true; ++i) connect(i, i);
  while (static_cast<int>(unique.size()) < num_edges) {
    const int left = random.pick(points), right = random.pick(points);
    if (left != right) connect(left, right);
  }
  Edges edges(unique.begin(), unique.end());
  random.shuffle(edges);
  for (const auto& [l, r] : edges) pair.edges.insert(pair.edges.end(), {l, r});
  return pair;
}

inline manymatch::Graph graph_of(const Pair& pair) {
  Edges edges;
  for (std::size_t e = 0; e < pair.edges.size(); e += 2) {
    edges.emplace_back(pair.edges[e], pair.edges[e + 1]);
  }
  const auto size = [](const std::vector<double>& x) { return static_cast<int>(x.size() / 2); };
  return make_graph(edges, size(pair.x0), size(pair.x1));
}

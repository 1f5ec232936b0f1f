// Random graphs and masks for the tests.
#pragma once

#include <utility>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/rng.h"

using namespace manymatch;

struct Source : Rng {
  explicit Source(uint64_t seed) : Rng(seed, 0, kSample) {}

  double in(double low, double high) { return low + (high - low) * uniform(); }
  int pick(int n) { return static_cast<int>(below(static_cast<uint32_t>(n))); }
  bool chance(double p) { return uniform() < p; }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
    }
  }
};

using Edges = std::vector<std::pair<int, int>>;

inline Graph make_graph(const Edges& edges, int n0, int n1) {
  std::vector<int> left, right;
  for (const auto& [l, r] : edges) {
    left.push_back(l);
    right.push_back(r);
  }
  return {left, right, n0, n1};
}

// Each pair of vertices is an edge with probability `density`; the edges are in random order.
inline Graph random_graph(Source& random, int n0, int n1, double density) {
  Edges edges;
  for (int l = 0; l < n0; ++l) {
    for (int r = 0; r < n1; ++r) {
      if (random.chance(density)) edges.emplace_back(l, r);
    }
  }
  random.shuffle(edges);
  return make_graph(edges, n0, n1);
}

inline Mask random_mask(Source& random, std::size_t edges, double density) {
  Mask mask(mask_words(edges), 0);
  for (std::size_t e = 0; e < edges; ++e) {
    if (random.chance(density)) set_bit(mask, static_cast<int>(e));
  }
  return mask;
}

inline bool has_bit(const Mask& mask, std::size_t e) { return mask[e / 64] >> (e % 64) & 1; }

// The association graph of the core: edges by endpoints, with adjacency and degrees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace manymatch {

using Mask = std::vector<uint64_t>;  // one bit per edge, 64 edges a word

inline std::size_t mask_words(std::size_t edges) { return (edges + 63) / 64; }

// Calls visit(edge) for every set bit, ascending.
template <class Visit>
inline void for_each_bit(const uint64_t* mask, std::size_t words, Visit&& visit) {
  for (std::size_t w = 0; w < words; ++w) {
    for (uint64_t word = mask[w]; word; word &= word - 1) {
      visit(static_cast<int>(w * 64) + __builtin_ctzll(word));
    }
  }
}

// Edges at each vertex of one side, in edge order.
struct Adjacency {
  std::vector<int> start, edges;

  int degree(int vertex) const {
    return start[static_cast<std::size_t>(vertex) + 1] - start[static_cast<std::size_t>(vertex)];
  }
};

inline Adjacency adjacency(const std::vector<int>& endpoint, int vertices) {
  Adjacency a;
  a.start.assign(static_cast<std::size_t>(vertices) + 1, 0);
  a.edges.resize(endpoint.size());
  for (int v : endpoint) ++a.start[static_cast<std::size_t>(v) + 1];
  for (std::size_t v = 0; v < static_cast<std::size_t>(vertices); ++v) a.start[v + 1] += a.start[v];
  std::vector<int> next(a.start.begin(), a.start.end() - 1);
  for (std::size_t e = 0; e < endpoint.size(); ++e) {
    a.edges[static_cast<std::size_t>(next[static_cast<std::size_t>(endpoint[e])]++)] =
        static_cast<int>(e);
  }
  return a;
}

struct Graph {
  int num0 = 0, num1 = 0;        // vertices on each side
  std::vector<int> left, right;  // endpoints of each edge
  Adjacency at0, at1;

  Graph(std::vector<int> l, std::vector<int> r, int n0, int n1)
      : num0(n0),
        num1(n1),
        left(std::move(l)),
        right(std::move(r)),
        at0(adjacency(left, n0)),
        at1(adjacency(right, n1)) {}

  std::size_t num_edges() const { return left.size(); }
  std::size_t words() const { return mask_words(left.size()); }
};

}  // namespace manymatch

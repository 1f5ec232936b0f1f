// The association graph of the core: edges by endpoints, with adjacency and degrees.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace manymatch {

// Vertices and edges are numbered by int; containers are indexed by std::size_t.
constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

using Mask = std::vector<uint64_t>;  // one bit per edge, 64 edges a word
using MaskView = std::span<const uint64_t>;

inline std::size_t mask_words(std::size_t edges) { return (edges + 63) / 64; }

inline void set_bit(std::span<uint64_t> mask, int edge) {
  mask[at(edge / 64)] |= uint64_t{1} << (edge % 64);
}

inline int count_bits(MaskView mask) {
  int count = 0;
  for (uint64_t word : mask) count += std::popcount(word);
  return count;
}

// Calls visit(edge) for every set bit, ascending.
template <class Visit>
inline void for_each_bit(MaskView mask, Visit&& visit) {
  for (std::size_t w = 0; w < mask.size(); ++w) {
    for (uint64_t word = mask[w]; word; word &= word - 1) {
      visit(static_cast<int>(w * 64) + std::countr_zero(word));
    }
  }
}

// Edges at each vertex of one side, in edge order.
struct Adjacency {
  std::vector<int> start, edges;

  int degree(int vertex) const { return start[at(vertex) + 1] - start[at(vertex)]; }
};

inline Adjacency adjacency(const std::vector<int>& endpoint, int vertices) {
  Adjacency a;
  a.start.assign(at(vertices) + 1, 0);
  a.edges.resize(endpoint.size());
  for (int v : endpoint) ++a.start[at(v) + 1];
  for (std::size_t v = 0; v < at(vertices); ++v) a.start[v + 1] += a.start[v];
  std::vector<int> next(a.start.begin(), a.start.end() - 1);
  for (std::size_t e = 0; e < endpoint.size(); ++e) {
    a.edges[at(next[at(endpoint[e])]++)] = static_cast<int>(e);
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

// The graph as input of the estimator, and the sets of edges that it works on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/priors.h"

namespace manymatch {

// Input that all geometric problems share; points and threshold are the data of the problem. Arrays
// belong to the caller and have one entry per edge unless noted.
struct GraphInput {
  int num0, num1;                        // vertices on each side
  std::span<const int32_t> edges;        // (num_edges, 2) by rows, checked by the caller
  std::span<const int32_t> rank;         // empty: unknown
  std::span<const uint8_t> proposals;    // edges that may be sampled; empty: all
  std::span<const double> points0 = {};  // pixels by vertex, for the motion filter of kAuto;
  std::span<const double> points1 = {};  // empty: no filter
  std::span<const uint8_t> kept = {};    // edges that the filter keeps, if known; empty: run it
  std::span<const int32_t> source =
      {};  // number of the source of an edge, from 0; empty: one source
  std::span<const double> belief = {};     // confidence of a matcher, above 0; empty: unknown
  std::span<const float> similarity = {};  // of the descriptors, finite; empty: unknown

  std::size_t num_edges() const { return edges.size() / 2; }
  Graph graph() const;
  // The edges that may be sampled, ascending.
  std::vector<int> sampled_edges() const;
  int num_sources() const;
  // Priors p_ij for the paper's methods: the beliefs, or none. Beliefs of several sources have
  // different scales and cannot stand in one sum.
  std::span<const double> given_priors() const {
    return source.empty() ? belief : std::span<const double>{};
  }
};

// The values of some edges, given those of all edges.
template <class T>
std::vector<T> pick(const std::vector<T>& values, const std::vector<int>& edges) {
  std::vector<T> picked;
  picked.reserve(edges.size());
  for (int e : edges) picked.push_back(values[at(e)]);
  return picked;
}

// Some edges of a graph. Vertices and order stay the same.
struct Subgraph {
  std::vector<int> edges;  // numbers in the whole graph, ascending
  Graph graph;

  Subgraph(const Graph& whole, std::vector<int> chosen);

  // Numbers within this subgraph of those edges of the whole graph that it contains, both
  // ascending.
  std::vector<int> local(const std::vector<int>& chosen) const;
};

// A number with its noun: "1 edge", "2 edges".
std::string counted(std::size_t number, const char* noun, const char* ending = "s");
// Why no minimal sample can be drawn from these edges, as a sentence; empty if one can.
std::string why_unsolvable(const Graph& graph, const std::vector<int>& edges, bool one_to_one,
                           int sample_size);
// The sentence for a model with fewer matches than a sample.
std::string why_unsupported(int matches, const char* model, int sample_size);

// Edges 0 to count - 1.
std::vector<int> first_edges(std::size_t count);
// The union of two ascending lists.
std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b);
// The joint rank of every edge: the largest of its given rank and of its places in the lists of its
// two ends. A place is one plus the number of better edges of the same vertex and source, by
// similarity (else belief), then by given rank. For a mutual graph this is the given rank; in a
// one-way list it also tells which of the keypoints that share a nearest neighbour fits it best.
// Empty if neither ranks nor similarities are known.
std::vector<int32_t> joint_ranks(const GraphInput& input, const Graph& graph);
// The best `count` edges of each source, ascending. Best by `rank` (empty: unknown), then by the
// confidence of the matcher, then by place.
std::vector<int> best_edges(const GraphInput& input, std::span<const int32_t> rank,
                            std::size_t count);
// The `count` edges with the largest priors among those considered, ascending. Ties go to the
// earlier edge.
std::vector<int> likeliest_edges(const Levels& levels, std::vector<int> considered,
                                 std::size_t count);
// One flag per edge of the graph: set if it is considered and the motion filter keeps it.
std::vector<uint8_t> kept_by_filter(const GraphInput& input, const Graph& graph,
                                    const std::vector<int>& considered);
// One flag per edge.
std::vector<uint8_t> flags_of(MaskView mask, std::size_t num_edges);

}  // namespace manymatch

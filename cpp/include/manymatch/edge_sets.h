// The input of the estimator as far as it is about edges, and the sets of edges it works on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/priors.h"

namespace manymatch {

// What every geometric problem takes; its points and threshold come beside it. Arrays belong to the
// caller and have one entry per edge unless they say otherwise.
struct GraphInput {
  int num0, num1;                        // vertices on each side
  std::span<const int32_t> edges;        // (num_edges, 2) by rows, checked by the caller
  std::span<const int32_t> rank;         // empty: unknown
  std::span<const uint8_t> proposals;    // edges that may be sampled; empty: all
  std::span<const double> points0 = {};  // pixels by vertex, for the motion filter of kAuto;
  std::span<const double> points1 = {};  // empty: no filter
  std::span<const uint8_t> kept = {};    // what that filter keeps, if known; empty: run it
  std::span<const int32_t> source = {};  // what an edge was found with, from 0; empty: one source
  std::span<const double> belief = {};   // what a matcher says of its edge, above 0; empty: nothing

  std::size_t num_edges() const { return edges.size() / 2; }
  Graph graph() const;
  // Edges that may be sampled, ascending.
  std::vector<int> sampled_edges() const;
  int num_sources() const;
};

// Values of some edges, out of those of all edges.
template <class T>
std::vector<T> pick(const std::vector<T>& values, const std::vector<int>& edges) {
  std::vector<T> picked;
  picked.reserve(edges.size());
  for (int e : edges) picked.push_back(values[at(e)]);
  return picked;
}

// Some edges of a graph, between the same vertices and in the same order.
struct Subgraph {
  std::vector<int> edges;  // of the whole graph, ascending
  Graph graph;

  Subgraph(const Graph& whole, std::vector<int> chosen);

  // Edges of the whole graph that are here, by their numbers here.
  std::vector<int> local(const std::vector<int>& chosen) const;
};

// A number with its noun: "1 edge", "2 edges".
std::string counted(std::size_t number, const char* noun, const char* ending = "s");
// A sentence that says why no minimal sample can be drawn from these edges, or nothing.
std::string why_unsolvable(const Graph& graph, const std::vector<int>& edges, bool one_to_one,
                           int sample_size);
// A sentence that says that a model has too few matches to be told from chance.
std::string why_unsupported(int matches, const char* model, int sample_size);

// Edges 0 to count - 1.
std::vector<int> first_edges(std::size_t count);
// The union of two ascending lists.
std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b);
// The best `count` edges of each source, ascending: by rank, then by what matchers say of them,
// then by place.
std::vector<int> best_edges(const GraphInput& input, std::size_t count);
// The `count` edges of the largest prior among those considered, ascending; of equal ones the
// first.
std::vector<int> likeliest_edges(const Levels& levels, std::vector<int> considered,
                                 std::size_t count);
// Flags of all edges: those considered that the motion filter keeps.
std::vector<uint8_t> kept_by_filter(const GraphInput& input, const Graph& graph,
                                    const std::vector<int>& considered);
// One flag per edge.
std::vector<uint8_t> flags_of(MaskView mask, std::size_t num_edges);

}  // namespace manymatch

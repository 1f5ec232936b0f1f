// Functions of the graph alone: matching, priors, samples, the iteration bound.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "arrays.h"
#include "manymatch/edge_sets.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "manymatch/ransac/iteration_bound.h"
#include "manymatch/ransac/sampler.h"
#include "manymatch/score/hcm.h"
#include "manymatch/score/trust.h"

namespace manymatch {

namespace {

Out<int64_t> max_matching(const Edges& edges, const std::optional<Vector>& cost) {
  const auto [n0, n1] = vertex_counts(edges);
  const Graph graph = to_graph(edges, n0, n1);
  std::vector<double> costs(graph.num_edges(), 0.0);
  if (cost) {
    check_length("cost", cost->shape(0), graph.num_edges());
    for (std::size_t e = 0; e < costs.size(); ++e) {
      costs[e] = (*cost)(e);
      if (!std::isfinite(costs[e]) || costs[e] < 0.0) {
        throw nb::value_error("cost must be finite and not negative");
      }
    }
  }
  Mask mask(graph.words(), 0);
  for (std::size_t e = 0; e < graph.num_edges(); ++e) mask[e / 64] |= uint64_t{1} << (e % 64);
  return to_numpy(cheapest_maximum_matching(graph, mask, costs));
}

int cardinality(const Edges& edges, const Flags& used) {
  const auto [n0, n1] = vertex_counts(edges);
  const Graph graph = to_graph(edges, n0, n1);
  check_length("used", used.shape(0), graph.num_edges());
  Mask mask(graph.words(), 0);
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    mask[e / 64] |= static_cast<uint64_t>(used(e)) << (e % 64);
  }
  return MaximumMatching(graph).cardinality(mask);
}

std::tuple<Out<double>, Out<double>, Out<double>> priors(const Edges& edges, std::size_t n0,
                                                         std::size_t n1, double q, double delta) {
  const Graph graph = to_graph(edges, n0, n1);
  Priors p(graph, q, delta);
  return {to_numpy(std::move(p.p)), to_numpy(std::move(p.a0)), to_numpy(std::move(p.a1))};
}

std::tuple<Out<int>, Out<double>> levels(std::size_t num_edges, const std::optional<Ranks>& rank,
                                         const std::optional<Flags>& kept, double q) {
  if (rank) check_length("rank", rank->shape(0), num_edges);
  if (kept) check_length("kept", kept->shape(0), num_edges);
  std::vector<int> level(num_edges);
  std::vector<double> prior(num_edges);
  for (std::size_t e = 0; e < num_edges; ++e) {
    const int r = rank ? std::clamp((*rank)(e), 1, Levels::kRanks) : 1;
    level[e] = Levels::level_of(r, !kept || (*kept)(e));
    prior[e] = Levels::prior_of(level[e], q);
  }
  return {to_numpy(std::move(level)), to_numpy(std::move(prior))};
}

Out<double> source_trust(const Ranks& source, const Vector& prior,
                         const In<double, nb::shape<-1, -1>>& squared, int dimensions) {
  const std::size_t edges = source.shape(0);
  check_length("prior", prior.shape(0), edges);
  check_length("squared", squared.shape(1), edges);
  std::vector<int> of(edges);
  for (std::size_t e = 0; e < edges; ++e) of[e] = source(e);
  const int sources = of.empty() ? 1 : 1 + *std::max_element(of.begin(), of.end());
  const auto values = view_of(prior);
  SourceTrust trust(of, {values.begin(), values.end()}, sources, {dimensions});
  for (std::size_t m = 0; m < squared.shape(0); ++m) {
    Mask inliers((edges + 63) / 64, 0);
    std::vector<double> row(edges);
    for (std::size_t e = 0; e < edges; ++e) {
      row[e] = squared(m, e);
      if (row[e] <= 1.0) set_bit(inliers, static_cast<int>(e));
    }
    trust.look_at(inliers, row);
  }
  return to_numpy(trust.factors());
}

Out<int> best(const Edges& edges, const std::optional<Ranks>& rank,
              const std::optional<Ranks>& source, const std::optional<Vector>& belief,
              std::size_t count) {
  GraphInput input{
      .num0 = 0, .num1 = 0, .edges = view_of(edges), .rank = view_of(rank), .proposals = {}};
  input.source = view_of(source);
  input.belief = view_of(belief);
  if (rank) check_length("rank", rank->shape(0), input.num_edges());
  if (source) check_length("source", source->shape(0), input.num_edges());
  if (belief) check_length("belief", belief->shape(0), input.num_edges());
  return to_numpy(best_edges(input, input.rank, count));
}

Out<int32_t> joint(const Edges& edges, const std::optional<Ranks>& rank,
                   const std::optional<Similarities>& similarity,
                   const std::optional<Ranks>& source, const std::optional<Vector>& belief) {
  const auto [n0, n1] = vertex_counts(edges);
  GraphInput input{static_cast<int>(n0), static_cast<int>(n1), view_of(edges), view_of(rank), {}};
  input.similarity = view_of(similarity);
  input.source = view_of(source);
  input.belief = view_of(belief);
  if (rank) check_length("rank", rank->shape(0), input.num_edges());
  if (similarity) check_length("similarity", similarity->shape(0), input.num_edges());
  if (source) check_length("source", source->shape(0), input.num_edges());
  if (belief) check_length("belief", belief->shape(0), input.num_edges());
  return to_numpy(joint_ranks(input, to_graph(edges, n0, n1)));
}

Out<int64_t> sample(const Edges& edges, const std::optional<Flags>& proposals, uint64_t seed,
                    int64_t count, bool uniform_edges, int size) {
  const auto [n0, n1] = vertex_counts(edges);
  const Graph graph = to_graph(edges, n0, n1);
  if (count < 0 || size < 1)
    throw nb::value_error("count must not be negative and sample_size must be positive");
  if (proposals) check_length("proposals", proposals->shape(0), graph.num_edges());
  std::vector<int> allowed;
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    if (!proposals || (*proposals)(e)) allowed.push_back(static_cast<int>(e));
  }
  std::vector<int64_t> out(static_cast<std::size_t>(count) * at(size), -1);
  const bool possible =
      uniform_edges ? allowed.size() >= at(size) : matching_of_edges(graph, allowed) >= size;
  if (possible) {
    const Proposals source(graph, allowed, uniform_edges);
    Proposals::Scratch scratch = source.scratch();
    int64_t wasted = 0;
    std::vector<int> drawn(at(size));
    for (int64_t i = 0; i < count; ++i) {
      if (!source.draw(seed, i, scratch, drawn, &wasted)) continue;
      std::copy(drawn.begin(), drawn.end(), out.begin() + i * size);
    }
  }
  return to_numpy(std::move(out), {static_cast<std::size_t>(count), at(size)});
}

}  // namespace

void bind_graph(nb::module_& m) {
  m.def("max_matching", &max_matching, nb::arg("edges"), nb::arg("cost").none() = nb::none(),
        "Edges of a maximum matching, ascending; with cost, one of least total cost.");
  m.def("cardinality", &cardinality, nb::arg("edges"), nb::arg("used"),
        "Size of a maximum matching of the used edges.");
  m.def("priors", &priors, nb::arg("edges"), nb::arg("n0"), nb::arg("n1"), nb::arg("q"),
        nb::arg("delta"),
        "p of every edge and a of every vertex of either side; a is 0 for isolated vertices.");
  m.attr("NUM_LEVELS") = Levels::kCount;
  m.def("source_trust", &source_trust, nb::arg("source"), nb::arg("prior"), nb::arg("squared"),
        nb::arg("dimensions"),
        "Factor of every source, given the squared residuals (M, E) of models in squared "
        "thresholds.");
  m.def("trust_factor", &SourceTrust::factor_of, nb::arg("relative_share"),
        "Factor on the priors of a source, given its share relative to the largest share.");
  m.def(
      "belief_factors",
      [](const Vector& belief, const std::optional<Ranks>& source, const Ranks& considered) {
        return to_numpy(belief_factors(view_of(belief), view_of(source), view_of(considered)));
      },
      nb::arg("belief"), nb::arg("source").none(), nb::arg("considered"),
      "Factor on the prior of every edge, from the confidence of its matcher.");
  m.def("best_edges", &best, nb::arg("edges"), nb::arg("rank").none(), nb::arg("source").none(),
        nb::arg("belief").none(), nb::arg("count"),
        "The edges that method \"auto\" considers, ascending.");
  m.def("joint_ranks", &joint, nb::arg("edges"), nb::arg("rank").none(),
        nb::arg("similarity").none(), nb::arg("source").none(), nb::arg("belief").none(),
        "Rank of every edge from both sides; empty if neither ranks nor similarities are given.");
  m.def("levels", &levels, nb::arg("num_edges"), nb::arg("rank").none(), nb::arg("kept").none(),
        nb::arg("q"),
        "Level of every edge, from its rank and the motion filter, and the prior of that level in "
        "method \"auto\". Without ranks all edges have rank one, without a filter all are kept.");
  m.def("sample", &sample, nb::arg("edges"), nb::arg("proposals").none(), nb::arg("seed"),
        nb::arg("count"), nb::arg("uniform_edges"),
        nb::arg("sample_size") = RelativePoseProblem::kSampleSize,
        "Minimal samples of iterations 0..count-1 as (count, sample_size) edges, -1 for none.");
  m.def(
      "iteration_bound",
      [](int64_t inliers, int64_t edges, int64_t low, int64_t high, double confidence,
         double safety, int sample_size) {
        return iteration_bound(inliers, edges, sample_size, low, high, confidence, safety);
      },
      nb::arg("num_inliers"), nb::arg("num_edges"), nb::arg("min_iterations"),
      nb::arg("max_iterations"), nb::arg("confidence"), nb::arg("safety"),
      nb::arg("sample_size") = RelativePoseProblem::kSampleSize,
      "Adaptive number of iterations T*.");
}

}  // namespace manymatch

#include "manymatch/score/priors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace manymatch {

namespace {
// Floor of the paper's priors. Without it, a vertex whose priors sum to one would have an infinite
// factor.
constexpr double kSmallestFloor = 1e-9;
// Factors raise a prior to at most this, or to q if that is larger.
constexpr double kMostByFactor = 0.9;
}  // namespace

Levels::Levels(const Graph& graph, std::span<const int32_t> rank, std::span<const uint8_t> kept,
               double q, bool by_rank, bool root_of_rank, std::span<const double> factor)
    : of(graph.num_edges()), prior(graph.num_edges()) {
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    of[e] = level_of(rank.empty() ? 1 : std::clamp(rank[e], 1, kRanks), kept.empty() || kept[e]);
    if (by_rank && !rank.empty()) {
      prior[e] = prior_of(of[e], q);
      if (root_of_rank) prior[e] *= std::sqrt(of[e] / 2 + 1.0);
    } else {
      prior[e] = q / (2.0 * graph.at0.degree(graph.left[e])) +
                 q / (2.0 * graph.at1.degree(graph.right[e]));
      if (of[e] % 2) prior[e] *= kNotKept;
    }
    if (!factor.empty()) prior[e] = std::min(prior[e] * factor[e], std::max(q, kMostByFactor));
  }
}

double Levels::weight(int edge, double delta) const {
  const double p = prior[at(edge)];
  return std::log1p(p / ((1.0 - p) * delta));
}

std::vector<double> Levels::weights(const std::vector<int>& edges, double delta) const {
  // Edges have few different priors, and logarithms take long: remembers those of recent priors.
  struct Known {
    double prior = -1.0, weight = 0.0;
  };
  std::array<Known, 256> known;
  std::vector<double> weights;
  weights.reserve(edges.size());
  for (int e : edges) {
    const double p = prior[at(e)];
    Known& entry = known[(std::bit_cast<uint64_t>(p) * 0x9E3779B97F4A7C15ULL) >> 56];
    if (entry.prior != p) entry = {p, weight(e, delta)};
    weights.push_back(entry.weight);
  }
  return weights;
}

Priors::Priors(const Graph& graph, double q, double delta, std::span<const double> given)
    : p(given.begin(), given.end()), a0(at(graph.num0), 0.0), a1(at(graph.num1), 0.0) {
  if (given.empty()) p.resize(graph.num_edges());
  for (std::size_t e = 0; given.empty() && e < p.size(); ++e) {
    const int l = graph.left[e], r = graph.right[e];
    p[e] = q / (2.0 * graph.at0.degree(l)) + q / (2.0 * graph.at1.degree(r));
  }
  set_scales(graph, delta, kSmallestFloor);
}

Priors::Priors(const Graph& graph, std::vector<double> given, double delta, double floor)
    : p(std::move(given)), a0(at(graph.num0), 0.0), a1(at(graph.num1), 0.0) {
  set_scales(graph, delta, floor);
}

void Priors::set_scales(const Graph& graph, double delta, double floor) {
  std::vector<double> mass0(at(graph.num0), 0.0), mass1(at(graph.num1), 0.0);
  for (std::size_t e = 0; e < p.size(); ++e) {
    mass0[at(graph.left[e])] += p[e];
    mass1[at(graph.right[e])] += p[e];
  }
  const auto scale = [delta, floor](double mass) {
    return 1.0 / (std::max(1.0 - mass, floor) * delta);
  };
  for (int v = 0; v < graph.num0; ++v) a0[at(v)] = graph.at0.degree(v) ? scale(mass0[at(v)]) : 0.0;
  for (int v = 0; v < graph.num1; ++v) a1[at(v)] = graph.at1.degree(v) ? scale(mass1[at(v)]) : 0.0;
}

}  // namespace manymatch

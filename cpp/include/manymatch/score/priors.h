// The prior of an edge: the probability, before any geometry, that it is true.
//
// There are two definitions. The paper's methods use the priors that come with the graph or,
// without any, degrees: p_ij = q/(2 d_i) + q/(2 d_j). Method "auto" uses the level of an edge: its
// rank, and whether the GMS filter keeps it, that is, whether its neighbourhood moves the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

// The prior of "auto".
struct Levels {
  static constexpr int kRanks = 5;           // higher ranks count as this one
  static constexpr int kCount = 2 * kRanks;  // levels; 0 is rank one and kept by the filter
  static constexpr double kNotKept = 0.3;    // factor on the prior of an edge that is not kept

  std::vector<int> of;  // per edge: 2 (rank - 1), plus one where the filter does not keep it
  std::vector<double>
      prior;  // per edge: q / rank, times kNotKept where the filter does not keep it

  // `rank` empty: ranks are unknown; all count as one, and the prior is the paper's (by degrees).
  // `kept` empty: no filter. `by_rank` false: use the paper's prior although there are ranks.
  // `root_of_rank`: divide by the square root of the rank. `factor`, unless empty, multiplies the
  // prior of each edge, which stays well below one.
  Levels(const Graph& graph, std::span<const int32_t> rank, std::span<const uint8_t> kept, double q,
         bool by_rank, bool root_of_rank = false, std::span<const double> factor = {});

  // Level of an edge, given its rank (from one).
  static constexpr int level_of(int rank, bool kept) { return 2 * (rank - 1) + (kept ? 0 : 1); }
  // Prior of a level if ranks are known.
  static double prior_of(int level, double q) {
    return level % 2 ? q / (level / 2 + 1) * kNotKept : q / (level / 2 + 1);
  }

  // log(1 + p / ((1 - p) delta)), which an inlier adds to the log-likelihood of a model.
  double weight(int edge, double delta) const;
  // Those of some edges.
  std::vector<double> weights(const std::vector<int>& edges, double delta) const;
};

static_assert(Levels::level_of(Levels::kRanks, false) + 1 == Levels::kCount);

// Priors of the edges, and the factor a = 1 / (max(1 - m, floor) delta) of each vertex, with m the
// sum of the priors at the vertex.
struct Priors {
  std::vector<double> p;       // per edge
  std::vector<double> a0, a1;  // per vertex; 0 where isolated

  // The paper's, with the floor 1e-9: `given` (one per edge) or, if that is empty, by degrees.
  Priors(const Graph& graph, double q, double delta, std::span<const double> given = {});
  // With given priors. `floor` is the least probability that a vertex has no true edge.
  Priors(const Graph& graph, std::vector<double> given, double delta, double floor);

 private:
  void set_scales(const Graph& graph, double delta, double floor);
};

}  // namespace manymatch

// What an edge is worth before any geometry. Its level says how it was found: by rank, and by
// whether its neighbourhood moves with it (the GMS filter).
#pragma once

#include <cstdint>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

struct Levels {
  static constexpr int kRanks = 5;           // higher ranks count as this one
  static constexpr int kCount = 2 * kRanks;  // levels; 0 is rank one and kept by the filter

  std::vector<int> of;        // per edge: 2 (rank - 1), plus one where the filter does not keep it
  std::vector<double> prior;  // per edge: the chance that it is true

  // `rank` null: unknown, all count as rank one, and the prior is the paper's (by degrees).
  // `kept` null: no filter. `by_rank` false: the paper's prior though there are ranks.
  Levels(const Graph& graph, const int32_t* rank, const uint8_t* kept, double q, bool by_rank);

  // log(1 + p / ((1 - p) delta)): what an inlier edge adds to the log-likelihood of a pose.
  double weight(int edge, double delta) const;
};

}  // namespace manymatch

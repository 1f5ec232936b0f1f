#include "manymatch/levels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace manymatch {

namespace {
// How much less an edge is worth that the filter does not keep.
constexpr double kNotKept = 0.3;
}  // namespace

Levels::Levels(const Graph& graph, const int32_t* rank, const uint8_t* kept, double q, bool by_rank)
    : of(graph.num_edges()), prior(graph.num_edges()) {
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const int r = rank ? std::clamp(rank[e], 1, kRanks) : 1;
    prior[e] = rank && by_rank ? q / r
                               : q / (2.0 * graph.at0.degree(graph.left[e])) +
                                     q / (2.0 * graph.at1.degree(graph.right[e]));
    of[e] = 2 * (r - 1);
    if (kept && !kept[e]) {
      prior[e] *= kNotKept;
      of[e] += 1;
    }
  }
}

double Levels::weight(int edge, double delta) const {
  const double p = prior[static_cast<std::size_t>(edge)];
  // Finite for the smallest delta too: weights are added and subtracted.
  return std::log1p(std::min(p / ((1.0 - p) * delta), std::numeric_limits<double>::max()));
}

}  // namespace manymatch

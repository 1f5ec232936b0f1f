// Exact maximum matching of the subgraph that a mask of edges selects.
#pragma once

#include <cstdint>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

// Cardinality by a greedy start and Hopcroft-Karp phases. Buffers are sized once per graph and
// invalidated by stamps, so that the time depends on the number of inliers only.
class MaximumMatching {
 public:
  explicit MaximumMatching(const Graph& graph);

  // Number of matched pairs. Stops early if the cardinality is certainly below `enough`, and then
  // returns an upper bound that is below `enough`.
  int cardinality(MaskView mask, int enough = 0);

 private:
  bool augment_phase();
  bool advance(int root);

  const Graph& graph_;
  // Compact subgraph: active left vertices with their edges to compact right vertices.
  std::vector<int> id0_, id1_;  // vertex -> compact id, valid if the stamp is current
  std::vector<uint32_t> stamp0_, stamp1_;
  uint32_t stamp_ = 0;
  std::vector<int> edges_, start_, target_, match0_, match1_, level_, next_, queue_, stack_;
  int active0_ = 0, active1_ = 0;
};

// A maximum matching with the smallest total cost, as ascending edge indices. Costs must be finite
// and not negative.
std::vector<int64_t> cheapest_maximum_matching(const Graph& graph, MaskView mask,
                                               std::span<const double> cost);

// A matching with the largest total weight, as ascending edge indices. Weights must be finite and
// not negative.
std::vector<int64_t> heaviest_matching(const Graph& graph, MaskView mask,
                                       std::span<const double> weight);

}  // namespace manymatch

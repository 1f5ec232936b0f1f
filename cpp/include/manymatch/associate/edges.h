// From the neighbour lists of two images to edges in their total order.
#pragma once

#include <cstdint>
#include <vector>

namespace manymatch {

enum class Operator : int { kMutual, kOneWay, kUnion };

// Neighbours of every vertex, best first, row-major (count, width); -1 ends a list early.
struct ListsView {
  const int32_t* index;
  const float* similarity;
  std::size_t count, width;
};

struct RankedEdges {
  std::vector<int64_t> ends;  // (E, 2)
  std::vector<float> similarity;
  std::vector<int32_t> rank;
};

// The edges by (rank, decreasing similarity, i, j), at most `max_edges` of them. The rank is the
// first k at which the operator keeps the edge: the larger position in the two lists (mutual), the
// position in the left list (one-way), the smaller position (union).
RankedEdges edges_of_lists(const ListsView& left, const ListsView& right, Operator op,
                           std::size_t max_edges);

}  // namespace manymatch

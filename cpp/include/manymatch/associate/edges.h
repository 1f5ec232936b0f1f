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

// An edge that an operator keeps. The rank is the first k at which it does: the larger position in
// the two lists (mutual), the position in the left list (one-way), the smaller position (union).
struct Link {
  int32_t rank, i, j;
  float similarity;
};

struct RankedEdges {
  std::vector<int64_t> ends;  // (E, 2)
  std::vector<float> similarity;
  std::vector<int32_t> rank;
};

// The edges that an operator keeps, unordered. The one-way operator uses the left lists only.
std::vector<Link> links_of_lists(const ListsView& left, const ListsView& right, Operator op);

// Edges by (rank, decreasing similarity, i, j), at most `max_edges` of them.
RankedEdges ranked_edges(const std::vector<Link>& links, std::size_t max_edges);

}  // namespace manymatch

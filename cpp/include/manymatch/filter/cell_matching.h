// Maximum matchings of many small sets of edges: the edges between two cells of GMS.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/score/matching.h"

namespace manymatch {

// Augmenting paths over bit sets of at most 64 right vertices, which nearly all pairs of cells
// have; MaximumMatching handles larger sets. Buffers are sized once per graph.
class CellMatching {
 public:
  explicit CellMatching(const Graph& graph)
      : graph_(graph),
        large_(graph),
        mask_(graph.words(), 0),
        id0_(at(graph.num0)),
        id1_(at(graph.num1)),
        stamp0_(at(graph.num0), 0),
        stamp1_(at(graph.num1), 0),
        candidates_(std::min(graph.num_edges(), at(graph.num0))),
        free_(candidates_.size()) {}

  // Largest number of these edges that share no vertex.
  int cardinality(std::span<const int> edges) {
    if (edges.size() <= 1) return static_cast<int>(edges.size());
    return collect(edges) ? augment_all() : by_mask(edges);
  }

 private:
  static constexpr int kMost = 64;  // bits of a set of right vertices

  // Numbers the vertices and matches each left one with its first free candidate; false if there
  // are more than 64 right vertices.
  bool collect(std::span<const int> edges) {
    if (++stamp_ == 0) {  // wrapped around: no stamp is valid
      std::fill(stamp0_.begin(), stamp0_.end(), 0);
      std::fill(stamp1_.begin(), stamp1_.end(), 0);
      stamp_ = 1;
    }
    count0_ = count1_ = matched_ = 0;
    for (int e : edges) {
      const std::size_t l = at(graph_.left[at(e)]), r = at(graph_.right[at(e)]);
      if (stamp0_[l] != stamp_) {
        stamp0_[l] = stamp_;
        candidates_[at(count0_)] = 0;
        free_[at(count0_)] = 1;
        id0_[l] = count0_++;
      }
      if (stamp1_[r] != stamp_) {
        if (count1_ == kMost) return false;
        stamp1_[r] = stamp_;
        owner_[count1_] = -1;
        id1_[r] = count1_++;
      }
      const int i = id0_[l], j = id1_[r];
      candidates_[at(i)] |= uint64_t{1} << j;
      if (free_[at(i)] && owner_[j] < 0) {
        owner_[j] = i;
        free_[at(i)] = 0;
        ++matched_;
      }
    }
    return true;
  }

  int augment_all() {
    const int bound = std::min(count0_, count1_);
    seen_ = 0;
    for (int i = 0; i < count0_ && matched_ < bound; ++i) {
      if (!free_[at(i)]) continue;
      // The vertices of a failed search never lead to a free vertex again, so they stay closed.
      const uint64_t closed = seen_;
      if (augment(i)) {
        seen_ = closed;
        ++matched_;
      }
    }
    return matched_;
  }

  // Every level marks a right vertex, so the recursion is at most 64 deep.
  bool augment(int i) {
    for (uint64_t open; (open = candidates_[at(i)] & ~seen_) != 0;) {
      const int j = std::countr_zero(open);
      seen_ |= uint64_t{1} << j;
      if (owner_[j] < 0 || augment(owner_[j])) {
        owner_[j] = i;
        return true;
      }
    }
    return false;
  }

  int by_mask(std::span<const int> edges) {
    for (int e : edges) set_bit(mask_, e);
    const int result = large_.cardinality(mask_);
    for (int e : edges) mask_[at(e / 64)] = 0;
    return result;
  }

  const Graph& graph_;
  MaximumMatching large_;
  Mask mask_;
  std::vector<int> id0_, id1_;  // vertex -> number, valid if the stamp is current
  std::vector<uint32_t> stamp0_, stamp1_;
  uint32_t stamp_ = 0;
  std::vector<uint64_t> candidates_;  // right vertices of each left one
  std::vector<uint8_t> free_;
  int owner_[kMost];
  uint64_t seen_ = 0;
  int count0_ = 0, count1_ = 0, matched_ = 0;
};

}  // namespace manymatch

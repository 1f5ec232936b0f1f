// Exact k-nearest neighbours in both directions, found with the help of approximate similarities.
#pragma once

#include <cstdint>
#include <vector>

#include "manymatch/associate/best_lists.h"
#include "manymatch/associate/edges.h"
#include "manymatch/associate/layout.h"
#include "manymatch/workers.h"

namespace manymatch {

// Row-major (vertices, width) lists, best first; index -1 ends a list early. The order is exact. A
// similarity is approximate unless the order depends on it.
struct NeighbourLists {
  std::size_t width = 0;
  std::vector<int32_t> index;
  std::vector<float> similarity;
};

// The similarity of two rows is their inner product in float64, rounded to float32; that of two
// keypoints is the largest of their rows'. Products of rounded rows only select the pairs for which
// that is computed.
class NeighbourSearch {
 public:
  // Keeps `k0` neighbours of every keypoint of `left` and `k1` of every one of `right`; 0: none.
  // `threads` affects the time only.
  NeighbourSearch(const UnitRows& left, const UnitRows& right, std::size_t k0, std::size_t k1,
                  int threads);

  // Edges by (rank, decreasing similarity, i, j) with exact similarities. Call it once.
  RankedEdges edges(Operator op, std::size_t max_edges);

 private:
  struct Tile {
    const float* data;
    std::size_t rows, columns, row0, column0, stride;

    const float* row(std::size_t r) const { return data + r * stride; }
  };
  void search();
  void scan(const Tile& tile);
  void expect_row(const Tile& tile, std::size_t r);
  void expect_columns(const Tile& tile, std::size_t begin, std::size_t end);
  void scan_rows(const Tile& tile, std::size_t begin, std::size_t end);
  void scan_columns(const Tile& tile, std::size_t begin, std::size_t end);
  float similarity(std::size_t i, std::size_t j) const;

  KeypointRows left_, right_;
  Products products_;
  BestLists left_best_, right_best_;
  Workers workers_;
};

}  // namespace manymatch

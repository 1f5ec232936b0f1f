// Exact k-nearest neighbours in both directions from an approximate matrix of similarities.
#pragma once

#include <cstdint>
#include <vector>

#include "manymatch/associate/best_lists.h"
#include "manymatch/associate/edges.h"
#include "manymatch/workers.h"

namespace manymatch {

// Row-major (vertices, width) lists, best first; index -1 ends a list early. The order is exact. A
// similarity is that of the float32 product unless the order depends on it.
struct NeighbourLists {
  std::size_t width = 0;
  std::vector<int32_t> index;
  std::vector<float> similarity;
};

// Rows of unit length, row-major; invalid rows are ignored.
struct UnitRows {
  const float* data;
  const bool* valid;
  std::size_t count, dimension;

  const float* row(std::size_t i) const { return data + i * dimension; }
};

// The similarity of two rows is their inner product in float64, rounded to float32. A float32
// matrix product, with any order of additions, only selects the pairs for which that is computed.
class NeighbourSearch {
 public:
  // Keeps `k0` neighbours of every row of `left` and `k1` of every row of `right`; 0: none.
  // `threads` affects the time only.
  NeighbourSearch(const UnitRows& left, const UnitRows& right, std::size_t k0, std::size_t k1,
                  int threads);

  // Scans a tile (rows, columns) of left right^T whose corner is (row0, column0). Every entry of
  // the product must be scanned exactly once; the order of the tiles is free.
  void scan(const float* tile, std::size_t rows, std::size_t columns, std::size_t row0,
            std::size_t column0);

  // Edges by (rank, decreasing similarity, i, j) with exact similarities. Call it once, after all
  // tiles.
  RankedEdges edges(Operator op, std::size_t max_edges);

 private:
  struct Tile {
    const float* data;
    std::size_t rows, columns, row0, column0;
  };
  void expect_row(const Tile& tile, std::size_t r);
  void expect_columns(const Tile& tile, std::size_t begin, std::size_t end);
  void scan_rows(const Tile& tile, std::size_t begin, std::size_t end);
  void scan_columns(const Tile& tile, std::size_t begin, std::size_t end);

  UnitRows left_, right_;
  BestLists left_best_, right_best_;
  bool right_all_valid_;
  Workers workers_;
};

// Largest difference between a float32 inner product of two unit rows and the exact one.
double product_error(std::size_t dimension);

}  // namespace manymatch

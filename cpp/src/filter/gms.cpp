#include "manymatch/filter/gms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "manymatch/filter/cell_matching.h"
#include "manymatch/filter/frame.h"

namespace manymatch {

namespace {

constexpr int kPlacements = 4;
constexpr bool kShifted[kPlacements][2] = {
    {false, false}, {true, false}, {false, true}, {true, true}};

// The eight neighbours of a cell in a ring from the top left.
constexpr int kRing = 8;
static_assert(kRing == kGmsRotations, "a rotation turns the ring by one neighbour");
constexpr int kRingX[kRing] = {-1, 0, 1, 1, 1, 0, -1, -1};
constexpr int kRingY[kRing] = {-1, -1, -1, 0, 1, 1, 1, 0};

// For neighbour u of a left cell and the right cell at (dx + 1) + 4 (dy + 1) from the best one: the
// rotation that the two support. No neighbour, which has dx or dy of 2, supports number kRing.
using Places = std::array<std::array<uint8_t, 16>, kRing>;
constexpr Places places() {
  Places place{};
  for (int u = 0; u < kRing; ++u) {
    for (uint8_t& one : place[at(u)]) one = kRing;
    for (int v = 0; v < kRing; ++v) {
      const int cell = kRingX[v] + 1 + 4 * (kRingY[v] + 1);
      place[at(u)][at(cell)] = static_cast<uint8_t>((u - v) & (kRing - 1));
    }
  }
  return place;
}
constexpr Places kPlaceOf = places();

// The left grid in one placement: the cells that have edges, and the edges of each cell.
struct LeftGrid {
  std::vector<int> cells;         // cells that have edges, ascending
  std::vector<int> start, edges;  // edges of every cell, in edge order
  std::vector<int> points;        // n(a): distinct points with an edge in every cell

  LeftGrid(const Graph& graph, const Frame& frame, std::span<const double> points0, int grid,
           const bool* shifted)
      : start(at(grid * grid) + 1, 0), points(at(grid * grid), 0) {
    std::vector<int> cell_of(at(graph.num0), -1);
    for (int v = 0; v < graph.num0; ++v) {
      const int degree = graph.at0.degree(v);
      if (degree == 0) continue;
      const int a = shifted_cell(frame, &points0[2 * at(v)], grid, shifted);
      if (a < 0) continue;
      cell_of[at(v)] = a;
      ++points[at(a)];
      start[at(a) + 1] += degree;
    }
    for (std::size_t a = 0; a + 1 < start.size(); ++a) {
      if (start[a + 1] > 0) cells.push_back(static_cast<int>(a));
      start[a + 1] += start[a];
    }
    edges.resize(at(start.back()));
    std::vector<int> next(start.begin(), start.end() - 1);
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      const int a = cell_of[at(graph.left[e])];
      if (a >= 0) edges[at(next[at(a)]++)] = static_cast<int>(e);
    }
  }
};

// A right cell that a left cell has edges to.
struct Support {
  int x, y;   // column and row of the right cell
  int count;  // edges between the two cells
  int m;      // size of their maximum matching
};

class Filter {
 public:
  Filter(const Graph& graph, std::span<const double> points0, std::span<const double> points1,
         const Frame& frame0, const Frame& frame1, const GmsOptions& options)
      : graph_(graph),
        points1_(points1),
        frame1_(frame1),
        options_(options),
        matching_(graph),
        right_cell_(graph.num_edges(), -1),
        row_start_(at(options.grid * options.grid)),
        row_end_(at(options.grid * options.grid)),
        best_(at(options.grid * options.grid)),
        rows_(graph.num_edges()),
        grouped_(graph.num_edges()),
        keep_(graph.num_edges()) {
    for (const bool* shifted : kShifted) {
      left_.emplace_back(graph, frame0, points0, options.grid, shifted);
    }
    const int largest = static_cast<int>(options.grid * kGmsScale[kGmsScales - 1]);
    slot_.assign(at(largest * largest), -1);
  }

  // Bit r of every edge says whether it is kept with this scale and rotation r.
  const std::vector<uint8_t>& run(double scale) {
    side_ = static_cast<int>(options_.grid * scale);
    for (int v = 0; v < graph_.num1; ++v) {
      const Adjacency& edges = graph_.at1;
      if (edges.degree(v) == 0) continue;
      const int b = right_cell(&points1_[2 * at(v)]);
      for (int k = edges.start[at(v)]; k < edges.start[at(v) + 1]; ++k) {
        right_cell_[at(edges.edges[at(k)])] = b;
      }
    }
    cells_.clear();
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x) cells_.push_back({x, y, 0, 0});
    }
    std::fill(keep_.begin(), keep_.end(), uint8_t{0});
    for (const LeftGrid& grid : left_) {
      std::fill(row_start_.begin(), row_start_.end(), 0);
      std::fill(row_end_.begin(), row_end_.end(), 0);
      int used = 0;
      for (int a : grid.cells) used = support(grid, a, used);
      for (int a : grid.cells) mark(grid, a, accepted(grid, a));
    }
    return keep_;
  }

 private:
  int right_cell(const double* point) const {
    int cell[2];
    for (int k = 0; k < 2; ++k) {
      // If single precision rounds a huge side down, the last point could fall outside.
      cell[k] =
          std::min(static_cast<int>(std::floor(frame1_.position(point, k, side_))), side_ - 1);
    }
    return cell[0] + cell[1] * side_;
  }

  int right_cell_of(int edge) const { return right_cell_[at(edge)]; }

  // Fills the row of left cell a from rows_[used] on, and returns its end.
  int support(const LeftGrid& grid, int a, int used) {
    const int begin = grid.start[at(a)], end = grid.start[at(a) + 1], first = used;
    for (int k = begin; k < end; ++k) {
      const int b = right_cell_of(grid.edges[at(k)]);
      if (slot_[at(b)] < 0) {
        slot_[at(b)] = used;
        rows_[at(used++)] = cells_[at(b)];
      }
      ++rows_[at(slot_[at(b)])].count;
    }
    // Groups the edges by right cell; meanwhile m holds the next free place of the group.
    int place = 0;
    for (int s = first; s < used; ++s) {
      rows_[at(s)].m = place;
      place += rows_[at(s)].count;
    }
    for (int k = begin; k < end; ++k) {
      Support& s = rows_[at(slot_[at(right_cell_of(grid.edges[at(k)]))])];
      grouped_[at(s.m++)] = grid.edges[at(k)];
    }
    int best = first;
    for (int s = first; s < used; ++s) {
      Support& now = rows_[at(s)];
      const Support& top = rows_[at(best)];
      const std::span<const int> edges(&grouped_[at(now.m - now.count)], at(now.count));
      now.m = now.count == 1 ? 1 : now.count == 2 ? of_two(edges) : matching_.cardinality(edges);
      const int b = now.x + now.y * side_;
      if (now.m > top.m || (now.m == top.m && b < top.x + top.y * side_)) best = s;
      slot_[at(b)] = -1;
    }
    row_start_[at(a)] = first;
    row_end_[at(a)] = used;
    best_[at(a)] = best;
    return used;
  }

  // Most cells have few edges in common.
  int of_two(std::span<const int> edges) const {
    const std::size_t e = at(edges[0]), f = at(edges[1]);
    return graph_.left[e] != graph_.left[f] && graph_.right[e] != graph_.right[f] ? 2 : 1;
  }

  // Bit r says whether left cell a passes with rotation r. Neighbour u of a corresponds to
  // neighbour u - r of its best right cell, so the pair (u, v) supports rotation u - v only.
  uint8_t accepted(const LeftGrid& grid, int a) const {
    const int g = options_.grid, ax = a % g, ay = a / g;
    const Support& best = rows_[at(best_[at(a)])];
    int score[kRing + 1], points[kRing], pairs[kRing], left[kRing];
    std::fill_n(score, kRing + 1, best.m);
    int all_points = grid.points[at(a)], all_pairs = 1;
    for (int u = 0; u < kRing; ++u) {
      const int x = ax + kRingX[u], y = ay + kRingY[u];
      left[u] = is_inside(x, y, g) ? x + y * g : -1;
      if (left[u] < 0) continue;
      all_points += grid.points[at(left[u])];
      ++all_pairs;
      for (int s = row_start_[at(left[u])]; s < row_end_[at(left[u])]; ++s) {
        // No branch, which would often be mispredicted: what is no neighbour adds to the last
        // place.
        const unsigned dx = std::min(static_cast<unsigned>(rows_[at(s)].x - best.x + 1), 3U);
        const unsigned dy = std::min(static_cast<unsigned>(rows_[at(s)].y - best.y + 1), 3U);
        score[kPlaceOf[at(u)][dx + 4 * dy]] += rows_[at(s)].m;
      }
    }
    std::fill_n(points, kRing, all_points);
    std::fill_n(pairs, kRing, all_pairs);
    for (int v = 0; v < kRing; ++v) {  // pairs whose right cell is outside are not used
      if (is_inside(best.x + kRingX[v], best.y + kRingY[v], side_)) continue;
      for (int u = 0; u < kRing; ++u) {
        if (left[u] < 0) continue;
        points[(u - v) & (kRing - 1)] -= grid.points[at(left[u])];
        --pairs[(u - v) & (kRing - 1)];
      }
    }
    uint8_t bits = 0;
    for (int r = 0; r < (options_.rotations ? kRing : 1); ++r) {
      const double mean =
          options_.integer_mean ? points[r] / pairs[r] : static_cast<double>(points[r]) / pairs[r];
      if (score[r] >= options_.threshold * std::sqrt(mean)) {
        bits = static_cast<uint8_t>(bits | (1u << r));
      }
    }
    return bits;
  }

  static bool is_inside(int x, int y, int side) { return x >= 0 && y >= 0 && x < side && y < side; }

  void mark(const LeftGrid& grid, int a, uint8_t bits) {
    const Support& best = rows_[at(best_[at(a)])];
    const int b = best.x + best.y * side_;
    for (int k = grid.start[at(a)]; k < grid.start[at(a) + 1]; ++k) {
      const int e = grid.edges[at(k)];
      if (right_cell_of(e) == b) keep_[at(e)] = static_cast<uint8_t>(keep_[at(e)] | bits);
    }
  }

  const Graph& graph_;
  std::span<const double> points1_;
  const Frame& frame1_;
  const GmsOptions& options_;
  CellMatching matching_;
  std::vector<LeftGrid> left_;                   // one per placement
  int side_ = 0;                                 // cells on a side of the right grid
  std::vector<int> right_cell_;                  // of every edge
  std::vector<Support> cells_;                   // every right cell, still without edges
  std::vector<int> row_start_, row_end_, best_;  // of every left cell: its part of rows_, its b*
  std::vector<Support> rows_;
  std::vector<int> slot_;  // right cell -> its place in the row being filled, else -1
  std::vector<int> grouped_;
  std::vector<uint8_t> keep_;
};

}  // namespace

GmsResult gms_filter(const Graph& graph, std::span<const double> points0,
                     std::span<const double> points1, ImageSize size0, ImageSize size1,
                     const GmsOptions& options) {
  GmsResult result;
  result.mask.assign(graph.num_edges(), 0);
  if (graph.num_edges() == 0) return result;
  const Box box0 = bounding_box(graph.at0, points0), box1 = bounding_box(graph.at1, points1);
  const auto [frame0, frame1] = options.crop
                                    ? cropped_frames(box0, box1, options.grid)
                                    : std::pair{image_frame(box0, size0), image_frame(box1, size1)};
  Filter filter(graph, points0, points1, frame0, frame1, options);
  for (int s = 0; s < (options.scales ? kGmsScales : 1); ++s) {
    const std::vector<uint8_t>& keep = filter.run(kGmsScale[s]);
    int kept[kGmsRotations] = {};
    for (uint8_t bits : keep) {
      for (int r = 0; r < kGmsRotations; ++r) kept[r] += (bits >> r) & 1;
    }
    const int r = static_cast<int>(std::max_element(kept, kept + kGmsRotations) - kept);
    if (kept[r] <= result.num_kept) continue;
    result.num_kept = kept[r];
    result.scale = s;
    result.rotation = r;
    for (std::size_t e = 0; e < keep.size(); ++e) {
      result.mask[e] = static_cast<uint8_t>((keep[e] >> r) & 1);
    }
  }
  return result;
}

}  // namespace manymatch

#include "manymatch/associate/neighbours.h"

#include "manymatch/associate/kernels.h"
#include "manymatch/dispatch.h"

namespace manymatch {

namespace {

// A row is scanned in segments, short ones first, so that its threshold rises early.
constexpr std::size_t kFirstSegment = 32, kSegment = 256;
// Lists per job; more for columns, which are read across rows.
constexpr std::size_t kChunk = 256, kMaxColumns = 1024;
constexpr std::size_t kRowChunk = 48;
// Groups of rows in a tile, for each thread and at most: 1.5 MiB a thread, 15 MiB.
constexpr std::size_t kGroupsPerThread = 4, kMaxGroups = 40;
// A row or column is divided into this many groups to bound the values of its best entries.
constexpr std::size_t kGroups = 32;
// That does not pay for shorter rows and columns, nor if lists are longer than this share of the
// groups.
constexpr std::size_t kExpected = 128, kMaxExpected = kGroups / 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Number of jobs of `chunk` items each for `count` items.
int num_chunks(std::size_t count, std::size_t chunk) {
  return static_cast<int>((count + chunk - 1) / chunk);
}

template <class Exact>
NeighbourLists lists_of(BestLists& best, Workers& workers, const Exact& exact) {
  const std::size_t width = best.keep();
  NeighbourLists lists{width, std::vector<int32_t>(best.vertices() * width, -1),
                       std::vector<float>(best.vertices() * width, 0.0F)};
  workers.run(num_chunks(best.vertices(), kChunk), [&](int, int job) {
    const std::size_t begin = static_cast<std::size_t>(job) * kChunk;
    std::vector<uint64_t> keys(width);
    for (std::size_t v = begin; v < std::min(begin + kChunk, best.vertices()); ++v) {
      const auto exact_here = [&](int32_t at) { return exact(v, static_cast<std::size_t>(at)); };
      const std::size_t count = best.finish(v, exact_here, keys.data());
      for (std::size_t n = 0; n < count; ++n) {
        lists.index[v * width + n] = key_index(keys[n]);
        lists.similarity[v * width + n] = key_value(keys[n]);
      }
    }
  });
  return lists;
}

}  // namespace

NeighbourSearch::NeighbourSearch(const UnitRows& left, const UnitRows& right, std::size_t k0,
                                 std::size_t k1, int threads)
    : left_(left),
      right_(right),
      products_(left_, right_),
      left_best_(left_.size(), k0, products_.error()),
      right_best_(right_.size(), k1, products_.error()),
      workers_(threads) {
  for (std::size_t j = 0; j < right_.size(); ++j) {
    if (!right_.valid(j)) right_best_.close(j);
  }
}

float NeighbourSearch::similarity(std::size_t i, std::size_t j) const {
  const auto dot = kernels<AssociateKernels>().dot;
  double largest = -std::numeric_limits<double>::infinity();
  for (const int32_t a : left_.of(i)) {
    for (const int32_t b : right_.of(j)) {
      largest = std::max(largest, dot(left_.row(a), right_.row(b), left_.dimension()));
    }
  }
  return static_cast<float>(largest);
}

void NeighbourSearch::search() {
  const auto& groups = products_.groups();
  const std::size_t wave = std::min(
      {kGroupsPerThread * static_cast<std::size_t>(workers_.size()), kMaxGroups, groups.size()});
  std::vector<float> values;
  for (const Layout::Part& part : products_.columns()) {
    values.resize(std::max(values.size(), wave * Products::kGroup * part.own_slots));
    for (std::size_t g = 0; g < groups.size(); g += wave) {
      const std::size_t number = std::min(wave, groups.size() - g);
      workers_.run(static_cast<int>(number), [&](int, int job) {
        const auto n = static_cast<std::size_t>(job);
        products_.fill(groups[g + n], part, values.data() + n * Products::kGroup * part.own_slots,
                       part.own_slots);
      });
      const Layout::Part& last = groups[g + number - 1];
      const std::size_t row0 = groups[g].first_keypoint;
      scan({values.data(), last.first_keypoint + last.num_keypoints - row0, part.num_keypoints,
            row0, part.first_keypoint, part.own_slots});
    }
  }
}

// Rows and columns are scanned separately, so that every list belongs to one job.
void NeighbourSearch::scan(const Tile& tile) {
  const int row_jobs = left_best_.keep() == 0 ? 0 : num_chunks(tile.rows, kRowChunk);
  const auto share = tile.columns / static_cast<std::size_t>(workers_.size());
  const std::size_t width = std::clamp(share, kChunk, kMaxColumns);
  const int column_jobs = right_best_.keep() == 0 ? 0 : num_chunks(tile.columns, width);
  workers_.run(row_jobs + column_jobs, [&](int, int job) {
    if (job < row_jobs) {
      const std::size_t begin = static_cast<std::size_t>(job) * kRowChunk;
      scan_rows(tile, begin, std::min(begin + kRowChunk, tile.rows));
    } else {
      const std::size_t begin = static_cast<std::size_t>(job - row_jobs) * width;
      scan_columns(tile, begin, std::min(begin + width, tile.columns));
    }
  });
}

// The k-th largest of the maxima of disjoint groups is a lower bound of the k-th largest value.
// With this bound a list collects little more than it will keep.
void NeighbourSearch::expect_row(const Tile& tile, std::size_t r) {
  const std::size_t keep = left_best_.keep();
  float largest[kGroups];
  const float* values = tile.row(r);
  std::copy_n(values, kGroups, largest);
  for (std::size_t c = kGroups; c < tile.columns; c += kGroups) {
    kernels<AssociateKernels>().raise(values + c, std::min(kGroups, tile.columns - c), largest);
  }
  std::nth_element(largest, largest + keep - 1, largest + kGroups, std::greater<>());
  left_best_.expect(tile.row0 + r, largest[keep - 1]);
}

// The first rows are enough for a column, and they stay in the cache for the scan.
void NeighbourSearch::expect_columns(const Tile& tile, std::size_t begin, std::size_t end) {
  const std::size_t keep = right_best_.keep(), width = end - begin;
  const auto raise = kernels<AssociateKernels>().raise;
  std::vector<float> largest(kGroups * width, -kInfinity);
  for (std::size_t r = 0; r < kExpected; ++r) {
    if (!left_.valid(tile.row0 + r)) continue;
    raise(tile.row(r) + begin, width, largest.data() + r % kGroups * width);
  }
  for (std::size_t c = 0; c < width; ++c) {
    float column[kGroups];
    for (std::size_t g = 0; g < kGroups; ++g) column[g] = largest[g * width + c];
    std::nth_element(column, column + keep - 1, column + kGroups, std::greater<>());
    right_best_.expect(tile.column0 + begin + c, column[keep - 1]);
  }
}

void NeighbourSearch::scan_rows(const Tile& tile, std::size_t begin, std::size_t end) {
  const auto above = kernels<AssociateKernels>().above;
  float never[kSegment];
  std::fill_n(never, kSegment, kInfinity);
  int32_t hits[kSegment];
  const bool expected =
      left_best_.keep() <= kMaxExpected && tile.columns >= kExpected && right_.all_valid();
  for (std::size_t r = begin; r < end; ++r) {
    const std::size_t i = tile.row0 + r;
    if (!left_.valid(i)) continue;
    if (expected) expect_row(tile, r);
    const float& threshold = left_best_.thresholds()[i];
    const auto exact = [&](int32_t at) { return similarity(i, static_cast<std::size_t>(at)); };
    std::size_t length = kFirstSegment;
    for (std::size_t c = 0; c < tile.columns;
         c += length, length = std::min(2 * length, kSegment)) {
      length = std::min(length, tile.columns - c);
      const float* values = tile.row(r) + c;
      const int count = above(values, length, threshold, never, hits);
      for (int h = 0; h < count; ++h) {
        const std::size_t j = tile.column0 + c + static_cast<std::size_t>(hits[h]);
        if (!right_.valid(j) || !(values[hits[h]] > threshold)) continue;
        left_best_.add(i, values[hits[h]], static_cast<int32_t>(j), exact);
      }
    }
  }
}

void NeighbourSearch::scan_columns(const Tile& tile, std::size_t begin, std::size_t end) {
  const auto above = kernels<AssociateKernels>().above;
  int32_t hits[kMaxColumns];
  // Later rows find the lists filled.
  if (tile.row0 == 0 && right_best_.keep() <= kMaxExpected && tile.rows >= kExpected) {
    expect_columns(tile, begin, end);
  }
  const std::size_t first = tile.column0 + begin;
  for (std::size_t r = 0; r < tile.rows; ++r) {
    const std::size_t i = tile.row0 + r;
    if (!left_.valid(i)) continue;
    const float* values = tile.row(r) + begin;
    const int count = above(values, end - begin, kInfinity, right_best_.thresholds() + first, hits);
    for (int h = 0; h < count; ++h) {
      const std::size_t j = first + static_cast<std::size_t>(hits[h]);
      right_best_.add(j, values[hits[h]], static_cast<int32_t>(i),
                      [&](int32_t at) { return similarity(static_cast<std::size_t>(at), j); });
    }
  }
}

RankedEdges NeighbourSearch::edges(Operator op, std::size_t max_edges) {
  search();
  const auto exact = [&](std::size_t i, std::size_t j) { return similarity(i, j); };
  const NeighbourLists left = lists_of(left_best_, workers_, exact);
  const NeighbourLists right =
      lists_of(right_best_, workers_, [&](std::size_t j, std::size_t i) { return exact(i, j); });
  std::vector<Link> links =
      links_of_lists({left.index.data(), left.similarity.data(), left_.size(), left.width},
                     {right.index.data(), right.similarity.data(), right_.size(), right.width}, op);
  workers_.run(num_chunks(links.size(), kChunk), [&](int, int job) {
    const std::size_t begin = static_cast<std::size_t>(job) * kChunk;
    for (std::size_t n = begin; n < std::min(begin + kChunk, links.size()); ++n) {
      Link& link = links[n];
      link.similarity = exact(static_cast<std::size_t>(link.i), static_cast<std::size_t>(link.j));
    }
  });
  return ranked_edges(links, max_edges);
}

}  // namespace manymatch

#include "manymatch/associate/edges.h"

#include <algorithm>

#include "manymatch/associate/best_lists.h"

namespace manymatch {

namespace {

// An edge as two numbers that sort in the order of edges.
struct Key {
  uint64_t rank_and_similarity, ends;

  auto operator<=>(const Key&) const = default;
};

Key make_key(const Link& link) {
  return {uint64_t{static_cast<uint32_t>(link.rank)} << 32 |
              static_cast<uint32_t>(~order_of(link.similarity)),
          uint64_t{static_cast<uint32_t>(link.i)} << 32 | static_cast<uint32_t>(link.j)};
}

// An entry of a left list, filed under its right vertex.
struct Entry {
  int32_t i, rank;
  float similarity;
};

// Left list entries by right vertex: those of j are entries[start[j]] to entries[start[j + 1]].
struct ByRight {
  std::vector<std::size_t> start;
  std::vector<Entry> entries;

  ByRight(const ListsView& left, std::size_t num_right) : start(num_right + 1, 0) {
    const std::size_t size = left.count * left.width;
    for (std::size_t n = 0; n < size; ++n) {
      if (left.index[n] >= 0) ++start[static_cast<std::size_t>(left.index[n]) + 1];
    }
    for (std::size_t j = 0; j < num_right; ++j) start[j + 1] += start[j];
    entries.resize(start[num_right]);
    std::vector<std::size_t> next(start.begin(), start.end() - 1);
    for (std::size_t n = 0; n < size; ++n) {
      if (left.index[n] < 0) continue;
      entries[next[static_cast<std::size_t>(left.index[n])]++] = {
          static_cast<int32_t>(n / left.width), static_cast<int32_t>(n % left.width) + 1,
          left.similarity[n]};
    }
  }
};

std::vector<Link> one_way(const ListsView& left) {
  std::vector<Link> links;
  for (std::size_t n = 0; n < left.count * left.width; ++n) {
    if (left.index[n] < 0) continue;
    links.push_back({static_cast<int32_t>(n % left.width) + 1, static_cast<int32_t>(n / left.width),
                     left.index[n], left.similarity[n]});
  }
  return links;
}

std::vector<Link> two_way(const ListsView& left, const ListsView& right, bool mutual) {
  const ByRight by_right(left, right.count);
  std::vector<Link> links;
  std::vector<int32_t> right_rank(
      left.count, 0);  // ranks in the list of the current right vertex; 0: not in it
  for (std::size_t j = 0; j < right.count; ++j) {
    const int32_t* list = right.index + j * right.width;
    std::size_t length = 0;
    for (; length < right.width && list[length] >= 0; ++length) {
      right_rank[static_cast<std::size_t>(list[length])] = static_cast<int32_t>(length) + 1;
    }
    for (std::size_t n = by_right.start[j]; n < by_right.start[j + 1]; ++n) {
      const Entry& entry = by_right.entries[n];
      int32_t& other = right_rank[static_cast<std::size_t>(entry.i)];
      if (mutual && other == 0) continue;
      int32_t rank = entry.rank;
      if (other != 0) rank = mutual ? std::max(rank, other) : std::min(rank, other);
      links.push_back({rank, entry.i, static_cast<int32_t>(j), entry.similarity});
      other = 0;
    }
    // Vertices that are still marked are in the right list only.
    for (std::size_t n = 0; n < length; ++n) {
      int32_t& own = right_rank[static_cast<std::size_t>(list[n])];
      if (!mutual && own != 0) {
        links.push_back(
            {own, list[n], static_cast<int32_t>(j), right.similarity[j * right.width + n]});
      }
      own = 0;
    }
  }
  return links;
}

}  // namespace

std::vector<Link> links_of_lists(const ListsView& left, const ListsView& right, Operator op) {
  return op == Operator::kOneWay ? one_way(left) : two_way(left, right, op == Operator::kMutual);
}

RankedEdges ranked_edges(const std::vector<Link>& links, std::size_t max_edges) {
  std::vector<Key> keys(links.size());
  std::transform(links.begin(), links.end(), keys.begin(), make_key);
  if (max_edges < keys.size()) {
    const auto cut = keys.begin() + static_cast<std::ptrdiff_t>(max_edges);
    std::nth_element(keys.begin(), cut, keys.end());
    keys.resize(max_edges);
  }
  std::sort(keys.begin(), keys.end());
  RankedEdges edges;
  edges.ends.reserve(2 * keys.size());
  edges.similarity.reserve(keys.size());
  edges.rank.reserve(keys.size());
  for (const Key& key : keys) {
    edges.ends.push_back(static_cast<int64_t>(key.ends >> 32));
    edges.ends.push_back(static_cast<int64_t>(key.ends & 0xffffffffU));
    edges.similarity.push_back(value_of(~static_cast<uint32_t>(key.rank_and_similarity)));
    edges.rank.push_back(static_cast<int32_t>(key.rank_and_similarity >> 32));
  }
  return edges;
}

}  // namespace manymatch

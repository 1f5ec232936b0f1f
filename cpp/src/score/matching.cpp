#include "manymatch/score/matching.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace manymatch {

MaximumMatching::MaximumMatching(const Graph& graph)
    : graph_(graph),
      id0_(at(graph.num0)),
      id1_(at(graph.num1)),
      stamp0_(at(graph.num0), 0),
      stamp1_(at(graph.num1), 0) {
  const std::size_t edges = graph.num_edges();
  const std::size_t n0 = std::min(edges, at(graph.num0)), n1 = std::min(edges, at(graph.num1));
  edges_.resize(edges);
  start_.resize(n0 + 1);
  target_.resize(edges);
  match0_.resize(n0);
  match1_.resize(n1);
  level_.resize(n0);
  next_.resize(n0);
  queue_.resize(n0);
  stack_.resize(n0);
}

int MaximumMatching::cardinality(MaskView mask, int enough) {
  if (++stamp_ == 0) {  // wrapped around: no stamp is valid
    std::fill(stamp0_.begin(), stamp0_.end(), 0);
    std::fill(stamp1_.begin(), stamp1_.end(), 0);
    stamp_ = 1;
  }
  active0_ = active1_ = 0;
  int count = 0;
  int matched = 0;
  // Compact ids and, in the same pass, a greedy matching in edge order.
  for_each_bit(mask, [&](int e) {
    const std::size_t l = at(graph_.left[at(e)]), r = at(graph_.right[at(e)]);
    if (stamp0_[l] != stamp_) {
      stamp0_[l] = stamp_;
      match0_[at(active0_)] = -1;
      start_[at(active0_)] = 0;
      id0_[l] = active0_++;
    }
    if (stamp1_[r] != stamp_) {
      stamp1_[r] = stamp_;
      match1_[at(active1_)] = -1;
      id1_[r] = active1_++;
    }
    const int i = id0_[l], j = id1_[r];
    ++start_[at(i)];
    edges_[at(count++)] = e;
    if (match0_[at(i)] < 0 && match1_[at(j)] < 0) {
      match0_[at(i)] = j;
      match1_[at(j)] = i;
      ++matched;
    }
  });
  const int bound = std::min(active0_, active1_);
  if (matched == bound) return matched;
  if (bound < enough) return bound;

  // Adjacency by counting sort: start_ holds the degrees.
  int total = 0;
  for (int i = 0; i < active0_; ++i) {
    total += start_[at(i)];
    start_[at(i)] = total;
  }
  start_[at(active0_)] = total;
  for (int k = count - 1; k >= 0; --k) {
    const std::size_t e = at(edges_[at(k)]);
    target_[at(--start_[at(id0_[at(graph_.left[e])])])] = id1_[at(graph_.right[e])];
  }
  while (augment_phase()) {
  }
  matched = 0;
  for (int i = 0; i < active0_; ++i) matched += match0_[at(i)] >= 0 ? 1 : 0;
  return matched;
}

// Breadth-first layers from the free left vertices, then vertex-disjoint shortest augmenting paths.
bool MaximumMatching::augment_phase() {
  int tail = 0;
  for (int i = 0; i < active0_; ++i) {
    level_[at(i)] = match0_[at(i)] < 0 ? 0 : -1;
    next_[at(i)] = start_[at(i)];
    if (match0_[at(i)] < 0) queue_[at(tail++)] = i;
  }
  bool reachable = false;
  for (int head = 0; head < tail; ++head) {
    const int i = queue_[at(head)];
    for (int k = start_[at(i)]; k < start_[at(i) + 1]; ++k) {
      const int partner = match1_[at(target_[at(k)])];
      if (partner < 0) {
        reachable = true;
      } else if (level_[at(partner)] < 0) {
        level_[at(partner)] = level_[at(i)] + 1;
        queue_[at(tail++)] = partner;
      }
    }
  }
  if (!reachable) return false;
  for (int i = 0; i < active0_; ++i) {
    if (match0_[at(i)] < 0) advance(i);
  }
  return true;
}

// Depth-first search along the layers with an explicit stack (a path can be as long as the graph).
bool MaximumMatching::advance(int root) {
  int depth = 0;
  stack_[0] = root;
  while (depth >= 0) {
    const int i = stack_[at(depth)];
    if (next_[at(i)] == start_[at(i) + 1]) {  // no edge left: go back
      level_[at(i)] = -1;
      --depth;
      continue;
    }
    const int j = target_[at(next_[at(i)]++)];
    const int partner = match1_[at(j)];
    if (partner < 0) {  // free: flip the path that the stack holds
      for (int d = depth; d >= 0; --d) {
        const int v = stack_[at(d)];
        const int w = target_[at(next_[at(v)] - 1)];
        match0_[at(v)] = w;
        match1_[at(w)] = v;
      }
      return true;
    }
    if (level_[at(partner)] == level_[at(i)] + 1) stack_[at(++depth)] = partner;
  }
  return false;
}

namespace {

// An assignment problem in which every active left vertex may also stay alone, at a price. If the
// price exceeds the cost of all edges together, the cheapest assignment is the cheapest of the
// largest matchings. An edge without a rival at either vertex is taken at once. The other left
// vertices are added one at a time along shortest augmenting paths with potentials. A search never
// leaves its connected component, and components of inlier graphs are small. Rows are the left
// vertices of contested edges and columns the right ones, both in the order of the vertices;
// further columns, one for each row, mean that its vertex stays alone.
class CheapestAssignment {
 public:
  // `price(e)` of an edge is at most `alone`.
  template <class Price>
  CheapestAssignment(const Graph& graph, MaskView mask, const Price& price, double alone)
      : alone_(alone), taken_(graph.words()) {
    std::vector<int> row(at(graph.num0), 0), column(at(graph.num1), 0);
    for_each_bit(mask, [&](int e) {
      ++row[at(graph.left[at(e)])];
      ++column[at(graph.right[at(e)])];
    });
    std::vector<int> contested;
    for_each_bit(mask, [&](int e) {
      if (row[at(graph.left[at(e)])] == 1 && column[at(graph.right[at(e)])] == 1) {
        set_bit(taken_, e);
      } else {
        contested.push_back(e);
      }
    });
    std::fill(row.begin(), row.end(), -1);
    std::fill(column.begin(), column.end(), -1);
    for (int e : contested) row[at(graph.left[at(e)])] = column[at(graph.right[at(e)])] = 0;
    const int rows = number(row), right = number(column);
    std::vector<int> next(at(rows), 0);
    for (int e : contested) {
      int& degree = next[at(row[at(graph.left[at(e)])])];
      if (degree++ == 0) order_.push_back(row[at(graph.left[at(e)])]);
    }
    // Every row has its edges, in their order, and then the link to stay alone.
    start_.assign(at(rows) + 1, 0);
    for (std::size_t r = 0; r < at(rows); ++r) {
      start_[r + 1] = start_[r] + next[r] + 1;
      next[r] = start_[r];
    }
    links_.resize(contested.size() + at(rows));
    for (int e : contested) {
      const int r = row[at(graph.left[at(e)])];
      links_[at(next[at(r)]++)] = {e, r, column[at(graph.right[at(e)])], price(e)};
    }
    for (int r = 0; r < rows; ++r) links_[at(next[at(r)])] = {-1, r, right + r, alone_};
    const std::size_t columns = at(right + rows);
    chosen0_.assign(at(rows), -1);
    chosen1_.assign(columns, -1);
    potential0_.assign(at(rows), 0.0);
    potential1_.assign(columns, 0.0);
    distance_.assign(columns, kInfinity);
    via_.assign(columns, -1);
    closed_.assign(columns, 0);
  }

  std::vector<int64_t> solve() {
    for (int root : order_) {
      if (!take_free_column(root)) add_row(root);
    }
    for (int link : chosen0_) {
      if (links_[at(link)].edge >= 0) set_bit(taken_, links_[at(link)].edge);
    }
    std::vector<int64_t> edges;
    for_each_bit(taken_, [&](int e) { edges.push_back(e); });
    return edges;
  }

 private:
  using Item = std::pair<double, int>;  // distance and column
  struct Link {
    int edge, row, column;  // edge -1: the row stays alone
    double price;
  };
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // Numbers the marked vertices, ascending, and returns how many there are.
  static int number(std::vector<int>& marked) {
    int count = 0;
    for (int& v : marked) v = v < 0 ? -1 : count++;
    return count;
  }

  double step(const Link& link) const {
    return std::max(0.0, link.price + potential0_[at(link.row)] - potential1_[at(link.column)]);
  }

  void choose(int link) {
    chosen0_[at(links_[at(link)].row)] = link;
    chosen1_[at(links_[at(link)].column)] = link;
  }

  // Most rows find that the column nearest to them is free; the search would end there at once.
  bool take_free_column(int root) {
    Item nearest{kInfinity, 0};
    int best = -1;
    for (int k = start_[at(root)]; k < start_[at(root) + 1]; ++k) {
      const Item item{step(links_[at(k)]), links_[at(k)].column};
      if (item < nearest) {
        nearest = item;
        best = k;
      }
    }
    if (best < 0 || chosen1_[at(nearest.second)] >= 0) return false;
    potential0_[at(root)] -= nearest.first;
    choose(best);
    return true;
  }

  void relax_row(int row, double base) {
    for (int k = start_[at(row)]; k < start_[at(row) + 1]; ++k) {
      if (k == chosen0_[at(row)]) continue;
      const std::size_t c = at(links_[at(k)].column);
      const double distance = base + step(links_[at(k)]);
      if (!(distance < distance_[c])) continue;
      if (via_[c] < 0) touched_.push_back(static_cast<int>(c));
      distance_[c] = distance;
      via_[c] = k;
      open_.emplace_back(distance, static_cast<int>(c));
      std::push_heap(open_.begin(), open_.end(), std::greater<>());
    }
  }

  void add_row(int root) {
    open_.clear();
    touched_.clear();
    relax_row(root, 0.0);
    int end = -1;
    double length = 0.0;
    while (end < 0) {  // the root's own column is free, so the search always ends
      std::pop_heap(open_.begin(), open_.end(), std::greater<>());
      const auto [d, c] = open_.back();
      open_.pop_back();
      if (closed_[at(c)]) continue;
      closed_[at(c)] = 1;
      if (chosen1_[at(c)] < 0) {
        end = c;
        length = d;
      } else {
        relax_row(links_[at(chosen1_[at(c)])].row, d);
      }
    }
    for (int c : touched_) {
      if (!closed_[at(c)] || c == end) continue;
      potential1_[at(c)] += distance_[at(c)] - length;
      potential0_[at(links_[at(chosen1_[at(c)])].row)] += distance_[at(c)] - length;
    }
    potential0_[at(root)] -= length;
    for (int c = end; c >= 0;) {
      const int link = via_[at(c)];
      const int previous = chosen0_[at(links_[at(link)].row)];
      choose(link);
      c = previous < 0 ? -1 : links_[at(previous)].column;
    }
    for (int c : touched_) {
      distance_[at(c)] = kInfinity;
      via_[at(c)] = -1;
      closed_[at(c)] = 0;
    }
  }

  double alone_;
  Mask taken_;              // edges of the matching
  std::vector<int> order_;  // rows, by their first edge
  std::vector<int> start_;  // of the links of each row
  std::vector<Link> links_;
  std::vector<int> chosen0_, chosen1_;  // link of each row and column, -1: none
  std::vector<double> potential0_, potential1_, distance_;
  std::vector<int> via_;
  std::vector<char> closed_;
  std::vector<int> touched_;
  std::vector<Item> open_;  // a heap, the nearest column in front
};

}  // namespace

std::vector<int64_t> cheapest_maximum_matching(const Graph& graph, MaskView mask,
                                               std::span<const double> cost) {
  double above = 1.0;
  for_each_bit(mask, [&](int e) { above += cost[at(e)]; });
  return CheapestAssignment(graph, mask, [&](int e) { return cost[at(e)]; }, above).solve();
}

std::vector<int64_t> heaviest_matching(const Graph& graph, MaskView mask,
                                       std::span<const double> weight) {
  // Taking an edge saves its weight, compared to staying alone.
  double alone = 0.0;
  for_each_bit(mask, [&](int e) { alone = std::max(alone, weight[at(e)]); });
  const auto price = [&](int e) { return alone - weight[at(e)]; };
  return CheapestAssignment(graph, mask, price, alone).solve();
}

}  // namespace manymatch

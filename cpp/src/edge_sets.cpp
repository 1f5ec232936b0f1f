#include "manymatch/edge_sets.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <numeric>

#include "manymatch/filter/gms.h"
#include "manymatch/ransac/sampler.h"

namespace manymatch {

namespace {

std::string in_words(int number) {
  constexpr const char* kWords[] = {"zero", "one",   "two",   "three", "four", "five",
                                    "six",  "seven", "eight", "nine",  "ten"};
  return at(number) < std::size(kWords) ? kWords[number] : std::to_string(number);
}

std::string needed(int sample_size) {
  return ", " + in_words(sample_size) + (sample_size == 1 ? " is needed" : " are needed");
}

}  // namespace

Graph GraphInput::graph() const {
  std::vector<int> left(num_edges()), right(num_edges());
  for (std::size_t e = 0; e < num_edges(); ++e) {
    left[e] = edges[2 * e];
    right[e] = edges[2 * e + 1];
  }
  return {std::move(left), std::move(right), num0, num1};
}

std::vector<int> GraphInput::sampled_edges() const {
  std::vector<int> sampled;
  for (std::size_t e = 0; e < num_edges(); ++e) {
    if (proposals.empty() || proposals[e]) sampled.push_back(static_cast<int>(e));
  }
  return sampled;
}

int GraphInput::num_sources() const {
  return source.empty() ? 1 : 1 + std::max(0, *std::max_element(source.begin(), source.end()));
}

Subgraph::Subgraph(const Graph& whole, std::vector<int> chosen)
    : edges(std::move(chosen)),
      graph(pick(whole.left, edges), pick(whole.right, edges), whole.num0, whole.num1) {}

std::vector<int> Subgraph::local(const std::vector<int>& chosen) const {
  std::vector<int> numbers;
  auto own = edges.begin();
  for (int e : chosen) {
    while (own != edges.end() && *own < e) ++own;
    if (own != edges.end() && *own == e) {
      numbers.push_back(static_cast<int>(own - edges.begin()));
    }
  }
  return numbers;
}

std::string counted(std::size_t number, const char* noun, const char* ending) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : ending);
}

std::string why_unsolvable(const Graph& graph, const std::vector<int>& edges, bool one_to_one,
                           int sample_size) {
  if (graph.num_edges() < at(sample_size)) {
    return "the graph has " + counted(graph.num_edges(), "edge") + needed(sample_size);
  }
  if (edges.size() < at(sample_size)) {
    return "proposals leave " + counted(edges.size(), "edge") + " to sample" + needed(sample_size);
  }
  if (one_to_one) {
    const int matching = matching_of_edges(graph, edges);
    if (matching < sample_size) {
      return "at most " + counted(at(matching), "edge") +
             " can hold at the same time (one partner per keypoint)" + needed(sample_size);
    }
  }
  return {};
}

std::string why_unsupported(int matches, const char* model, int sample_size) {
  return std::string("the best ") + model + " has " + counted(at(matches), "match", "es") +
         needed(sample_size);
}

std::vector<int> first_edges(std::size_t count) {
  std::vector<int> edges(count);
  std::iota(edges.begin(), edges.end(), 0);
  return edges;
}

std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<int32_t> joint_ranks(const GraphInput& input, const Graph& graph) {
  if (input.rank.empty() && input.similarity.empty()) return {};
  // Better edges have smaller keys.
  struct Key {
    int source;
    double cost;
    int32_t rank;
    auto operator<=>(const Key&) const = default;
  };
  std::vector<Key> key(graph.num_edges(), Key{0, 0.0, 1});
  for (std::size_t e = 0; e < key.size(); ++e) {
    if (!input.source.empty()) key[e].source = input.source[e];
    if (!input.similarity.empty()) {
      key[e].cost = -input.similarity[e];
    } else if (!input.belief.empty()) {
      key[e].cost = -input.belief[e];
    }
    if (!input.rank.empty()) key[e].rank = input.rank[e];
  }
  std::vector<int32_t> joint(graph.num_edges(), 1);
  if (!input.rank.empty()) joint.assign(input.rank.begin(), input.rank.end());
  std::vector<Key> keys;  // of the edges at a vertex
  for (const Adjacency* side : {&graph.at0, &graph.at1}) {
    for (std::size_t v = 0; v + 1 < side->start.size(); ++v) {
      const std::span edges(side->edges.begin() + side->start[v],
                            side->edges.begin() + side->start[v + 1]);
      keys.clear();
      for (int e : edges) keys.push_back(key[at(e)]);
      std::sort(keys.begin(), keys.end());
      for (int e : edges) {
        // Better edges of the same source; equal edges share a place.
        const Key& own = key[at(e)];
        const auto first = std::partition_point(
            keys.begin(), keys.end(), [&](const Key& k) { return k.source < own.source; });
        const auto place = std::lower_bound(first, keys.end(), own) - first;
        joint[at(e)] = std::max(joint[at(e)], static_cast<int32_t>(place) + 1);
      }
    }
  }
  return joint;
}

std::vector<int> best_edges(const GraphInput& input, std::span<const int32_t> rank,
                            std::size_t count) {
  std::vector<int> order = first_edges(input.num_edges());
  if (count >= order.size()) return order;
  const auto rank_of = [&](int e) { return rank.empty() ? 1 : rank[at(e)]; };
  const auto source_of = [&](int e) { return input.source.empty() ? 0 : input.source[at(e)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (rank_of(a) != rank_of(b)) return rank_of(a) < rank_of(b);
    return !input.belief.empty() && input.belief[at(a)] > input.belief[at(b)];
  });
  std::vector<std::size_t> taken(at(input.num_sources()), 0);
  std::erase_if(order, [&](int e) { return ++taken[at(source_of(e))] > count; });
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int> likeliest_edges(const Levels& levels, std::vector<int> considered,
                                 std::size_t count) {
  std::vector<int>& order = considered;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return levels.prior[at(a)] > levels.prior[at(b)]; });
  order.resize(std::min(order.size(), count));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<uint8_t> kept_by_filter(const GraphInput& input, const Graph& graph,
                                    const std::vector<int>& considered) {
  const Subgraph head(graph, considered);
  const double any_size[2] = {1.0, 1.0};  // ignored: the grids are cropped to the points
  const std::vector<uint8_t> mask =
      gms_filter(head.graph, input.points0, input.points1, any_size, any_size, GmsOptions()).mask;
  std::vector<uint8_t> kept(graph.num_edges(), 0);
  for (std::size_t i = 0; i < mask.size(); ++i) kept[at(considered[i])] = mask[i];
  return kept;
}

std::vector<uint8_t> flags_of(MaskView mask, std::size_t num_edges) {
  std::vector<uint8_t> flags(num_edges, 0);
  for_each_bit(mask, [&](int e) { flags[at(e)] = 1; });
  return flags;
}

}  // namespace manymatch

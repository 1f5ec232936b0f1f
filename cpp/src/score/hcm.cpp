#include "manymatch/score/hcm.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace manymatch {

HcmSide::HcmSide(const Adjacency& adjacency, const std::vector<double>& p,
                 const std::vector<double>& a, bool tabulate)
    : a_(a), offset_(a.size(), -1), bit_(p.size(), 0), has_all_tables_(tabulate) {
  if (!tabulate) return;
  std::size_t size = 0;
  const int vertices = static_cast<int>(a.size());
  for (int v = 0; v < vertices; ++v) {
    if (adjacency.degree(v) <= kTableDegree) size += std::size_t{1} << adjacency.degree(v);
  }
  table_.reserve(size);
  for (int v = 0; v < vertices; ++v) {
    const int degree = adjacency.degree(v);
    const int* edges = adjacency.edges.data() + adjacency.start[at(v)];
    if (degree > kTableDegree) {
      has_all_tables_ = false;
      continue;
    }
    offset_[at(v)] = static_cast<int64_t>(table_.size());
    for (int k = 0; k < degree; ++k) bit_[at(edges[k])] = static_cast<uint8_t>(1U << k);
    for (unsigned mask = 0; mask < 1U << degree; ++mask) {
      double sum = 0.0;  // in edge order, as in all sums
      for (int k = 0; k < degree; ++k) sum += mask >> k & 1U ? p[at(edges[k])] : 0.0;
      table_.push_back(term(v, sum));
    }
  }
}

HcmTerms::HcmTerms(const Graph& graph, double q, double delta, std::span<const double> given,
                   Tables tables)
    : HcmTerms(graph, Priors(graph, q, delta, given), tables) {}

HcmTerms::HcmTerms(const Graph& graph, Priors given, Tables tables)
    : priors(std::move(given)),
      side0(graph.at0, priors.p, priors.a0, tables == kTables),
      side1(graph.at1, priors.p, priors.a1, tables == kTables) {
  if (tables == kNoTables) return;
  best_sums_.resize(graph.num_edges());
  for (std::size_t e = 0; e < best_sums_.size(); ++e) {
    best_sums_[e] = side0.largest_step(graph.left[e], priors.p[e]) +
                    side1.largest_step(graph.right[e], priors.p[e]);
  }
  if (side0.has_all_tables() && side1.has_all_tables()) {
    for (int e = 0; e < static_cast<int>(graph.num_edges()); ++e) {
      ends.push_back({graph.left[at(e)], graph.right[at(e)], side0.bit(e), side1.bit(e)});
    }
  }
  std::sort(best_sums_.begin(), best_sums_.end(), std::greater<>());
  std::partial_sum(best_sums_.begin(), best_sums_.end(), best_sums_.begin());
}

int HcmTerms::fewest_edges(double score) const {
  // The margin covers the rounding errors of long sums.
  const auto first = std::lower_bound(best_sums_.begin(), best_sums_.end(), score * (1.0 - 1e-9));
  return static_cast<int>(first - best_sums_.begin()) + 1;
}

HcmEvaluator::HcmEvaluator(const Graph& graph, const HcmTerms& terms)
    : graph_(graph), terms_(terms) {
  const auto size = [](Side& side, int vertices) {
    side.bits.assign(at(vertices), 0);
    side.sums.assign(at(vertices), 0.0);
    side.active.assign(at(vertices), 0);
    side.touched.resize(at(vertices) + 1);
  };
  size(side0_, graph.num0);
  size(side1_, graph.num1);
}

inline void HcmEvaluator::touch(Side& side, const HcmSide& terms, int vertex, int edge) {
  if (!side.active[at(vertex)]) {
    side.active[at(vertex)] = 1;
    side.touched[at(side.count++)] = vertex;
  }
  side.bits[at(vertex)] |= terms.bit(edge);
  if (!terms.has_table(vertex)) side.sums[at(vertex)] += terms_.priors.p[at(edge)];
}

inline double HcmEvaluator::finish(Side& side, const HcmSide& terms) {
  double total = 0.0;
  for (int i = 0; i < side.count; ++i) {
    const int v = side.touched[at(i)];
    total +=
        terms.has_table(v) ? terms.tabulated(v, side.bits[at(v)]) : terms.term(v, side.sums[at(v)]);
    side.bits[at(v)] = 0;
    side.sums[at(v)] = 0.0;
    side.active[at(v)] = 0;
  }
  side.count = 0;
  return total;
}

double HcmEvaluator::general(MaskView mask) {
  for_each_bit(mask, [this](int e) {
    touch(side0_, terms_.side0, graph_.left[at(e)], e);
    touch(side1_, terms_.side1, graph_.right[at(e)], e);
  });
  const double left = finish(side0_, terms_.side0);
  return left + finish(side1_, terms_.side1);
}

// Returns the term of the i-th touched vertex and clears its entries.
inline double HcmEvaluator::Side::take(const HcmSide& terms, int i) {
  const int v = touched[at(i)];
  const double term = terms.tabulated(v, bits[at(v)]);
  bits[at(v)] = 0;
  return term;
}

// The same sums in the same order, without branches that depend on the mask. A vertex is new if it
// has no bit yet; it is always written to the list, which has room for one more. The two sides are
// summed in turn, since neither sum has to wait for the other.
double HcmEvaluator::tabulated(MaskView mask) {
  const HcmTerms::Ends* ends = terms_.ends.data();
  uint8_t *bits0 = side0_.bits.data(), *bits1 = side1_.bits.data();
  int *touched0 = side0_.touched.data(), *touched1 = side1_.touched.data();
  int count0 = 0, count1 = 0;
  for_each_bit(mask, [&](int e) {
    const HcmTerms::Ends& edge = ends[e];
    uint8_t &b0 = bits0[edge.vertex0], &b1 = bits1[edge.vertex1];
    touched0[count0] = edge.vertex0;
    touched1[count1] = edge.vertex1;
    count0 += b0 == 0;
    count1 += b1 == 0;
    b0 = static_cast<uint8_t>(b0 | edge.bit0);
    b1 = static_cast<uint8_t>(b1 | edge.bit1);
  });
  double left = 0.0, right = 0.0;
  int i = 0;
  for (; i < std::min(count0, count1); ++i) {
    left += side0_.take(terms_.side0, i);
    right += side1_.take(terms_.side1, i);
  }
  for (int k = i; k < count0; ++k) left += side0_.take(terms_.side0, k);
  for (int k = i; k < count1; ++k) right += side1_.take(terms_.side1, k);
  return left + right;
}

double HcmEvaluator::operator()(MaskView mask) {
  return terms_.ends.empty() ? general(mask) : tabulated(mask);
}

}  // namespace manymatch

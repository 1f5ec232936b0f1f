#include "manymatch/score/hcm.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace manymatch {

namespace {
std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The largest prior mass that is believed; beyond it a vertex would be worth infinitely much.
constexpr double kSmallestDoubt = 1e-9;
}  // namespace

Priors::Priors(const Graph& graph, double q, double delta)
    : p(graph.num_edges()), a0(at(graph.num0), 0.0), a1(at(graph.num1), 0.0) {
  std::vector<double> mass0(at(graph.num0), 0.0), mass1(at(graph.num1), 0.0);
  for (std::size_t e = 0; e < p.size(); ++e) {
    const int l = graph.left[e], r = graph.right[e];
    p[e] = q / (2.0 * graph.at0.degree(l)) + q / (2.0 * graph.at1.degree(r));
    mass0[at(l)] += p[e];
    mass1[at(r)] += p[e];
  }
  const auto scale = [delta](double mass) {
    return 1.0 / (std::max(1.0 - mass, kSmallestDoubt) * delta);
  };
  for (int v = 0; v < graph.num0; ++v) a0[at(v)] = graph.at0.degree(v) ? scale(mass0[at(v)]) : 0.0;
  for (int v = 0; v < graph.num1; ++v) a1[at(v)] = graph.at1.degree(v) ? scale(mass1[at(v)]) : 0.0;
}

HcmSide::HcmSide(const Adjacency& adjacency, const std::vector<double>& p,
                 const std::vector<double>& a)
    : a_(a), offset_(a.size(), -1), bit_(p.size(), 0) {
  std::size_t size = 0;
  const int vertices = static_cast<int>(a.size());
  for (int v = 0; v < vertices; ++v) {
    if (adjacency.degree(v) <= kTableDegree) size += std::size_t{1} << adjacency.degree(v);
  }
  table_.reserve(size);
  for (int v = 0; v < vertices; ++v) {
    const int degree = adjacency.degree(v);
    const int* edges = adjacency.edges.data() + adjacency.start[at(v)];
    if (degree > kTableDegree) continue;
    offset_[at(v)] = static_cast<int64_t>(table_.size());
    for (int k = 0; k < degree; ++k) bit_[at(edges[k])] = static_cast<uint8_t>(1U << k);
    for (unsigned mask = 0; mask < 1U << degree; ++mask) {
      double sum = 0.0;  // in edge order, like everywhere
      for (int k = 0; k < degree; ++k) sum += mask >> k & 1U ? p[at(edges[k])] : 0.0;
      table_.push_back(term(v, sum));
    }
  }
}

HcmTerms::HcmTerms(const Graph& graph, double q, double delta)
    : priors(graph, q, delta),
      side0(graph.at0, priors.p, priors.a0),
      side1(graph.at1, priors.p, priors.a1),
      best_sums_(graph.num_edges()) {
  for (std::size_t e = 0; e < best_sums_.size(); ++e) {
    best_sums_[e] = side0.largest_step(graph.left[e], priors.p[e]) +
                    side1.largest_step(graph.right[e], priors.p[e]);
  }
  std::sort(best_sums_.begin(), best_sums_.end(), std::greater<>());
  std::partial_sum(best_sums_.begin(), best_sums_.end(), best_sums_.begin());
}

int HcmTerms::fewest_edges(double score) const {
  // The margin covers the rounding of sums of many terms.
  const auto first = std::lower_bound(best_sums_.begin(), best_sums_.end(), score * (1.0 - 1e-9));
  return static_cast<int>(first - best_sums_.begin()) + 1;
}

HcmEvaluator::HcmEvaluator(const Graph& graph, const HcmTerms& terms)
    : graph_(graph), terms_(terms) {
  const auto size = [](Side& side, int vertices) {
    side.bits.assign(at(vertices), 0);
    side.sums.assign(at(vertices), 0.0);
    side.active.assign(at(vertices), 0);
    side.touched.reserve(at(vertices));
  };
  size(side0_, graph.num0);
  size(side1_, graph.num1);
}

inline void HcmEvaluator::touch(Side& side, const HcmSide& terms, int vertex, int edge) {
  if (!side.active[at(vertex)]) {
    side.active[at(vertex)] = 1;
    side.touched.push_back(vertex);
  }
  side.bits[at(vertex)] |= terms.bit(edge);
  if (!terms.has_table(vertex)) side.sums[at(vertex)] += terms_.priors.p[at(edge)];
}

inline double HcmEvaluator::finish(Side& side, const HcmSide& terms) {
  double total = 0.0;
  for (int v : side.touched) {
    total +=
        terms.has_table(v) ? terms.tabulated(v, side.bits[at(v)]) : terms.term(v, side.sums[at(v)]);
    side.bits[at(v)] = 0;
    side.sums[at(v)] = 0.0;
    side.active[at(v)] = 0;
  }
  side.touched.clear();
  return total;
}

double HcmEvaluator::operator()(const uint64_t* mask) {
  for_each_bit(mask, graph_.words(), [this](int e) {
    touch(side0_, terms_.side0, graph_.left[at(e)], e);
    touch(side1_, terms_.side1, graph_.right[at(e)], e);
  });
  const double left = finish(side0_, terms_.side0);
  return left + finish(side1_, terms_.side1);
}

}  // namespace manymatch

// Harmonic consensus: the real-valued score of the paper (equations HCM and uniform assignment).
//
// With p_ij = q/(2 d_i) + q/(2 d_j), q_i = sum_j p_ij and a_i = 1 / (max(1 - q_i, 1e-9) delta),
//   HCM = sum_i log(1 + a_i sum_{inliers at i} p_ij) + the same over the other side.
// A vertex with at most eight edges has at most 256 terms, which are tabulated.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/priors.h"

namespace manymatch {

// Terms of the vertices of one side: constant, shared by all threads.
class HcmSide {
 public:
  static constexpr int kTableDegree = 8;
  static_assert(kTableDegree <= 8, "inlier edges of a vertex are bits of a byte");

  // Without tables if `tabulate` is false.
  HcmSide(const Adjacency& adjacency, const std::vector<double>& p, const std::vector<double>& a,
          bool tabulate);

  double tabulated(int vertex, unsigned mask) const {
    return table_[static_cast<std::size_t>(offset_[at(vertex)]) + mask];
  }
  bool has_all_tables() const { return has_all_tables_; }
  bool has_table(int vertex) const { return offset_[at(vertex)] >= 0; }
  double term(int vertex, double sum) const { return std::log1p(a_[at(vertex)] * sum); }
  // Position of an edge among the edges of its vertex, as a bit.
  uint8_t bit(int edge) const { return bit_[at(edge)]; }
  // The most that an edge can add: log(1 + a p), since the terms are concave.
  double largest_step(int vertex, double p) const { return term(vertex, p); }

 private:
  std::vector<double> a_, table_;
  std::vector<int64_t> offset_;  // into the table, -1 for a vertex with too many edges
  std::vector<uint8_t> bit_;
  bool has_all_tables_;
};

struct HcmTerms {
  // Data of an edge that a tabulated score needs, close together in memory.
  struct Ends {
    int vertex0, vertex1;
    uint8_t bit0, bit1;
  };

  Priors priors;
  HcmSide side0, side1;
  std::vector<Ends> ends;  // empty unless every vertex has a table

  // Tables cost the time of many evaluations, so that a score or two are computed without.
  enum Tables { kNoTables, kTables };

  // With the paper's priors: `given` (one per edge) or, if that is empty, by degrees.
  HcmTerms(const Graph& graph, double q, double delta, std::span<const double> given = {},
           Tables tables = kTables);
  HcmTerms(const Graph& graph, Priors given, Tables tables = kTables);

  // Fewest inlier edges that can reach a score; needs tables.
  int fewest_edges(double score) const;

 private:
  std::vector<double> best_sums_;  // entry k: the most that k + 1 edges can add
};

// Evaluates masks; one object per thread.
class HcmEvaluator {
 public:
  HcmEvaluator(const Graph& graph, const HcmTerms& terms);
  double operator()(MaskView mask);

 private:
  struct Side {
    std::vector<uint8_t> bits;  // inlier edges of a vertex with a table
    std::vector<double> sums;   // sum of p of a vertex without a table
    std::vector<char> active;
    std::vector<int> touched;  // vertices in order of appearance, with room for one more
    int count = 0;             // number of touched vertices

    double take(const HcmSide& terms, int i);
  };
  double tabulated(MaskView mask);
  double general(MaskView mask);
  void touch(Side& side, const HcmSide& terms, int vertex, int edge);
  static double finish(Side& side, const HcmSide& terms);

  const Graph& graph_;
  const HcmTerms& terms_;
  Side side0_, side1_;
};

}  // namespace manymatch

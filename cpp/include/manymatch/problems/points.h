// Points of the two sides of a graph, with two or three coordinates each, and the base class of the
// problems that are about points.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "manymatch/aligned.h"
#include "manymatch/graph.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/refine/gathered_edges.h"
#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Points of the vertices of each side, by rows, and the inlier threshold in the same unit. The
// problem defines how many coordinates a point has (kDimension0, kDimension1). The arrays belong to
// the caller.
struct VertexPoints {
  std::span<const double> x0, x1;
  double eps;
};

// The column in float32. Numbers beyond the range of float32 are clamped, since converting them is
// undefined; problems do not screen in float32 if there are such numbers.
inline AlignedVector<float> to_float(const AlignedVector<double>& column) {
  static constexpr double kLimit = std::numeric_limits<float>::max();
  AlignedVector<float> out(column.size());
  std::transform(column.begin(), column.end(), out.begin(), [](double v) {
    return static_cast<float>(std::isnan(v) ? v : std::clamp(v, -kLimit, kLimit));
  });
  return out;
}

// Points of all edges by columns, padded with NaN to a whole number of 64-edge words. Edges without
// finite points become NaN too. NaN makes an edge an outlier of every model.
struct EdgePoints {
  AlignedVector<double> x0, y0, z0, x1, y1, z1;
  AlignedVector<float> x0f, y0f, z0f, x1f, y1f, z1f;
  double largest0 = 1.0, largest1 = 1.0;  // largest |coordinate| of each side, at least 1

  EdgePoints(const Graph& graph, const VertexPoints& points, int dimension0, int dimension1) {
    largest0 = take(graph.left, points.x0, dimension0, graph.words() * 64, {&x0, &y0, &z0});
    largest1 = take(graph.right, points.x1, dimension1, graph.words() * 64, {&x1, &y1, &z1});
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      const bool finite = std::isfinite(x0[e]) && std::isfinite(x1[e]);
      if (finite) continue;
      for (auto* column : columns()) {
        if (!column->empty()) (*column)[e] = kNone;
      }
    }
    x0f = to_float(x0);
    y0f = to_float(y0);
    z0f = to_float(z0);
    x1f = to_float(x1);
    y1f = to_float(y1);
    z1f = to_float(z1);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::array<AlignedVector<double>*, 6> columns() { return {&x0, &y0, &z0, &x1, &y1, &z1}; }

  // Fills the columns of one side; returns the largest |coordinate|, at least 1.
  static double take(const std::vector<int>& vertex, std::span<const double> points, int dimension,
                     std::size_t padded, const std::array<AlignedVector<double>*, 3>& columns) {
    double largest = 1.0;
    for (int k = 0; k < dimension; ++k) columns[at(k)]->assign(padded, kNone);
    for (std::size_t e = 0; e < vertex.size(); ++e) {
      const std::span<const double> point =
          points.subspan(at(vertex[e]) * at(dimension), at(dimension));
      if (!std::all_of(point.begin(), point.end(), [](double v) { return std::isfinite(v); })) {
        continue;
      }
      for (int k = 0; k < dimension; ++k) {
        (*columns[at(k)])[e] = point[at(k)];
        largest = std::max(largest, std::abs(point[at(k)]));
      }
    }
    return largest;
  }
};

// Points of the edges of one refinement, by columns.
struct RefineColumns {
  AlignedVector<double> x0, y0, z0, x1, y1, z1;  // z is empty where points have no third coordinate
  AlignedVector<double> r2;                      // room for the residuals

  // Makes room for `padded` edges. The caller sets the first `count`; the others are zero.
  void resize(std::size_t count, std::size_t padded, int dimension0 = 2, int dimension1 = 2) {
    for (auto* column : {&x0, &y0, &x1, &y1}) resize(*column, count, padded);
    if (dimension0 == 3) resize(z0, count, padded);
    if (dimension1 == 3) resize(z1, count, padded);
    if (r2.size() < padded) r2.resize(padded);
  }
  // Copies the points of the gathered edges.
  void gather(const GatheredEdges& edges, const EdgePoints& all) {
    resize(edges.edges().size(), edges.padded(), all.z0.empty() ? 2 : 3, all.z1.empty() ? 2 : 3);
    for (std::size_t i = 0; i < edges.edges().size(); ++i) {
      const std::size_t e = at(edges.edges()[i]);
      x0[i] = all.x0[e];
      y0[i] = all.y0[e];
      x1[i] = all.x1[e];
      y1[i] = all.y1[e];
      if (!z0.empty()) z0[i] = all.z0[e];
      if (!z1.empty()) z1[i] = all.z1[e];
    }
  }
  RefineArrays arrays(std::span<const double> weights) const {
    return {x0.data(), y0.data(), z0.data(),      x1.data(),
            y1.data(), z1.data(), weights.data(), weights.size()};
  }

 private:
  static void resize(AlignedVector<double>& column, std::size_t count, std::size_t padded) {
    column.resize(padded);
    std::fill(column.begin() + static_cast<std::ptrdiff_t>(count), column.end(), 0.0);
  }
};

static_assert(kRefineLanes == GatheredEdges::kPadding, "weights are padded to whole vectors");

// Base of a problem about points. P has the member
//   int inliers_below(const Model&, double limit2, uint64_t* mask, double* r2) const
// which finds the inliers whose squared residuals are below a limit, and writes all squared
// residuals unless r2 is null.
template <class P>
class PointProblem : public ProblemDefaults<P> {
 public:
  // Kernels get pointers into the members.
  PointProblem(const PointProblem&) = delete;
  PointProblem& operator=(const PointProblem&) = delete;

  const Graph& graph() const { return graph_; }
  double eps() const { return eps_; }

  int inliers(const auto& model, std::span<uint64_t> mask, std::span<double> r2) const {
    return self().inliers_below(model, eps_ * eps_, mask.data(), r2.empty() ? nullptr : r2.data());
  }
  int within(const auto& model, double limit2, std::span<uint64_t> mask,
             std::span<double> r2 = {}) const {
    return self().inliers_below(model, limit2, mask.data(), r2.empty() ? nullptr : r2.data());
  }

 protected:
  PointProblem(const Graph& graph, const VertexPoints& points)
      : graph_(graph), eps_(points.eps), points_(graph, points, P::kDimension0, P::kDimension1) {}

  const Graph& graph_;
  double eps_;
  EdgePoints points_;

 private:
  const P& self() const { return static_cast<const P&>(*this); }
};

}  // namespace manymatch

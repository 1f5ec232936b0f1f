// Points of problems between two images.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "manymatch/aligned.h"
#include "manymatch/graph.h"
#include "manymatch/refine/gathered_edges.h"
#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// Points of the vertices of each side, (x, y) by rows, and the inlier threshold in their unit. The
// arrays belong to the caller.
struct TwoViewPoints {
  std::span<const double> x0, x1;
  double eps;
};

// Points of the edges of one refinement, by columns.
struct RefineColumns {
  AlignedVector<double> x0, y0, x1, y1;
  AlignedVector<double> r2;  // room for the residuals

  // Room for `padded` edges, of which `count` are to be set; the rest is zero.
  void resize(std::size_t count, std::size_t padded) {
    for (auto* column : {&x0, &y0, &x1, &y1}) {
      column->resize(padded);
      std::fill(column->begin() + static_cast<std::ptrdiff_t>(count), column->end(), 0.0);
    }
    if (r2.size() < padded) r2.resize(padded);
  }
  // Takes the gathered edges, given the points of all edges by columns.
  void gather(const GatheredEdges& edges, const double* all_x0, const double* all_y0,
              const double* all_x1, const double* all_y1) {
    resize(edges.edges().size(), edges.padded());
    for (std::size_t i = 0; i < edges.edges().size(); ++i) {
      const std::size_t e = at(edges.edges()[i]);
      x0[i] = all_x0[e];
      y0[i] = all_y0[e];
      x1[i] = all_x1[e];
      y1[i] = all_y1[e];
    }
  }
  RefineArrays arrays(std::span<const double> weights) const {
    return {x0.data(), y0.data(), x1.data(), y1.data(), weights.data(), weights.size()};
  }
};

static_assert(kRefineLanes == GatheredEdges::kPadding, "weights are padded to whole vectors");

// The column in float32. Numbers beyond its range are clamped, which keeps the conversion defined;
// problems do not screen in float32 then.
inline AlignedVector<float> to_float(const AlignedVector<double>& column) {
  static constexpr double kLimit = std::numeric_limits<float>::max();
  AlignedVector<float> out(column.size());
  std::transform(column.begin(), column.end(), out.begin(), [](double v) {
    return static_cast<float>(std::isnan(v) ? v : std::clamp(v, -kLimit, kLimit));
  });
  return out;
}

}  // namespace manymatch

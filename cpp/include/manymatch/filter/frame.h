// Where the grids of GMS lie in the images, and the cell of a point.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "manymatch/graph.h"

namespace manymatch {

// A rectangle that contains every point that carries an edge.
struct Frame {
  double origin[2];
  double size[2];

  // Position along one axis in units of the cells of a grid. Rounding to single precision is part
  // of the definition: a point near the border of a cell must fall on the same side on all
  // machines.
  float position(const double* point, int axis, int grid) const {
    const float x = static_cast<float>(point[axis] - origin[axis]);
    return x / static_cast<float>(size[axis]) * static_cast<float>(grid);
  }
};

struct Box {
  double low[2], high[2];
};

inline Box bounding_box(const Adjacency& adjacency, std::span<const double> points) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Box box{{kInfinity, kInfinity}, {-kInfinity, -kInfinity}};
  for (std::size_t v = 0; v + 1 < adjacency.start.size(); ++v) {
    if (adjacency.start[v] == adjacency.start[v + 1]) continue;
    for (std::size_t k = 0; k < 2; ++k) {
      box.low[k] = std::min(box.low[k], points[2 * v + k]);
      box.high[k] = std::max(box.high[k], points[2 * v + k]);
    }
  }
  return box;
}

// The bounding boxes of the points, both with the same margin: half a cell of the longest of the
// four sides.
inline std::pair<Frame, Frame> cropped_frames(const Box& box0, const Box& box1, int grid) {
  double longest = 0.0;
  for (const Box* box : {&box0, &box1}) {
    for (int k = 0; k < 2; ++k) longest = std::max(longest, box->high[k] - box->low[k]);
  }
  const double margin = std::ceil(longest / (2.0 * (grid - 1)));
  const auto frame = [margin](const Box& box) {
    Frame f;
    for (int k = 0; k < 2; ++k) {
      f.origin[k] = box.low[k] - margin;
      f.size[k] = std::floor(box.high[k] - box.low[k] + 2.0 * margin) + 1.0;
    }
    return f;
  };
  return {frame(box0), frame(box1)};
}

// The image, extended by whole pixels to contain all points. The points are rounded as in
// `position`, so that its result stays below the number of cells.
inline Frame image_frame(const Box& box, std::span<const double, 2> size) {
  Frame f;
  for (std::size_t k = 0; k < 2; ++k) {
    f.origin[k] = std::min(0.0, std::floor(box.low[k]));
    const double last = static_cast<float>(box.high[k] - f.origin[k]);
    f.size[k] = std::max(size[k] - f.origin[k], std::floor(last) + 1.0);
  }
  return f;
}

// Cell of a point in a grid that is shifted by half a cell along some axes; -1 if it has none.
inline int shifted_cell(const Frame& frame, const double* point, int grid, const bool* shifted) {
  int cell[2];
  for (int k = 0; k < 2; ++k) {
    const double x = static_cast<double>(frame.position(point, k, grid)) + (shifted[k] ? 0.5 : 0.0);
    cell[k] = static_cast<int>(std::floor(x));
    if (cell[k] >= grid || (shifted[k] && cell[k] < 1)) return -1;
  }
  return cell[0] + cell[1] * grid;
}

}  // namespace manymatch

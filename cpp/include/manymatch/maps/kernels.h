// Kernels for maps of few channels, as a table of functions compiled once per instruction set.
#pragma once

#include <cstddef>

namespace manymatch {

// Rows are processed in steps of this many columns, for every instruction set: a row has room for a
// whole number of steps, and for kMargin columns before and after them.
constexpr std::size_t kRowStep = 96, kMargin = 16;
// Output channels that a kernel computes at once.
constexpr std::size_t kGroup = 4;

enum class Activation { none, selu, sigmoid };

// SELU(x) is kSeluGain * x above zero and kSeluLow * (exp(x) - 1) below.
constexpr float kSeluGain = 1.0507009873554805F, kSeluLow = 1.7580993408473766F;

// Maps of one image, from which rows of features are read: a fine one, whose features are SELU of a
// pointwise convolution and are computed where they are read, and coarse ones, which are enlarged
// from corner to corner of the fine one.
struct MapPyramid {
  struct Level {
    const float* values;  // (rows, columns, part)
    std::size_t rows, columns;
    double step_x, step_y;  // pixels of the fine map from cell to cell
  };

  const float* fine;  // by row, channel and column
  std::size_t channels, width;
  const float* weights;  // (channels, part)
  std::size_t part;      // features of each map, a multiple of kMargin
  const Level* coarse;
  std::size_t levels;
  // The image in the fine map, around which there is padding.
  std::size_t left, top, columns, rows;
};

struct MapKernels {
  // One row of a convolution with a square kernel of `size` (1 or 3) columns. `rows` has a pointer
  // to the first column of each row and channel that goes in, by row and then by channel; then one
  // for each of `further` channels of which only the middle pixel goes in. `out` has a pointer for
  // each channel that comes out. Weights are in groups of kGroup outputs: (group, input and row and
  // column or further input, output in the group); `bias` has an entry for every output of all
  // groups.
  void (*convolve)(const float* const* rows, std::size_t inputs, std::size_t size,
                   std::size_t further, const float* weights, const float* bias, float* const* out,
                   std::size_t outputs, std::size_t steps);
  // Applies an activation to values; `count` is a multiple of kMargin.
  void (*activate)(float* values, std::size_t count, Activation activation);
  // Adds to each of `columns` sums of `channels` (a multiple of 8) values the value between the
  // cell that starts at left[column] and the next one, whose weight is share[column].
  void (*add_enlarged)(const float* row, std::size_t channels, const std::size_t* left,
                       const float* share, std::size_t columns, float* sums);
  // Interpolates between the unit rows of the four pixels around a place (x, y); beyond the image
  // are zeros. `out`, and `row` for its own use, have room for the features of all maps.
  void (*read_place)(const MapPyramid& maps, const double* place, float* row, float* out);
};

}  // namespace manymatch

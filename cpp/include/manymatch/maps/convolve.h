// Convolutions of few channels over large maps.
//
// Such layers are bound by memory if each writes its whole map. Here a row goes through all layers
// before the next one is read, so that what lies between them stays in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "manymatch/maps/kernels.h"

namespace manymatch {

// A convolution that keeps the size of the map, with zeros around it, and an activation.
struct MapLayer {
  std::size_t inputs, outputs, size;
  const float* weights;  // (outputs, inputs, size, size)
  const float* bias;     // (outputs), or null
  // (outputs, inputs of the layer before), or null: a pointwise convolution around both layers.
  const float* shortcut;
  Activation activation;
};

// A map of (rows, columns, channels) that is enlarged linearly, from corner to corner.
struct CoarseMap {
  const float* values;
  std::size_t rows, columns, channels;
};

// Writes row `y` of the map that goes in, to the first of its columns for each channel.
using ReadRow = std::function<void(std::size_t y, std::span<float* const> channels)>;
// Takes row `y` of the result of a layer.
using TakeRow =
    std::function<void(std::size_t layer, std::size_t y, std::span<const float* const> channels)>;

// Applies the layers to a map; `coarse` maps are added to the result of layer `added` before its
// activation.
void convolve_map(std::size_t rows, std::size_t columns, std::span<const MapLayer> layers,
                  std::span<const CoarseMap> coarse, std::size_t added, const ReadRow& read,
                  const TakeRow& take);

}  // namespace manymatch

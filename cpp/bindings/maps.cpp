// Convolutions of few channels over whole images, and features read from maps of several sizes.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "arrays.h"
#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"
#include "manymatch/maps/convolve.h"

namespace manymatch {

namespace {

using Image = In<uint8_t, nb::ndim<3>>;
using Map = In<float, nb::ndim<3>>;
using Bias = std::optional<In<float, nb::ndim<1>>>;
using Shortcut = std::optional<In<float, nb::ndim<4>>>;
using Layer = std::tuple<In<float, nb::ndim<4>>, Bias, std::string, Shortcut>;
// Which layer, in which form, and the array that takes it.
using Wanted = std::tuple<std::size_t, std::string,
                          nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>>;

Activation to_activation(const std::string& name) {
  if (name == "none") return Activation::none;
  if (name == "selu") return Activation::selu;
  if (name == "sigmoid") return Activation::sigmoid;
  throw nb::value_error(("unknown activation " + name).c_str());
}

std::vector<MapLayer> to_layers(const std::vector<Layer>& given, std::size_t channels) {
  std::vector<MapLayer> layers;
  for (const auto& [weights, bias, activation, shortcut] : given) {
    const std::size_t size = weights.shape(2);
    check_length("inputs of a layer", weights.shape(1), channels);
    check_length("columns of a kernel", weights.shape(3), size);
    if (size != 1 && size != 3) throw nb::value_error("a kernel must have one or three columns");
    channels = weights.shape(0);
    if (channels == 0) throw nb::value_error("a layer must have outputs");
    if (bias) check_length("bias", bias->shape(0), channels);
    if (shortcut) {
      if (layers.empty()) throw nb::value_error("the first layer must have no shortcut");
      check_length("shortcut", shortcut->size(), channels * layers.back().inputs);
    }
    layers.push_back({weights.shape(1), channels, size, weights.data(),
                      bias ? bias->data() : nullptr, shortcut ? shortcut->data() : nullptr,
                      to_activation(activation)});
  }
  if (layers.empty()) throw nb::value_error("there must be a layer");
  return layers;
}

// Writes rows of the result of a layer in the form that was asked for.
class Writer {
 public:
  Writer(const Wanted& wanted, const std::vector<MapLayer>& layers, std::size_t rows,
         std::size_t columns)
      : layer(std::get<0>(wanted)), data_(std::get<2>(wanted).data()), columns_(columns) {
    const auto& [number, form, array] = wanted;
    if (number >= layers.size()) throw nb::value_error("an output must be that of a layer");
    if (form == "pixels") {
      pixels_ = true;
    } else if (form == "means") {
      factor_ = array.shape(0) ? rows / array.shape(0) : 0;
      if (factor_ == 0) throw nb::value_error("means must have rows");
    } else if (form != "rows") {
      throw nb::value_error(("unknown form " + form).c_str());
    }
    channels_ = layers[number].outputs;
    check_length("rows of an output", array.shape(0), rows / factor_);
    check_length("columns of an output", array.shape(pixels_ ? 1 : 2), columns / factor_);
    check_length("channels of an output", array.shape(pixels_ ? 2 : 1), channels_);
  }

  void take(std::size_t y, std::span<const float* const> row) {
    for (std::size_t c = 0; c < channels_; ++c) {
      if (pixels_) {
        float* own = data_ + y * columns_ * channels_ + c;
        for (std::size_t x = 0; x < columns_; ++x) own[x * channels_] = row[c][x];
        continue;
      }
      const std::size_t width = columns_ / factor_, line = y / factor_;
      float* own = data_ + (line * channels_ + c) * width;
      if (factor_ == 1) {
        std::copy_n(row[c], columns_, own);
        continue;
      }
      const float share = 1.0F / static_cast<float>(factor_ * factor_);
      for (std::size_t x = 0; x < width; ++x) {
        float sum = 0.0F;
        for (std::size_t k = 0; k < factor_; ++k) sum += row[c][x * factor_ + k];
        own[x] = y % factor_ == 0 ? share * sum : own[x] + share * sum;
      }
    }
  }

  const std::size_t layer;

 private:
  float* data_;
  std::size_t columns_, channels_ = 0, factor_ = 1;
  bool pixels_ = false;
};

void convolved(const std::variant<Image, Map>& input, const std::vector<Layer>& given,
               const std::vector<Wanted>& outputs, const std::vector<Map>& coarse,
               std::size_t added) {
  const Image* image = std::get_if<Image>(&input);
  const Map* map = std::get_if<Map>(&input);
  const std::size_t rows = image ? image->shape(0) : map->shape(0);
  const std::size_t columns = image ? image->shape(1) : map->shape(2);
  const std::size_t inputs = image ? image->shape(2) : map->shape(1);
  if (rows == 0 || columns == 0) throw nb::value_error("the map must not be empty");
  const std::vector<MapLayer> layers = to_layers(given, inputs);
  std::vector<CoarseMap> enlarged;
  for (const Map& one : coarse) {
    if (added >= layers.size()) throw nb::value_error("added must be a layer");
    check_length("channels of a coarse map", one.shape(2), layers[added].outputs);
    if (one.shape(2) % 8 != 0) throw nb::value_error("channels must be a multiple of 8");
    if (one.size() == 0) throw nb::value_error("a coarse map must not be empty");
    enlarged.push_back({one.data(), one.shape(0), one.shape(1), one.shape(2)});
  }
  std::vector<Writer> writers;
  for (const Wanted& wanted : outputs) writers.emplace_back(wanted, layers, rows, columns);
  nb::gil_scoped_release release;
  const auto read = [&](std::size_t y, std::span<float* const> row) {
    for (std::size_t c = 0; c < inputs; ++c) {
      if (map) {
        std::copy_n(map->data() + (y * inputs + c) * columns, columns, row[c]);
        continue;
      }
      const uint8_t* bytes = image->data() + y * columns * inputs + c;
      for (std::size_t x = 0; x < columns; ++x) {
        row[c][x] = static_cast<float>(bytes[x * inputs]) / 255.0F;
      }
    }
  };
  const auto take = [&](std::size_t layer, std::size_t y, std::span<const float* const> row) {
    for (Writer& writer : writers) {
      if (writer.layer == layer) writer.take(y, row);
    }
  };
  convolve_map(rows, columns, layers, enlarged, added, read, take);
}

Out<float> read_maps(const Map& fine, const In<float, nb::ndim<2>>& weights,
                     const std::vector<Map>& coarse,
                     const std::tuple<std::size_t, std::size_t>& start,
                     const std::tuple<std::size_t, std::size_t>& size, const Points& places) {
  const std::size_t rows = fine.shape(0), columns = fine.shape(2), part = weights.shape(1);
  check_length("rows of weights", weights.shape(0), fine.shape(1));
  const auto [left, top] = start;
  const auto [width, height] = size;
  if (left + width > columns || top + height > rows) {
    throw nb::value_error("the image must lie in the fine map");
  }
  if (part == 0 || part % kMargin != 0) {
    throw nb::value_error("the number of features must be a multiple of 16");
  }
  std::vector<MapPyramid::Level> levels;
  const auto step = [](std::size_t pixels, std::size_t cells) {
    return static_cast<double>(pixels - 1) /
           static_cast<double>(std::max<std::size_t>(cells, 2) - 1);
  };
  for (const Map& one : coarse) {
    check_length("features of a coarse map", one.shape(2), part);
    if (one.size() == 0) throw nb::value_error("a coarse map must not be empty");
    levels.push_back({one.data(), one.shape(0), one.shape(1), step(columns, one.shape(1)),
                      step(rows, one.shape(0))});
  }
  const MapPyramid maps{fine.data(),   fine.shape(1), columns, weights.data(), part,  levels.data(),
                        levels.size(), left,          top,     width,          height};
  const std::size_t dim = part * (levels.size() + 1), count = places.shape(0);
  std::vector<float> out(count * dim);
  {
    nb::gil_scoped_release release;
    AlignedVector<float> row(dim);
    const auto read = kernels<MapKernels>().read_place;
    for (std::size_t i = 0; i < count; ++i) {
      read(maps, places.data() + 2 * i, row.data(), out.data() + i * dim);
    }
  }
  return to_numpy(std::move(out), {count, dim});
}

}  // namespace

void bind_maps(nb::module_& m) {
  m.def(
      "convolve_map", &convolved, nb::arg("input"), nb::arg("layers"), nb::arg("outputs"),
      nb::arg("coarse") = std::vector<Map>(), nb::arg("added") = 0,
      "Apply layers (weights (out, in, k, k), bias, activation, weights of a shortcut around this "
      "layer and the one before) to an (H, W, C) image of bytes, divided by 255, or to a map (H, "
      "C, W). Coarse maps (h, w, C), enlarged from corner to corner, are added to layer `added` "
      "before its activation. Outputs are (layer, form, array): \"rows\" (H, C, W), \"pixels\" "
      "(H, W, C), or \"means\" over squares (H / f, C, W / f).");
  m.def("read_maps", &read_maps, nb::arg("fine"), nb::arg("weights"), nb::arg("coarse"),
        nb::arg("start"), nb::arg("size"), nb::arg("places"),
        "Features (N, D) at places (x, y), between the unit rows of the four pixels around each: "
        "SELU of a fine map (H, C, W) times weights (C, part), and coarse maps (h, w, part) "
        "enlarged from corner to corner. The image starts at `start` of the fine map and has "
        "`size`; beyond it are zeros.");
}

}  // namespace manymatch

#include "manymatch/maps/convolve.h"

#include <algorithm>

#include "manymatch/aligned.h"
#include "manymatch/dispatch.h"

namespace manymatch {

namespace {

// The rows that the next layer still needs: row y is in place y % kKept.
constexpr std::size_t kKept = 3;

// Rows of all channels, with zeros around them.
class Rows {
 public:
  Rows(std::size_t channels, std::size_t stride)
      : channels_(channels), values_((kKept + 1) * channels * stride) {
    for (std::size_t place = 0; place <= kKept; ++place) {
      for (std::size_t c = 0; c < channels; ++c) {
        pointers_.push_back(values_.data() + (place * channels + c) * stride + kMargin);
      }
    }
  }

  std::size_t channels() const { return channels_; }
  // Pointers to the first column of every channel.
  float** at(std::size_t y) { return pointers_.data() + y % kKept * channels_; }
  // The row of zeros beyond the map.
  float** zeros() { return pointers_.data() + kKept * channels_; }

 private:
  std::size_t channels_;
  AlignedVector<float> values_;
  std::vector<float*> pointers_;
};

// Weights in the order in which the kernel reads them, with zeros for what a group lacks.
struct PackedLayer {
  MapLayer layer;
  std::size_t further;
  AlignedVector<float> weights, bias;

  PackedLayer(const MapLayer& given, std::size_t inputs_before)
      : layer(given), further(given.shortcut ? inputs_before : 0) {
    const std::size_t taps = given.inputs * given.size * given.size, all = taps + further;
    const std::size_t groups = (given.outputs + kGroup - 1) / kGroup;
    weights.resize(groups * all * kGroup);
    bias.resize(groups * kGroup);
    for (std::size_t o = 0; o < given.outputs; ++o) {
      float* own = weights.data() + o / kGroup * all * kGroup + o % kGroup;
      for (std::size_t t = 0; t < taps; ++t) own[t * kGroup] = given.weights[o * taps + t];
      for (std::size_t t = 0; t < further; ++t) {
        own[(taps + t) * kGroup] = given.shortcut[o * further + t];
      }
      if (given.bias) bias[o] = given.bias[o];
    }
  }
};

// Adds rows of coarse maps, enlarged to the size of the fine one.
class Enlarger {
 public:
  Enlarger(std::span<const CoarseMap> maps, std::size_t rows, std::size_t columns)
      : maps_(maps), columns_(columns) {
    for (const CoarseMap& map : maps) {
      Axes axes{{}, {}, step(map.rows, rows)};
      const double across = step(map.columns, columns);
      for (std::size_t x = 0; x < columns; ++x) {
        const double u = static_cast<double>(x) * across;
        const std::size_t left = std::min(static_cast<std::size_t>(u), last(map.columns));
        axes.left.push_back(left * map.channels);
        axes.share.push_back(static_cast<float>(u - static_cast<double>(left)));
      }
      axes_.push_back(std::move(axes));
      blended_.emplace_back((map.columns + 1) * map.channels);
    }
    sums_.resize(maps.empty() ? 0 : columns * maps.front().channels);
  }

  void add(std::size_t y, float* const* out) {
    if (maps_.empty()) return;
    const std::size_t channels = maps_.front().channels;
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    for (std::size_t k = 0; k < maps_.size(); ++k) {
      const CoarseMap& map = maps_[k];
      const double v = static_cast<double>(y) * axes_[k].down;
      const std::size_t top = std::min(static_cast<std::size_t>(v), last(map.rows));
      const float share = static_cast<float>(v - static_cast<double>(top));
      const std::size_t length = map.columns * channels;
      const float* upper = map.values + top * length;
      const float* lower = map.rows > 1 ? upper + length : upper;
      float* row = blended_[k].data();
      for (std::size_t i = 0; i < length; ++i) row[i] = upper[i] + share * (lower[i] - upper[i]);
      // One column more, which has no weight: a map of one column has no second one.
      std::copy_n(row + length - channels, channels, row + length);
      kernels<MapKernels>().add_enlarged(row, channels, axes_[k].left.data(), axes_[k].share.data(),
                                         columns_, sums_.data());
    }
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t x = 0; x < columns_; ++x) out[c][x] += sums_[x * channels + c];
    }
  }

 private:
  struct Axes {
    std::vector<std::size_t> left;
    std::vector<float> share;
    double down;
  };

  // The last cell is reached with weight one from the one before it, where there is one.
  static std::size_t last(std::size_t cells) { return cells > 1 ? cells - 2 : 0; }
  static double step(std::size_t cells, std::size_t pixels) {
    return pixels > 1 ? static_cast<double>(cells - 1) / static_cast<double>(pixels - 1) : 0.0;
  }

  std::span<const CoarseMap> maps_;
  std::size_t columns_;
  std::vector<Axes> axes_;
  std::vector<AlignedVector<float>> blended_;
  AlignedVector<float> sums_;
};

class Chain {
 public:
  Chain(std::size_t rows, std::size_t columns, std::span<const MapLayer> layers,
        std::span<const CoarseMap> coarse, std::size_t added)
      : rows_(rows),
        columns_(columns),
        steps_((columns + kRowStep - 1) / kRowStep),
        added_(added),
        enlarger_(coarse, rows, columns) {
    const std::size_t stride = steps_ * kRowStep + 2 * kMargin;
    kept_.emplace_back(layers.front().inputs, stride);
    for (const MapLayer& layer : layers) {
      layers_.emplace_back(layer, layers_.empty() ? 0 : layers_.back().layer.inputs);
      kept_.emplace_back(layer.outputs, stride);
    }
  }

  void run(const ReadRow& read, const TakeRow& take) {
    for (std::size_t y = 0; y < rows_; ++y) {
      read(y, {kept_.front().at(y), kept_.front().channels()});
      pass(0, y, take);
    }
  }

 private:
  // Row y of what goes into a layer is there: compute all rows that follow from it.
  void pass(std::size_t layer, std::size_t y, const TakeRow& take) {
    if (layer > 0) take(layer - 1, y, {kept_[layer].at(y), kept_[layer].channels()});
    if (layer == layers_.size()) return;
    const bool waits = layers_[layer].layer.size > 1;
    if (!waits || y > 0) compute(layer, waits ? y - 1 : y, take);
    if (waits && y + 1 == rows_) compute(layer, y, take);
  }

  void compute(std::size_t number, std::size_t y, const TakeRow& take) {
    const PackedLayer& packed = layers_[number];
    const MapLayer& layer = packed.layer;
    Rows& from = kept_[number];
    Rows& to = kept_[number + 1];
    pointers_.clear();
    for (std::size_t r = 0; r < layer.size; ++r) {
      const std::size_t line = y + r;  // counted from the first row above
      const bool inside = line >= layer.size / 2 && line - layer.size / 2 < rows_;
      float** found = inside ? from.at(line - layer.size / 2) : from.zeros();
      pointers_.insert(pointers_.end(), found, found + layer.inputs);
    }
    // The input of the layer before is at most two rows ahead of the result of this one.
    if (packed.further > 0) {
      float** before = kept_[number - 1].at(y);
      pointers_.insert(pointers_.end(), before, before + packed.further);
    }
    float** out = to.at(y);
    const MapKernels& kernel = kernels<MapKernels>();
    kernel.convolve(pointers_.data(), layer.inputs, layer.size, packed.further,
                    packed.weights.data(), packed.bias.data(), out, layer.outputs, steps_);
    if (number == added_) enlarger_.add(y, out);
    const std::size_t whole = (columns_ + kMargin - 1) / kMargin * kMargin;
    for (std::size_t c = 0; c < layer.outputs; ++c) {
      if (layer.activation != Activation::none) kernel.activate(out[c], whole, layer.activation);
      // The next layer sees zeros beyond the last column.
      std::fill(out[c] + columns_, out[c] + steps_ * kRowStep, 0.0F);
    }
    pass(number + 1, y, take);
  }

  std::size_t rows_, columns_, steps_, added_;
  Enlarger enlarger_;
  std::vector<PackedLayer> layers_;
  std::vector<Rows> kept_;
  std::vector<const float*> pointers_;
};

}  // namespace

void convolve_map(std::size_t rows, std::size_t columns, std::span<const MapLayer> layers,
                  std::span<const CoarseMap> coarse, std::size_t added, const ReadRow& read,
                  const TakeRow& take) {
  Chain(rows, columns, layers, coarse, added).run(read, take);
}

}  // namespace manymatch

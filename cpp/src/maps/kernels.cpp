#include "manymatch/maps/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/simd.h"

namespace manymatch {

namespace {

// Vectors of columns that are kept in registers beside each other, for kGroup outputs.
#if defined(__AVX512F__)
constexpr int kVectors = 6;
#else
constexpr int kVectors = 3;
#endif
constexpr std::size_t kColumns = kVectors * kFloats;
static_assert(kRowStep % kColumns == 0 && kMargin % kFloats == 0);

typedef int32_t Integers __attribute__((vector_size(sizeof(vf))));

inline void store(float* p, vf a) { __builtin_memcpy(p, &a, sizeof a); }

struct Inputs {
  const float* const* rows;
  std::size_t inputs, further;
};

template <std::size_t outputs, std::size_t size>
void convolve_block(const Inputs& from, const float* weights, const float* bias, float* const* out,
                    std::size_t column) {
  vf sum[outputs][kVectors];
  for (std::size_t o = 0; o < outputs; ++o) {
    for (int v = 0; v < kVectors; ++v) sum[o][v] = splat(bias[o]);
  }
  const auto add = [&](const float* pixels) {
    vf x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = load(pixels + v * kFloats);
    for (std::size_t o = 0; o < outputs; ++o) {
      const vf w = splat(weights[o]);
      for (int v = 0; v < kVectors; ++v) sum[o][v] = fma(x[v], w, sum[o][v]);
    }
    weights += kGroup;
  };
  for (std::size_t i = 0; i < from.inputs; ++i) {
    for (std::size_t r = 0; r < size; ++r) {
      const float* row = from.rows[r * from.inputs + i] + column - size / 2;
      for (std::size_t c = 0; c < size; ++c) add(row + c);
    }
  }
  for (std::size_t i = 0; i < from.further; ++i) {
    add(from.rows[size * from.inputs + i] + column);
  }
  for (std::size_t o = 0; o < outputs; ++o) {
    for (int v = 0; v < kVectors; ++v) store(out[o] + column + v * kFloats, sum[o][v]);
  }
}

template <std::size_t size>
void convolve_row(const Inputs& from, const float* weights, const float* bias, float* const* out,
                  std::size_t outputs, std::size_t steps) {
  const std::size_t group = (from.inputs * size * size + from.further) * kGroup;
  for (std::size_t column = 0; column < steps * kRowStep; column += kColumns) {
    for (std::size_t o = 0; o < outputs; o += kGroup) {
      const float* own = weights + o / kGroup * group;
      switch (outputs - o) {
        case 1:
          convolve_block<1, size>(from, own, bias + o, out + o, column);
          break;
        case 2:
          convolve_block<2, size>(from, own, bias + o, out + o, column);
          break;
        case 3:
          convolve_block<3, size>(from, own, bias + o, out + o, column);
          break;
        default:
          convolve_block<kGroup, size>(from, own, bias + o, out + o, column);
      }
    }
  }
}

void convolve(const float* const* rows, std::size_t inputs, std::size_t size, std::size_t further,
              const float* weights, const float* bias, float* const* out, std::size_t outputs,
              std::size_t steps) {
  const Inputs from{rows, inputs, further};
  if (size == 1) {
    convolve_row<1>(from, weights, bias, out, outputs, steps);
  } else {
    convolve_row<3>(from, weights, bias, out, outputs, steps);
  }
}

// exp(x) for x <= 0, to about 1e-7 of one: 2^n exp(r) with |r| <= ln(2) / 2 and a Taylor
// polynomial.
inline vf exp_below_zero(vf x) {
  const vf shifter = splat(12582912.0F);  // 1.5 * 2^23: the integer n is in the lowest bits
  const vf least = max(x, splat(-87.0F));
  const vf shifted = fma(least, splat(1.44269504F), shifter);
  const vf r = fma(shifted - shifter, splat(-0.693147181F), least);
  vf p = splat(1.0F / 720.0F);
  p = fma(p, r, splat(1.0F / 120.0F));
  p = fma(p, r, splat(1.0F / 24.0F));
  p = fma(p, r, splat(1.0F / 6.0F));
  p = fma(p, r, splat(0.5F));
  p = fma(p, r, splat(1.0F));
  p = fma(p, r, splat(1.0F));
  const Integers power = (__builtin_bit_cast(Integers, shifted) + 127) << 23;
  return p * __builtin_bit_cast(vf, power);
}

void activate(float* values, std::size_t count, Activation activation) {
  const vf zero = splat(0.0F), one = splat(1.0F);
  for (std::size_t i = 0; i < count; i += kFloats) {
    const vf x = load(values + i), above = max(x, zero);
    if (activation == Activation::selu) {
      const vf low = splat(kSeluLow), power = exp_below_zero(x - above);
      store(values + i, fma(above, splat(kSeluGain), fma(power, low, zero - low)));
    } else if (activation == Activation::sigmoid) {
      // Both powers are at most one: nothing overflows.
      store(values + i, exp_below_zero(x - above) / (one + exp_below_zero(zero - abs(x))));
    }
  }
}

void add_enlarged(const float* row, std::size_t channels, const std::size_t* left,
                  const float* share, std::size_t columns, float* sums) {
  typedef float Eight __attribute__((vector_size(32)));
  for (std::size_t x = 0; x < columns; ++x) {
    for (std::size_t c = 0; c < channels; c += 8, sums += 8) {
      Eight here, next, sum;
      __builtin_memcpy(&here, row + left[x] + c, sizeof here);
      __builtin_memcpy(&next, row + left[x] + channels + c, sizeof next);
      __builtin_memcpy(&sum, sums, sizeof sum);
      sum += here + share[x] * (next - here);
      __builtin_memcpy(sums, &sum, sizeof sum);
    }
  }
}

// The unit row of one pixel; `row` has room for all parts.
void pixel_row(const MapPyramid& maps, std::size_t x, std::size_t y, float* row) {
  const std::size_t part = maps.part;
  for (std::size_t d = 0; d < part; d += kFloats) {
    vf sum = splat(0.0F);
    for (std::size_t c = 0; c < maps.channels; ++c) {
      const float value = maps.fine[(y * maps.channels + c) * maps.width + x];
      sum = fma(splat(value), load(maps.weights + c * part + d), sum);
    }
    store(row + d, sum);
  }
  activate(row, part, Activation::selu);
  for (std::size_t k = 0; k < maps.levels; ++k) {
    const MapPyramid::Level& level = maps.coarse[k];
    const double u = static_cast<double>(x) / level.step_x,
                 v = static_cast<double>(y) / level.step_y;
    std::size_t left = static_cast<std::size_t>(u), top = static_cast<std::size_t>(v);
    // The last cell is reached with weight one from the one before it, where there is one.
    if (left + 1 >= level.columns) left = level.columns > 1 ? level.columns - 2 : 0;
    if (top + 1 >= level.rows) top = level.rows > 1 ? level.rows - 2 : 0;
    const std::size_t right = level.columns > 1 ? part : 0;
    const std::size_t below = level.rows > 1 ? part * level.columns : 0;
    const vf a = splat(static_cast<float>(u - static_cast<double>(left)));
    const vf b = splat(static_cast<float>(v - static_cast<double>(top)));
    const float* cell = level.values + (top * level.columns + left) * part;
    for (std::size_t d = 0; d < part; d += kFloats, cell += kFloats) {
      const vf upper = fma(a, load(cell + right) - load(cell), load(cell));
      const vf lower = fma(a, load(cell + below + right) - load(cell + below), load(cell + below));
      store(row + (k + 1) * part + d, fma(b, lower - upper, upper));
    }
  }
}

void read_place(const MapPyramid& maps, const double* place, float* row, float* out) {
  const std::size_t dim = maps.part * (maps.levels + 1);
  for (std::size_t d = 0; d < dim; ++d) out[d] = 0.0F;
  const double x = __builtin_floor(place[0]), y = __builtin_floor(place[1]);
  for (int corner = 0; corner < 4; ++corner) {
    const double column = x + corner % 2, line = y + corner / 2;
    const double share =
        (1.0 - __builtin_fabs(place[0] - column)) * (1.0 - __builtin_fabs(place[1] - line));
    const bool inside = column >= 0.0 && line >= 0.0 &&
                        column < static_cast<double>(maps.columns) &&
                        line < static_cast<double>(maps.rows);
    if (!(share > 0.0) || !inside) continue;
    pixel_row(maps, static_cast<std::size_t>(column) + maps.left,
              static_cast<std::size_t>(line) + maps.top, row);
    vf squares = splat(0.0F);
    for (std::size_t d = 0; d < dim; d += kFloats) {
      squares = fma(load(row + d), load(row + d), squares);
    }
    float lanes[kFloats], sum = 0.0F;
    store(lanes, squares);
    for (int lane = 0; lane < kFloats; ++lane) sum += lanes[lane];
    const float length = __builtin_sqrtf(sum);
    const vf factor = splat(static_cast<float>(share) / (length > 1e-12F ? length : 1e-12F));
    for (std::size_t d = 0; d < dim; d += kFloats) {
      store(out + d, fma(load(row + d), factor, load(out + d)));
    }
  }
}

}  // namespace

template <>
const MapKernels CompiledFor<MapKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .convolve = convolve,
    .activate = activate,
    .add_enlarged = add_enlarged,
    .read_place = read_place,
};

}  // namespace manymatch

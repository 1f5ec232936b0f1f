// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/associate/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// Vectors of pairs of 16-bit integers, and of their 32-bit products. The block of sums that fits
// into the registers has kSumRows rows and kSumVectors vectors.
#if defined(__AVX512BW__)

constexpr std::size_t kInts = 16, kSumRows = 6, kSumVectors = 2;
using vi = __m512i;
inline vi load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
inline vi splat_pair(int32_t pair) { return _mm512_set1_epi32(pair); }
template <bool kFused>
inline vi add_products(vi sum, vi a, vi b) {
  if constexpr (kFused) {  // as assembly, since not all that has AVX-512 has this instruction
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
inline bool can_fuse() { return __builtin_cpu_supports("avx512vnni"); }
inline void store_scaled(float* p, vi sum, float scale) {
  _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), _mm512_set1_ps(scale)));
}

#elif defined(__AVX2__)

constexpr std::size_t kInts = 8, kSumRows = 4, kSumVectors = 2;
using vi = __m256i;
inline vi load_pairs(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline vi splat_pair(int32_t pair) { return _mm256_set1_epi32(pair); }
template <bool>
inline vi add_products(vi sum, vi a, vi b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
inline void store_scaled(float* p, vi sum, float scale) {
  _mm256_storeu_ps(p, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(scale)));
}

#elif defined(MANYMATCH_NEON)

constexpr std::size_t kInts = 4, kSumRows = 6, kSumVectors = 4;
using vi = int32x4_t;
inline vi load_pairs(const int16_t* p) { return vreinterpretq_s32_s16(vld1q_s16(p)); }
inline vi splat_pair(int32_t pair) { return vdupq_n_s32(pair); }
template <bool>
inline vi add_products(vi sum, vi a, vi b) {
  const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
  const vi low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
  return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(x, y)));
}
inline void store_scaled(float* p, vi sum, float scale) {
  vst1q_f32(p, vmulq_n_f32(vcvtq_f32_s32(sum), scale));
}

#else

constexpr std::size_t kInts = 4, kSumRows = 4, kSumVectors = 2;
typedef int32_t vi __attribute__((vector_size(16)));
typedef float Scaled __attribute__((vector_size(16)));
inline vi load_pairs(const int16_t* p) {
  vi pairs;
  __builtin_memcpy(&pairs, p, sizeof pairs);
  return pairs;
}
inline vi splat_pair(int32_t pair) { return vi{pair, pair, pair, pair}; }
template <bool>
inline vi add_products(vi sum, vi a, vi b) {
#if defined(__SSE2__)
  return sum + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  // The upper halves of the numbers, then the lower ones with their sign.
  return sum + (a >> 16) * (b >> 16) + ((a << 16) >> 16) * ((b << 16) >> 16);
#endif
}
inline void store_scaled(float* p, vi sum, float scale) {
  const Scaled scaled = __builtin_convertvector(sum, Scaled) * scale;
  __builtin_memcpy(p, &scaled, sizeof scaled);
}

#endif

#if !defined(__AVX512BW__)
constexpr bool can_fuse() { return false; }
#endif

// The compiler keeps the sums in registers only if it unrolls the loops over them early. With
// `kFused` one instruction multiplies and adds; the sums are the same.
template <bool kFused>
inline void sum_block(const int16_t* rows, std::size_t row_stride, const int16_t* columns,
                      std::size_t pairs, float scale, float* out, std::size_t out_stride) {
  vi sum[kSumRows][kSumVectors] = {};
  for (std::size_t p = 0; p < pairs; ++p) {
    vi column[kSumVectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kSumVectors; ++v) {
      column[v] = load_pairs(columns + 2 * (p * kBlockColumns + v * kInts));
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kSumRows; ++r) {
      int32_t pair;
      __builtin_memcpy(&pair, rows + r * row_stride + 2 * p, sizeof pair);
      const vi row = splat_pair(pair);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kSumVectors; ++v) {
        sum[r][v] = add_products<kFused>(sum[r][v], row, column[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kSumRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kSumVectors; ++v) {
      store_scaled(out + r * out_stride + v * kInts, sum[r][v], scale);
    }
  }
}

template <bool kFused>
void sum_blocks(const int16_t* rows, std::size_t row_stride, const int16_t* columns,
                std::size_t pairs, float scale, float* out, std::size_t out_stride) {
  for (std::size_t r = 0; r < kBlockRows; r += kSumRows) {
    for (std::size_t c = 0; c < kBlockColumns; c += kSumVectors * kInts) {
      sum_block<kFused>(rows + r * row_stride, row_stride, columns + 2 * c, pairs, scale,
                        out + r * out_stride + c, out_stride);
    }
  }
}

void products(const int16_t* rows, std::size_t row_stride, const int16_t* columns,
              std::size_t pairs, float scale, float* out, std::size_t out_stride) {
  static const bool fused = can_fuse();
  const auto chosen = fused ? sum_blocks<true> : sum_blocks<false>;
  chosen(rows, row_stride, columns, pairs, scale, out, out_stride);
}

// Sixteen at a time; the sum of the squared errors has the same bits for every instruction set.
float rounded(const float* x, std::size_t count, int16_t* out) {
  constexpr std::size_t kLanes = 16;
  typedef float Floats __attribute__((vector_size(kLanes * 4)));
  typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
  typedef int16_t Shorts __attribute__((vector_size(kLanes * 2)));
  constexpr float kLargest = kUnit - 1.0F;
  Floats squares = {};
  for (std::size_t c = 0; c < count; c += kLanes) {
    const std::size_t number = count - c < kLanes ? count - c : kLanes;
    Floats value = {};
    __builtin_memcpy(&value, x + c, number * sizeof(float));
    value *= kUnit;
    Floats nearest = value + (value < 0.0F ? Floats{} - 0.5F : Floats{} + 0.5F);
    nearest = nearest > kLargest ? Floats{} + kLargest : nearest;
    nearest = nearest < -kLargest ? Floats{} - kLargest : nearest;
    const Ints integers = __builtin_convertvector(nearest, Ints);
    const Shorts shorts = __builtin_convertvector(integers, Shorts);
    __builtin_memcpy(out + c, &shorts, number * sizeof(int16_t));
    const Floats error = value - __builtin_convertvector(integers, Floats);
    squares += error * error;
  }
  float sum = 0.0F;
  for (std::size_t l = 0; l < kLanes; ++l) sum += squares[l];
  return sum;
}

int above(const float* values, std::size_t count, float row_threshold,
          const float* column_threshold, int32_t* hits) {
  const vf row = splat(row_threshold);
  int found = 0;
  std::size_t c = 0;
  for (; c + kFloats <= count; c += kFloats) {
    const vf value = load(values + c);
    unsigned mask = bits(less(row, value)) | bits(less(load(column_threshold + c), value));
    while (mask != 0) {
      hits[found++] = static_cast<int32_t>(c) + __builtin_ctz(mask);
      mask &= mask - 1;
    }
  }
  for (; c < count; ++c) {
    if (values[c] > row_threshold || values[c] > column_threshold[c]) {
      hits[found++] = static_cast<int32_t>(c);
    }
  }
  return found;
}

// A product of two float32 numbers is exact in float64 and the order of the additions is fixed.
double dot(const float* a, const float* b, std::size_t count) {
  typedef float Floats __attribute__((vector_size(32)));
  typedef double Doubles __attribute__((vector_size(64)));
  constexpr int kWidth = 8, kVectors = 4, kLanes = kWidth * kVectors;
  Doubles sum[kVectors] = {};
  std::size_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      Floats x, y;
      __builtin_memcpy(&x, a + c + v * kWidth, sizeof x);
      __builtin_memcpy(&y, b + c + v * kWidth, sizeof y);
      sum[v] += __builtin_convertvector(x, Doubles) * __builtin_convertvector(y, Doubles);
    }
  }
  double lanes[kLanes];
  __builtin_memcpy(lanes, sum, sizeof lanes);
  for (int l = 0; c < count; ++c, ++l) {
    lanes[l] += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

void scaled(const float* x, std::size_t count, double factor, float* out) {
  for (std::size_t c = 0; c < count; ++c) {
    out[c] = static_cast<float>(static_cast<double>(x[c]) * factor);
  }
}

void raise(const float* values, std::size_t count, float* largest) {
  for (std::size_t c = 0; c < count; ++c) {
    largest[c] = values[c] > largest[c] ? values[c] : largest[c];
  }
}

}  // namespace

template <>
const AssociateKernels CompiledFor<AssociateKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .products = products,
    .rounded = rounded,
    .above = above,
    .dot = dot,
    .scaled = scaled,
    .raise = raise,
};

}  // namespace manymatch

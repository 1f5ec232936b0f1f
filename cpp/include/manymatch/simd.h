// Native vectors of one instruction set, under names that are the same for all of them.
//
// Only files that are compiled once per instruction set include this header. Everything is in an
// unnamed namespace, so that the linker cannot merge code compiled for AVX-512 with the same
// function compiled for an older machine.
//
// Fused multiplications and additions are written as fma(), and the compiler may not fuse others
// (-ffp-contract=off). A lane therefore computes the same bits with AVX2, AVX-512 and NEON. Only
// the baseline, which has no fused operations, rounds differently (but the same on all processors).
// MANYMATCH_NEON selects NEON; without it aarch64 compiles the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(MANYMATCH_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace manymatch {
namespace {

#if defined(__AVX512F__)

constexpr int kDoubles = 8;
constexpr int kFloats = 16;
using vd = __m512d;
using vf = __m512;
using md = __mmask8;
using mf = __mmask16;

inline vd load(const double* p) { return _mm512_loadu_pd(p); }
inline void store(double* p, vd a) { _mm512_storeu_pd(p, a); }
template <class At>
inline vd from_lanes(At at) {
  return _mm512_set_pd(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0));
}
inline vd fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
inline vd fnma(vd a, vd b, vd c) { return _mm512_fnmadd_pd(a, b, c); }
// The zero-masked forms compile to the plain instruction and avoid a false warning of GCC 12.
inline vd sqrt(vd a) { return _mm512_maskz_sqrt_pd(0xff, a); }
inline vd abs(vd a) { return _mm512_abs_pd(a); }
inline md less(vd a, vd b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
inline md less_equal(vd a, vd b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
inline vd select(md m, vd yes, vd no) { return _mm512_mask_blend_pd(m, no, yes); }
inline md both(md a, md b) { return static_cast<md>(a & b); }
inline md either(md a, md b) { return static_cast<md>(a | b); }
inline md negate(md a) { return static_cast<md>(~a); }
inline unsigned bits(md a) { return a; }

inline vf load(const float* p) { return _mm512_loadu_ps(p); }
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
inline vf sqrt(vf a) { return _mm512_maskz_sqrt_ps(0xffff, a); }
inline vf abs(vf a) { return _mm512_abs_ps(a); }
inline vf max(vf a, vf b) { return _mm512_maskz_max_ps(0xffff, a, b); }
inline mf less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline mf less_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
inline unsigned bits(mf a) { return a; }

#elif defined(__AVX2__)

constexpr int kDoubles = 4;
constexpr int kFloats = 8;
using vd = __m256d;
using vf = __m256;
struct md {
  __m256d m;
};
struct mf {
  __m256 m;
};

inline vd load(const double* p) { return _mm256_loadu_pd(p); }
inline void store(double* p, vd a) { _mm256_storeu_pd(p, a); }
template <class At>
inline vd from_lanes(At at) {
  return _mm256_set_pd(at(3), at(2), at(1), at(0));
}
inline vd fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
inline vd fnma(vd a, vd b, vd c) { return _mm256_fnmadd_pd(a, b, c); }
inline vd sqrt(vd a) { return _mm256_sqrt_pd(a); }
inline vd abs(vd a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
inline md less(vd a, vd b) { return {_mm256_cmp_pd(a, b, _CMP_LT_OQ)}; }
inline md less_equal(vd a, vd b) { return {_mm256_cmp_pd(a, b, _CMP_LE_OQ)}; }
inline vd select(md m, vd yes, vd no) { return _mm256_blendv_pd(no, yes, m.m); }
inline md both(md a, md b) { return {_mm256_and_pd(a.m, b.m)}; }
inline md either(md a, md b) { return {_mm256_or_pd(a.m, b.m)}; }
inline md negate(md a) { return {_mm256_xor_pd(a.m, _mm256_castsi256_pd(_mm256_set1_epi64x(-1)))}; }
inline unsigned bits(md a) { return static_cast<unsigned>(_mm256_movemask_pd(a.m)); }

inline vf load(const float* p) { return _mm256_loadu_ps(p); }
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf sqrt(vf a) { return _mm256_sqrt_ps(a); }
inline vf abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
inline vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
inline mf less(vf a, vf b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
inline mf less_equal(vf a, vf b) { return {_mm256_cmp_ps(a, b, _CMP_LE_OQ)}; }
inline unsigned bits(mf a) { return static_cast<unsigned>(_mm256_movemask_ps(a.m)); }

#elif defined(MANYMATCH_NEON)

constexpr int kDoubles = 2;
constexpr int kFloats = 4;
using vd = float64x2_t;
using vf = float32x4_t;
using md = uint64x2_t;
using mf = uint32x4_t;

inline vd load(const double* p) { return vld1q_f64(p); }
inline void store(double* p, vd a) { vst1q_f64(p, a); }
template <class At>
inline vd from_lanes(At at) {
  return vd{at(0), at(1)};
}
inline vd fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
inline vd fnma(vd a, vd b, vd c) { return vfmsq_f64(c, a, b); }
inline vd sqrt(vd a) { return vsqrtq_f64(a); }
inline vd abs(vd a) { return vabsq_f64(a); }
inline md less(vd a, vd b) { return vcltq_f64(a, b); }
inline md less_equal(vd a, vd b) { return vcleq_f64(a, b); }
inline vd select(md m, vd yes, vd no) { return vbslq_f64(m, yes, no); }
inline md both(md a, md b) { return vandq_u64(a, b); }
inline md either(md a, md b) { return vorrq_u64(a, b); }
inline md negate(md a) { return veorq_u64(a, vdupq_n_u64(~uint64_t{0})); }
// A lane of a mask is all ones or all zeros; keep the bit of its place in each lane.
inline unsigned bits(md a) {
  return static_cast<unsigned>(vaddvq_u64(vandq_u64(a, uint64x2_t{1, 2})));
}

inline vf load(const float* p) { return vld1q_f32(p); }
inline vf fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
inline vf sqrt(vf a) { return vsqrtq_f32(a); }
inline vf abs(vf a) { return vabsq_f32(a); }
// If a is NaN, the result is b, as with the other instruction sets.
inline vf max(vf a, vf b) { return vmaxnmq_f32(a, b); }
inline mf less(vf a, vf b) { return vcltq_f32(a, b); }
inline mf less_equal(vf a, vf b) { return vcleq_f32(a, b); }
inline unsigned bits(mf a) { return vaddvq_u32(vandq_u32(a, uint32x4_t{1, 2, 4, 8})); }

#else  // GCC and Clang vector extensions: SSE2 and anything else with 128-bit vectors

constexpr int kDoubles = 2;
constexpr int kFloats = 4;
typedef double vd __attribute__((vector_size(16)));
typedef float vf __attribute__((vector_size(16)));
typedef int64_t md __attribute__((vector_size(16)));
typedef int32_t mf __attribute__((vector_size(16)));

inline vd load(const double* p) {
  vd a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
inline void store(double* p, vd a) { __builtin_memcpy(p, &a, sizeof a); }
template <class At>
inline vd from_lanes(At at) {
  return vd{at(0), at(1)};
}
inline vd fma(vd a, vd b, vd c) { return a * b + c; }
inline vd fnma(vd a, vd b, vd c) { return fma(-a, b, c); }
inline vd sqrt(vd a) { return vd{__builtin_sqrt(a[0]), __builtin_sqrt(a[1])}; }
inline vd abs(vd a) {
  return (vd)((md)a & md{INT64_MAX, INT64_MAX});  // clears the sign bit
}
inline md less(vd a, vd b) { return a < b; }
inline md less_equal(vd a, vd b) { return a <= b; }
inline vd select(md m, vd yes, vd no) { return (vd)((m & (md)yes) | (~m & (md)no)); }
inline md both(md a, md b) { return a & b; }
inline md either(md a, md b) { return a | b; }
inline md negate(md a) { return ~a; }
#if defined(__SSE2__)  // one instruction that the vector extensions cannot express
inline unsigned bits(md a) { return static_cast<unsigned>(_mm_movemask_pd((__m128d)a)); }
#else
inline unsigned bits(md a) { return (a[0] ? 1U : 0U) | (a[1] ? 2U : 0U); }
#endif

inline vf load(const float* p) {
  vf a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
inline vf fma(vf a, vf b, vf c) { return a * b + c; }
inline vf sqrt(vf a) {
  return vf{__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]),
            __builtin_sqrtf(a[3])};
}
inline vf abs(vf a) { return (vf)((mf)a & mf{INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}); }
inline vf max(vf a, vf b) {
  const mf m = a > b;
  return (vf)((m & (mf)a) | (~m & (mf)b));
}
inline mf less(vf a, vf b) { return a < b; }
inline mf less_equal(vf a, vf b) { return a <= b; }
#if defined(__SSE2__)
inline unsigned bits(mf a) { return static_cast<unsigned>(_mm_movemask_ps((__m128)a)); }
#else
inline unsigned bits(mf a) {
  return (a[0] ? 1U : 0U) | (a[1] ? 2U : 0U) | (a[2] ? 4U : 0U) | (a[3] ? 8U : 0U);
}
#endif

#endif

// from_lanes(at) builds a vector of at(lane) in registers. Through memory, the vector load would
// wait for the scalar stores before it. Gather instructions are even slower on many machines.
inline vd gather(const double* column, const int* index) {
  return from_lanes([column, index](int lane) { return column[index[lane]]; });
}

inline vd splat(double a) { return vd{} + a; }
inline vf splat(float a) { return vf{} + a; }
constexpr unsigned kAllDoubles = (1U << kDoubles) - 1;

}  // namespace
}  // namespace manymatch

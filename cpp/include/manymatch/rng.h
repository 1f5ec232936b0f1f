// Counter-based random numbers: a stream depends only on (seed, iteration, purpose).
#pragma once

#include <cstdint>

namespace manymatch {

inline uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Rng {
 public:
  enum Purpose : uint64_t { kSample = 0, kGuidance = 1, kNearSample = 2, kAgreeing = 3 };

  Rng(uint64_t seed, uint64_t iteration, Purpose purpose)
      : state_(mix64(mix64(mix64(seed + kStep) + iteration * kStep) + purpose)) {}

  uint64_t next() { return mix64(state_ += kStep); }

  // Uniform in [0, n): the high half of a product. The bias is below n / 2^64.
  uint32_t below(uint32_t n) {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }

  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  uint64_t state_;
};

}  // namespace manymatch

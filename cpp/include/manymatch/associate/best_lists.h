// The best candidates of many vertices, collected from approximate similarities.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace manymatch {

// Unsigned number in the same order as the float; no NaN.
inline uint32_t order_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0F);  // -0 becomes +0: they are equal
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

inline float value_of(uint32_t order) {
  return std::bit_cast<float>(order & 0x80000000U ? order & 0x7fffffffU : ~order);
}

// A candidate as one number: the larger one has the larger value or, of equals, the smaller index.
inline uint64_t candidate_key(float value, int32_t index) {
  return uint64_t{order_of(value)} << 32 | static_cast<uint32_t>(~index);
}
inline float key_value(uint64_t key) { return value_of(static_cast<uint32_t>(key >> 32)); }
inline int32_t key_index(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

// Every list holds at least those candidates that can be among the `keep` best ones, given that a
// value is off by at most `error`. A list that gets long with candidates too close to call is
// decided by exact values, so that memory is bounded whatever the input.
class BestLists {
 public:
  BestLists(std::size_t vertices, std::size_t keep, double error)
      : keep_(keep),
        capacity_(2 * keep + 8),
        error_(error),
        keys_(keep == 0 ? 0 : vertices * capacity_),
        size_(vertices, 0),
        threshold_(vertices, keep == 0 ? kInfinity : -kInfinity) {}

  std::size_t vertices() const { return size_.size(); }
  std::size_t keep() const { return keep_; }

  // Values at or below it are of no interest.
  const float* thresholds() const { return threshold_.data(); }
  void close(std::size_t vertex) { threshold_[vertex] = kInfinity; }

  // To be called when `keep` candidates of the vertex are known to have at least this value.
  void expect(std::size_t vertex, float value) {
    threshold_[vertex] = std::max(threshold_[vertex], below(value));
  }

  // `exact(index)` is the true similarity of the vertex and a candidate.
  template <class Exact>
  void add(std::size_t vertex, float value, int32_t index, const Exact& exact) {
    uint64_t* list = keys_.data() + vertex * capacity_;
    list[size_[vertex]++] = candidate_key(value, index);
    if (size_[vertex] == capacity_) shrink(vertex, list, exact);
  }

  // Keys of the best ones, best first; the list is used up. The order is exact, the values are not:
  // exact ones are computed only where the order depends on them.
  template <class Exact>
  std::size_t finish(std::size_t vertex, const Exact& exact, uint64_t* out) {
    if (keep_ == 0) return 0;
    uint64_t* list = keys_.data() + vertex * capacity_;
    drop_beaten(vertex, list);
    const std::size_t size = size_[vertex], count = std::min(size, keep_);
    std::sort(list, list + size, std::greater<>());
    std::size_t begin = 0;
    while (begin < count) {
      std::size_t end = begin + 1;
      while (end < size && too_close(list[end - 1], list[end])) ++end;
      if (end - begin > 1) {
        decide(list + begin, end - begin, exact);
        std::sort(list + begin, list + end, std::greater<>());
      }
      begin = end;
    }
    std::copy_n(list, count, out);
    return count;
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  template <class Exact>
  static void decide(uint64_t* list, std::size_t size, const Exact& exact) {
    for (std::size_t n = 0; n < size; ++n) {
      const int32_t index = key_index(list[n]);
      list[n] = candidate_key(exact(index), index);
    }
  }

  // The largest value that cannot be among the best beside `keep` ones of at least `value`: they
  // are larger by more than both errors. One step down makes up for the rounding and the strict
  // comparison.
  float below(float value) const {
    const double bound = static_cast<double>(value) - 2.0 * error_;
    return std::nextafter(static_cast<float>(bound), -kInfinity);
  }

  bool too_close(uint64_t better, uint64_t worse) const {
    return static_cast<double>(key_value(better)) - static_cast<double>(key_value(worse)) <=
           2.0 * error_;
  }

  // Removes what cannot be among the best: `keep` others are better by more than both errors.
  void drop_beaten(std::size_t vertex, uint64_t* list) {
    if (size_[vertex] <= keep_) return;
    uint64_t* end = list + size_[vertex];
    std::nth_element(list, list + keep_ - 1, end, std::greater<>());
    expect(vertex, key_value(list[keep_ - 1]));
    const float bound = threshold_[vertex];
    uint64_t* last =
        std::remove_if(list + keep_, end, [&](uint64_t key) { return !(key_value(key) > bound); });
    size_[vertex] = static_cast<uint32_t>(last - list);
  }

  template <class Exact>
  void shrink(std::size_t vertex, uint64_t* list, const Exact& exact) {
    drop_beaten(vertex, list);
    if (size_[vertex] <= keep_ + (capacity_ - keep_) / 2) return;
    decide(list, size_[vertex], exact);
    std::nth_element(list, list + keep_ - 1, list + size_[vertex], std::greater<>());
    size_[vertex] = static_cast<uint32_t>(keep_);
  }

  std::size_t keep_, capacity_;
  double error_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> size_;
  std::vector<float> threshold_;
};

}  // namespace manymatch

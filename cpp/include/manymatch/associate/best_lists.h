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

// An unsigned number that sorts like the float, which must not be NaN.
inline uint32_t order_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0F);  // -0 becomes +0: they are equal
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

inline float value_of(uint32_t order) {
  return std::bit_cast<float>(order & 0x80000000U ? order & 0x7fffffffU : ~order);
}

// A candidate as one number. A larger number means a larger value or, for equal values, a smaller
// index.
inline uint64_t candidate_key(float value, int32_t index) {
  return uint64_t{order_of(value)} << 32 | static_cast<uint32_t>(~index);
}
inline float key_value(uint64_t key) { return value_of(static_cast<uint32_t>(key >> 32)); }
inline int32_t key_index(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

// Every list holds at least the candidates that can be among the `keep` best, given that values are
// off by at most `error`. If a list grows long because candidates are too close to each other,
// exact values decide, so that memory is bounded for any input.
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

  // Values up to this cannot be among the best.
  const float* thresholds() const { return threshold_.data(); }
  void close(std::size_t vertex) { threshold_[vertex] = kInfinity; }

  // Call it when `keep` candidates of the vertex are known to have at least this value.
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

  // Keys of the best candidates, best first; empties the list. The order is exact. Values are exact
  // only if the order depends on them.
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

  // If `keep` candidates have at least `value`, the largest value that cannot be among the best: it
  // is smaller by more than both errors. One step down allows for rounding and strict comparison.
  float below(float value) const {
    const double bound = static_cast<double>(value) - 2.0 * error_;
    return std::nextafter(static_cast<float>(bound), -kInfinity);
  }

  bool too_close(uint64_t better, uint64_t worse) const {
    return static_cast<double>(key_value(better)) - static_cast<double>(key_value(worse)) <=
           2.0 * error_;
  }

  // Removes candidates that cannot be among the best: `keep` others exceed them by more than both
  // errors.
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

// The bounded pool of raw seeds that stage 1 hands to stage 2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace manymatch {

template <class Model>
class Pool {
 public:
  struct Entry {
    Model model;
    double score;
    int64_t inserted;  // order of insertion
  };

  explicit Pool(int capacity) : capacity_(static_cast<std::size_t>(std::max(capacity, 1))) {
    entries_.reserve(std::min<std::size_t>(capacity_, 1024));
  }

  bool full() const { return entries_.size() == capacity_; }
  bool admits(double score) const { return !full() || score > worst_score(); }
  // The entries are a heap with the worst in front: the lowest score; of equal scores, the oldest.
  double worst_score() const { return entries_.empty() ? -1.0 : entries_.front().score; }
  const std::vector<Entry>& entries() const { return entries_; }

  // Adds an entry; if the pool is full, it replaces the worst one if it is strictly better.
  // Duplicates stay, as in the reference.
  void insert(const Model& model, double score) {
    if (!admits(score)) return;
    if (full()) {
      std::pop_heap(entries_.begin(), entries_.end(), better);
      entries_.pop_back();
    }
    entries_.push_back({model, score, inserted_++});
    std::push_heap(entries_.begin(), entries_.end(), better);
  }

 private:
  static bool better(const Entry& a, const Entry& b) {
    return a.score != b.score ? a.score > b.score : a.inserted > b.inserted;
  }

  std::size_t capacity_;
  std::vector<Entry> entries_;
  int64_t inserted_ = 0;
};

}  // namespace manymatch

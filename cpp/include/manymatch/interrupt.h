// Lets the caller stop a long run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

namespace manymatch {

// Shared by all threads of a call. Only the calling thread polls, at most every 20 ms.
class Interrupt {
 public:
  explicit Interrupt(std::function<bool()> poll = {}) : poll_(std::move(poll)) {}

  bool requested() const { return requested_.load(std::memory_order_relaxed); }

  bool poll() {
    const auto now = std::chrono::steady_clock::now();
    if (poll_ && !requested() && now - last_ > std::chrono::milliseconds(20)) {
      last_ = now;
      if (poll_()) requested_ = true;
    }
    return requested();
  }

 private:
  std::function<bool()> poll_;
  std::atomic<bool> requested_{false};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace manymatch

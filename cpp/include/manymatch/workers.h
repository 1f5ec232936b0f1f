// Threads that work on numbered jobs and live as long as one call of the library.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace manymatch {

class Workers {
 public:
  explicit Workers(int threads) {
    try {
      for (int w = 1; w < threads; ++w) threads_.emplace_back([this, w] { serve(w); });
    } catch (const std::system_error&) {
      // The system refuses more threads: those that were started do the work.
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs job(worker, i) for i in [0, count). The calling thread is worker 0; while it waits for the
  // others, it calls `idle` every 20 ms. Rethrows an exception of a job.
  void run(int count, const std::function<void(int, int)>& job,
           const std::function<void()>& idle = {}) {
    if (threads_.empty() || count <= 1) {
      for (int i = 0; i < count; ++i) job(0, i);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      count_ = count;
      next_ = 0;
      busy_ = static_cast<int>(threads_.size());
      ++generation_;
    }
    wake_.notify_all();
    work(0, job, count);
    std::unique_lock lock(mutex_);
    while (!done_.wait_for(lock, std::chrono::milliseconds(20), [this] { return busy_ == 0; })) {
      if (!idle) continue;
      lock.unlock();
      idle();
      lock.lock();
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void work(int worker, const std::function<void(int, int)>& job, int count) {
    try {
      for (int i = next_++; i < count; i = next_++) job(worker, i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      next_ = count;
    }
  }

  void serve(int worker) {
    int seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return closing_ || generation_ != seen; });
      if (closing_) return;
      seen = generation_;
      const auto* job = job_;
      const int count = count_;
      lock.unlock();
      work(worker, *job, count);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int, int)>* job_ = nullptr;
  std::atomic<int> next_{0};
  int count_ = 0, busy_ = 0, generation_ = 0;
  bool closing_ = false;
  std::exception_ptr error_;
};

}  // namespace manymatch

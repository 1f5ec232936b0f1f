// The robust loop: LO-RANSAC over a problem and a scorer (Algorithm 3; with a pool, stage 1 of
// Algorithm 1).
//
// All threads sample, solve and screen batches of iterations. The calling thread then takes the
// surviving hypotheses in the order of their iterations, exactly as a plain loop would. Screening
// computes an upper bound of the score, and the scores to beat only rise, so a hypothesis that is
// dropped early would not have changed anything. The result is that of a plain loop in float64, for
// any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <functional>
#include <vector>

#include "manymatch/interrupt.h"
#include "manymatch/options.h"
#include "manymatch/ransac/iteration_bound.h"
#include "manymatch/ransac/pool.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/ransac/sampler.h"
#include "manymatch/refine/refiner.h"
#include "manymatch/score/scorers.h"
#include "manymatch/workers.h"

namespace manymatch {

template <class Model>
struct SearchResult {
  bool found = false;
  Model model;
  Value value{-1.0, 0};
  int64_t iterations = 0, refinements = 0;
  bool interrupted = false;
  double refine_seconds = 0;
};

template <Problem P, Scorer S>
class LoRansac {
 public:
  using Model = typename P::Model;

  // The search ends when failed draws have cost this many steps in total.
  static constexpr int64_t kMaxWastedSteps = 20'000'000;

  // A seed repeats the best model if it shares kCommonShare of its own inliers with it, and these
  // are kReachedShare of the inliers of the best model. The search ends after kRepeats times
  // -log(1 - confidence) repeats: a model that samples find as often is missed with a probability
  // of (1 - confidence)^kRepeats.
  static constexpr double kCommonShare = 0.7, kReachedShare = 0.5, kRepeats = 1.5;
  // A model that was not found kFewRepeats times in this many iterations counts as one by chance:
  // it would hardly be found often enough in the rest of a default budget. The number was chosen
  // on real pairs (benchmarks/results/time_to_solution.md).
  static constexpr int64_t kHopelessIterations = 20000;
  static constexpr int kFewRepeats = 2;

  // `weighting`: of the edges in local refinement.
  LoRansac(const P& problem, const Proposals& proposals, const Options& options,
           Weighting weighting, const std::function<S()>& make_scorer, Workers& workers,
           Interrupt& interrupt)
      : problem_(problem),
        proposals_(proposals),
        options_(options),
        workers_(workers),
        interrupt_(interrupt),
        edges_(problem.graph().num_edges()),
        refiner_(problem, weighting) {
    for (int w = 0; w < workers.size(); ++w) lanes_.emplace_back(problem, proposals, make_scorer());
    bound_ = options.max_iterations;
    next_count_ = options.min_iterations;
  }

  // Replaces the paper's stopping rule: `clean_chance` gives the probability that a sample has no
  // outlier, for the inliers of the best model.
  void stop_by(std::function<double(MaskView)> clean_chance) {
    clean_chance_ = std::move(clean_chance);
  }

  // Every raw model is offered to the pool, if there is one.
  SearchResult<Model> run(Pool<Model>* pool) {
    pool_ = pool;
    for (int64_t first = 0; !finished_;) {
      const int count = batches_of_round(first);
      if (batches_.size() < at(count)) {
        batches_.resize(at(count));
      }
      update_needs();
      workers_.run(count, [&](int worker, int i) {
        explore(lanes_[at(worker)], first + i, batches_[at(i)]);
      });
      if (interrupt_.poll()) {  // batches may be incomplete: use none of them
        result_.interrupted = true;
        break;
      }
      for (int i = 0; i < count && !finished_; ++i) {
        reduce(batches_[at(i)], (first + i + 1) * kBatch);
      }
      first += count;
    }
    return result_;
  }

 private:
  struct RawModel {
    int64_t iteration;
    Model model;
    Value value;
  };
  struct Batch {
    std::vector<RawModel> raw_models;
    int64_t wasted;
  };
  // Scorer and buffers of one thread.
  struct Lane {
    Lane(const P& problem, const Proposals& proposals, S s)
        : scorer(std::move(s)),
          space(problem.workspace()),
          scratch(proposals.scratch()),
          mask(problem.graph().words()),
          r2(problem.graph().words() * 64) {}

    S scorer;
    typename P::Workspace space;
    Proposals::Scratch scratch;
    Mask mask;
    std::vector<double> r2;
    std::vector<int> samples = std::vector<int>(kBatch * P::kSampleSize);
    std::vector<int64_t> iterations = std::vector<int64_t>(kBatch);
    Solutions<Model> solutions;
  };

  int64_t end_of_loop() const {
    return std::min(options_.max_iterations, std::max(options_.min_iterations, bound_) + 1);
  }

  // Number of batches, from batch `first` on, that run before the scores to beat are updated. A
  // single thread takes one batch. Several threads wait for each other at the end of a round, so
  // they take more: the more, the later in the search, since the scores to beat then hardly change.
  // A round never runs past the end of the loop.
  int batches_of_round(int64_t first) const {
    const int64_t left = (end_of_loop() + kBatch - 1) / kBatch - first;
    if (workers_.size() == 1) return 1;
    const int64_t few = 8 * workers_.size(), many = 64 * workers_.size();
    return static_cast<int>(std::clamp<int64_t>(left, 1, std::clamp(first / 4, few, many)));
  }

  // Whether a raw model with this value, or an upper bound of it, can enter the pool or pass the
  // gate.
  bool matters(const Value& value) const {
    return (pool_ && pool_->admits(value.score)) || S::gate(value, raw_best_);
  }

  Value evaluate(const Model& model, Lane& lane) const {
    const int count = problem_.inliers(model, lane.mask, lane.r2);
    return {lane.scorer.score(lane.mask, lane.r2), count};
  }

  bool may_matter(const Model& model, Lane& lane) const {
    const int count = problem_.screen(model, needs_.inliers, lane.mask);
    if (count < needs_.inliers) return false;
    if (matters({0.0, count})) return true;
    return matters({lane.scorer.bound(lane.mask, needs_.score), count});
  }

  // Lowest score and fewest inliers with which a raw model can still matter. They only rise, so a
  // stale value merely costs time.
  void update_needs() {
    needs_.score = raw_best_.score;
    if (pool_) needs_.score = std::min(needs_.score, pool_->full() ? pool_->worst_score() : -1.0);
    const S& scorer = lanes_[0].scorer;
    needs_.inliers = std::min(S::kGateCountsInliers ? raw_best_.inliers : INT_MAX,
                              needs_.score < 0.0 ? 0 : scorer.fewest_edges(needs_.score));
  }

  void explore(Lane& lane, int64_t index, Batch& batch) {
    constexpr int m = P::kSampleSize;
    batch.raw_models.clear();
    batch.wasted = 0;
    if (&lane == &lanes_[0]) interrupt_.poll();
    // The search ends at an earlier batch, which has wasted too many steps.
    if (index > last_batch_) return;
    const int64_t first = index * kBatch;
    const int64_t last = std::min(first + kBatch, options_.max_iterations);
    int drawn = 0;
    for (int64_t it = first; it < last && !interrupt_.requested(); ++it) {
      const std::span<int> sample = std::span(lane.samples).subspan(at(drawn * m), m);
      if (proposals_.draw(options_.seed, it, lane.scratch, sample, &batch.wasted,
                          kMaxWastedSteps)) {
        lane.iterations[at(drawn++)] = it;
      }
    }
    if (batch.wasted > kMaxWastedSteps) {
      int64_t last = last_batch_;
      while (index < last && !last_batch_.compare_exchange_weak(last, index)) {
      }
    }
    if (drawn == 0) return;
    problem_.solve(std::span(lane.samples).first(at(drawn * m)), lane.space, lane.solutions);
    const std::vector<Model>& models = lane.solutions.models;
    const std::vector<int>& sample = lane.solutions.sample;
    for (std::size_t begin = 0, end = 0; begin < models.size(); begin = end) {
      while (end < models.size() && sample[end] == sample[begin]) ++end;
      bool interesting = false;
      for (std::size_t i = begin; i < end && !interesting; ++i) {
        interesting = may_matter(models[i], lane);
      }
      if (!interesting) continue;
      RawModel raw{lane.iterations[at(sample[begin])], models[begin],
                   evaluate(models[begin], lane)};
      for (std::size_t i = begin + 1; i < end; ++i) {
        const Value value = evaluate(models[i], lane);
        if (value.score > raw.value.score) {
          raw.model = models[i];
          raw.value = value;
        }
      }
      batch.raw_models.push_back(raw);
    }
  }

  // Takes the raw models of a batch in order; `next` is the first iteration after the batch.
  void reduce(const Batch& batch, int64_t next) {
    for (const RawModel& raw : batch.raw_models) {
      if (raw.iteration >= end_of_loop()) break;
      take(raw);
      result_.iterations = raw.iteration + 1;  // the bound may drop below the current iteration
    }
    wasted_ += batch.wasted;
    const bool counts = clean_chance_ && pool_ && result_.found;
    if (counts && next >= next_count_ && next < end_of_loop()) count_repeats(next);
    result_.iterations = std::max(result_.iterations, std::min(next, end_of_loop()));
    finished_ = next >= end_of_loop() || wasted_ > kMaxWastedSteps;
  }

  void take(const RawModel& raw) {
    if (pool_) pool_->insert(raw.model, raw.value.score);
    Model model = raw.model;
    Value value = raw.value;
    if (S::gate(raw.value, raw_best_)) {
      raw_best_.score = std::max(raw_best_.score, raw.value.score);
      raw_best_.inliers = std::max(raw_best_.inliers, raw.value.inliers);
      const auto start = std::chrono::steady_clock::now();
      Model refined = raw.model;
      refiner_.local_refine(refined, lanes_[0].space);
      const Value refined_value = evaluate(refined, lanes_[0]);
      if (refined_value.score > value.score) {
        model = refined;
        value = refined_value;
      }
      ++result_.refinements;
      result_.refine_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (value.score > result_.value.score) {
      result_.found = true;
      result_.model = model;
      result_.value = value;
      bound_ = wanted_iterations();
    }
  }

  // Ends the search if enough seeds of the pool have found the best model: then a model that
  // samples find as often would be among them, almost certainly. Unlike the bound this needs no
  // assumption on how many samples without outliers lead to a good model. Ends it too if after many
  // iterations hardly any seed has found it. Counts at the least number of iterations, whenever
  // their number has grown by a quarter, and when it may give up.
  void count_repeats(int64_t iterations) {
    next_count_ = iterations + std::max<int64_t>(iterations / 4, kBatch);
    if (iterations < kHopelessIterations) next_count_ = std::min(next_count_, kHopelessIterations);
    const double enough = -kRepeats * std::log1p(-options_.confidence);
    if (static_cast<double>(pool_->entries().size()) < enough) return;
    Mask& mask = lanes_[0].mask;
    const int size = problem_.inliers(result_.model, mask, {}) - P::kSampleSize;
    const Mask best = mask;
    int repeats = 0;
    for (const auto& seed : pool_->entries()) {
      // The edges of its own sample fit every seed, so they are no evidence and do not count.
      const int count = problem_.inliers(seed.model, mask, {}) - P::kSampleSize;
      for (std::size_t w = 0; w < best.size(); ++w) mask[w] &= best[w];
      const int common = count_bits(mask) - P::kSampleSize;
      const double least = std::max(kCommonShare * count, kReachedShare * size);
      if (common > 0 && common >= least) ++repeats;
    }
    const bool hopeless = iterations >= kHopelessIterations && repeats < kFewRepeats;
    if (repeats >= enough || hopeless) bound_ = std::min(bound_, iterations);
  }

  // Number of iterations that the best model asks for.
  int64_t wanted_iterations() {
    if (!clean_chance_) {
      return iteration_bound(result_.value.inliers, static_cast<int64_t>(edges_), P::kSampleSize,
                             options_.min_iterations, options_.max_iterations, options_.confidence,
                             options_.safety);
    }
    problem_.inliers(result_.model, lanes_[0].mask, {});
    return iterations_for(clean_chance_(lanes_[0].mask), options_.min_iterations,
                          options_.max_iterations, options_.confidence, options_.safety);
  }

  const P& problem_;
  const Proposals& proposals_;
  const Options& options_;
  Workers& workers_;
  Interrupt& interrupt_;
  std::size_t edges_;
  std::function<double(MaskView)> clean_chance_;
  Pool<Model>* pool_ = nullptr;
  std::vector<Lane> lanes_;
  Refiner<P> refiner_;  // used by the calling thread only
  std::vector<Batch> batches_;
  RawBest raw_best_;
  Value needs_{-1.0, 0};
  int64_t bound_ = 0, wasted_ = 0, next_count_ = 0;
  std::atomic<int64_t> last_batch_{INT64_MAX};  // later batches are ignored
  bool finished_ = false;
  SearchResult<Model> result_;
};

}  // namespace manymatch

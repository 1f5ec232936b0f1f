// Minimal samples: Algorithm 2 of the paper (1-to-1 within a sample), and uniform edges for CM. A
// share of the iterations may draw from a subset of the edges only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "manymatch/graph.h"
#include "manymatch/rng.h"
#include "manymatch/score/matching.h"

namespace manymatch {

// Buffers of one thread: a permutation that every draw restores.
struct SamplerScratch {
  std::vector<int> order;
  std::vector<int> swaps;
};

class ConstrainedSampler {
 public:
  // `proposals`: the edges that may be drawn, ascending.
  ConstrainedSampler(const Graph& graph, const std::vector<int>& proposals) : graph_(graph) {
    std::vector<int> position(at(graph.num0), -1);
    std::vector<int> count;
    for (int e : proposals) {
      int& slot = position[at(graph.left[at(e)])];
      if (slot < 0) {
        slot = static_cast<int>(count.size());
        count.push_back(0);
      }
      ++count[at(slot)];
    }
    start_.assign(count.size() + 1, 0);
    std::partial_sum(count.begin(), count.end(), start_.begin() + 1);
    std::vector<int> next(start_.begin(), start_.end() - 1);
    edges_.resize(proposals.size());
    for (int e : proposals) {
      const int slot = position[at(graph.left[at(e)])];
      edges_[at(next[at(slot)]++)] = e;
    }
    max_attempts_ = std::max<int64_t>(50, 10 * static_cast<int64_t>(count.size()));
  }

  int num_active() const { return static_cast<int>(start_.size()) - 1; }

  // Probability that a drawn edge is an inlier: the share of inliers among the edges of a left
  // vertex, averaged over the left vertices.
  double inlier_chance(MaskView mask) const {
    double total = 0.0;
    for (std::size_t v = 0; v + 1 < start_.size(); ++v) {
      int inliers = 0;
      for (int k = start_[v]; k < start_[v + 1]; ++k) {
        const auto e = at(edges_[at(k)]);
        inliers += static_cast<int>(mask[e / 64] >> (e % 64) & 1U);
      }
      total += static_cast<double>(inliers) / static_cast<double>(start_[v + 1] - start_[v]);
    }
    return total / std::max(num_active(), 1);
  }

  void prepare(SamplerScratch& scratch) const {
    scratch.order.resize(at(num_active()));
    std::iota(scratch.order.begin(), scratch.order.end(), 0);
    scratch.swaps.resize(scratch.order.size());
  }

  // Visits left vertices in random order and takes, at each, the first edge from a random start
  // whose right vertex is free. The permutation is drawn only as far as needed, which does not
  // change the distribution. `wasted` counts the vertices that failed attempts visited; above
  // `max_wasted` no further attempt is made. False if no sample was found.
  bool draw(Rng& rng, SamplerScratch& scratch, std::span<int> sample, int64_t* wasted,
            int64_t max_wasted = INT64_MAX) const {
    const int size = static_cast<int>(sample.size());
    const int active = num_active();
    for (int64_t attempt = 0; attempt < max_attempts_ && *wasted <= max_wasted; ++attempt) {
      int drawn = 0, looked = 0;
      for (; looked < active && drawn < size; ++looked) {
        const int other =
            looked + static_cast<int>(rng.below(static_cast<uint32_t>(active - looked)));
        std::swap(scratch.order[at(looked)], scratch.order[at(other)]);
        scratch.swaps[at(looked)] = other;
        const auto vertex = at(scratch.order[at(looked)]);
        const int edge = first_free_edge(rng, vertex, sample.first(at(drawn)));
        if (edge >= 0) sample[at(drawn++)] = edge;
      }
      for (int k = looked - 1; k >= 0; --k) {
        std::swap(scratch.order[at(k)], scratch.order[at(scratch.swaps[at(k)])]);
      }
      if (drawn == size) return true;
      *wasted += looked;
    }
    return false;
  }

 private:
  int first_free_edge(Rng& rng, std::size_t vertex, std::span<const int> drawn) const {
    const int begin = start_[vertex], degree = start_[vertex + 1] - begin;
    const int first = degree == 1 ? 0 : static_cast<int>(rng.below(static_cast<uint32_t>(degree)));
    for (int k = 0; k < degree; ++k) {
      const int offset = first + k < degree ? first + k : first + k - degree;
      const int edge = edges_[at(begin + offset)];
      const int right = graph_.right[at(edge)];
      const bool used = std::any_of(drawn.begin(), drawn.end(),
                                    [&](int e) { return graph_.right[at(e)] == right; });
      if (!used) return edge;
    }
    return -1;
  }

  const Graph& graph_;
  std::vector<int> start_, edges_;  // edges of each active left vertex
  int64_t max_attempts_;
};

// Distinct edges, each set equally likely; endpoints may repeat.
inline bool draw_edges(Rng& rng, const std::vector<int>& proposals, std::span<int> sample) {
  for (auto next = sample.begin(); next != sample.end(); ++next) {
    do {
      *next = proposals[rng.below(static_cast<uint32_t>(proposals.size()))];
    } while (std::find(sample.begin(), next, *next) != next);
  }
  return true;
}

inline int matching_of_edges(const Graph& graph, const std::vector<int>& edges) {
  Mask mask(graph.words(), 0);
  for (int e : edges) set_bit(mask, e);
  return MaximumMatching(graph).cardinality(mask);
}

// Completes a sample whose first edge is drawn: draws the others among the edges that can be true
// together with it.
class SampleCompletion {
 public:
  virtual ~SampleCompletion() = default;
  // Draws from the `allowed` edges; false if none fits.
  virtual bool complete(Rng& rng, MaskView allowed, std::span<int> sample) const = 0;
  // Probability that the completed edges are inliers, given that the first one is.
  virtual double clean_chance(MaskView allowed, MaskView inliers) const = 0;
};

class Proposals {
 public:
  // The inlier share of the best of many hypotheses is biased upwards, more so with few vertices.
  // This many of its standard deviations are subtracted.
  static constexpr double kBiasDeviations = 0.5;

  struct Scratch {
    SamplerScratch all;
    std::vector<SamplerScratch> guides;
  };

  Proposals(const Graph& graph, std::vector<int> edges, bool uniform_edges)
      : edges_(std::move(edges)), uniform_edges_(uniform_edges), sampler_(graph, edges_) {}

  // Draws a share of the samples from these edges only. They must contain a sample, and the shares
  // of all guides must not sum to more than one.
  void guide(const Graph& graph, std::vector<int> edges, double share) {
    auto sampler = std::make_unique<ConstrainedSampler>(graph, edges);
    guides_.push_back({std::move(edges), std::move(sampler), share, {}});
  }

  // From now on only the first edge of a sample is drawn, and `completion` adds the others. Does
  // nothing if it is null. Must be called after all guides are added.
  void complete_by(const Graph& graph, std::unique_ptr<const SampleCompletion> completion) {
    if (!completion) return;
    completion_ = std::move(completion);
    const auto mask_of = [&](const std::vector<int>& edges) {
      Mask mask(graph.words(), 0);
      for (int e : edges) set_bit(mask, e);
      return mask;
    };
    allowed_ = mask_of(edges_);
    for (Guide& guide : guides_) guide.allowed = mask_of(guide.edges);
  }

  Scratch scratch() const {
    Scratch s;
    sampler_.prepare(s.all);
    s.guides.resize(guides_.size());
    for (std::size_t i = 0; i < guides_.size(); ++i) guides_[i].sampler->prepare(s.guides[i]);
    return s;
  }

  // Draws the sample of an iteration; arguments as for ConstrainedSampler::draw.
  bool draw(uint64_t seed, int64_t iteration, Scratch& scratch, std::span<int> sample,
            int64_t* wasted, int64_t max_wasted = INT64_MAX) const {
    Rng rng(seed, static_cast<uint64_t>(iteration), Rng::kSample);
    const std::size_t i = guide_of(seed, iteration);
    if (completion_) {
      const bool all = i == guides_.size();
      const ConstrainedSampler& sampler = all ? sampler_ : *guides_[i].sampler;
      return sampler.draw(rng, all ? scratch.all : scratch.guides[i], sample.first(1), wasted,
                          max_wasted) &&
             completion_->complete(rng, all ? allowed_ : guides_[i].allowed, sample);
    }
    if (i == guides_.size()) {
      return uniform_edges_ ? draw_edges(rng, edges_, sample)
                            : sampler_.draw(rng, scratch.all, sample, wasted, max_wasted);
    }
    const Guide& guide = guides_[i];
    return uniform_edges_ ? draw_edges(rng, guide.edges, sample)
                          : guide.sampler->draw(rng, scratch.guides[i], sample, wasted, max_wasted);
  }

  // Probability that a sample has inliers only, if its draws were independent.
  double clean_chance(MaskView inliers, int size) const {
    double chance = 0.0, rest = 1.0;
    for (const Guide& guide : guides_) {
      chance += guide.share * clean_chance(*guide.sampler, guide.allowed, inliers, size);
      rest -= guide.share;
    }
    return chance + std::max(rest, 0.0) * clean_chance(sampler_, allowed_, inliers, size);
  }

 private:
  struct Guide {
    std::vector<int> edges;
    std::unique_ptr<ConstrainedSampler> sampler;
    double share;
    Mask allowed;  // the edges as a mask, for the completion
  };

  double clean_chance(const ConstrainedSampler& sampler, MaskView allowed, MaskView inliers,
                      int size) const {
    const double share = sampler.inlier_chance(inliers);
    const double deviation = std::sqrt(share * (1.0 - share) / std::max(sampler.num_active(), 1));
    const double first = std::max(share - kBiasDeviations * deviation, 0.0);
    return completion_ ? first * completion_->clean_chance(allowed, inliers)
                       : std::pow(first, size);
  }

  // Index of the guide that an iteration draws from; the number of guides if it draws from all
  // edges.
  std::size_t guide_of(uint64_t seed, int64_t iteration) const {
    if (guides_.empty()) return 0;
    double u = Rng(seed, static_cast<uint64_t>(iteration), Rng::kGuidance).uniform();
    std::size_t i = 0;
    while (i < guides_.size() && u >= guides_[i].share) u -= guides_[i++].share;
    return i;
  }

  std::vector<int> edges_;
  bool uniform_edges_;
  ConstrainedSampler sampler_;
  std::vector<Guide> guides_;
  std::unique_ptr<const SampleCompletion> completion_;
  Mask allowed_;
};

}  // namespace manymatch

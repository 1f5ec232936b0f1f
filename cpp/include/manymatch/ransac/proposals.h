// Where the minimal sample of an iteration comes from: all proposals, or for a share of the
// iterations some of them only (with `guidance` the rank-one edges).
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "manymatch/ransac/sampler.h"
#include "manymatch/score/matching.h"

namespace manymatch {

inline int matching_of_edges(const Graph& graph, const std::vector<int>& edges) {
  Mask mask(graph.words(), 0);
  for (int e : edges) mask[static_cast<std::size_t>(e) / 64] |= uint64_t{1} << (e % 64);
  return MaximumMatching(graph).cardinality(mask.data());
}

class Proposals {
 public:
  // The best of many models flatters itself, and on few vertices most: of the share of inliers that
  // it shows, so many standard deviations are not believed.
  static constexpr double kCaution = 0.5;

  struct Scratch {
    SamplerScratch all;
    std::vector<SamplerScratch> guides;
  };

  Proposals(const Graph& graph, std::vector<int> edges, bool uniform_edges)
      : edges_(std::move(edges)), uniform_edges_(uniform_edges), sampler_(graph, edges_) {}

  // A share of the iterations draws from these edges only. The caller has seen that they hold a
  // sample; the shares of all guides sum up to one at most.
  void guide(const Graph& graph, std::vector<int> edges, double share) {
    auto sampler = std::make_unique<ConstrainedSampler>(graph, edges);
    guides_.push_back({std::move(edges), std::move(sampler), share});
  }

  Scratch scratch() const {
    Scratch s;
    sampler_.prepare(s.all);
    s.guides.resize(guides_.size());
    for (std::size_t i = 0; i < guides_.size(); ++i) guides_[i].sampler->prepare(s.guides[i]);
    return s;
  }

  bool draw(uint64_t seed, int64_t iteration, int size, Scratch& scratch, int* sample,
            int64_t* wasted, int64_t patience = INT64_MAX) const {
    Rng rng(seed, static_cast<uint64_t>(iteration), Rng::kSample);
    const std::size_t i = guide_of(seed, iteration);
    if (i == guides_.size()) {
      return uniform_edges_ ? draw_edges(rng, edges_, size, sample)
                            : sampler_.draw(rng, size, scratch.all, sample, wasted, patience);
    }
    const Guide& guide = guides_[i];
    return uniform_edges_
               ? draw_edges(rng, guide.edges, size, sample)
               : guide.sampler->draw(rng, size, scratch.guides[i], sample, wasted, patience);
  }

  // Chance that a sample has inliers only, taking its draws as independent.
  double clean_chance(const uint64_t* inliers, int size) const {
    double chance = 0.0, rest = 1.0;
    for (const Guide& guide : guides_) {
      chance += guide.share * clean_chance(*guide.sampler, inliers, size);
      rest -= guide.share;
    }
    return chance + std::max(rest, 0.0) * clean_chance(sampler_, inliers, size);
  }

 private:
  struct Guide {
    std::vector<int> edges;
    std::unique_ptr<ConstrainedSampler> sampler;
    double share;
  };

  static double clean_chance(const ConstrainedSampler& sampler, const uint64_t* inliers, int size) {
    const double share = sampler.inlier_chance(inliers);
    const double deviation = std::sqrt(share * (1.0 - share) / std::max(sampler.num_active(), 1));
    return std::pow(std::max(share - kCaution * deviation, 0.0), size);
  }

  // Guide of an iteration, their number for none.
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
};

}  // namespace manymatch

// Where the minimal sample of an iteration comes from: all proposals, or with `guidance` some of
// the iterations from rank-one edges only.
#pragma once

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
  struct Scratch {
    SamplerScratch all, guided;
  };

  Proposals(const Graph& graph, std::vector<int> edges, bool uniform_edges)
      : edges_(std::move(edges)), uniform_edges_(uniform_edges), sampler_(graph, edges_) {}

  // Edges that guided iterations draw from. The caller has seen that they hold a sample.
  void guide(const Graph& graph, std::vector<int> edges, double share) {
    guided_edges_ = std::move(edges);
    guided_ = std::make_unique<ConstrainedSampler>(graph, guided_edges_);
    share_ = share;
  }

  Scratch scratch() const {
    Scratch s;
    sampler_.prepare(s.all);
    if (guided_) guided_->prepare(s.guided);
    return s;
  }

  bool draw(uint64_t seed, int64_t iteration, int size, Scratch& scratch, int* sample,
            int64_t* wasted, int64_t patience = INT64_MAX) const {
    Rng rng(seed, static_cast<uint64_t>(iteration), Rng::kSample);
    const bool guided =
        guided_ && Rng(seed, static_cast<uint64_t>(iteration), Rng::kGuidance).uniform() < share_;
    if (uniform_edges_) return draw_edges(rng, guided ? guided_edges_ : edges_, size, sample);
    return guided ? guided_->draw(rng, size, scratch.guided, sample, wasted, patience)
                  : sampler_.draw(rng, size, scratch.all, sample, wasted, patience);
  }

 private:
  std::vector<int> edges_, guided_edges_;
  bool uniform_edges_;
  ConstrainedSampler sampler_;
  std::unique_ptr<ConstrainedSampler> guided_;
  double share_ = 0;
};

}  // namespace manymatch

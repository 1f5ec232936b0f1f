// What the robust loop needs to know of a geometric problem. Anything with these members plugs in.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

// Models of a batch of samples. Models of one sample stand together, samples ascend.
template <class Model>
struct Solutions {
  std::vector<Model> models;
  std::vector<int> sample;  // index within the batch

  void clear() {
    models.clear();
    sample.clear();
  }
};

template <class P>
concept Problem = requires(const P problem, typename P::Model model, typename P::Workspace& space,
                           const int* samples, int count, uint64_t* mask, double* r2,
                           Solutions<typename P::Model>& solutions) {
  { P::kSampleSize } -> std::convertible_to<int>;
  { problem.graph() } -> std::convertible_to<const Graph&>;
  // Buffers of one thread.
  { problem.workspace() } -> std::same_as<typename P::Workspace>;
  // All models of up to kBatch samples of kSampleSize edges each.
  problem.solve(samples, count, space, solutions);
  // A superset of the inliers, quickly (and more loosely if it has fewer than `count` edges); then
  // the inliers, and squared residuals where r2 is given.
  { problem.screen(model, count, mask) } -> std::same_as<int>;
  { problem.inliers(model, mask, r2) } -> std::same_as<int>;
  // Refinement in place; it must leave a valid model.
  problem.local_refine(model, space);
  problem.final_polish(model, space);
};

// Iterations that are sampled, solved and screened together.
constexpr int kBatch = 64;

}  // namespace manymatch

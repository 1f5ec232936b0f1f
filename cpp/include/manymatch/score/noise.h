// The noise of keypoints, from the residuals of edges: how far true edges are from a model.
#pragma once

#include <span>
#include <vector>

namespace manymatch {

// In thresholds; squared residuals are in squared thresholds everywhere here.
struct Noise {
  double scale = 0.0;      // standard deviation of a coordinate of a true edge
  double deviation = 0.0;  // standard deviation of `scale` itself
};

// What a squared residual is expected to be under noise of a scale: that of a distance in one
// dimension (from a line), two (from a point of an image) or three (from a point in space).
struct ResidualLaw {
  int dimensions;

  // Share of the distances below `limit`, and the mean of their squares over that without a limit.
  double share_below(double limit, double scale) const;
  double mean_square_below(double limit, double scale) const;
  // Density at a residual over that of residuals which are spread evenly within the threshold. Its
  // product with the odds of a prior is the odds of the edge given its residual.
  double peak(double scale) const;
  // Size of a band of residuals: distances from a line are spread over its width, distances from a
  // point over its area or volume.
  double size_of_band(double first, double last) const;
};

// Residuals close to a model, where true edges are looked for, and how dense wrong edges are: that
// is known from those well outside the band. `weight` says how much an edge counts.
struct NearResiduals {
  NearResiduals(std::span<const double> all, std::span<const double> weights, ResidualLaw law);

  std::vector<double> squared, weight;
  double total = 0.0;    // sum of the weights
  double density = 0.0;  // of wrong edges, by weight
};

// Standard deviation of a coordinate of all edges that are not by chance: also of those that are
// nearly true, such as the neighbours of the right keypoint.
double residual_spread(const NearResiduals& near, ResidualLaw law);

// The noise of the true edges. Wrong ones may be denser near the model than elsewhere, but are
// spread evenly there. `sample_size` edges fit any model.
Noise estimate_noise(const NearResiduals& near, ResidualLaw law, int sample_size);

}  // namespace manymatch

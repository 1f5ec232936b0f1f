// Estimates the noise of keypoints from the residuals of edges.
#pragma once

#include <span>
#include <vector>

namespace manymatch {

// In thresholds, as everything in this file; squared residuals are in squared thresholds.
struct Noise {
  double scale = 0.0;      // standard deviation of a coordinate of a true edge
  double deviation = 0.0;  // standard deviation of `scale` itself
};

// Distribution of residuals under noise: distances in one dimension (from a line), two (from a
// point in an image) or three (from a point in space).
struct ResidualLaw {
  int dimensions;

  // Share of the distances below `limit`, and the mean of their squares relative to that of all.
  double share_below(double limit, double scale) const;
  double mean_square_below(double limit, double scale) const;
  // Density at residual zero, relative to residuals spread evenly within the threshold. Multiplied
  // by the prior odds and the decay with the residual, it gives the odds of an edge.
  double peak(double scale) const;
  // Size of a band of residuals: a width for distances from a line, an area or a volume for
  // distances from a point.
  double size_of_band(double first, double last) const;
};

// Residuals close to a model, among which the true edges are, and the density of wrong edges, which
// is measured well outside. `weights`: how much each edge counts.
struct NearResiduals {
  NearResiduals(std::span<const double> all, std::span<const double> weights, ResidualLaw law);

  std::vector<double> squared, weight;
  double total = 0.0;    // sum of the weights
  double density = 0.0;  // of wrong edges, weighted
};

// Share of the wrong edges, per threshold of distance, between two distances from a model; edges
// closer than `first` may be true. Since few edges say little, 200 edges with the density `delta`
// are added.
double density_of_wrong_edges(std::span<const double> squared, double first, double last,
                              double delta);

// Standard deviation of a coordinate over all edges that are not there by chance. That includes
// nearly true ones, which hit a neighbour of the right keypoint.
double residual_spread(const NearResiduals& near, ResidualLaw law);

// The noise of the true edges. Wrong edges may be denser near the model than elsewhere, but are
// assumed to be spread evenly there. `sample_size` edges fit any model.
Noise estimate_noise(const NearResiduals& near, ResidualLaw law, int sample_size);

}  // namespace manymatch

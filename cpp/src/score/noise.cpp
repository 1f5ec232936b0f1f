#include "manymatch/score/noise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace manymatch {

namespace {
// True edges are searched within the first distance, in thresholds; edges between the other two
// are wrong.
constexpr double kWindow = 4.0, kFirstWrong = 5.0, kLastWrong = 15.0;
// Bounds of the noise: below, it cannot be distinguished from none; above, from evenly spread
// edges.
constexpr double kLeastVariance = 1e-4, kMostVariance = 9.0;
constexpr int kRounds = 20;
constexpr double kPrecision = 0.01;
// Least density of wrong edges: even if none was seen, there could be one.
constexpr double kLeastDensity = 1e-3;
// Density at zero of the absolute value of a standard normal variable: sqrt(2 / pi).
const double kNormalPeak = std::sqrt(2.0 / std::numbers::pi);
}  // namespace

double ResidualLaw::share_below(double limit, double scale) const {
  const double k = limit / scale;
  if (dimensions == 2) return -std::expm1(-0.5 * k * k);
  const double share = std::erf(k / std::numbers::sqrt2);
  return dimensions == 1 ? share : share - kNormalPeak * k * std::exp(-0.5 * k * k);
}

double ResidualLaw::mean_square_below(double limit, double scale) const {
  const double k = limit / scale;
  const double tail = std::exp(-0.5 * k * k) / share_below(limit, scale);
  if (dimensions == 2) return 1.0 - 0.5 * k * k * tail;
  return dimensions == 1 ? 1.0 - k * tail * kNormalPeak
                         : 1.0 - k * k * k / 3.0 * tail * kNormalPeak;
}

double ResidualLaw::peak(double scale) const {
  if (dimensions == 2) return 0.5 / (scale * scale);
  return dimensions == 1 ? kNormalPeak / scale : kNormalPeak / (3.0 * scale * scale * scale);
}

double ResidualLaw::size_of_band(double first, double last) const {
  if (dimensions == 2) return last * last - first * first;
  return dimensions == 1 ? last - first : last * last * last - first * first * first;
}

namespace {

struct Fit {
  double variance, count;
};

// Expectation maximisation: alternates between the probability that each edge is true and the noise
// of the true edges. The density of wrong edges is given; if `free`, it may rise above that.
Fit fit_noise(const NearResiduals& near, ResidualLaw law, bool free) {
  const double band = law.size_of_band(0.0, kWindow);
  double density = near.density;
  Fit fit{0.25, std::max(near.total - density * band, 1.0)};
  for (int round = 0; round < kRounds; ++round) {
    const double scale = std::sqrt(fit.variance);
    const double peak = fit.count / law.share_below(kWindow, scale) * law.peak(scale);
    double count = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < near.squared.size(); ++i) {
      const double expected = peak * std::exp(-0.5 * near.squared[i] / fit.variance);
      const double share = near.weight[i] * expected / (expected + density);
      count += share;
      sum += share * near.squared[i];
    }
    const double kept = law.mean_square_below(kWindow, scale);
    const double next = std::clamp(sum / std::max(count, 1e-9) / (law.dimensions * kept),
                                   kLeastVariance, kMostVariance);
    if (free) density = std::max(near.density, (near.total - count) / band);
    const bool settled = std::abs(next - fit.variance) < kPrecision * fit.variance;
    fit = {next, std::max(count, 1.0)};
    if (settled) break;
  }
  return fit;
}

}  // namespace

NearResiduals::NearResiduals(std::span<const double> all, std::span<const double> weights,
                             ResidualLaw law) {
  double outside = 0.0;
  for (std::size_t e = 0; e < all.size(); ++e) {
    if (all[e] < kWindow * kWindow) {
      squared.push_back(all[e]);
      weight.push_back(weights[e]);
      total += weights[e];
    } else if (all[e] >= kFirstWrong * kFirstWrong && all[e] < kLastWrong * kLastWrong) {
      outside += weights[e];
    }
  }
  density = std::max(outside / law.size_of_band(kFirstWrong, kLastWrong), kLeastDensity);
}

double density_of_wrong_edges(std::span<const double> squared, double first, double last,
                              double delta) {
  constexpr double kAssumed = 200.0;
  double near = 0.0, wrong = kAssumed;
  for (const double r2 : squared) {
    if (r2 <= first * first) continue;
    wrong += 1.0;
    near += r2 < last * last ? 1.0 : 0.0;
  }
  return (near / (last - first) + delta * kAssumed) / wrong;
}

double residual_spread(const NearResiduals& near, ResidualLaw law) {
  return std::sqrt(fit_noise(near, law, false).variance);
}

Noise estimate_noise(const NearResiduals& near, ResidualLaw law, int sample_size) {
  const Fit fit = fit_noise(near, law, true);
  const double freedom = std::max(fit.count - sample_size, 1.0);
  Noise noise;
  noise.scale = std::sqrt(std::min(fit.variance * fit.count / freedom, kMostVariance));
  noise.deviation = noise.scale / std::sqrt(2.0 * law.dimensions * freedom);
  return noise;
}

}  // namespace manymatch

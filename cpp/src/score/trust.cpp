#include "manymatch/score/trust.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace manymatch {

namespace {
// Largest factor by which a belief raises or lowers the prior of its edge.
constexpr double kMostBelief = 3.0;
}  // namespace

SourceTrust::SourceTrust(std::vector<int> source, std::vector<double> prior, int num_sources,
                         ResidualLaw law)
    : source_(std::move(source)),
      prior_(std::move(prior)),
      law_(law),
      total_(at(num_sources), 0.0),
      unit_(at(num_sources), 0.0),
      share_(at(num_sources), 0.0) {
  for (std::size_t e = 0; e < prior_.size(); ++e) {
    total_[at(source_[e])] += prior_[e];
    unit_[at(source_[e])] += prior_[e] * prior_[e];
  }
  for (std::size_t s = 0; s < unit_.size(); ++s) {
    if (total_[s] > 0.0) unit_[s] /= total_[s];
  }
}

void SourceTrust::look_at(MaskView inliers, std::span<const double> squared) {
  std::vector<double> near(total_.size(), 0.0), far(total_.size(), 0.0);
  for (std::size_t e = 0; e < prior_.size(); ++e) {
    const std::size_t s = at(source_[e]);
    if (inliers[e / 64] >> (e % 64) & 1U) {
      near[s] += prior_[e];
    } else if (squared[e] > kFirstWrong * kFirstWrong && squared[e] < kLastWrong * kLastWrong) {
      far[s] += prior_[e];
    }
  }
  for (std::size_t s = 0; s < share_.size(); ++s) {
    if (!(total_[s] > 0.0)) continue;
    const double chance = far[s] / law_.size_of_band(kFirstWrong, kLastWrong);
    const double deviation = std::sqrt(unit_[s] * std::max(chance, unit_[s]));
    share_[s] = std::max(share_[s], (near[s] - chance - kChanceDeviations * deviation) / total_[s]);
  }
}

std::vector<double> SourceTrust::factors() const {
  std::vector<double> kept_promise(share_.size(), 0.0);
  for (std::size_t s = 0; s < share_.size(); ++s) {
    if (unit_[s] > 0.0) kept_promise[s] = share_[s] / unit_[s];
  }
  const double largest = *std::max_element(kept_promise.begin(), kept_promise.end());
  std::vector<double> factors(share_.size(), 1.0);
  if (!(largest > 0.0)) return factors;
  for (std::size_t s = 0; s < factors.size(); ++s)
    factors[s] = factor_of(kept_promise[s] / largest);
  return factors;
}

std::vector<double> belief_factors(std::span<const double> belief, std::span<const int32_t> source,
                                   std::span<const int> considered) {
  std::vector<double> sum, count;
  const auto source_of = [&](std::size_t e) {
    return source.empty() ? std::size_t{0} : at(source[e]);
  };
  const auto room = [&](std::size_t s) {
    if (s >= sum.size()) {
      sum.resize(s + 1, 0.0);
      count.resize(s + 1, 0.0);
    }
  };
  for (std::size_t e = 0; e < belief.size(); ++e) room(source_of(e));
  for (int e : considered) {
    sum[source_of(at(e))] += belief[at(e)];
    count[source_of(at(e))] += 1.0;
  }
  std::vector<double> factors(belief.size(), 1.0);
  for (std::size_t e = 0; e < belief.size(); ++e) {
    const std::size_t s = source_of(e);
    if (!(count[s] > 0.0)) continue;
    factors[e] = std::clamp(belief[e] * count[s] / sum[s], 1.0 / kMostBelief, kMostBelief);
  }
  return factors;
}

}  // namespace manymatch

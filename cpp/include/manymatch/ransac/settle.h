// Settling, the last stage of method "auto": chooses among models that have about the same inliers.
//
// HCM and matchings count inliers and ignore the size of their residuals. If keypoints are precise,
// that loses accuracy: the model with the most inliers is often slightly off. Settling weighs an
// edge by its prior and by the likelihood of its residual under the noise of this pair. If
// residuals are spread evenly within the threshold, the weights are about those of
// DistinctSelection, and little changes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "manymatch/edge_sets.h"
#include "manymatch/interrupt.h"
#include "manymatch/ransac/problem.h"
#include "manymatch/ransac/sampler.h"
#include "manymatch/ransac/selection.h"
#include "manymatch/refine/refiner.h"
#include "manymatch/score/matching.h"
#include "manymatch/score/noise.h"
#include "manymatch/workers.h"

namespace manymatch {

// Where the edges of a graph come from, if there are several sources.
struct EdgeSources {
  std::vector<int> of;        // source of every edge; empty: there is one source
  std::vector<double> trust;  // factor of each source that the priors contain; empty: all 1
};

template <Problem P>
class Settlement {
 public:
  using Model = typename P::Model;
  using Supported = SupportedModel<Model>;

  // A model other than the best one. `advantage` is its support minus that of the best model, both
  // computed with `single_prior`. It is at most 0: the best model has the most support by `prior`,
  // so no other model is called likelier.
  struct Other : Supported {
    double advantage = 0.0;
  };

  // `prior` and `single_prior` have one entry per edge of the problem's graph. `single_prior`
  // ignores whether edges move like their neighbours: the motion filter may keep the edges of only
  // one of two good models, which would make a comparison of the two unfair. The scale of the noise
  // is at most `most_scale` thresholds: with more, residuals could not tell good models from bad.
  Settlement(const P& problem, const typename P::Data& data, std::vector<double> prior,
             const std::vector<double>& single_prior, double delta, double most_scale,
             uint64_t seed, Workers& workers, const typename P::Evidence* evidence = nullptr,
             EdgeSources sources = {})
      : problem_(problem),
        data_(data),
        prior_(std::move(prior)),
        delta_(delta),
        chance_(delta),
        most_scale_(most_scale),
        seed_(seed),
        workers_(workers),
        lanes_(problem, workers),
        evidence_(evidence),
        sources_(std::move(sources)),
        squared_(problem.graph().words() * 64),
        weight_(problem.graph().words() * 64, 0.0),
        mask_(problem.graph().words()),
        heaviest_at_(at(problem.graph().num0), 0.0) {
    const double largest = *std::max_element(prior_.begin(), prior_.end());
    for (std::size_t e = 0; e < prior_.size(); ++e) {
      const double p = prior_[e], single = single_prior[e];
      relative_prior_.push_back(p / largest);
      log_odds_.push_back(std::log(p / (1.0 - p)));
      single_log_odds_.push_back(std::log(single / (1.0 - single)));
      // A problem may raise priors to a power, because of the ranks. Trust in a source tells how
      // many of its edges are true, not how exact these are: it counts once.
      const double trust = sources_.trust.empty() ? 1.0 : sources_.trust[at(sources_.of[e])];
      polish_prior_.push_back(trust * P::polish_prior(p / trust, single / trust));
    }
  }

  // Replaces `model` by the model with the most support: itself, one of `refined`, or one from new
  // samples of edges near the best model.
  void run(Model& model, std::vector<Supported> refined, Interrupt& interrupt) {
    best_.model = model;
    look_at(model);
    if (evidence_) {
      for (Supported& other : refined) other.support += (*evidence_)(other.model);
    }
    sort_by_support(refined);
    if (refined.size() > P::kSettleMeasured) refined.resize(P::kSettleMeasured);
    for (Supported& other : refined) {
      measure(other.model);
      other.support = bound_of_measured() + besides_edges(other.model);
    }
    sort_by_support(refined);
    if (refined.size() > P::kSettleRefined) refined.resize(P::kSettleRefined);
    std::vector<Model> models;
    for (const Supported& other : refined) models.push_back(other.model);
    consider(std::move(models));
    look_at(best_.model);
    for (int round = 0; round < P::kSettleRounds && !interrupt.poll(); ++round) {
      explore(round);
      Model polished = best_.model;
      measure_sources(polished);
      for (int i = 0; i < kPolishes; ++i) polish(polished);
      look_at(polished);
    }
    P::conclude(*this);
    model = best_.model;
  }

  // Scale of the noise that the weights use: in thresholds, within bounds.
  double scale() const { return scale_; }
  // Noise of the keypoints, measured at the best model.
  const Noise& noise() const { return noise_; }
  double support() const { return best_.support; }

  // Up to kMostOthers distinct models besides the best one, likeliest first.
  std::vector<Other> others() {
    sort_by_support(others_);
    std::vector<Other> distinct;
    for (const Supported& other : others_) {
      const auto repeats = [&](const Supported& s) { return P::same(s.model, other.model); };
      if (distinct.size() == kMostOthers) break;
      if (!repeats(best_) && std::none_of(distinct.begin(), distinct.end(), repeats)) {
        distinct.push_back({{other.model, support_of(other.model)}});
      }
    }
    if (distinct.empty()) return distinct;
    log_odds_.swap(single_log_odds_);
    const double best = support_of(best_.model);
    for (Other& other : distinct) {
      other.advantage = std::min(0.0, support_of(other.model) - best);
    }
    log_odds_.swap(single_log_odds_);
    std::stable_sort(distinct.begin(), distinct.end(),
                     [](const Other& a, const Other& b) { return a.advantage > b.advantage; });
    return distinct;
  }

  // The following members are for P::conclude.
  const typename P::Data& data() const { return data_; }
  Supported& best() { return best_; }
  // All models that were polished and are not the best.
  const std::vector<Supported>& polished() const { return others_; }
  // Polishes each model under its own data (the same points) and measures its support under the
  // data of all.
  void polish_under(std::span<const typename P::Data> data, std::span<Supported> models) {
    workers_.run(static_cast<int>(models.size()), [&](int worker, int i) {
      const P problem(problem_.graph(), data[at(i)]);
      Refiner<P> refiner(problem, Weighting::kByDegree);
      for (const double reach : {P::kPolishReach, this->reach()}) {
        refiner.polish_with_priors(models[at(i)].model, reach, kTruncatedAt * scale_, prior_,
                                   lanes_[worker].space, Loss::kTruncated, kFirstSteps);
      }
    });
    for (Supported& model : models) model.support = support_of(model.model);
  }
  // Makes `model` the best one. The previous best joins the others.
  void replace_best(const Model& model) {
    others_.push_back(best_);
    look_at(model);
  }

 private:
  static constexpr std::size_t kMostOthers = 5;
  // Polishes of the best model per round, and models of new samples that are polished per round.
  static constexpr int kPolishes = 2;
  static constexpr std::size_t kPolished = 3;
  // Samples are drawn from edges within kSampledReach thresholds of the best model whose prior is
  // at least kLeastRelativePrior of the largest, and scored by edges within kScoredReach.
  static constexpr double kSampledReach = 5.0, kLeastRelativePrior = 0.25, kScoredReach = 6.0;
  // Steps of a quick polish, and of the polish of the best model. The loss of the quick one is
  // truncated at kTruncatedAt standard deviations of the noise.
  static constexpr int kFirstSteps = 8, kLastSteps = 10;
  static constexpr double kTruncatedAt = 2.0;
  // Smallest scale of the noise, as a share of the largest.
  static constexpr double kLeastScale = 0.1;
  // A polish uses edges within kPolishDeviations standard deviations of the noise, but at least
  // kLeastPolishReach and at most P::kPolishReach thresholds.
  static constexpr double kPolishDeviations = 3.0, kLeastPolishReach = 0.5;
  // Squared residual, in squared thresholds, that stands for an edge behind a camera.
  static constexpr double kBehind = 1e9;
  // The noise of a source with fewer residuals than this is mostly assumed, to be large.
  static constexpr double kFewResiduals = 20.0;
  // A polish by source computes weights kSourceWeights times, then takes kSourceSteps steps.
  static constexpr int kSourceWeights = 3, kSourceSteps = 6;
  // Below minus this log-odds the weight of an edge is 0, above plus this it is linear.
  static constexpr double kSoft = 2.5;

  static void sort_by_support(std::vector<Supported>& models) {
    std::stable_sort(models.begin(), models.end(),
                     [](const Supported& a, const Supported& b) { return a.support > b.support; });
  }

  static constexpr ResidualLaw law() { return {P::kResidualDimensions}; }

  // Computes the squared residuals of all edges in squared thresholds. Edges that cannot be inliers
  // at any distance, such as those behind a camera, get kBehind.
  void measure(const Model& model) {
    const double eps2 = problem_.eps() * problem_.eps();
    problem_.within(model, kBehind * eps2, mask_, squared_);
    for (std::size_t e = 0; e < problem_.graph().num_edges(); ++e) {
      const bool valid = mask_[e / 64] >> (e % 64) & 1U;
      squared_[e] = valid ? squared_[e] / eps2 : kBehind;
    }
    // Counts of wrong edges fluctuate; between models that are nearly the same they say nothing.
    const bool known = best_chance_ > 0.0 && P::same(model, best_.model);
    chance_ = known ? best_chance_ : P::chance_of_wrong_inlier(residuals(), delta_);
  }

  std::span<const double> residuals() const {
    return {squared_.data(), problem_.graph().num_edges()};
  }

  // Makes a model the best one, and measures the noise at it.
  void look_at(const Model& model) {
    measure(model);
    const NearResiduals near(residuals(), relative_prior_, law());
    const double spread = residual_spread(near, law());
    noise_ = estimate_noise(near, law(), P::kSampleSize);
    scale_ = std::clamp(spread, kLeastScale * most_scale_, most_scale_);
    best_ = {model, support_of_measured() + besides_edges(model)};
    best_chance_ = chance_;
  }

  // Polishes models quickly, then makes each the best one if it has more support. The truncated
  // loss saves the logarithm per edge and step of Cauchy's loss.
  void consider(std::vector<Model> models) {
    workers_.run(static_cast<int>(models.size()), [&](int worker, int i) {
      SelectionLane<P>& lane = lanes_[worker];
      lane.refiner.polish_with_priors(models[at(i)], reach(), kTruncatedAt * scale_, prior_,
                                      lane.space, Loss::kTruncated, kFirstSteps);
    });
    for (const Model& model : models) {
      measure(model);
      double support = bound_of_measured() + besides_edges(model);
      if (support > best_.support) support = support_of_measured() + besides_edges(model);
      others_.push_back({model, support});
      if (support > best_.support) {
        std::swap(best_, others_.back());
        best_chance_ = chance_;
      }
    }
  }

  void polish(Model& model) {
    if (!variance_.empty()) {
      polish_by_source(model);
      return;
    }
    SelectionLane<P>& lane = lanes_[0];
    lane.refiner.polish_with_priors(model, reach(), polish_scale(), polish_prior_, lane.space,
                                    Loss::kCauchy, kLastSteps);
  }

  // Sources differ in how exact their keypoints are: measures the noise of each at a model.
  void measure_sources(const Model& model) {
    variance_.clear();
    if (sources_.of.empty() || !P::kPolishByNoise) return;
    measure(model);
    const int last = *std::max_element(sources_.of.begin(), sources_.of.end());
    for (int s = 0; s <= last; ++s) {
      std::vector<double> squared, weight;
      for (std::size_t e = 0; e < sources_.of.size(); ++e) {
        if (sources_.of[e] != s) continue;
        squared.push_back(squared_[e]);
        weight.push_back(relative_prior_[e]);
      }
      const Noise noise =
          estimate_noise(NearResiduals(squared, weight, law()), law(), P::kSampleSize);
      // A mean of logarithms: the measured noise counts with its number of residuals, the largest
      // possible noise with kFewResiduals.
      const double share =
          noise.deviation * noise.deviation /
          (noise.deviation * noise.deviation + noise.scale * noise.scale / (2.0 * kFewResiduals));
      const double scale = std::pow(noise.scale, 1.0 - share) * std::pow(most_scale_, share);
      const double bounded = std::clamp(scale, kLeastScale * most_scale_, most_scale_);
      variance_.push_back(bounded * bounded);
    }
  }

  // A polish with Cauchy's loss at the noise s of each source, by the weights 1 / (s^2 + r^2).
  void polish_by_source(Model& model) {
    const double scale = polish_scale();
    std::vector<double> factor(sources_.of.size());
    for (int i = 0; i < kSourceWeights; ++i) {
      measure(model);
      for (std::size_t e = 0; e < factor.size(); ++e) {
        factor[e] = scale * scale / (variance_[at(sources_.of[e])] + squared_[e]);
      }
      SelectionLane<P>& lane = lanes_[0];
      lane.refiner.polish_with_priors(model, reach(), kTruncatedAt * scale, polish_prior_,
                                      lane.space, Loss::kSquared, kSourceSteps, factor);
    }
  }

  // Scale of Cauchy's loss: the noise of the keypoints, within bounds.
  double polish_scale() const {
    const double most = std::min(most_scale_, P::kPolishScale);
    if constexpr (!P::kPolishByNoise) return most;
    return std::clamp(noise_.scale, kLeastScale * most_scale_, most);
  }

  double reach() const {
    if constexpr (!P::kPolishByNoise) return P::kPolishReach;
    return std::clamp(kPolishDeviations * scale_, kLeastPolishReach, P::kPolishReach);
  }

  double support_of(const Model& model) {
    measure(model);
    return support_of_measured() + besides_edges(model);
  }

  double besides_edges(const Model& model) const {
    return problem_.log_prior(model) + (evidence_ ? (*evidence_)(model) : 0.0);
  }

  // Weight of an edge with log-odds x: approximates log(1 + exp(x)) piecewise, without a
  // transcendental function.
  static double soft(double x) {
    return x >= kSoft ? x : x > -kSoft ? (x + kSoft) * (x + kSoft) / (4.0 * kSoft) : 0.0;
  }

  // Weight of the heaviest matching of the edges near the measured model.
  double support_of_measured() {
    bound_of_measured();
    double total = 0.0;
    for (int64_t e : heaviest_matching(problem_.graph(), mask_, weight_)) {
      total += weight_[static_cast<std::size_t>(e)];
    }
    return total;
  }

  // An upper bound of that weight: the sum of the heaviest edge at every left vertex. Fills mask_
  // and weight_.
  double bound_of_measured() {
    const Graph& graph = problem_.graph();
    const double scale = P::support_scale(scale_);
    const double peak = std::log(law().peak(scale) / chance_), slope = 0.5 / (scale * scale);
    std::fill(mask_.begin(), mask_.end(), 0);
    double bound = 0.0;
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      weight_[e] = soft(log_odds_[e] + peak - slope * squared_[e]);
      if (!(weight_[e] > 0.0)) continue;
      set_bit(mask_, static_cast<int>(e));
      double& heaviest = heaviest_at_[at(graph.left[e])];
      bound += std::max(weight_[e] - heaviest, 0.0);
      heaviest = std::max(heaviest, weight_[e]);
    }
    for_each_bit(mask_, [&](int e) { heaviest_at_[at(graph.left[at(e)])] = 0.0; });
    return bound;
  }

  // Draws new samples from edges near the best model, and polishes the best of their models.
  void explore(int round) {
    const Graph& graph = problem_.graph();
    measure(best_.model);
    const double chance = chance_;
    std::vector<int> scored, sampled;
    for (std::size_t e = 0; e < graph.num_edges(); ++e) {
      if (!(squared_[e] < kScoredReach * kScoredReach)) continue;
      if (squared_[e] < kSampledReach * kSampledReach &&
          relative_prior_[e] >= kLeastRelativePrior) {
        sampled.push_back(static_cast<int>(scored.size()));
      }
      scored.push_back(static_cast<int>(e));
    }
    const Subgraph part(graph, std::move(scored));
    if (matching_of_edges(part.graph, sampled) <= P::kSampleSize) return;
    const typename P::Data data = P::data_near(data_, best_.model, round);
    const P problem(part.graph, data);
    const std::vector<Supported> found = sample(problem, part, sampled, chance, round);
    std::vector<Model> chosen;
    for (const Supported& raw : found) {
      if (chosen.size() == kPolished + P::kOtherPolished) break;
      const auto apart = [&](const Model& other) { return P::starts_apart(raw.model, other); };
      if (chosen.size() < kPolished ||
          (apart(best_.model) && std::all_of(chosen.begin() + kPolished, chosen.end(), apart))) {
        chosen.push_back(raw.model);
      }
    }
    consider(std::move(chosen));
  }

  // Models of new samples, best first by a quick score: the sum over the edges of the share of an
  // edge in the priors at its vertices, times its log-odds if they are positive.
  std::vector<Supported> sample(const P& problem, const Subgraph& part,
                                const std::vector<int>& sampled, double chance, int round) {
    constexpr int m = P::kSampleSize;
    const Graph& graph = part.graph;
    const std::size_t edges = graph.num_edges();
    std::vector<double> mass0(at(graph.num0), 0.0), mass1(at(graph.num1), 0.0);
    for (std::size_t e = 0; e < edges; ++e) {
      mass0[at(graph.left[e])] += prior_[at(part.edges[e])];
      mass1[at(graph.right[e])] += prior_[at(part.edges[e])];
    }
    // Padded to whole words like the residuals; the padding adds nothing.
    const std::size_t padded = graph.words() * 64;
    std::vector<double> top(padded, 0.0), share(padded, 0.0);
    const double unit = problem.eps() * scale_, peak = std::log(law().peak(scale_) / chance);
    const double slope = 0.5 / (unit * unit);
    for (std::size_t e = 0; e < edges; ++e) {
      const double p = prior_[at(part.edges[e])];
      top[e] = log_odds_[at(part.edges[e])] + peak;
      share[e] = p / mass0[at(graph.left[e])] + p / mass1[at(graph.right[e])];
    }
    const ConstrainedSampler sampler(graph, sampled);
    constexpr int kBatches = (P::kSettleSamples + kBatch - 1) / kBatch;
    std::vector<Supported> by_batch[kBatches];
    workers_.run(kBatches, [&](int worker, int batch) {
      SamplerScratch scratch;
      sampler.prepare(scratch);
      Mask mask(graph.words());
      std::vector<double> squared(padded);
      std::vector<int> drawn(at(kBatch * m));
      Solutions<Model> solutions;
      int count = 0;
      for (int i = batch * kBatch; i < (batch + 1) * kBatch; ++i) {
        Rng rng(seed_, static_cast<uint64_t>(round * P::kSettleSamples + i), Rng::kNearSample);
        int64_t wasted = 0;
        const std::span<int> next = std::span(drawn).subspan(at(count * m), m);
        if (sampler.draw(rng, scratch, next, &wasted)) ++count;
      }
      if (count == 0) return;
      problem.solve(std::span(drawn).first(at(count * m)), lanes_[worker].space, solutions);
      for (const Model& model : solutions.models) {
        problem.within(model, 0.0, mask, squared);  // residuals only: nothing is below zero
        // Fixed lanes, which the compiler can vectorise: the sum is the same for any vector width.
        constexpr std::size_t kLanes = 8;
        double lane[kLanes] = {};
        for (std::size_t e = 0; e < top.size(); e += kLanes) {
          for (std::size_t i = 0; i < kLanes; ++i) {
            const double left = top[e + i] - slope * squared[e + i];
            lane[i] += share[e + i] * (left > 0.0 ? left : 0.0);
          }
        }
        by_batch[batch].push_back({model, std::accumulate(lane, lane + kLanes, 0.0)});
      }
    });
    std::vector<Supported> found;
    for (const auto& of_batch : by_batch) {
      found.insert(found.end(), of_batch.begin(), of_batch.end());
    }
    sort_by_support(found);
    return found;
  }

  const P& problem_;
  const typename P::Data& data_;
  const std::vector<double> prior_;
  std::vector<double> relative_prior_, polish_prior_, log_odds_, single_log_odds_;
  const double delta_;
  double chance_;             // probability that a wrong edge is an inlier of the measured model
  double best_chance_ = 0.0;  // the same of the best model; 0: there is none yet
  const double most_scale_;
  const uint64_t seed_;
  Workers& workers_;
  SelectionLanes<P> lanes_;
  const typename P::Evidence* evidence_;
  const EdgeSources sources_;
  std::vector<double> variance_;  // of the noise of each source; empty: one for all
  std::vector<double> squared_, weight_;
  Mask mask_;
  std::vector<double> heaviest_at_;  // heaviest edge at each left vertex, zero between calls
  Noise noise_;
  double scale_ = 1.0;  // scale of the noise, within its bounds
  Supported best_{};
  std::vector<Supported> others_;
};

}  // namespace manymatch

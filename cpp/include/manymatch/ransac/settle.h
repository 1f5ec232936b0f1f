// The last stage of method "auto": which pose, exactly, among those that have about the same
// support.
//
// HCM and matchings count inliers; how large their residuals are does not matter to them. Where
// keypoints are precise, that loses accuracy: the best count is often a little beside the pose.
// Here an edge counts by its prior and by the likelihood of its residual under the noise of this
// pair. A residual that is spread evenly within the threshold gives the weights of
// DistinctSelection, so that little changes where the noise fills the band.
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

namespace manymatch {

template <Problem P>
class Settlement {
 public:
  using Model = typename P::Model;
  using Supported = SupportedModel<Model>;

  // A model other than the best, and how much more speaks for it than for the best by the priors
  // that single edges have.
  struct Other : Supported {
    double advantage = 0.0;
  };

  // `prior` and `single_prior` have one entry per edge of the problem's graph. The latter says
  // nothing of edges that agree with each other: that is evidence for each of two models whose
  // edges do, and a filter by it keeps those of one. The scale of the noise is bounded by
  // `most_scale` thresholds: with more, residuals could no longer tell a better model from a worse.
  Settlement(const P& problem, const typename P::Data& data, std::vector<double> prior,
             const std::vector<double>& single_prior, double delta, double most_scale,
             uint64_t seed)
      : problem_(problem),
        data_(data),
        prior_(std::move(prior)),
        delta_(delta),
        chance_(delta),
        most_scale_(most_scale),
        seed_(seed),
        space_(problem.workspace()),
        refiner_(problem, Weighting::kByDegree),
        squared_(problem.graph().words() * 64),
        weight_(problem.graph().words() * 64, 0.0),
        mask_(problem.graph().words()),
        heaviest_at_(at(problem.graph().num0), 0.0) {
    const double largest = *std::max_element(prior_.begin(), prior_.end());
    for (double p : prior_) {
      relative_prior_.push_back(p / largest);
      log_odds_.push_back(std::log(p / (1.0 - p)));
      polish_prior_.push_back(prior_in_polish(p));
    }
    for (double p : single_prior) single_log_odds_.push_back(std::log(p / (1.0 - p)));
  }

  // Moves `model` to the best supported pose among itself, the `refined` ones, and new ones from
  // samples close to the best.
  void run(Model& model, std::vector<Supported> refined, Interrupt& interrupt) {
    best_.model = model;
    look_at(model);
    sort_by_support(refined);
    if (refined.size() > most_measured()) refined.resize(most_measured());
    for (Supported& other : refined) {
      measure(other.model);
      other.support = bound_of_measured() + log_prior(other.model);
    }
    sort_by_support(refined);
    if (refined.size() > most_refined()) refined.resize(most_refined());
    for (Supported& other : refined) consider(other.model);
    look_at(best_.model);
    for (int round = 0; round < rounds() && !interrupt.poll(); ++round) {
      explore(round);
      Model polished = best_.model;
      for (int i = 0; i < kPolishes; ++i) polish(polished);
      look_at(polished);
    }
    if constexpr (requires { P::kRivals; }) take_least_expected_loss();
    model = best_.model;
  }

  // Of the noise, in thresholds and within its bounds.
  double scale() const { return scale_; }
  // Of the keypoints, by the best model.
  const Noise& noise() const { return noise_; }
  double support() const { return best_.support; }

  // Other models than the best one, likeliest first.
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
    for (Other& other : distinct) other.advantage = support_of(other.model) - best;
    log_odds_.swap(single_log_odds_);
    std::stable_sort(distinct.begin(), distinct.end(),
                     [](const Other& a, const Other& b) { return a.advantage > b.advantage; });
    return distinct;
  }

 private:
  // Of the refined models of the selection, so many of the largest support are looked at.
  static constexpr std::size_t kMostMeasured = 10, kMostRefined = 5;
  // So many times as many where the selection did not know the chance of a model.
  static constexpr std::size_t kMoreByChance = 5;
  // Edges of the band between these distances, in thresholds, and all beyond the first of them are
  // wrong. So many edges with the chance that is assumed without them are added: few edges say
  // little.
  static constexpr double kFirstWrong = 6.0, kLastWrong = 16.0, kAssumedWrong = 200.0;
  static constexpr std::size_t kMostOthers = 5;
  // Rounds of new samples, samples of each, and how many of their models are polished: of the best
  // ones, and of the best that are other poses than the best so far.
  static constexpr int kRounds = 2, kSamples = 128, kPolishes = 2;
  static constexpr std::size_t kPolished = 3, kOtherPolished = 2;
  // Samples are drawn from edges up to so many thresholds from the best model, of priors not far
  // below the largest, and scored by edges a little farther.
  static constexpr double kSampledReach = 5.0, kLeastRelativePrior = 0.25, kScoredReach = 6.0;
  // Steps of the polish of a model that is looked at, whose loss ends at so many standard
  // deviations of the noise, and of the best.
  static constexpr int kFirstSteps = 8, kLastSteps = 25;
  static constexpr double kTruncatedAt = 2.0;
  // Least scale of the noise over the largest.
  static constexpr double kLeastScale = 0.1;
  // A polish takes edges up to so many standard deviations of the noise away, within bounds in
  // thresholds.
  static constexpr double kPolishDeviations = 3.0, kLeastPolishReach = 0.5;
  // Of an edge behind a camera, squared.
  static constexpr double kBehind = 1e9;
  // A rival that is less likely than this share of the likeliest is not taken.
  static constexpr double kLeastWeight = 1e-3;
  // Log-odds between which a weight is curved.
  static constexpr double kSoft = 2.5;

  static void sort_by_support(std::vector<Supported>& models) {
    std::stable_sort(models.begin(), models.end(),
                     [](const Supported& a, const Supported& b) { return a.support > b.support; });
  }

  static constexpr ResidualLaw law() { return {P::kResidualDimensions}; }

  // Squared residuals of all edges, in squared thresholds; edges that no distance could make
  // inliers, such as those behind a camera, are far away.
  void measure(const Model& model) {
    const double eps2 = problem_.eps() * problem_.eps();
    problem_.inliers(model, mask_, squared_);
    problem_.within(model, kBehind * eps2, mask_);
    for (std::size_t e = 0; e < problem_.graph().num_edges(); ++e) {
      const bool valid = mask_[e / 64] >> (e % 64) & 1U;
      squared_[e] = valid ? squared_[e] / eps2 : kBehind;
    }
    if constexpr (measures_chance()) chance_ = chance_of_measured();
  }

  // Chance that a wrong edge is within the threshold of the measured model, in place of delta.
  // Similar structures in a row have wrong edges along it, and a matrix whose epipolar lines run
  // that way has many of them: more of them then are close to the threshold, too. Right edges with
  // a neighbour in place of their own keypoint are there as well, whatever the model, so that what
  // is counted is too much; the geometric mean with delta is taken.
  double chance_of_measured() const {
    double near = delta_ * kAssumedWrong, wrong = kAssumedWrong;
    for (std::size_t e = 0; e < problem_.graph().num_edges(); ++e) {
      if (squared_[e] <= kFirstWrong * kFirstWrong) continue;
      wrong += 1.0;
      if (squared_[e] < kLastWrong * kLastWrong) near += 1.0 / (kLastWrong - kFirstWrong);
    }
    return std::max(delta_, std::sqrt(delta_ * near / wrong));
  }

  // Takes a model as the best, with the noise that it shows.
  void look_at(const Model& model) {
    measure(model);
    const std::span<const double> all(squared_.data(), problem_.graph().num_edges());
    const NearResiduals near(all, relative_prior_, law());
    const double spread = residual_spread(near, law());
    noise_ = estimate_noise(near, law(), P::kSampleSize);
    scale_ = std::clamp(spread, kLeastScale * most_scale_, most_scale_);
    best_ = {model, support_of_measured() + log_prior(model)};
  }

  // Polishes a model and takes it if it has more support than the best.
  void consider(Model& model) {
    approach(model);
    measure(model);
    double support = bound_of_measured() + log_prior(model);
    if (support > best_.support) support = support_of_measured() + log_prior(model);
    others_.push_back({model, support});
    if (support > best_.support) std::swap(best_, others_.back());
  }

  void polish(Model& model) {
    refiner_.polish_with_priors(model, reach(), polish_scale(), polish_prior_, space_,
                                Loss::kCauchy, kLastSteps);
  }

  // A quick polish: Cauchy's loss needs a logarithm per edge and step.
  void approach(Model& model) {
    refiner_.polish_with_priors(model, reach(), kTruncatedAt * scale_, prior_, space_,
                                Loss::kTruncated, kFirstSteps);
  }

  // Where keypoints are precise, at their noise.
  double polish_scale() const {
    const double most = std::min(most_scale_, P::kPolishScale);
    return std::clamp(noise_.scale, kLeastScale * most_scale_, most);
  }

  double reach() const {
    return std::clamp(kPolishDeviations * scale_, kLeastPolishReach, P::kPolishReach);
  }

  double support_of(const Model& model) {
    measure(model);
    return support_of_measured() + log_prior(model);
  }

  // Where the problem has one.
  double log_prior(const Model& model) const {
    if constexpr (requires { problem_.log_prior(model); }) {
      return problem_.log_prior(model);
    } else {
      return 0.0;
    }
  }

  // A problem may want more.
  static constexpr int rounds() {
    if constexpr (requires { P::kSettleRounds; }) {
      return P::kSettleRounds;
    } else {
      return kRounds;
    }
  }
  static constexpr int samples() {
    if constexpr (requires { P::kSettleSamples; }) {
      return P::kSettleSamples;
    } else {
      return kSamples;
    }
  }
  static constexpr bool measures_chance() {
    if constexpr (requires { P::kMeasuresChance; }) {
      return P::kMeasuresChance;
    } else {
      return false;
    }
  }
  static constexpr std::size_t most_measured() {
    return measures_chance() ? kMoreByChance * kMostMeasured : kMostMeasured;
  }
  static constexpr std::size_t most_refined() {
    return measures_chance() ? kMoreByChance * kMostRefined : kMostRefined;
  }
  static double prior_in_polish(double prior) {
    if constexpr (requires { P::kPolishPriorPower; }) {
      return std::pow(prior, P::kPolishPriorPower);
    } else {
      return prior;
    }
  }
  static constexpr std::size_t most_others_polished() {
    if constexpr (requires { P::kOtherPolished; }) {
      return P::kOtherPolished;
    } else {
      return kOtherPolished;
    }
  }

  // What samples are drawn with in a round. The samples of a problem with more parameters than they
  // determine draw the rest: in the last rounds close to the best model.
  typename P::Data data_of(int round) const {
    if constexpr (requires { data_.near(best_.model, round); }) {
      return data_.near(best_.model, round);
    } else {
      return data_;
    }
  }

  // Whether a model of a sample may lead elsewhere than another one.
  static bool starts_apart(const Model& a, const Model& b) {
    if constexpr (requires { P::starts_apart(a, b); }) {
      return P::starts_apart(a, b);
    } else {
      return P::apart(a, b);
    }
  }

  // About log(1 + exp(x)), the weight of an edge with the log-odds x: by parts, which takes no
  // transcendental function.
  static double soft(double x) {
    return x >= kSoft ? x : x > -kSoft ? (x + kSoft) * (x + kSoft) / (4.0 * kSoft) : 0.0;
  }

  // Weight of the heaviest matching of the edges around the measured model.
  double support_of_measured() {
    bound_of_measured();
    double total = 0.0;
    for (int64_t e : heaviest_matching(problem_.graph(), mask_, weight_)) {
      total += weight_[static_cast<std::size_t>(e)];
    }
    return total;
  }

  // An upper bound of it: the heaviest edge at every left vertex. Fills mask_ and weight_.
  double bound_of_measured() {
    const Graph& graph = problem_.graph();
    const double peak = std::log(law().peak(scale_) / chance_), slope = 0.5 / (scale_ * scale_);
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

  // For a problem with a parameter that the edges hardly tell: the support of models with that
  // parameter held at values all over its prior says how likely each is, and of these and the best
  // the model with the least expected loss is taken. The most supported one is often the end of a
  // flat valley.
  void take_least_expected_loss() {
    std::vector<Supported> rivals{best_};
    for (int k = 0; k < P::kRivals; ++k) {
      const typename P::Data held = data_.held(k, best_.model);
      // From where what is known of the support is largest, less what the way may cost.
      const Supported* from = &best_;
      double most = best_.support - held.way(best_.model);
      for (const Supported& other : others_) {
        const double there = other.support - held.way(other.model);
        if (there > most) {
          most = there;
          from = &other;
        }
      }
      Model model = from->model;
      held.hold(model);
      const P problem(problem_.graph(), held);
      Refiner<P> refiner(problem, Weighting::kByDegree);
      refiner.polish_with_priors(model, P::kPolishReach, kTruncatedAt * scale_, prior_, space_,
                                 Loss::kTruncated, kFirstSteps);
      refiner.polish_with_priors(model, reach(), kTruncatedAt * scale_, prior_, space_,
                                 Loss::kTruncated, kFirstSteps);
      rivals.push_back({model, support_of(model)});
    }
    std::vector<double> weight;
    for (const Supported& rival : rivals) {
      weight.push_back(P::log_probability(rival.support));
    }
    const double largest = *std::max_element(weight.begin(), weight.end());
    for (double& w : weight) w = std::exp(w - largest);
    std::size_t chosen = 0;
    double least = 0.0;
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      // Far from the best parameter a pose may not have moved: as near as the best, without edges.
      if (i != 0 && weight[i] < kLeastWeight) continue;
      double loss = 0.0;
      for (std::size_t j = 0; j < rivals.size(); ++j) {
        loss += weight[j] * P::loss(rivals[i].model, rivals[j].model);
      }
      if (i == 0 || loss < least) {
        chosen = i;
        least = loss;
      }
    }
    if (chosen != 0) {
      others_.push_back(best_);
      look_at(rivals[chosen].model);
    }
    P::note_spread(best_.model, rivals);
  }

  // Samples anew among the edges that the best model nearly explains.
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
    const typename P::Data data = data_of(round);
    const P problem(part.graph, data);
    const std::vector<Supported> found = sample(problem, part, sampled, chance, round);
    std::size_t polished = 0;
    std::vector<Model> others;
    const Model before = best_.model;
    for (const Supported& raw : found) {
      if (polished < kPolished) {
        ++polished;
      } else if (others.size() == most_others_polished()) {
        break;
      } else if (std::all_of(others.begin(), others.end(),
                             [&](const Model& other) { return starts_apart(raw.model, other); }) &&
                 starts_apart(raw.model, before)) {
        others.push_back(raw.model);
      } else {
        continue;
      }
      Model model = raw.model;
      consider(model);
    }
  }

  // Models of new samples, best first, by a quick score: every edge adds its share of the priors at
  // its vertices, times what is left of the logarithm of its odds.
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
    // Padded to whole words, as the residuals are; what is beyond the edges adds nothing.
    const std::size_t padded = graph.words() * 64;
    std::vector<double> top(padded, 0.0), share(padded, 0.0), squared(padded);
    for (std::size_t e = 0; e < edges; ++e) {
      const double p = prior_[at(part.edges[e])];
      top[e] = log_odds_[at(part.edges[e])] + std::log(law().peak(scale_) / chance);
      share[e] = p / mass0[at(graph.left[e])] + p / mass1[at(graph.right[e])];
    }
    const double unit = problem.eps() * scale_;
    const double slope = 0.5 / (unit * unit);
    const ConstrainedSampler sampler(graph, sampled);
    SamplerScratch scratch;
    sampler.prepare(scratch);
    Mask mask(graph.words());
    std::vector<int> drawn(at(kBatch * m));
    Solutions<Model> solutions;
    std::vector<Supported> found;
    for (int first = 0; first < samples(); first += kBatch) {
      int count = 0;
      for (int i = first; i < first + kBatch; ++i) {
        Rng rng(seed_, static_cast<uint64_t>(round * samples() + i), Rng::kNearSample);
        int64_t wasted = 0;
        const std::span<int> next = std::span(drawn).subspan(at(count * m), m);
        if (sampler.draw(rng, scratch, next, &wasted)) ++count;
      }
      if (count == 0) continue;
      problem.solve(std::span(drawn).first(at(count * m)), space_, solutions);
      for (const Model& model : solutions.models) {
        problem.inliers(model, mask, squared);
        // In lanes that a compiler can put into vectors, with one result whatever their width.
        constexpr std::size_t kLanes = 8;
        double lane[kLanes] = {};
        for (std::size_t e = 0; e < top.size(); e += kLanes) {
          for (std::size_t i = 0; i < kLanes; ++i) {
            const double left = top[e + i] - slope * squared[e + i];
            lane[i] += share[e + i] * (left > 0.0 ? left : 0.0);
          }
        }
        found.push_back({model, std::accumulate(lane, lane + kLanes, 0.0)});
      }
    }
    sort_by_support(found);
    return found;
  }

  const P& problem_;
  const typename P::Data& data_;
  const std::vector<double> prior_;
  std::vector<double> relative_prior_, polish_prior_, log_odds_, single_log_odds_;
  const double delta_;
  double chance_;  // that a wrong edge is within the threshold of the measured model
  const double most_scale_;
  const uint64_t seed_;
  typename P::Workspace space_;
  Refiner<P> refiner_;
  std::vector<double> squared_, weight_;
  Mask mask_;
  std::vector<double> heaviest_at_;  // heaviest edge at each left vertex, zero between calls
  Noise noise_;
  double scale_ = 1.0;  // of the noise, within its bounds
  Supported best_{};
  std::vector<Supported> others_;
};

}  // namespace manymatch

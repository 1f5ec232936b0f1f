#include "manymatch/problems/rigid/evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "manymatch/rng.h"

namespace manymatch {

namespace {

// A graph whose points nearly all have an edge holds matches, not clouds.
constexpr double kLeastUnmatched = 0.1;
// The edges leave no doubt if the second-best transform has less than kDoubt of the support of the
// best, and the inliers of the best cover at least kCovered of the points of the smaller cloud.
constexpr double kDoubt = 0.5, kCovered = 0.08;
// Points closer than this, in thresholds, are near each other however dense the clouds are: the
// threshold is about three deviations of the noise.
constexpr double kLeastRadius = 1.0 / 3.0;
// First edges of samples: at most, and to measure the overlap of wrong transforms. Samples of
// similarities are worse, so that more are needed.
constexpr int kFirstEdges = 160;
template <bool kFreeScale>
constexpr int kFirstEdgesOfChance = kFreeScale ? 32 : 24;
// In a small graph the number of first edges is the number of edges divided by this.
constexpr std::size_t kEdgesPerFirst = 24;
// Of the edges that agree with the first one kSeconds are drawn, and kPartners to compare them
// with. Those kKept of them that agree with the most partners make kTriples samples each.
constexpr std::size_t kSeconds = 32, kPartners = 64, kKept = 4, kTriples = 2;
// Points of each cloud that are looked up to sort out samples, and to measure the chance.
constexpr std::size_t kFewPoints = 64, kMorePoints = 128;
// Samples whose overlap is measured with all points, and models that are returned.
template <bool kFreeScale>
constexpr std::size_t kMeasured = kFreeScale ? 48 : 40;
constexpr std::size_t kReturned = 8;
// Shares that tell the law of the largest ones.
constexpr std::size_t kTail = 32;
// Most returned models that are about the same before they are refined.
constexpr std::size_t kMostAlike = 3;
// The search ends if the best model has this evidence.
constexpr double kEnoughNats = 16.0;
// Fewest shares that tell the law of the largest ones; the smallest mean excess of these.
constexpr std::size_t kLeastTail = 8;
constexpr double kLeastExcess = 2e-3;

double share_of_unmatched(const std::vector<int>& ends, int vertices) {
  std::vector<uint8_t> seen(at(vertices), 0);
  for (int v : ends) seen[at(v)] = 1;
  const auto none = std::count(seen.begin(), seen.end(), 0);
  return static_cast<double>(none) / std::max(vertices, 1);
}

bool holds_clouds(const Graph& graph) {
  return std::max(share_of_unmatched(graph.left, graph.num0),
                  share_of_unmatched(graph.right, graph.num1)) >= kLeastUnmatched;
}

// The points that have an inlier, relative to the number of points of the smaller cloud.
template <class P>
double covered(const P& problem, const typename P::Model& model) {
  const Graph& graph = problem.graph();
  Mask mask(graph.words());
  problem.inliers(model, mask, {});
  std::vector<uint8_t> seen0(at(graph.num0), 0), seen1(at(graph.num1), 0);
  for_each_bit(mask,
               [&](int e) { seen0[at(graph.left[at(e)])] = seen1[at(graph.right[at(e)])] = 1; });
  const auto points = std::min(std::count(seen0.begin(), seen0.end(), 1),
                               std::count(seen1.begin(), seen1.end(), 1));
  return static_cast<double>(points) / std::max(std::min(graph.num0, graph.num1), 1);
}

// The ends of the partners of one sample, by columns.
struct Partners {
  std::array<float, kPartners> x0, y0, z0, x1, y1, z1;

  void set(std::size_t i, const SpaceEdges& edges, std::size_t e) {
    x0[i] = edges.x0f[e];
    y0[i] = edges.y0f[e];
    z0[i] = edges.z0f[e];
    x1[i] = edges.x1f[e];
    y1[i] = edges.y1f[e];
    z1[i] = edges.z1f[e];
  }
  // Which of them agree with an edge: the lengths of the differences do, and are not too short.
  int agreeing(const SpaceEdges& edges, std::size_t e, const PairLimits& limits,
               std::array<uint8_t, kPartners>& agrees) const {
    const float a0 = edges.x0f[e], b0 = edges.y0f[e], c0 = edges.z0f[e];
    const float a1 = edges.x1f[e], b1 = edges.y1f[e], c1 = edges.z1f[e];
    const float tolerance2 = static_cast<float>(limits.tolerance2);
    const float least2 = static_cast<float>(limits.least2);
    int count = 0;
    for (std::size_t i = 0; i < kPartners; ++i) {
      const float p0 = x0[i] - a0, q0 = y0[i] - b0, r0 = z0[i] - c0;
      const float p1 = x1[i] - a1, q1 = y1[i] - b1, r1 = z1[i] - c1;
      const float l0 = p0 * p0 + q0 * q0 + r0 * r0, l1 = p1 * p1 + q1 * q1 + r1 * r1;
      const float sum = l0 + l1 - tolerance2;
      // |sqrt(l0) - sqrt(l1)| < tolerance, without roots.
      const int close = (sum < 0.0F) | (sum * sum < 4.0F * l0 * l1);
      const int apart = (l0 >= least2) & (l1 >= least2);
      agrees[i] = static_cast<uint8_t>(close & apart);
      count += agrees[i];
    }
    return count;
  }
};

// The transform followed by half a turn about the line through the partners of two points of its
// sample. Where the sample is, the surfaces still touch; otherwise the transform is wrong.
template <class Model>
Model half_turned(const Model& model, const SpaceEdges& edges, std::size_t a, std::size_t b) {
  const double line[3] = {edges.x1[b] - edges.x1[a], edges.y1[b] - edges.y1[a],
                          edges.z1[b] - edges.z1[a]};
  const double on[3] = {edges.x1[a], edges.y1[a], edges.z1[a]};
  const double norm2 = line[0] * line[0] + line[1] * line[1] + line[2] * line[2];
  Model out = model;
  const auto turn = [&](const double* v, double* w) {
    const double along = 2.0 * (line[0] * v[0] + line[1] * v[1] + line[2] * v[2]) / norm2;
    for (int i = 0; i < 3; ++i) w[i] = along * line[i] - v[i];
  };
  for (int c = 0; c < 3; ++c) {
    const double column[3] = {model.A[c], model.A[3 + c], model.A[6 + c]};
    double turned[3];
    turn(column, turned);
    for (int i = 0; i < 3; ++i) out.A[3 * i + c] = turned[i];
  }
  const double away[3] = {model.t[0] - on[0], model.t[1] - on[1], model.t[2] - on[2]};
  turn(away, out.t);
  for (int i = 0; i < 3; ++i) out.t[i] += on[i];
  return out;
}

// The law of a few shares, of which the larger quarter is looked at.
ShareOfWrong law_of(std::vector<double> shares) {
  double sum = 0.0;
  for (double s : shares) sum += s;
  const std::size_t all = shares.size();
  std::sort(shares.begin(), shares.end(), std::greater<>());
  shares.resize(std::min(all, std::max(all / 4, kLeastTail)));
  return {shares, all, sum / static_cast<double>(all)};
}

}  // namespace

ShareOfWrong::ShareOfWrong(std::span<const double> largest, std::size_t all, double mean)
    : mean_(mean) {
  if (largest.size() < kLeastTail) return;
  start_ = *std::min_element(largest.begin(), largest.end());
  const double count = static_cast<double>(largest.size());
  nats_ = std::log(static_cast<double>(all) / count);
  double excess = 0.0;
  for (double share : largest) excess += share - start_;
  // One point more or less says little.
  slope_ = 1.0 / std::max(excess / (count - 1.0), kLeastExcess);
  start_ = std::max(start_, mean_ + kLeastExcess);
}

template <bool kFreeScale>
OverlapEvidence<kFreeScale>::OverlapEvidence(const P& problem, const VertexPoints& points,
                                             const Graph& whole)
    : problem_(problem),
      points_(points),
      holds_clouds_(holds_clouds(whole)),
      row_(problem.graph().words()) {}

// Draws samples that have one first edge in common, and solves them.
template <bool kFreeScale>
bool OverlapEvidence<kFreeScale>::sample(uint64_t seed, int number, typename P::Workspace& space) {
  const SpaceEdges& edges = problem_.arrays();
  const PairLimits limits = P::pair_limits(problem_.eps());
  Rng rng(seed, static_cast<uint64_t>(number), Rng::kAgreeing);
  const auto below = [&](std::size_t n) { return rng.below(static_cast<uint32_t>(n)); };
  samples_.clear();
  if constexpr (kFreeScale) {
    // Lengths change, so that two edges tell nothing. Most samples have no transform.
    for (int i = 0; i < 3 * kBatch; ++i) {
      samples_.push_back(static_cast<int>(below(problem_.graph().num_edges())));
    }
    problem_.solve(samples_, space, solutions_);
    return !solutions_.models.empty();
  }
  const int first = static_cast<int>(below(problem_.graph().num_edges()));
  kernels<RigidKernels>().consistent(edges, at(first), limits, row_.data());
  agreeing_.clear();
  for_each_bit(row_, [&](int e) { agreeing_.push_back(e); });
  if (agreeing_.size() < 2) return false;
  std::array<int, kPartners> partner;
  Partners columns;
  for (std::size_t i = 0; i < kPartners; ++i) {
    partner[i] = agreeing_[below(agreeing_.size())];
    columns.set(i, edges, at(partner[i]));
  }
  std::array<uint8_t, kPartners> agrees;
  std::array<std::pair<int, int>, kSeconds> seconds;  // count of agreeing partners, edge
  for (auto& [count, edge] : seconds) {
    edge = agreeing_[below(agreeing_.size())];
    count = columns.agreeing(edges, at(edge), limits, agrees);
  }
  std::sort(seconds.begin(), seconds.end(), std::greater<>());
  for (std::size_t k = 0; k < kKept; ++k) {
    const int second = seconds[k].second;
    columns.agreeing(edges, at(second), limits, agrees);
    std::size_t made = 0;
    for (std::size_t i = 0; i < kPartners && made < kTriples; ++i) {
      if (!agrees[i]) continue;
      samples_.insert(samples_.end(), {first, second, partner[i]});
      ++made;
    }
  }
  if (samples_.empty()) return false;
  problem_.solve(samples_, space, solutions_);
  return !solutions_.models.empty();
}

template <bool kFreeScale>
std::vector<Transform<kFreeScale>> OverlapEvidence<kFreeScale>::search(
    const Model& best, const std::vector<SupportedModel<Model>>& refined, uint64_t seed,
    Interrupt& interrupt) {
  std::vector<Model> out;
  double most = 0.0, other = 0.0;
  for (const auto& model : refined) {
    if (!std::isfinite(model.support)) continue;
    most = std::max(most, model.support);
    if (P::apart(model.model, best)) other = std::max(other, model.support);
  }
  const Graph& graph = problem_.graph();
  if (!holds_clouds_ || (other < kDoubt * most && covered(problem_, best) >= kCovered)) return out;
  overlap_.emplace(points_.x0, points_.x1, kLeastRadius * points_.eps, kFreeScale ? 1024 : 512);
  if (!overlap_->known()) return out;
  typename P::Workspace space = problem_.workspace();
  std::vector<Found> found;
  std::vector<double> shares;
  const auto better = [](const Found& a, const Found& b) { return a.score > b.score; };
  const auto keep_best = [&] {
    std::stable_sort(found.begin(), found.end(), better);
    if (found.size() > kMeasured<kFreeScale>)
      found.erase(found.begin() + kMeasured<kFreeScale>, found.end());
  };
  const int firsts = static_cast<int>(std::clamp<std::size_t>(
      graph.num_edges() / kEdgesPerFirst, 2 * kFirstEdgesOfChance<kFreeScale>, kFirstEdges));
  for (int i = 0; i < firsts && !interrupt.poll(); ++i) {
    if (i == kFirstEdgesOfChance<kFreeScale>) {
      chance_ = law_of(shares);
      if (!chance_.known() || chance_.nats(overlap_->share(best)) > kEnoughNats) return out;
    }
    if (!sample(seed, i, space)) continue;
    if (i < kFirstEdgesOfChance<kFreeScale>) {
      const std::size_t s = at(3 * solutions_.sample[0]);
      shares.push_back(overlap_->share(half_turned(solutions_.models[0], problem_.arrays(),
                                                   at(samples_[s]), at(samples_[s + 1])),
                                       kMorePoints));
    }
    for (const Model& model : solutions_.models) {
      const double share = overlap_->share(model, kFewPoints);
      found.push_back({model, share, share});
      mean_share_ += share;
      ++num_found_;
    }
    if (found.size() > 8 * kMeasured<kFreeScale>) keep_best();
  }
  if (found.empty()) return out;
  mean_share_ /= static_cast<double>(num_found_);
  keep_best();
  for (Found& f : found) f.share = share_of(f.model);
  rivals_ = found;
  std::stable_sort(rivals_.begin(), rivals_.end(),
                   [](const Found& a, const Found& b) { return a.share > b.share; });
  Mask mask(problem_.graph().words());
  for (Found& f : found) f.score = (*this)(f.model) + problem_.inliers(f.model, mask, {});
  keep_best();
  for (const Found& f : found) {
    if (out.size() == kReturned) break;
    const auto alike = std::count_if(out.begin(), out.end(), [&](const Model& other_model) {
      return P::same(other_model, f.model);
    });
    if (at(static_cast<int>(alike)) < kMostAlike) out.push_back(f.model);
  }
  return out;
}

template <bool kFreeScale>
double OverlapEvidence<kFreeScale>::share_of(const Model& model) const {
  for (const auto& [known, share] : shares_) {
    if (std::equal(known.A, known.A + 9, model.A) && std::equal(known.t, known.t + 3, model.t)) {
      return share;
    }
  }
  shares_.emplace_back(model, overlap_->share(model));
  return shares_.back().second;
}

// The search prefers large shares, so that a model is compared with those that it found elsewhere.
template <bool kFreeScale>
double OverlapEvidence<kFreeScale>::operator()(const Model& model) const {
  if (!chance_.known()) return 0.0;
  const double share = share_of(model);
  std::array<double, kTail> others;
  std::size_t count = 0;
  for (const Found& rival : rivals_) {
    if (count == kTail) break;
    if (!P::same(rival.model, model)) others[count++] = rival.share;
  }
  const ShareOfWrong elsewhere({others.data(), count}, num_found_, mean_share_);
  return kPerNat * (elsewhere.known() ? elsewhere : chance_).nats(share);
}

template class OverlapEvidence<false>;
template class OverlapEvidence<true>;

}  // namespace manymatch

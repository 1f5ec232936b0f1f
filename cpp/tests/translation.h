// The smallest geometric problem: a translation of the plane between two sets of points.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "manymatch/ransac/problem.h"
#include "random_graph.h"

using namespace manymatch;

struct Shift {
  double dx = 0, dy = 0;
};

// What passes the screen: the inliers, edges up to 1.5 thresholds, or everything.
enum class Screen { kExact, kLoose, kAll };

struct TranslationData {
  std::vector<double> x0, y0, x1, y1;
  double eps = 0.05;
  Screen screen = Screen::kLoose;
  // How far a refinement first moves the model away; a polish adds spoil_polish.
  double spoil = 0.0, spoil_polish = 0.0;
};

class TranslationProblem : public ProblemDefaults<TranslationProblem> {
 public:
  using Model = Shift;
  using Data = TranslationData;
  static constexpr int kSampleSize = 2;
  static constexpr const char* kModelName = "shift";
  static constexpr double kPolishReach = 3.0;
  static constexpr double kPolishScale = 1.0;
  static constexpr int kResidualDimensions = 2;
  static bool same(const Shift& a, const Shift& b) {
    return std::hypot(a.dx - b.dx, a.dy - b.dy) < 0.2;
  }
  static bool apart(const Shift& a, const Shift& b) { return !same(a, b); }
  struct Workspace {};

  TranslationProblem(const Graph& graph, const TranslationData& data)
      : graph_(graph), data_(data) {}

  const Graph& graph() const { return graph_; }
  double eps() const { return data_.eps; }
  Workspace workspace() const { return {}; }

  // Each of the two edges proposes its own shift.
  void solve(std::span<const int> samples, Workspace&, Solutions<Shift>& out) const {
    out.clear();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      out.models.push_back(shift(samples[i]));
      out.sample.push_back(static_cast<int>(i) / kSampleSize);
    }
  }
  int screen(const Shift& model, int, std::span<uint64_t> mask) const {
    const double factor = data_.screen == Screen::kExact   ? 1.0
                          : data_.screen == Screen::kLoose ? 1.5
                                                           : 1e9;
    return within(model, factor * factor * eps() * eps(), mask);
  }
  int inliers(const Shift& model, std::span<uint64_t> mask, std::span<double> r2) const {
    return within(model, eps() * eps(), mask, r2);
  }
  int within(const Shift& model, double limit2, std::span<uint64_t> mask,
             std::span<double> r2 = {}) const {
    for (std::size_t e = 0; e < (r2.empty() ? 0 : graph_.num_edges()); ++e) {
      r2[e] = distance2(model, static_cast<int>(e));
    }
    std::fill(mask.begin(), mask.end(), 0);
    for (int e = 0; e < static_cast<int>(graph_.num_edges()); ++e) {
      if (distance2(model, e) < limit2) set_bit(mask, e);
    }
    return count_bits(mask);
  }
  // The weighted mean of the shifts of the inliers, for every loss.
  LmResult refine(Shift& model, const GatheredEdges& gathered, Loss loss, double,
                  int max_iterations, Workspace&) const {
    model.dx += data_.spoil + (loss == Loss::kCauchy ? data_.spoil_polish : 0.0);
    for (int i = 0; i < std::min(max_iterations, 5); ++i) {
      Shift sum;
      double total = 0;
      for (std::size_t k = 0; k < gathered.edges().size(); ++k) {
        const int e = gathered.edges()[k];
        if (!(distance2(model, e) < eps() * eps())) continue;
        sum.dx += gathered.weights()[k] * shift(e).dx;
        sum.dy += gathered.weights()[k] * shift(e).dy;
        total += gathered.weights()[k];
      }
      if (total == 0) break;
      model = {sum.dx / total, sum.dy / total};
    }
    return {};
  }

 private:
  Shift shift(int edge) const {
    const std::size_t l = at(graph_.left[at(edge)]);
    const std::size_t r = at(graph_.right[at(edge)]);
    return {data_.x1[r] - data_.x0[l], data_.y1[r] - data_.y0[l]};
  }
  double distance2(const Shift& model, int edge) const {
    const double a = shift(edge).dx - model.dx, b = shift(edge).dy - model.dy;
    return a * a + b * b;
  }

  const Graph& graph_;
  const TranslationData& data_;
};
static_assert(Problem<TranslationProblem>);

// Forty points moved by (3, -2) with some noise; each has its true partner and five random ones.
struct Toy {
  TranslationData data;
  Edges edges;

  static constexpr int kPoints = 40;

  Toy() {
    Source random(41);
    for (int i = 0; i < kPoints; ++i) {
      data.x0.push_back(random.in(0, 10));
      data.y0.push_back(random.in(0, 10));
      data.x1.push_back(data.x0.back() + 3 + random.in(-0.02, 0.02));
      data.y1.push_back(data.y0.back() - 2 + random.in(-0.02, 0.02));
      for (int k = 0; k < 6; ++k) {
        const std::pair<int, int> edge(i, k ? random.pick(kPoints) : i);
        if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
      }
    }
    random.shuffle(edges);
  }
};

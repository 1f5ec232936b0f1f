#include "manymatch/problems/relative_pose.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace manymatch {

namespace {
std::size_t at(int i) { return static_cast<std::size_t>(i); }
}  // namespace

void Gathered::reserve(std::size_t count) {
  const std::size_t padded_count = (count + 7) / 8 * 8;
  for (auto* v : {&x0, &y0, &x1, &y1, &weight}) v->reserve(padded_count);
  r2.resize(padded_count);
  edges.reserve(count);
}

void Gathered::clear() {
  for (auto* v : {&x0, &y0, &x1, &y1, &weight}) v->clear();
  edges.clear();
  padded = 0;
}

void Gathered::resize(std::size_t count) {
  padded = (count + 7) / 8 * 8;
  for (auto* v : {&x0, &y0, &x1, &y1, &weight}) {
    v->resize(padded);
    std::fill(v->begin() + static_cast<std::ptrdiff_t>(count), v->end(), 0.0);
  }
  if (r2.size() < padded) r2.resize(padded);
}

void Gathered::add(double ax, double ay, double bx, double by, double w) {
  x0.push_back(ax);
  y0.push_back(ay);
  x1.push_back(bx);
  y1.push_back(by);
  weight.push_back(w);
}

void Gathered::pad() {
  while (x0.size() % 8) add(0.0, 0.0, 0.0, 0.0, 0.0);
  padded = x0.size();
  if (r2.size() < padded) r2.resize(padded);
}

namespace {

// The least-squares system of one pose, for the optimiser. Everything is divided by the number of
// edges, so that the damping means the same for few and for many.
struct PoseSystem {
  Gathered& gathered;
  Loss loss;
  double eps2;
  double scale;

  double linearise(const Pose& pose, double* upper, double* gradient) const {
    double tangent[6], out[21];
    tangent_plane(pose.t, tangent);
    kernels().normal_equations(gathered.arrays(), pose.R, pose.t, tangent, loss, eps2, out);
    for (int i = 0; i < 15; ++i) upper[i] = scale * out[i];
    for (int i = 0; i < 5; ++i) gradient[i] = scale * out[15 + i];
    return scale * (loss == Loss::kCauchy ? cauchy_cost(pose) : out[20]);
  }

  Pose move(const Pose& pose, const double* step) const {
    double tangent[6];
    tangent_plane(pose.t, tangent);
    return perturb(pose, tangent, step);
  }

  double cauchy_cost(const Pose& pose) const {
    kernels().residuals(gathered.arrays(), pose.R, pose.t, gathered.r2.data());
    double total = 0.0;
    for (std::size_t i = 0; i < gathered.padded; ++i) {
      if (gathered.weight[i] > 0.0) {
        total += gathered.weight[i] * eps2 * std::log1p(gathered.r2[i] / eps2);
      }
    }
    return total;
  }
};

}  // namespace

LmResult refine_pose(Pose& pose, Gathered& gathered, Loss loss, double eps2, int max_iterations) {
  const auto count = static_cast<double>(std::count_if(
      gathered.weight.begin(), gathered.weight.end(), [](double w) { return w > 0; }));
  if (count == 0.0) return {};
  PoseSystem system{gathered, loss, eps2, 1.0 / count};
  Pose refined = pose;
  LmResult result = levenberg_marquardt<5>(refined, system, max_iterations);
  result.initial_cost *= count;
  result.cost *= count;
  normalise(refined);
  if (is_finite(refined)) pose = refined;
  return result;
}

RelativePoseProblem::RelativePoseProblem(const Graph& graph, const double* x0, const double* x1,
                                         double eps, bool weighted)
    : graph_(graph), eps_(eps), weighted_(weighted) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::size_t padded = graph.words() * 64;
  for (auto* v : {&x0_, &y0_, &n0_, &x1_, &y1_, &n1_}) v->assign(padded, nan);
  double largest0 = 1.0, largest1 = 1.0;
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const double* a = x0 + 2 * at(graph.left[e]);
    const double* b = x1 + 2 * at(graph.right[e]);
    const double norm0 = std::sqrt(a[0] * a[0] + a[1] * a[1] + 1.0);
    const double norm1 = std::sqrt(b[0] * b[0] + b[1] * b[1] + 1.0);
    if (!std::isfinite(norm0) || !std::isfinite(norm1)) continue;  // stays an outlier
    x0_[e] = a[0];
    y0_[e] = a[1];
    n0_[e] = 1.0 / norm0;
    x1_[e] = b[0];
    y1_[e] = b[1];
    n1_[e] = 1.0 / norm1;
    largest0 = std::max(largest0, norm0);
    largest1 = std::max(largest1, norm1);
  }
  // Beyond float the screen is off (see below); clamping keeps the conversion defined.
  const auto narrow = [](const AlignedVector<double>& from, AlignedVector<float>& to) {
    static constexpr double kLimit = std::numeric_limits<float>::max();
    to.resize(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](double v) {
      return static_cast<float>(std::isnan(v) ? v : std::clamp(v, -kLimit, kLimit));
    });
  };
  narrow(x0_, x0f_);
  narrow(y0_, y0f_);
  narrow(n0_, n0f_);
  narrow(x1_, x1f_);
  narrow(y1_, y1f_);
  narrow(n1_, n1f_);
  int most = 0;
  for (int v = 0; v < graph.num0; ++v) most = std::max(most, graph.at0.degree(v));
  for (int v = 0; v < graph.num1; ++v) most = std::max(most, graph.at1.degree(v));
  inverse_.resize(at(most) + 1, 0.0);
  for (int degree = 1; degree <= most; ++degree) inverse_[at(degree)] = 1.0 / degree;
  arrays_ = {x0_.data(),  y0_.data(),  n0_.data(),   x1_.data(),  y1_.data(),
             n1_.data(),  x0f_.data(), y0f_.data(),  n0f_.data(), x1f_.data(),
             y1f_.data(), n1f_.data(), graph.words()};
  // x1' E x0 in float32: eight roundings of 2^-24 on terms that together are at most
  // sqrt(2) |x0| |x1|, doubled; and what rounding does to sqrt(den), times eps.
  slack_ = 1.4e-6 * largest0 * largest1 + 1.5e-6 * eps * std::max(largest0, largest1);
  screens_ = slack_ < 0.5 * eps && eps < 1e3 && largest0 < 1e3 && largest1 < 1e3;
}

RelativePoseProblem::Workspace RelativePoseProblem::workspace() const {
  Workspace space;
  space.batch = std::make_unique<FivePointBatch>();
  space.solutions = std::make_unique<FivePointSolutions>();
  space.mask.resize(graph_.words());
  space.gathered.reserve(graph_.num_edges());
  space.degree0.assign(at(graph_.num0), 0);
  space.degree1.assign(at(graph_.num1), 0);
  space.mass0.assign(at(graph_.num0), 0.0);
  space.mass1.assign(at(graph_.num1), 0.0);
  return space;
}

void RelativePoseProblem::solve(const int* samples, int count, Workspace& space,
                                Solutions<Pose>& out) const {
  FivePointBatch& batch = *space.batch;
  batch.count = count;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < 5; ++k) {
      const std::size_t e = at(samples[5 * i + k]);
      batch.b0[k][0][i] = x0_[e] * n0_[e];
      batch.b0[k][1][i] = y0_[e] * n0_[e];
      batch.b0[k][2][i] = n0_[e];
      batch.b1[k][0][i] = x1_[e] * n1_[e];
      batch.b1[k][1][i] = y1_[e] * n1_[e];
      batch.b1[k][2][i] = n1_[e];
    }
  }
  kernels().five_point(batch, *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    Pose pose;
    std::copy_n(space.solutions->R[i], 9, pose.R);
    std::copy_n(space.solutions->t[i], 3, pose.t);
    out.models.push_back(pose);
    out.sample.push_back(space.solutions->problem[i]);
  }
}

int RelativePoseProblem::screen(const Pose& pose, int enough, uint64_t* mask) const {
  if (!screens_) return inliers(pose, mask, nullptr);
  return kernels().screen(arrays_, pose.R, pose.t, eps_, slack_, enough, mask);
}

int RelativePoseProblem::inliers(const Pose& pose, uint64_t* mask, double* r2) const {
  return kernels().inliers(arrays_, pose.R, pose.t, eps_ * eps_, mask, r2);
}

LmResult RelativePoseProblem::local_refine(Pose& pose, Workspace& space) const {
  gather(pose, 5.0 * eps_ * eps_, space);
  return refine(pose, space, Loss::kTruncated, 25);
}

LmResult RelativePoseProblem::final_polish(Pose& pose, Workspace& space) const {
  gather(pose, eps_ * eps_, space);
  return refine(pose, space, Loss::kCauchy, 100);
}

LmResult RelativePoseProblem::far_polish(Pose& pose, Workspace& space, double reach,
                                         const double* prior) const {
  gather(pose, reach * reach * eps_ * eps_, space);
  Gathered& g = space.gathered;
  for (int e : g.edges) {
    space.mass0[at(graph_.left[at(e)])] += prior[e];
    space.mass1[at(graph_.right[at(e)])] += prior[e];
  }
  for (std::size_t i = 0; i < g.edges.size(); ++i) {
    const std::size_t e = at(g.edges[i]);
    const double share =
        prior[e] / space.mass0[at(graph_.left[e])] + prior[e] / space.mass1[at(graph_.right[e])];
    g.weight[i] = std::sqrt(prior[e]) * share;
  }
  for (int e : g.edges) {
    space.mass0[at(graph_.left[at(e)])] = 0.0;
    space.mass1[at(graph_.right[at(e)])] = 0.0;
  }
  return refine(pose, space, Loss::kCauchy, 100);
}

LmResult RelativePoseProblem::refine(Pose& pose, Workspace& space, Loss loss,
                                     int iterations) const {
  if (space.gathered.edges.size() <= 5) return {};
  return refine_pose(pose, space.gathered, loss, eps_ * eps_, iterations);
}

// Weights use the degrees among the gathered edges and stay as they are.
void RelativePoseProblem::gather(const Pose& pose, double gather2, Workspace& space) const {
  Gathered& g = space.gathered;
  const int count = kernels().inliers(arrays_, pose.R, pose.t, gather2, space.mask.data(), nullptr);
  g.edges.resize(at(count));
  g.resize(at(count));
  int* next = g.edges.data();
  for_each_bit(space.mask.data(), space.mask.size(), [&](int e) {
    *next++ = e;
    ++space.degree0[at(graph_.left[at(e)])];
    ++space.degree1[at(graph_.right[at(e)])];
  });
  for (std::size_t i = 0; i < g.edges.size(); ++i) {
    const std::size_t e = at(g.edges[i]);
    g.x0[i] = x0_[e];
    g.y0[i] = y0_[e];
    g.x1[i] = x1_[e];
    g.y1[i] = y1_[e];
    const int d0 = space.degree0[at(graph_.left[e])], d1 = space.degree1[at(graph_.right[e])];
    g.weight[i] = weighted_ ? inverse_[at(d0)] + inverse_[at(d1)] : 1.0;
  }
  for (int e : g.edges) {
    space.degree0[at(graph_.left[at(e)])] = 0;
    space.degree1[at(graph_.right[at(e)])] = 0;
  }
}

}  // namespace manymatch

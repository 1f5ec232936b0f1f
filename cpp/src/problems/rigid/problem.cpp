#include "manymatch/problems/rigid/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "manymatch/refine/robust_least_squares.h"

namespace manymatch {

namespace {

// Largest difference of a coordinate of a moved corner of the cube [-1, 1]^3.
constexpr double kSameCorners = 0.5;
// Side lengths of the two triangles of a sample may differ by this many thresholds: both ends of a
// side can be off by one.
constexpr double kSideTolerance = 2.0;
// Smallest height of a triangle, in thresholds: if the height is about the noise, the normal is
// arbitrary. The second number bounds it in the unit of the clouds, for thresholds as large as the
// clouds themselves.
constexpr double kLeastHeight = 2.0, kMostLeastHeight = 0.05;

double least_height(double eps) { return std::min(kLeastHeight * eps, kMostLeastHeight); }

const RigidKernels& rigid_kernels() { return kernels<RigidKernels>(); }

void normal_equations_of(const double* sums, double scale, bool free_scale, double* out) {
  const int N = free_scale ? 7 : 6;
  const double inverse = 1.0 / scale;
  double full[7][7] = {}, gradient[7];
  const double* p = sums + kSumP;
  const double* pp = sums + kSumPP;  // xx, xy, xz, yy, yz, zz
  const double* d = sums + kSumD;
  const double* pxd = sums + kSumPxD;
  const double moment[3][3] = {{pp[0], pp[1], pp[2]}, {pp[1], pp[3], pp[4]}, {pp[2], pp[4], pp[5]}};
  const double square = pp[0] + pp[3] + pp[5];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) full[i][j] = (i == j ? square : 0.0) - moment[i][j];
    full[3 + i][3 + i] = sums[kSumW];
    // A rotation step w moves d by w x p, so the mixed terms with a translation are [p]x.
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    full[i][3 + j] = -p[k];
    full[i][3 + k] = p[j];
    gradient[i] = pxd[i];
    gradient[3 + i] = d[i];
    full[i][6] = -0.5 * pxd[i];
    full[3 + i][6] = p[i] - 0.5 * d[i];
  }
  full[6][6] = square - sums[kSumPD] + 0.25 * sums[kSumDD];
  gradient[6] = sums[kSumPD] - 0.5 * sums[kSumDD];
  int slot = 0;
  for (int i = 0; i < N; ++i) {
    for (int j = i; j < N; ++j) out[slot++] = inverse * full[i][j];
  }
  for (int i = 0; i < N; ++i) out[slot++] = inverse * gradient[i];
  out[slot] = sums[kSumCost];
}

template <bool kFreeScale>
struct TransformTerms {
  static void normal_equations(const RefineArrays& edges, const Transform<kFreeScale>& transform,
                               Loss loss, double eps2, double* out) {
    double sums[kSpaceSums];
    rigid_kernels().sums(edges, transform, loss, eps2, sums);
    transform_normal_equations<kFreeScale>(sums, transform.scale, out);
  }
  static void residuals(const RefineArrays& edges, const Transform<kFreeScale>& transform,
                        double* r2) {
    rigid_kernels().residuals(edges, transform, r2);
  }
  static Transform<kFreeScale> move(const Transform<kFreeScale>& transform, const double* step) {
    return perturb(transform, step);
  }
};

// Makes A / scale orthonormal to the precision of double.
void orthonormalise(double* A, double scale) {
  double* r0 = A;
  double* r1 = A + 3;
  double* r2 = A + 6;
  const auto dot = [](const double* a, const double* b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  };
  const double first = scale / std::sqrt(dot(r0, r0));
  for (int c = 0; c < 3; ++c) r0[c] *= first;
  const double along = dot(r0, r1) / (scale * scale);
  for (int c = 0; c < 3; ++c) r1[c] -= along * r0[c];
  const double second = scale / std::sqrt(dot(r1, r1));
  for (int c = 0; c < 3; ++c) r1[c] *= second;
  for (int c = 0; c < 3; ++c) {
    const int j = (c + 1) % 3, k = (c + 2) % 3;
    r2[c] = (r0[j] * r1[k] - r0[k] * r1[j]) / scale;
  }
}

// Draws edges that preserve the distances within a sample.
class Completion : public SampleCompletion {
 public:
  Completion(const SpaceEdges& edges, std::size_t count, double eps) : words_(edges.words) {
    const PairLimits limits = RigidProblem::pair_limits(eps);
    rows_.resize(count * words_);
    for (std::size_t e = 0; e < count; ++e) {
      rigid_kernels().consistent(edges, e, limits, &rows_[e * words_]);
    }
  }

  bool complete(Rng& rng, MaskView allowed, std::span<int> sample) const override {
    const uint64_t* first = row(sample[0]);
    const int second = draw_in(rng, {first, allowed.data()});
    if (second < 0) return false;
    const int third = draw_in(rng, {first, row(second), allowed.data()});
    if (third < 0) return false;
    sample[1] = second;
    sample[2] = third;
    return true;
  }

  // Averages over up to kMostFirst first edges, and over all second ones.
  double clean_chance(MaskView allowed_mask, MaskView inlier_mask) const override {
    constexpr int kMostFirst = 32;
    const uint64_t *allowed = allowed_mask.data(), *inliers = inlier_mask.data();
    const int total = count_in({allowed, inliers});
    if (total == 0) return 0.0;
    const int firsts = std::min(total, kMostFirst);
    double sum = 0.0;
    for (int i = 0; i < firsts; ++i) {
      const uint64_t* e = row(edge_in({allowed, inliers}, i * total / firsts));
      const int right = count_in({e, allowed, inliers});
      double chances = 0.0;
      for (int j = 0; j < right; ++j) {
        const uint64_t* f = row(edge_in({e, allowed, inliers}, j));
        const int third = count_in({e, f, allowed});
        if (third) chances += static_cast<double>(count_in({e, f, allowed, inliers})) / third;
      }
      if (right) sum += chances / count_in({e, allowed});
    }
    return sum / firsts;
  }

 private:
  using Masks = std::initializer_list<const uint64_t*>;

  const uint64_t* row(int e) const { return &rows_[at(e) * words_]; }

  static uint64_t word_in(Masks masks, std::size_t w) {
    uint64_t word = ~uint64_t{0};
    for (const uint64_t* mask : masks) word &= mask[w];
    return word;
  }
  // Number of edges that are in all of the masks.
  int count_in(Masks masks) const {
    int count = 0;
    for (std::size_t w = 0; w < words_; ++w) count += std::popcount(word_in(masks, w));
    return count;
  }
  // The edge with a given number among them.
  int edge_in(Masks masks, int number) const {
    std::size_t w = 0;
    uint64_t word = word_in(masks, w);
    for (int here = std::popcount(word); number >= here; here = std::popcount(word)) {
      number -= here;
      word = word_in(masks, ++w);
    }
    for (; number > 0; --number) word &= word - 1;
    return static_cast<int>(w * 64) + std::countr_zero(word);
  }
  // A random one of them, all equally likely; -1 if there is none.
  int draw_in(Rng& rng, Masks masks) const {
    const int count = count_in(masks);
    if (count == 0) return -1;
    return edge_in(masks, static_cast<int>(rng.below(static_cast<uint32_t>(count))));
  }

  std::size_t words_;
  std::vector<uint64_t> rows_;  // per edge: mask of the edges that can be in a sample with it
};

}  // namespace

template <bool kFreeScale>
std::unique_ptr<const SampleCompletion> TransformProblem<kFreeScale>::completion() const {
  if constexpr (kFreeScale) return nullptr;
  return std::make_unique<Completion>(arrays_, graph_.num_edges(), eps_);
}

template <bool kFreeScale>
Transform<kFreeScale> perturb(const Transform<kFreeScale>& transform, const double* step) {
  const double x = step[0], y = step[1], z = step[2];
  const double angle2 = x * x + y * y + z * z, angle = std::sqrt(angle2);
  // exp = I + a W + b W W.
  const double a = angle > 1e-5 ? std::sin(angle) / angle : 1.0 - angle2 / 6.0;
  const double b = angle > 1e-5 ? (1.0 - std::cos(angle)) / angle2 : 0.5 - angle2 / 24.0;
  const double turn[9] = {
      1 - b * (y * y + z * z), b * x * y - a * z,       b * x * z + a * y,
      b * x * y + a * z,       1 - b * (x * x + z * z), b * y * z - a * x,
      b * x * z - a * y,       b * y * z + a * x,       1 - b * (x * x + y * y)};
  const double factor = kFreeScale ? std::exp(step[6]) : 1.0;
  Transform<kFreeScale> out;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      double sum = 0.0;
      for (int k = 0; k < 3; ++k) sum += turn[3 * i + k] * transform.A[3 * k + j];
      out.A[3 * i + j] = factor * sum;
    }
    out.t[i] = transform.t[i] + step[3 + i];
  }
  out.scale = factor * transform.scale;
  orthonormalise(out.A, out.scale);
  return out;
}

template <bool kFreeScale>
void transform_normal_equations(const double* sums, double scale, double* out) {
  normal_equations_of(sums, scale, kFreeScale, out);
}

template <bool kFreeScale>
LmResult refine_transform(Transform<kFreeScale>& transform, RefineColumns& columns,
                          std::span<const double> weights, Loss loss, double eps2,
                          int max_iterations) {
  Transform<kFreeScale> refined = transform;
  const LmResult result = minimise_robustly<kFreeScale ? 7 : 6, TransformTerms<kFreeScale>>(
      refined, columns.arrays(weights), columns.r2, loss, eps2, max_iterations);
  const auto finite = [](double v) { return std::isfinite(v); };
  if (std::all_of(refined.A, refined.A + 9, finite) &&
      std::all_of(refined.t, refined.t + 3, finite) && refined.scale > 0.0) {
    transform = refined;
  }
  return result;
}

template <bool kFreeScale>
TransformProblem<kFreeScale>::TransformProblem(const Graph& graph, const VertexPoints& points)
    : PointProblem<TransformProblem>(graph, points) {
  arrays_ = {points_.x0.data(),  points_.y0.data(),  points_.z0.data(),  points_.x1.data(),
             points_.y1.data(),  points_.z1.data(),  points_.x0f.data(), points_.y0f.data(),
             points_.z0f.data(), points_.x1f.data(), points_.y1f.data(), points_.z1f.data(),
             graph.words(),      points_.largest0,   points_.largest1};
  // Beyond these limits the squares in the screen could exceed the range of float.
  screens_ = eps_ < 1e6 && points_.largest0 < 1e6 && points_.largest1 < 1e6;
}

template <bool kFreeScale>
bool TransformProblem<kFreeScale>::same(const Model& a, const Model& b) {
  for (const double x : {-1.0, 1.0}) {
    for (const double y : {-1.0, 1.0}) {
      for (const double z : {-1.0, 1.0}) {
        for (int i = 0; i < 3; ++i) {
          const double gap = (a.A[3 * i] - b.A[3 * i]) * x + (a.A[3 * i + 1] - b.A[3 * i + 1]) * y +
                             (a.A[3 * i + 2] - b.A[3 * i + 2]) * z + a.t[i] - b.t[i];
          if (!(std::abs(gap) < kSameCorners)) return false;
        }
      }
    }
  }
  return true;
}

template <bool kFreeScale>
ThreePointLimits TransformProblem<kFreeScale>::limits(double eps) {
  return {kSideTolerance * eps, least_height(eps)};
}

template <bool kFreeScale>
PairLimits TransformProblem<kFreeScale>::pair_limits(double eps) {
  // Lengths may differ by one threshold: that keeps nearly all pairs of inliers and few others.
  return {eps * eps, least_height(eps) * least_height(eps)};
}

template <bool kFreeScale>
typename TransformProblem<kFreeScale>::Workspace TransformProblem<kFreeScale>::workspace() const {
  Workspace space;
  space.batch = std::make_unique<ThreePointBatch>();
  space.solutions = std::make_unique<ThreePointSolutions>();
  return space;
}

template <bool kFreeScale>
void TransformProblem<kFreeScale>::solve(std::span<const int> samples, Workspace& space,
                                         Solutions<Model>& out) const {
  ThreePointBatch& batch = *space.batch;
  batch.count = static_cast<int>(samples.size()) / kSampleSize;
  for (int i = 0; i < batch.count; ++i) {
    for (int k = 0; k < kSampleSize; ++k) {
      const std::size_t e = at(samples[at(kSampleSize * i + k)]);
      batch.x0[k][0][i] = points_.x0[e];
      batch.x0[k][1][i] = points_.y0[e];
      batch.x0[k][2][i] = points_.z0[e];
      batch.x1[k][0][i] = points_.x1[e];
      batch.x1[k][1][i] = points_.y1[e];
      batch.x1[k][2][i] = points_.z1[e];
    }
  }
  const RigidKernels& table = rigid_kernels();
  (kFreeScale ? table.similarity_three_point : table.rigid_three_point)(batch, limits(eps_),
                                                                        *space.solutions);
  out.clear();
  for (int i = 0; i < space.solutions->count; ++i) {
    out.models.push_back({space.solutions->transform[i]});
    out.sample.push_back(space.solutions->sample[i]);
  }
}

template <bool kFreeScale>
int TransformProblem<kFreeScale>::screen(const Model& model, int, std::span<uint64_t> mask) const {
  if (!screens_) return this->inliers(model, mask, {});
  return rigid_kernels().screen(arrays_, model, eps_, mask.data());
}

template <bool kFreeScale>
int TransformProblem<kFreeScale>::inliers_below(const Model& model, double limit2, uint64_t* mask,
                                                double* r2) const {
  return rigid_kernels().inliers(arrays_, model, limit2, mask, r2);
}

template <bool kFreeScale>
LmResult TransformProblem<kFreeScale>::refine(Model& model, const GatheredEdges& edges, Loss loss,
                                              double scale2, int max_iterations,
                                              Workspace& space) const {
  space.columns.gather(edges, points_);
  return refine_transform(model, space.columns, edges.weights(), loss, scale2, max_iterations);
}

template Transform<false> perturb(const Transform<false>&, const double*);
template Transform<true> perturb(const Transform<true>&, const double*);
template void transform_normal_equations<false>(const double*, double, double*);
template void transform_normal_equations<true>(const double*, double, double*);
template LmResult refine_transform(Transform<false>&, RefineColumns&, std::span<const double>, Loss,
                                   double, int);
template LmResult refine_transform(Transform<true>&, RefineColumns&, std::span<const double>, Loss,
                                   double, int);
template class TransformProblem<false>;
template class TransformProblem<true>;

}  // namespace manymatch

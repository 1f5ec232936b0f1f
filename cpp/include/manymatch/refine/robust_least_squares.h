// Robust least squares over weighted correspondences, for all models.
#pragma once

#include <cmath>
#include <span>

#include "manymatch/refine/levenberg_marquardt.h"
#include "manymatch/refine/refine_arrays.h"

namespace manymatch {

// The system for the optimiser, of a model with N parameters. Everything is divided by the number
// of edges, so that damping has the same effect for few and many edges. Members of Terms:
// `normal_equations(edges, model, loss, eps2, out)` fills the upper triangle of J'WJ by rows, J'Wr
// and the cost (except for Cauchy's loss); `residuals(edges, model, r2)`; `move(model, step)`.
template <int N, class Model, class Terms>
struct RobustSystem {
  RefineArrays edges;
  std::span<double> r2;  // buffer for the residuals
  Loss loss;
  double eps2;
  double scale;

  double linearise(const Model& model, double* upper, double* gradient) const {
    constexpr int kTriangle = N * (N + 1) / 2;
    double out[kTriangle + N + 1];
    Terms::normal_equations(edges, model, loss, eps2, out);
    for (int i = 0; i < kTriangle; ++i) upper[i] = scale * out[i];
    for (int i = 0; i < N; ++i) gradient[i] = scale * out[kTriangle + i];
    return scale * (loss == Loss::kCauchy ? cost(model) : out[kTriangle + N]);
  }

  Model move(const Model& model, const double* step) const { return Terms::move(model, step); }

  // The weighted loss, not scaled. Leaves the residuals in r2.
  double cost(const Model& model) const {
    Terms::residuals(edges, model, r2.data());
    double total = 0.0;
    for (std::size_t i = 0; i < edges.padded; ++i) {
      if (edges.weight[i] > 0.0) total += edges.weight[i] * loss_of(r2[i]);
    }
    return total;
  }

  double loss_of(double value) const {
    if (loss == Loss::kCauchy) return eps2 * std::log1p(value / eps2);
    return loss == Loss::kTruncated && !(value < eps2) ? eps2 : value;
  }
};

// Levenberg-Marquardt over the edges with a positive weight.
template <int N, class Terms, class Model>
LmResult minimise_robustly(Model& model, const RefineArrays& edges, std::span<double> r2, Loss loss,
                           double eps2, int max_iterations) {
  double count = 0.0;
  for (std::size_t i = 0; i < edges.padded; ++i) count += edges.weight[i] > 0.0 ? 1.0 : 0.0;
  if (count == 0.0) return {};
  RobustSystem<N, Model, Terms> system{edges, r2, loss, eps2, 1.0 / count};
  LmResult result = levenberg_marquardt<N>(model, system, max_iterations);
  result.initial_cost *= count;
  result.cost *= count;
  return result;
}

}  // namespace manymatch

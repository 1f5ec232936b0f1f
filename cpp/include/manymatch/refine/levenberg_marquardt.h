// Levenberg-Marquardt for a few parameters on a manifold.
#pragma once

#include <algorithm>
#include <cmath>

namespace manymatch {

struct LmResult {
  double initial_cost = 0, cost = 0;
  int iterations = 0;
};

// Solves (A + lambda I) x = -b for a symmetric A given by its upper triangle, by rows. False if
// A + lambda I is not positive definite.
template <int N>
bool solve_damped(const double* upper, const double* b, double lambda, double* x) {
  double L[N][N];
  int slot = 0;
  for (int i = 0; i < N; ++i) {
    for (int j = i; j < N; ++j) L[j][i] = upper[slot++];
    L[i][i] += lambda;
  }
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = L[i][j];
      for (int k = 0; k < j; ++k) sum -= L[i][k] * L[j][k];
      if (i == j) {
        if (!(sum > 0.0)) return false;
        L[i][i] = std::sqrt(sum);
      } else {
        L[i][j] = sum / L[j][j];
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    double sum = -b[i];
    for (int k = 0; k < i; ++k) sum -= L[i][k] * x[k];
    x[i] = sum / L[i][i];
  }
  for (int i = N - 1; i >= 0; --i) {
    for (int k = i + 1; k < N; ++k) x[i] -= L[k][i] * x[k];
    x[i] /= L[i][i];
  }
  return true;
}

// System has two members: `linearise(model, upper, gradient)` returns the cost and fills J'WJ and
// J'Wr; `move(model, step)` returns the moved model.
template <int N, class Model, class System>
LmResult levenberg_marquardt(Model& model, System& system, int max_iterations) {
  constexpr double kGradient = 1e-12, kStep = 1e-8, kDecrease = 1e-10;
  double upper[N * (N + 1) / 2], gradient[N], step[N];
  double next_upper[N * (N + 1) / 2], next_gradient[N];
  double lambda = 1e-3;
  LmResult result;
  result.initial_cost = result.cost = system.linearise(model, upper, gradient);
  while (result.iterations < max_iterations) {
    double norm2 = 0.0;
    for (double g : gradient) norm2 += g * g;
    if (!(std::sqrt(norm2) > kGradient)) break;
    ++result.iterations;
    if (!solve_damped<N>(upper, gradient, lambda, step)) {
      lambda = std::min(lambda * 10.0, 1e10);
      continue;
    }
    double step2 = 0.0;
    for (double s : step) step2 += s * s;
    if (!(std::sqrt(step2) > kStep)) break;
    const Model moved = system.move(model, step);
    const double cost = system.linearise(moved, next_upper, next_gradient);
    if (cost < result.cost) {  // false for NaN
      const double decrease = result.cost - cost;
      model = moved;
      std::copy(next_upper, next_upper + N * (N + 1) / 2, upper);
      std::copy(next_gradient, next_gradient + N, gradient);
      lambda = std::max(lambda * 0.1, 1e-10);
      const bool finished = decrease <= kDecrease * result.cost;
      result.cost = cost;
      if (finished) break;
    } else {
      lambda = std::min(lambda * 10.0, 1e10);
    }
  }
  return result;
}

}  // namespace manymatch

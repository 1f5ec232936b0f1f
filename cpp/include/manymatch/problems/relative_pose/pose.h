// A relative pose x1 = R x0 + t with |t| = 1, and its steps in five parameters.
#pragma once

#include <cmath>

namespace manymatch {

struct Pose {
  double R[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  double t[3] = {0, 0, 1};
};

inline bool is_finite(const Pose& pose) {
  double sum = 0.0;
  for (double r : pose.R) sum += std::abs(r);
  for (double c : pose.t) sum += std::abs(c);
  return std::isfinite(sum);
}

// Makes R, which is within rounding of a rotation, orthonormal.
inline void orthonormalise(double* R) {
  for (int step = 0; step < 2; ++step) {
    double gram[9], next[9];
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        gram[3 * i + j] = R[i] * R[j] + R[3 + i] * R[3 + j] + R[6 + i] * R[6 + j];
      }
    }
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double product =
            R[3 * i] * gram[j] + R[3 * i + 1] * gram[3 + j] + R[3 * i + 2] * gram[6 + j];
        next[3 * i + j] = 1.5 * R[3 * i + j] - 0.5 * product;
      }
    }
    for (int i = 0; i < 9; ++i) R[i] = next[i];
  }
}

// Makes R orthonormal and t a unit vector.
inline void normalise(Pose& pose) {
  orthonormalise(pose.R);
  const double norm =
      std::sqrt(pose.t[0] * pose.t[0] + pose.t[1] * pose.t[1] + pose.t[2] * pose.t[2]);
  for (double& c : pose.t) c /= norm;
}

// Two unit vectors, by rows, that span the plane orthogonal to t.
inline void tangent_plane(const double* t, double* basis) {
  // Start from the axis that t is farthest from.
  const double a[3] = {std::abs(t[0]), std::abs(t[1]), std::abs(t[2])};
  const int axis = a[0] <= a[1] ? (a[0] <= a[2] ? 0 : 2) : (a[1] <= a[2] ? 1 : 2);
  double b0[3];
  for (int i = 0; i < 3; ++i) b0[i] = (i == axis ? 1.0 : 0.0) - t[i] * t[axis];
  const double norm = std::sqrt(b0[0] * b0[0] + b0[1] * b0[1] + b0[2] * b0[2]);
  for (int i = 0; i < 3; ++i) basis[i] = b0[i] / norm;
  basis[3] = t[1] * basis[2] - t[2] * basis[1];
  basis[4] = t[2] * basis[0] - t[0] * basis[2];
  basis[5] = t[0] * basis[1] - t[1] * basis[0];
}

// R exp([w]x), Rodrigues.
inline void rotate(double* R, const double* w) {
  const double angle2 = w[0] * w[0] + w[1] * w[1] + w[2] * w[2];
  const double angle = std::sqrt(angle2);
  // sin(x)/x and (1 - cos(x))/x^2; by series for small x, where the quotient loses digits
  const double a = angle < 1e-4 ? 1.0 - angle2 / 6.0 : std::sin(angle) / angle;
  const double half = 0.5 * angle;
  const double sinc_half = angle < 1e-4 ? 1.0 - angle2 / 24.0 : std::sin(half) / half;
  const double b = 0.5 * sinc_half * sinc_half;
  double D[9];
  const double W[9] = {0, -w[2], w[1], w[2], 0, -w[0], -w[1], w[0], 0};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double square = w[i] * w[j] - (i == j ? angle2 : 0.0);
      D[3 * i + j] = (i == j ? 1.0 : 0.0) + a * W[3 * i + j] + b * square;
    }
  }
  double out[9];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      out[3 * i + j] = R[3 * i] * D[j] + R[3 * i + 1] * D[3 + j] + R[3 * i + 2] * D[6 + j];
    }
  }
  for (int i = 0; i < 9; ++i) R[i] = out[i];
}

// The pose after a step: three parameters for the rotation, two in the tangent plane of t.
inline Pose perturb(const Pose& pose, const double* tangent, const double* step) {
  Pose moved = pose;
  rotate(moved.R, step);
  for (int i = 0; i < 3; ++i) moved.t[i] += tangent[i] * step[3] + tangent[3 + i] * step[4];
  const double norm =
      std::sqrt(moved.t[0] * moved.t[0] + moved.t[1] * moved.t[1] + moved.t[2] * moved.t[2]);
  for (double& c : moved.t) c /= norm;
  return moved;
}

}  // namespace manymatch

// Homographies through four correspondences each, and affine maps through three, one sample per
// vector lane.
//
// With the fourth point of either image as origin let p_i, q_i (i = 0, 1, 2) be the other three,
// a_i = p_j x p_k and b_i = q_j x q_k twice the signed areas of the triangles with the fourth
// point, and D the area of q_0 q_1 q_2. In homogeneous coordinates p_j x p_k is a functional that
// vanishes at p_j and p_k and has the value a_i at the fourth point, so
//   H = sum_i b_i / (a_i D) q_i (p_j x p_k)'
// maps all four, with denominator 1 at the fourth and (b_i D_0) / (a_i D) at p_i.
#pragma once

#include "manymatch/problems/homography/kernels.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// A triangle of the sample is flat if twice its area is below this part of the square of the
// longest distance from the fourth point.
constexpr double kFlatTriangle = 1e-4;

struct Quad {
  vd x[3], y[3], origin_x, origin_y;  // three points seen from the fourth
  vd area[3], rest;                   // twice the areas with the fourth point, and without it
  vd flat;                            // areas up to this are too small

  Quad(const double (*xs)[kFourPointBatch], const double (*ys)[kFourPointBatch], int first)
      : origin_x(load(&xs[3][first])), origin_y(load(&ys[3][first])) {
    vd longest = vd{};
    for (int i = 0; i < 3; ++i) {
      x[i] = load(&xs[i][first]) - origin_x;
      y[i] = load(&ys[i][first]) - origin_y;
      const vd length = fma(x[i], x[i], y[i] * y[i]);
      longest = select(less(longest, length), length, longest);
    }
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      area[i] = fnma(x[k], y[j], x[j] * y[k]);
    }
    rest = area[0] + area[1] + area[2];
    flat = splat(kFlatTriangle) * longest;
  }
};

// A plane that both cameras see from the same side keeps the orientation of every triangle.
inline md same_orientation(vd a, vd flat_a, vd b, vd flat_b) {
  const md both_left = both(less(flat_a, a), less(flat_b, b));
  const md both_right = both(less(a, -flat_a), less(b, -flat_b));
  return either(both_left, both_right);
}

// Appends the lanes of a vector of solutions whose bit in `found` is set.
inline void append_solutions(unsigned found, int first, const vd* H, FourPointSolutions& out) {
  double columns[9][kDoubles];
  for (int c = 0; c < 9; ++c) store(columns[c], H[c]);
  for (int lane = 0; lane < kDoubles; ++lane) {
    if (!(found >> lane & 1U)) continue;
    out.sample[out.count] = first + lane;
    for (int c = 0; c < 9; ++c) out.H[out.count][c] = columns[c][lane];
    ++out.count;
  }
}

void four_point(const FourPointBatch& batch, FourPointSolutions& out) {
  const vd one = splat(1.0);
  out.count = 0;
  for (int first = 0; first < batch.count; first += kDoubles) {
    const Quad p(batch.x0, batch.y0, first), q(batch.x1, batch.y1, first);
    md valid = same_orientation(p.rest, p.flat, q.rest, q.flat);
    for (int i = 0; i < 3; ++i) {
      valid = both(valid, same_orientation(p.area[i], p.flat, q.area[i], q.flat));
    }
    const int lanes = batch.count - first < kDoubles ? batch.count - first : kDoubles;
    unsigned found = bits(valid) & ((1U << lanes) - 1);
    if (!found) continue;

    const vd* a = p.area;
    const vd inverse = one / (a[0] * a[1] * a[2] * q.rest);
    vd H[9];
    for (int c = 0; c < 9; ++c) H[c] = vd{};
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      const vd factor = q.area[i] * a[j] * a[k] * inverse;
      const vd fx = factor * (p.y[j] - p.y[k]), fy = factor * (p.x[k] - p.x[j]);
      H[0] = fma(q.x[i], fx, H[0]);
      H[1] = fma(q.x[i], fy, H[1]);
      H[3] = fma(q.y[i], fx, H[3]);
      H[4] = fma(q.y[i], fy, H[4]);
      H[6] = H[6] + fx;
      H[7] = H[7] + fy;
    }
    // Moves the origins back.
    H[2] = -fma(H[0], p.origin_x, H[1] * p.origin_y);
    H[5] = -fma(H[3], p.origin_x, H[4] * p.origin_y);
    H[8] = one - fma(H[6], p.origin_x, H[7] * p.origin_y);
    vd norm2 = vd{};
    for (int c = 0; c < 3; ++c) {
      H[c] = fma(q.origin_x, H[6 + c], H[c]);
      H[3 + c] = fma(q.origin_y, H[6 + c], H[3 + c]);
    }
    for (int c = 0; c < 9; ++c) norm2 = fma(H[c], H[c], norm2);
    found &= bits(less(norm2, splat(__builtin_inf())));
    const vd scale = one / sqrt(norm2);
    for (int c = 0; c < 9; ++c) H[c] = H[c] * scale;
    append_solutions(found, first, H, out);
  }
}

// Affine maps through the first three correspondences of each sample, as homographies: with the
// third point as origin, A takes the other two p_0, p_1 to q_0, q_1.
void three_point(const FourPointBatch& batch, FourPointSolutions& out) {
  const vd zero = vd{}, one = splat(1.0);
  out.count = 0;
  for (int first = 0; first < batch.count; first += kDoubles) {
    vd p[2][2], q[2][2], area[2], flat[2];
    const vd origin0[2] = {load(&batch.x0[2][first]), load(&batch.y0[2][first])};
    const vd origin1[2] = {load(&batch.x1[2][first]), load(&batch.y1[2][first])};
    for (int i = 0; i < 2; ++i) {
      p[i][0] = load(&batch.x0[i][first]) - origin0[0];
      p[i][1] = load(&batch.y0[i][first]) - origin0[1];
      q[i][0] = load(&batch.x1[i][first]) - origin1[0];
      q[i][1] = load(&batch.y1[i][first]) - origin1[1];
    }
    for (int side = 0; side < 2; ++side) {
      const auto& v = side == 0 ? p : q;
      const vd length0 = fma(v[0][0], v[0][0], v[0][1] * v[0][1]);
      const vd length1 = fma(v[1][0], v[1][0], v[1][1] * v[1][1]);
      area[side] = fnma(v[1][0], v[0][1], v[0][0] * v[1][1]);
      flat[side] = splat(kFlatTriangle) * select(less(length0, length1), length1, length0);
    }
    const int lanes = batch.count - first < kDoubles ? batch.count - first : kDoubles;
    unsigned found = bits(same_orientation(area[0], flat[0], area[1], flat[1]));
    found &= (1U << lanes) - 1;
    if (!found) continue;
    const vd inverse = one / area[0];
    vd H[9] = {zero, zero, zero, zero, zero, zero, zero, zero, one};
    vd norm2 = one;
    for (int r = 0; r < 2; ++r) {
      H[3 * r] = fnma(q[1][r], p[0][1], q[0][r] * p[1][1]) * inverse;
      H[3 * r + 1] = fnma(q[0][r], p[1][0], q[1][r] * p[0][0]) * inverse;
      H[3 * r + 2] = origin1[r] - fma(H[3 * r], origin0[0], H[3 * r + 1] * origin0[1]);
      for (int c = 0; c < 3; ++c) norm2 = fma(H[3 * r + c], H[3 * r + c], norm2);
    }
    found &= bits(less(norm2, splat(__builtin_inf())));
    const vd scale = one / sqrt(norm2);
    for (int c = 0; c < 9; ++c) H[c] = H[c] * scale;
    append_solutions(found, first, H, out);
  }
}

}  // namespace
}  // namespace manymatch

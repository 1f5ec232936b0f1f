// Fundamental matrices through seven correspondences each, one sample per vector lane.
//
// Two matrices A, B span those that satisfy the seven equations; det(x A + B) = 0 is a cubic in x.
// A is chosen among four directions in that plane so that its determinant is largest: the cubic
// then has no root at or near infinity.
#pragma once

#include "manymatch/problems/epipolar.h"
#include "manymatch/problems/fundamental/kernels.h"

namespace manymatch {
namespace {

inline void cross3(const vd* a, const vd* b, vd* out) {
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    out[i] = fnma(a[k], b[j], a[j] * b[k]);
  }
}

inline vd dot3(const vd* a, const vd* b) { return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2])); }

// c[k] is the coefficient of x^k in det(x A + B).
inline void determinant_cubic(const vd* A, const vd* B, vd* c) {
  for (int k = 0; k < 4; ++k) c[k] = vd{};
  for (int i = 0; i < 3; ++i) {
    const int j = 3 * ((i + 1) % 3), k = 3 * ((i + 2) % 3);
    vd of_a[3], of_b[3];
    cross3(A + j, A + k, of_a);
    cross3(B + j, B + k, of_b);
    if (i == 0) c[3] = dot3(A, of_a), c[0] = dot3(B, of_b);
    c[2] = c[2] + dot3(B + 3 * i, of_a);
    c[1] = c[1] + dot3(A + 3 * i, of_b);
  }
}

// Rotates the two matrices in their plane so that det A is large.
inline void turn_basis(vd* A, vd* B, vd* cubic) {
  determinant_cubic(A, B, cubic);
  const vd diagonal = splat(0.70710678118654752), third = diagonal * diagonal * diagonal;
  const vd outer = cubic[3] + cubic[1], inner = cubic[2] + cubic[0];
  const vd value[4] = {abs(cubic[3]), abs(cubic[0]), abs(outer + inner) * third,
                       abs(outer - inner) * third};
  const vd cosine[4] = {splat(1.0), vd{}, diagonal, diagonal};
  const vd sine[4] = {vd{}, splat(1.0), diagonal, -diagonal};
  vd best = value[0], c = cosine[0], s = sine[0];
  for (int i = 1; i < 4; ++i) {
    const md larger = less(best, value[i]);
    best = select(larger, value[i], best);
    c = select(larger, cosine[i], c);
    s = select(larger, sine[i], s);
  }
  for (int i = 0; i < 9; ++i) {
    const vd a = A[i], b = B[i];
    A[i] = fma(c, a, s * b);
    B[i] = fnma(s, a, c * b);
  }
  determinant_cubic(A, B, cubic);
}

// Real roots of a cubic: one, or three in the lanes of `two_more`. With x = t - a/3, Newton's
// method from beyond the outermost root of t^3 + p t + q converges to it from one side. The other
// two are the roots of a quadratic, and are polished. Lanes do not influence each other.
inline void cubic_roots(const vd* cubic, vd* root, md* two_more) {
  const vd zero = vd{}, one = splat(1.0), three = splat(3.0);
  const vd inverse = one / cubic[3];
  const vd shift = cubic[2] * inverse * splat(1.0 / 3.0), b = cubic[1] * inverse;
  const vd p = fnma(three * shift, shift, b);
  const vd q = fma(fma(splat(2.0) * shift, shift, -b), shift, cubic[0] * inverse);
  // |t| <= max(2 sqrt|p|, 2 cbrt|q/2|). A large leading coefficient keeps q in a range in which
  // q^(1/4 + 1/16), with a margin of a quarter, bounds the cube root.
  const vd fourth = sqrt(sqrt(abs(q))), bound_q = splat(2.0) * fourth * sqrt(sqrt(fourth));
  const vd bound_p = splat(2.0) * sqrt(abs(p));
  const vd bound = select(less(bound_q, bound_p), bound_p, bound_q);
  vd t = select(less(q, zero), bound, -bound);
  md running = less_equal(zero, zero);
  for (int i = 0; i < 60; ++i) {
    const vd t2 = t * t;
    const vd step = fma(t, t2 + p, q) / fma(three, t2, p);
    const md sound = both(running, less(abs(step), splat(__builtin_inf())));
    t = select(sound, t - step, t);
    // Converged: the next step would be about the square of this one.
    running = both(sound, less(splat(1e-12) * abs(t), abs(step)));
    if (!(bits(running) & kAllDoubles)) break;
  }
  // With q = 0 the Newton steps end at zero, or at the outermost root.
  const vd product = select(less(splat(1e-300), abs(t)), -q / t, p);
  const vd square = fnma(splat(4.0), product, t * t);
  const vd rounding = splat(1e-13) * fma(t, t, abs(product));
  *two_more = less_equal(-rounding, square);
  const vd half = splat(0.5), width = sqrt(select(less(zero, square), square, zero));
  root[0] = t;
  root[1] = half * (-t - width);
  root[2] = half * (-t + width);
  for (int k = 1; k < 3; ++k) {
    for (int i = 0; i < 2; ++i) {
      const vd t2 = root[k] * root[k], slope = fma(three, t2, p);
      const vd step = fma(root[k], t2 + p, q) / slope;
      // Near a double root both numerator and denominator of a step are noise.
      const md sound = less(abs(step), splat(1e-6) * (abs(root[k]) + width));
      root[k] = select(sound, root[k] - step, root[k]);
    }
  }
  for (int k = 0; k < 3; ++k) root[k] = root[k] - shift;
}

// The unit vector with F' e = 0.
inline void left_null_vector(const vd* F, vd* e) {
  vd best = splat(-1.0);
  for (int k = 0; k < 3; ++k) {
    const int c = (k + 1) % 3, d = (k + 2) % 3;
    const vd first[3] = {F[c], F[3 + c], F[6 + c]}, second[3] = {F[d], F[3 + d], F[6 + d]};
    vd normal[3];
    cross3(first, second, normal);
    const vd length = dot3(normal, normal);
    const md longer = less(best, length);
    best = select(longer, length, best);
    for (int i = 0; i < 3; ++i) e[i] = select(longer, normal[i], e[i]);
  }
  const vd scale = splat(1.0) / sqrt(best);
  for (int i = 0; i < 3; ++i) e[i] = e[i] * scale;
}

// F and e of a root; returns the lanes with all seven points on one side.
inline unsigned matrix_of_root(const SevenPointBatch& batch, int first, const vd* A, const vd* B,
                               vd x, vd* F, vd* e) {
  const vd zero = vd{}, one = splat(1.0);
  vd norm2 = vd{};
  for (int i = 0; i < 9; ++i) {
    F[i] = fma(x, A[i], B[i]);
    norm2 = fma(F[i], F[i], norm2);
    if (i < 3) e[i] = zero;
  }
  const vd scale = one / sqrt(norm2);
  for (int i = 0; i < 9; ++i) F[i] = F[i] * scale;
  left_null_vector(F, e);
  md same = less(norm2, splat(__builtin_inf())), opposite = same;
  for (int k = 0; k < 7; ++k) {
    const vd x0 = load(&batch.x0[k][first]), y0 = load(&batch.y0[k][first]);
    const vd x1 = load(&batch.x1[k][first]), y1 = load(&batch.y1[k][first]);
    const vd line0 = fma(F[0], x0, fma(F[1], y0, F[2]));
    const vd line1 = fma(F[3], x0, fma(F[4], y0, F[5]));
    const vd side = fma(fnma(e[2], y1, e[1]), line0, fma(e[2], x1, -e[0]) * line1);
    same = both(same, less(zero, side));
    opposite = both(opposite, less(side, zero));
    if (!(bits(either(same, opposite)) & kAllDoubles)) return 0;
  }
  for (int i = 0; i < 3; ++i) e[i] = select(same, e[i], -e[i]);
  return bits(either(same, opposite)) & kAllDoubles;
}

void seven_point(const SevenPointBatch& batch, SevenPointSolutions& out) {
  out.count = 0;
  const vd one = splat(1.0);
  for (int first = 0; first < batch.count; first += kDoubles) {
    vd columns[7][9], basis[2][9], cubic[4], root[3];
    for (int k = 0; k < 7; ++k) {
      const vd x0 = load(&batch.x0[k][first]), y0 = load(&batch.y0[k][first]);
      const vd x1 = load(&batch.x1[k][first]), y1 = load(&batch.y1[k][first]);
      const vd row[9] = {x1 * x0, x1 * y0, x1, y1 * x0, y1 * y0, y1, x0, y0, one};
      for (int i = 0; i < 9; ++i) columns[k][i] = row[i];
    }
    null_space<7>(columns, basis);
    turn_basis(basis[0], basis[1], cubic);
    md two_more;
    cubic_roots(cubic, root, &two_more);
    const int lanes = batch.count - first < kDoubles ? batch.count - first : kDoubles;
    const unsigned used = (1U << lanes) - 1, three = bits(two_more) & used;
    unsigned found[3];
    double F[3][9][kDoubles], e[3][3][kDoubles];
    for (int r = 0; r < 3; ++r) {
      found[r] = r == 0 ? used : three;
      if (!found[r]) continue;
      vd matrix[9], epipole[3];
      found[r] &= matrix_of_root(batch, first, basis[0], basis[1], root[r], matrix, epipole);
      if (!found[r]) continue;
      for (int i = 0; i < 9; ++i) store(F[r][i], matrix[i]);
      for (int i = 0; i < 3; ++i) store(e[r][i], epipole[i]);
    }
    for (int lane = 0; lane < lanes; ++lane) {
      for (int r = 0; r < 3; ++r) {
        if (!(found[r] >> lane & 1U)) continue;
        out.sample[out.count] = first + lane;
        for (int i = 0; i < 9; ++i) out.F[out.count][i] = F[r][i][lane];
        for (int i = 0; i < 3; ++i) out.e[out.count][i] = e[r][i][lane];
        ++out.count;
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

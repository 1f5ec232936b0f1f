// The ten cubic constraints on E = x X + y Y + z Z + W, one sample per vector lane.
//
// det(E) = 0 and (E E' - tr(E E')/2) E = 0, written out in 20 monomials and eliminated so that a
// 3x3 matrix B(z) of polynomials remains whose determinant, of degree ten, vanishes at solutions.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

// Linear: x, y, z, 1. Quadratic: x2, y2, z2, xy, xz, yz, x, y, z, 1.
struct Linear {
  vd c[4];
};
struct Quadratic {
  vd c[10];
};

// Columns of the system, the ten that are eliminated first.
enum Monomial {
  kX3,
  kY3,
  kX2Y,
  kXY2,
  kX2Z,
  kX2,
  kY2Z,
  kY2,
  kXYZ,
  kXY,
  kXZ2,
  kXZ,
  kX,
  kYZ2,
  kYZ,
  kY,
  kZ3,
  kZ2,
  kZ,
  kOne
};

inline void add_product(Quadratic& q, const Linear& a, const Linear& b) {
  q.c[0] = fma(a.c[0], b.c[0], q.c[0]);
  q.c[1] = fma(a.c[1], b.c[1], q.c[1]);
  q.c[2] = fma(a.c[2], b.c[2], q.c[2]);
  q.c[3] = fma(a.c[0], b.c[1], fma(a.c[1], b.c[0], q.c[3]));
  q.c[4] = fma(a.c[0], b.c[2], fma(a.c[2], b.c[0], q.c[4]));
  q.c[5] = fma(a.c[1], b.c[2], fma(a.c[2], b.c[1], q.c[5]));
  q.c[6] = fma(a.c[0], b.c[3], fma(a.c[3], b.c[0], q.c[6]));
  q.c[7] = fma(a.c[1], b.c[3], fma(a.c[3], b.c[1], q.c[7]));
  q.c[8] = fma(a.c[2], b.c[3], fma(a.c[3], b.c[2], q.c[8]));
  q.c[9] = fma(a.c[3], b.c[3], q.c[9]);
}

// The square of a linear form: mixed products occur twice, which halves the work.
inline void add_square(Quadratic& q, const Linear& a) {
  const Linear twice{{a.c[0] + a.c[0], a.c[1] + a.c[1], a.c[2] + a.c[2], vd{}}};
  for (int k = 0; k < 3; ++k) q.c[k] = fma(a.c[k], a.c[k], q.c[k]);
  q.c[3] = fma(twice.c[0], a.c[1], q.c[3]);
  q.c[4] = fma(twice.c[0], a.c[2], q.c[4]);
  q.c[5] = fma(twice.c[1], a.c[2], q.c[5]);
  for (int k = 0; k < 3; ++k) q.c[6 + k] = fma(twice.c[k], a.c[3], q.c[6 + k]);
  q.c[9] = fma(a.c[3], a.c[3], q.c[9]);
}

inline void add_product(vd* row, const Quadratic& q, const Linear& l) {
  const vd *a = q.c, *b = l.c;
  const auto add = [row](Monomial m, vd f, vd g) { row[m] = fma(f, g, row[m]); };
  add(kX3, a[0], b[0]);
  add(kX2Y, a[0], b[1]);
  add(kX2Z, a[0], b[2]);
  add(kX2, a[0], b[3]);
  add(kXY2, a[1], b[0]);
  add(kY3, a[1], b[1]);
  add(kY2Z, a[1], b[2]);
  add(kY2, a[1], b[3]);
  add(kXZ2, a[2], b[0]);
  add(kYZ2, a[2], b[1]);
  add(kZ3, a[2], b[2]);
  add(kZ2, a[2], b[3]);
  add(kX2Y, a[3], b[0]);
  add(kXY2, a[3], b[1]);
  add(kXYZ, a[3], b[2]);
  add(kXY, a[3], b[3]);
  add(kX2Z, a[4], b[0]);
  add(kXYZ, a[4], b[1]);
  add(kXZ2, a[4], b[2]);
  add(kXZ, a[4], b[3]);
  add(kXYZ, a[5], b[0]);
  add(kY2Z, a[5], b[1]);
  add(kYZ2, a[5], b[2]);
  add(kYZ, a[5], b[3]);
  add(kX2, a[6], b[0]);
  add(kXY, a[6], b[1]);
  add(kXZ, a[6], b[2]);
  add(kX, a[6], b[3]);
  add(kXY, a[7], b[0]);
  add(kY2, a[7], b[1]);
  add(kYZ, a[7], b[2]);
  add(kY, a[7], b[3]);
  add(kXZ, a[8], b[0]);
  add(kYZ, a[8], b[1]);
  add(kZ2, a[8], b[2]);
  add(kZ, a[8], b[3]);
  add(kX, a[9], b[0]);
  add(kY, a[9], b[1]);
  add(kZ, a[9], b[2]);
  add(kOne, a[9], b[3]);
}

// basis[k] is the k-th null vector (X, Y, Z, W), a row-major 3x3 matrix.
inline void constraint_rows(const vd basis[4][9], vd rows[10][20]) {
  Linear E[9];
  for (int i = 0; i < 9; ++i) {
    for (int k = 0; k < 4; ++k) E[i].c[k] = basis[k][i];
  }
  // L = E E' - tr(E E') / 2
  Quadratic L[3][3] = {};
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) add_square(L[i][i], E[3 * i + k]);
    for (int j = i + 1; j < 3; ++j) {
      for (int k = 0; k < 3; ++k) add_product(L[i][j], E[3 * i + k], E[3 * j + k]);
      L[j][i] = L[i][j];
    }
  }
  const vd half = splat(0.5);
  for (int c = 0; c < 10; ++c) {
    const vd trace = half * (L[0][0].c[c] + L[1][1].c[c] + L[2][2].c[c]);
    for (int i = 0; i < 3; ++i) L[i][i].c[c] = L[i][i].c[c] - trace;
  }
  for (int r = 0; r < 10; ++r) {
    for (int c = 0; c < 20; ++c) rows[r][c] = vd{};
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 3; ++k) add_product(rows[3 * i + j], L[i][k], E[3 * k + j]);
    }
  }
  for (int k = 0; k < 3; ++k) {  // determinant along the first row
    const int a = (k + 1) % 3, b = (k + 2) % 3;
    Quadratic minor = {};
    Linear negative;
    for (int c = 0; c < 4; ++c) negative.c[c] = -E[3 + b].c[c];
    add_product(minor, E[3 + a], E[6 + b]);
    add_product(minor, negative, E[6 + a]);
    add_product(rows[9], minor, E[k]);
  }
}

// Gaussian elimination of the first ten columns. Back substitution is done for rows 4 to 9 only,
// which is all that B needs. There is no pivoting: the orthonormal basis keeps the pivots away from
// zero. The few samples with a tiny pivot lose digits, which the solver's check of E detects.
inline void eliminate(vd rows[10][20]) {
  const vd one = splat(1.0);
#pragma GCC unroll 10
  for (int k = 0; k < 10; ++k) {
    const vd inverse = one / rows[k][k];
    for (int r = k + 1; r < 10; ++r) {
      const vd f = rows[r][k] * inverse;
#pragma GCC unroll 20
      for (int c = k + 1; c < 20; ++c) rows[r][c] = fnma(f, rows[k][c], rows[r][c]);
    }
    if (k >= 4) {
      for (int c = k + 1; c < 20; ++c) rows[k][c] = rows[k][c] * inverse;
    }
  }
  for (int k = 9; k > 4; --k) {
    for (int r = 4; r < k; ++r) {
      for (int c = 10; c < 20; ++c) rows[r][c] = fnma(rows[r][k], rows[k][c], rows[r][c]);
    }
  }
}

// B(z): three rows of polynomials in ascending powers: x (degree 3), y (3), 1 (4).
struct PolynomialMatrix {
  vd x[3][4], y[3][4], one[3][5];
};

// Row i of B is (row of m z) - z (row of m) for m = x2, y2, xy.
inline PolynomialMatrix polynomial_matrix(const vd rows[10][20]) {
  PolynomialMatrix B;
  for (int i = 0; i < 3; ++i) {
    const vd *e = rows[4 + 2 * i], *f = rows[5 + 2 * i];
    const auto cubic = [e, f](int z2, vd* out) {
      out[0] = e[z2 + 2];
      out[1] = e[z2 + 1] - f[z2 + 2];
      out[2] = e[z2] - f[z2 + 1];
      out[3] = -f[z2];
    };
    cubic(kXZ2, B.x[i]);
    cubic(kYZ2, B.y[i]);
    B.one[i][0] = e[kOne];
    B.one[i][1] = e[kZ] - f[kOne];
    B.one[i][2] = e[kZ2] - f[kZ];
    B.one[i][3] = e[kZ3] - f[kZ2];
    B.one[i][4] = -f[kZ3];
  }
  return B;
}

// det B(z), ascending powers.
inline void determinant(const PolynomialMatrix& B, vd p[11]) {
  for (int k = 0; k < 11; ++k) p[k] = vd{};
  for (int i = 0; i < 3; ++i) {
    const int a = (i + 1) % 3, b = (i + 2) % 3;
    vd minor[7] = {};
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 4; ++k) {
        minor[j + k] = fma(B.x[a][j], B.y[b][k], fnma(B.x[b][j], B.y[a][k], minor[j + k]));
      }
    }
    for (int j = 0; j < 7; ++j) {
      for (int k = 0; k < 5; ++k) p[j + k] = fma(minor[j], B.one[i][k], p[j + k]);
    }
  }
}

}  // namespace
}  // namespace manymatch

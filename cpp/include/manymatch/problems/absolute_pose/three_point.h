// Camera poses through three points of the world each, one sample per vector lane.
//
// Let b_i be the unit vectors towards the points and d_i the depths along them. The sides of the
// triangle give |d_i b_i - d_j b_j|^2 = a_ij. The homogeneous combinations of these three equations
// form a pencil of conics in (d_1 : d_2 : d_3), whose four common points are the solutions. A real
// root of a cubic gives a conic of the pencil that is a pair of lines. Each line intersects another
// conic in two points, and Newton's method on the three equations restores the lost digits.
#pragma once

#include "manymatch/problems/absolute_pose/kernels.h"
#include "manymatch/simd.h"

namespace manymatch {
namespace {

// A triangle is flat if twice its area is below this part of the sum of its squared sides.
constexpr double kFlatWorldTriangle = 1e-4;
// Largest relative error of the squared sides of a solution.
constexpr double kWrongSide = 1e-9;
constexpr int kCubicSteps = 9, kDepthSteps = 3;

inline vd dot3(const vd* a, const vd* b) { return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2])); }

inline void cross3(const vd* a, const vd* b, vd* out) {
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    out[i] = fnma(a[k], b[j], a[j] * b[k]);
  }
}

// A symmetric 3x3 matrix: the diagonal, then the entries (1, 2), (0, 2) and (0, 1).
struct Conic {
  vd d[3], o[3];

  vd apply(const vd* a, const vd* b) const {
    vd sum = vd{};
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      sum = fma(d[i] * a[i], b[i], sum);
      sum = fma(o[i], fma(a[j], b[k], a[k] * b[j]), sum);
    }
    return sum;
  }
  Conic adjugate() const {
    Conic out;
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      out.d[i] = fnma(o[i], o[i], d[j] * d[k]);
      out.o[i] = fnma(d[i], o[i], o[j] * o[k]);
    }
    return out;
  }
};

// Sum of the products of all entries.
inline vd inner(const Conic& a, const Conic& b) {
  vd diagonal = vd{}, other = vd{};
  for (int i = 0; i < 3; ++i) {
    diagonal = fma(a.d[i], b.d[i], diagonal);
    other = fma(a.o[i], b.o[i], other);
  }
  return fma(splat(2.0), other, diagonal);
}

inline Conic combine(vd s, const Conic& a, vd t, const Conic& b) {
  Conic out;
  for (int i = 0; i < 3; ++i) {
    out.d[i] = fma(s, a.d[i], t * b.d[i]);
    out.o[i] = fma(s, a.o[i], t * b.o[i]);
  }
  return out;
}

inline Conic select(md m, const Conic& yes, const Conic& no) {
  Conic out;
  for (int i = 0; i < 3; ++i) {
    out.d[i] = select(m, yes.d[i], no.d[i]);
    out.o[i] = select(m, yes.o[i], no.o[i]);
  }
  return out;
}

// Cube root of a positive number to within a tenth: divides the exponent by three.
inline vd rough_cube_root(vd a) {
  double lanes[kDoubles];
  store(lanes, a);
  return from_lanes([&lanes](int lane) {
    uint64_t word;
    __builtin_memcpy(&word, &lanes[lane], sizeof word);
    word = word / 3 + 0x2a9f7893782da1ceULL;
    double root;
    __builtin_memcpy(&root, &word, sizeof root);
    return root;
  });
}

// The real root of x^3 + b x^2 + c x + d that is farthest from the point of inflection, and so the
// best separated one. With y = x + b / 3 the cubic is y^3 + p y + q. From a bound on the side given
// by the sign of q, Newton's method converges monotonically.
inline vd isolated_root(vd b, vd c, vd d) {
  const vd zero = vd{}, three = splat(3.0), third = splat(1.0 / 3.0);
  const vd shift = b * third;
  const vd p = fnma(b, shift, c);
  const vd q = fma(shift, fma(splat(2.0) * shift, shift, -c), d);
  const vd size = abs(q);
  const vd spread = sqrt(select(less(p, zero), -p, zero));
  vd y = fma(splat(1.2), rough_cube_root(size), splat(1.2) * spread);
  for (int step = 0; step < kCubicSteps; ++step) {
    const vd y2 = y * y;
    const vd slope = fma(three, y2, p);
    const vd next = fma(splat(2.0) * y2, y, size) / slope;
    y = select(less(zero, slope), next, y);
  }
  return select(less(q, zero), y, -y) - shift;
}

// The conic is l m' + m l' up to a factor; `meet` is proportional to l x m, the intersection of the
// two lines.
// Returns the lanes with real lines.
inline md split_conic(const Conic& conic, vd* l, vd* m, vd* meet) {
  const Conic adjugate = conic.adjugate();
  // -adj = meet meet'; the column of the largest diagonal entry.
  vd largest = -adjugate.d[0];
  meet[0] = -adjugate.d[0];
  meet[1] = -adjugate.o[2];
  meet[2] = -adjugate.o[1];
  const md second = less(largest, -adjugate.d[1]);
  largest = select(second, -adjugate.d[1], largest);
  meet[0] = select(second, -adjugate.o[2], meet[0]);
  meet[1] = select(second, -adjugate.d[1], meet[1]);
  meet[2] = select(second, -adjugate.o[0], meet[2]);
  const md third = less(largest, -adjugate.d[2]);
  largest = select(third, -adjugate.d[2], largest);
  meet[0] = select(third, -adjugate.o[1], meet[0]);
  meet[1] = select(third, -adjugate.o[0], meet[1]);
  meet[2] = select(third, -adjugate.d[2], meet[2]);
  const vd scale = splat(1.0) / sqrt(largest);
  for (int i = 0; i < 3; ++i) meet[i] = meet[i] * scale;
  // With the skew matrix of `meet` added it has rank one: columns are l, rows are m.
  const vd N[3][3] = {{conic.d[0], conic.o[2] - meet[2], conic.o[1] + meet[1]},
                      {conic.o[2] + meet[2], conic.d[1], conic.o[0] - meet[0]},
                      {conic.o[1] - meet[1], conic.o[0] + meet[0], conic.d[2]}};
  vd best_column = splat(-1.0), best_row = splat(-1.0);
  for (int k = 0; k < 3; ++k) {
    const vd column[3] = {N[0][k], N[1][k], N[2][k]};
    const vd column2 = dot3(column, column), row2 = dot3(N[k], N[k]);
    const md longer_column = less(best_column, column2), longer_row = less(best_row, row2);
    best_column = select(longer_column, column2, best_column);
    best_row = select(longer_row, row2, best_row);
    for (int i = 0; i < 3; ++i) {
      l[i] = select(longer_column, column[i], l[i]);
      m[i] = select(longer_row, N[k][i], m[i]);
    }
  }
  return less(vd{}, largest);
}

struct Triangle {
  vd a[3];  // squared sides, between points (1, 2), (0, 2) and (0, 1)
  vd c[3];  // cosines between the directions to these points

  // Newton's method on the three sides, from depths that are nearly right. Returns the lanes with
  // positive depths that give the sides.
  md polish(vd* depth) const {
    const vd one = splat(1.0), two = splat(2.0), half = splat(0.5);
    for (int step = 0; step < kDepthSteps; ++step) {
      // Half of the residual of side i, which lies between points j and k, and half its gradient
      // (zero, at j, at k).
      vd r[3], at_j[3], at_k[3];
      for (int i = 0; i < 3; ++i) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        at_j[i] = fnma(c[i], depth[k], depth[j]);
        at_k[i] = fnma(c[i], depth[j], depth[k]);
        r[i] = half * fma(at_j[i], depth[j], fma(at_k[i], depth[k], -a[i]));
      }
      // Rows: (0, j0, k0), (k1, 0, j1), (j2, k2, 0); Cramer's rule.
      const vd forward = at_j[0] * at_j[1] * at_j[2], back = at_k[0] * at_k[1] * at_k[2];
      const vd inverse = one / (forward + back);
      for (int i = 0; i < 3; ++i) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        const vd minor =
            fma(r[k] * at_j[i], at_j[j], fma(r[j] * at_k[i], at_k[k], -(r[i] * at_k[k] * at_j[j])));
        depth[i] = fnma(minor, inverse, depth[i]);
      }
    }
    md good = less(vd{}, depth[0]);
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      const vd side = fma(depth[j], fnma(two * c[i], depth[k], depth[j]), depth[k] * depth[k]);
      good = both(good, less(vd{}, depth[i]));
      // Relative to the squared depths, whose rounding dominates at small angles.
      const vd size = fma(depth[j], depth[j], fma(depth[k], depth[k], a[i]));
      good = both(good, less(abs(side - a[i]), splat(kWrongSide) * size));
    }
    return good;
  }
};

// Axes of a triangle: along its first side, normal to its plane, and the third.
inline void triangle_axes(const vd* side1, const vd* side2, vd axes[3][3]) {
  cross3(side1, side2, axes[2]);
  const vd along = splat(1.0) / sqrt(dot3(side1, side1));
  const vd across = splat(1.0) / sqrt(dot3(axes[2], axes[2]));
  for (int i = 0; i < 3; ++i) {
    axes[0][i] = side1[i] * along;
    axes[2][i] = axes[2][i] * across;
  }
  cross3(axes[2], axes[0], axes[1]);
}

void three_point(const PerspectiveBatch& batch, PerspectiveSolutions& out) {
  const vd zero = vd{}, one = splat(1.0);
  out.count = 0;
  for (int first = 0; first < batch.count; first += kDoubles) {
    vd X[3][3], b[3][3];
    for (int k = 0; k < 3; ++k) {
      const vd x = load(&batch.x[k][first]), y = load(&batch.y[k][first]);
      const vd scale = one / sqrt(fma(x, x, fma(y, y, one)));
      b[k][0] = x * scale;
      b[k][1] = y * scale;
      b[k][2] = scale;
      for (int c = 0; c < 3; ++c) X[k][c] = load(&batch.X[k][c][first]);
    }
    vd side1[3], side2[3], side3[3], normal[3];
    for (int c = 0; c < 3; ++c) {
      side1[c] = X[1][c] - X[0][c];
      side2[c] = X[2][c] - X[0][c];
      side3[c] = X[2][c] - X[1][c];
    }
    cross3(side1, side2, normal);
    Triangle triangle;
    const vd squares[3] = {dot3(side3, side3), dot3(side2, side2), dot3(side1, side1)};
    const vd total = squares[0] + squares[1] + squares[2];
    const vd flat = splat(kFlatWorldTriangle) * total;
    const md valid = less(flat * flat, dot3(normal, normal));
    const int lanes = batch.count - first < kDoubles ? batch.count - first : kDoubles;
    const unsigned wanted = (1U << lanes) - 1;
    if (!(bits(valid) & wanted)) continue;
    // The unit is such that the squared sides sum to one.
    const vd inverse_total = one / total;
    for (int i = 0; i < 3; ++i) {
      triangle.a[i] = squares[i] * inverse_total;
      triangle.c[i] = dot3(b[(i + 1) % 3], b[(i + 2) % 3]);
    }
    // Two orthonormal combinations g of the equations with g . a = 0.
    const vd* a = triangle.a;
    vd g[2][3], unit[3];
    const vd length = one / sqrt(fma(a[1], a[1], a[2] * a[2]));
    g[0][0] = zero;
    g[0][1] = a[2] * length;
    g[0][2] = -(a[1] * length);
    const vd norm = one / sqrt(dot3(a, a));
    for (int i = 0; i < 3; ++i) unit[i] = a[i] * norm;
    cross3(unit, g[0], g[1]);
    Conic Q[2];
    for (int n = 0; n < 2; ++n) {
      for (int i = 0; i < 3; ++i) {
        Q[n].d[i] = g[n][(i + 1) % 3] + g[n][(i + 2) % 3];
        Q[n].o[i] = -(g[n][i] * triangle.c[i]);
      }
    }
    // det(x Q0 + Q1), with the conic of the larger determinant leading.
    const Conic adjugate0 = Q[0].adjugate(), adjugate1 = Q[1].adjugate();
    const vd third = splat(1.0 / 3.0);
    const vd det0 = inner(adjugate0, Q[0]) * third, det1 = inner(adjugate1, Q[1]) * third;
    const vd mixed0 = inner(adjugate0, Q[1]), mixed1 = inner(adjugate1, Q[0]);
    const md swap = less(abs(det0), abs(det1));
    const vd lead = one / select(swap, det1, det0);
    const vd x =
        isolated_root(select(swap, mixed1, mixed0) * lead, select(swap, mixed0, mixed1) * lead,
                      select(swap, det0, det1) * lead);
    const Conic leading = select(swap, Q[1], Q[0]), other = select(swap, Q[0], Q[1]);
    const vd shrink = one / sqrt(fma(x, x, one));
    const Conic pair = combine(x * shrink, leading, shrink, other);
    const Conic across = combine(shrink, leading, -(x * shrink), other);
    vd lines[2][3] = {}, meet[3];
    const md real = both(valid, split_conic(pair, lines[0], lines[1], meet));
    if (!(bits(real) & wanted)) continue;

    vd world[3][3];
    triangle_axes(side1, side2, world);
    const vd size = sqrt(total);
    unsigned found[kThreePointRoots];
    double R[kThreePointRoots][9][kDoubles], t[kThreePointRoots][3][kDoubles];
    double mean_depth[kThreePointRoots][kDoubles];
    for (int root = 0; root < kThreePointRoots; ++root) {
      // Points s meet + u v on the line, v orthogonal to `meet`, that lie on the other conic.
      vd v[3];
      cross3(lines[root / 2], meet, v);
      const vd vv = across.apply(v, v), mv = across.apply(meet, v), mm = across.apply(meet, meet);
      const vd square = mv * mv;
      vd discriminant = fnma(vv, mm, square);
      const vd rounding = splat(1e-11) * (square + abs(vv * mm));
      const md crosses = less(-rounding, discriminant);
      const vd rootd = sqrt(select(less(zero, discriminant), discriminant, zero));
      const vd k = -(mv + select(less(mv, zero), -rootd, rootd));
      const vd s = root % 2 ? k : vv, u = root % 2 ? mm : k;
      vd depth[3];
      for (int i = 0; i < 3; ++i) depth[i] = fma(s, meet[i], u * v[i]);
      const vd sign = depth[0] + depth[1] + depth[2];
      vd sides = zero;
      for (int i = 0; i < 3; ++i) {
        const vd dj = depth[(i + 1) % 3], dk = depth[(i + 2) % 3];
        sides = sides + fma(dj, fnma(splat(2.0) * triangle.c[i], dk, dj), dk * dk);
      }
      const vd scale = select(less(sign, zero), -one, one) / sqrt(sides);
      md ahead = both(real, crosses);
      for (int i = 0; i < 3; ++i) {
        depth[i] = depth[i] * scale;
        ahead = both(ahead, less(zero, depth[i]));
      }
      found[root] = bits(ahead) & wanted;
      if (!found[root]) continue;
      ahead = both(ahead, triangle.polish(depth));
      found[root] = bits(ahead) & wanted;
      if (!found[root]) continue;

      vd seen[3][3], camera1[3], camera2[3], camera[3][3];
      for (int i = 0; i < 3; ++i) {
        depth[i] = depth[i] * size;
        for (int c = 0; c < 3; ++c) seen[i][c] = b[i][c] * depth[i];
      }
      for (int c = 0; c < 3; ++c) {
        camera1[c] = seen[1][c] - seen[0][c];
        camera2[c] = seen[2][c] - seen[0][c];
      }
      triangle_axes(camera1, camera2, camera);
      vd rotation[9];
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 3; ++c) {
          rotation[3 * r + c] = fma(camera[0][r], world[0][c],
                                    fma(camera[1][r], world[1][c], camera[2][r] * world[2][c]));
          store(R[root][3 * r + c], rotation[3 * r + c]);
        }
      }
      for (int r = 0; r < 3; ++r) {
        vd sum = zero;
        for (int i = 0; i < 3; ++i) sum = sum + (seen[i][r] - dot3(rotation + 3 * r, X[i]));
        store(t[root][r], sum * splat(1.0 / 3.0));
      }
      store(mean_depth[root], (seen[0][2] + seen[1][2] + seen[2][2]) * splat(1.0 / 3.0));
    }
    for (int lane = 0; lane < lanes; ++lane) {
      for (int root = 0; root < kThreePointRoots; ++root) {
        if (!(found[root] >> lane & 1U)) continue;
        const int n = out.count++;
        out.sample[n] = first + lane;
        for (int c = 0; c < 9; ++c) out.R[n][c] = R[root][c][lane];
        for (int c = 0; c < 3; ++c) out.t[n][c] = t[root][c][lane];
        out.depth[n] = mean_depth[root][lane];
      }
    }
  }
}

}  // namespace
}  // namespace manymatch

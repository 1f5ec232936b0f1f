// Symmetric transfer error: inliers among all edges, and the normal equations of a refinement.
//
// r^2 = (|x1 - H x0|^2 + |x0 - H^-1 x1|^2) / 2, the mean over the two images. It is undefined if a
// third coordinate is not positive: such a point lies beyond the line at infinity, where no camera
// sees it. The adjugate stands for the inverse, so that a homography with a negative determinant,
// which mirrors, has no inliers.
#pragma once

#include "manymatch/problems/edge_loops.h"
#include "manymatch/problems/homography/kernels.h"

namespace manymatch {
namespace {

inline void adjugate(const double* H, double* out) {
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const int r0 = (j + 1) % 3, r1 = (j + 2) % 3, c0 = (i + 1) % 3, c1 = (i + 2) % 3;
      out[3 * i + j] = H[3 * r0 + c0] * H[3 * r1 + c1] - H[3 * r0 + c1] * H[3 * r1 + c0];
    }
  }
}

// One direction of the transfer, with both sides of the comparison multiplied by the third
// coordinate w: (d0, d1) = w (H x - target).
template <class V>
struct Transfer {
  V minus_w, d0, d1;

  // `H` has its third row negated.
  Transfer(const V* H, V x, V y, V target_x, V target_y)
      : minus_w(fma(H[6], x, fma(H[7], y, H[8]))),
        d0(fma(target_x, minus_w, fma(H[0], x, fma(H[1], y, H[2])))),
        d1(fma(target_y, minus_w, fma(H[3], x, fma(H[4], y, H[5])))) {}
};

template <class V, class Scalar>
inline void broadcast_transfer(const double* H, double scale, V* out) {
  for (int k = 0; k < 9; ++k) {
    out[k] = splat(static_cast<Scalar>(k < 6 ? scale * H[k] : -scale * H[k]));
  }
}

struct Symmetric {
  vd forward[9], back[9];

  explicit Symmetric(const double* H) {
    double inverse[9];
    adjugate(H, inverse);
    broadcast_transfer<vd, double>(H, 1.0, forward);
    broadcast_transfer<vd, double>(inverse, 1.0, back);
  }

  Residual operator()(vd x0, vd y0, vd x1, vd y1) const {
    const Transfer<vd> f(forward, x0, y0, x1, y1), b(back, x1, y1, x0, y0);
    const vd f2 = fma(f.d0, f.d0, f.d1 * f.d1) / (f.minus_w * f.minus_w);
    const vd b2 = fma(b.d0, b.d0, b.d1 * b.d1) / (b.minus_w * b.minus_w);
    const vd r2 = splat(0.5) * (f2 + b2), zero = vd{};
    return {r2, both(both(less(f.minus_w, zero), less(b.minus_w, zero)),
                     less(r2, splat(__builtin_inf())))};
  }
};

int inliers(const HomographyEdges& edges, const double* H, double eps2, uint64_t* mask,
            double* r2_out) {
  const Symmetric symmetric(H);
  return find_inliers(edges.words, eps2, mask, r2_out, [=](std::size_t i) {
    return symmetric(load(edges.x0 + i), load(edges.y0 + i), load(edges.x1 + i),
                     load(edges.y1 + i));
  });
}

// Rounding errors of one direction in float32. Every term of w and of d = w (H x - target) passes
// at most eight roundings of 2^-24 (coefficient, coordinates, products and sums; fewer if fma is
// one instruction). Let R be the sums of the absolute values of the rows of H, and M and T the
// largest coordinates. Then |error of w| <= 10 2^-24 R2 M and, for each component, |error of d| <=
// 10 2^-24 (max(R0, R1) + T R2) M.
struct Rounding {
  double w, d;

  Rounding(const double* H, double scale, double largest, double largest_target) {
    double row[3];
    for (int i = 0; i < 3; ++i) {
      row[i] = 0.0;
      for (int j = 0; j < 3; ++j) row[i] += scale * __builtin_fabs(H[3 * i + j]);
    }
    constexpr double kUnit = 10.0 / (1 << 24);
    w = kUnit * row[2] * largest;
    d = kUnit * ((row[0] > row[1] ? row[0] : row[1]) + largest_target * row[2]) * largest;
  }
};

inline double inverse_of_largest(const double* H) {
  double largest = 0.0;
  for (int k = 0; k < 9; ++k) {
    if (__builtin_fabs(H[k]) > largest) largest = __builtin_fabs(H[k]);
  }
  return 1.0 / largest;
}

// A lower bound of the squared distance of a transfer.
struct LowerBound {
  vf h[9], slack_w, slack_d;

  LowerBound(const double* H, double scale, const Rounding& rounding)
      : slack_w(splat(static_cast<float>(rounding.w))),
        slack_d(splat(static_cast<float>(rounding.d))) {
    broadcast_transfer<vf, float>(H, scale, h);
  }

  // Clears the bits of points that are certainly beyond the line at infinity.
  vf distance2(vf x, vf y, vf target_x, vf target_y, unsigned* visible) const {
    const Transfer<vf> t(h, x, y, target_x, target_y);
    const vf zero = vf{}, w = slack_w - t.minus_w;
    const vf d0 = max(abs(t.d0) - slack_d, zero), d1 = max(abs(t.d1) - slack_d, zero);
    *visible &= bits(less(zero, w));
    return fma(d0, d0, d1 * d1) / (w * w);
  }
};

// The forward error of an inlier is at most sqrt(2) eps. This test runs over all edges and ends
// most hypotheses. Both directions together are tested only if at least `enough` edges pass it.
int screen(const HomographyEdges& edges, const double* H, double eps, int enough, uint64_t* mask) {
  constexpr double kMargin = 1.0 + 1e-5;  // for the roundings after w and d are known
  const double scale = inverse_of_largest(H), reach = 1.4142135623730951 * eps;
  const Rounding rounding(H, scale, edges.largest0, edges.largest1);
  vf h[9];
  broadcast_transfer<vf, float>(H, scale, h);
  // |d| <= reach w, with the largest possible errors of both sides.
  const vf slope = splat(static_cast<float>(-reach * kMargin));
  const vf offset =
      splat(static_cast<float>((1.4142135623730951 * rounding.d + reach * rounding.w) * kMargin));
  const int near = mask_edges<kFloats>(edges.words, mask, [=](std::size_t i) {
    const Transfer<vf> t(h, load(edges.x0f + i), load(edges.y0f + i), load(edges.x1f + i),
                         load(edges.y1f + i));
    // Negative beyond the line at infinity; NaN for padding, so that the comparison fails.
    const vf limit = fma(t.minus_w, slope, offset);
    return bits(less_equal(fma(t.d0, t.d0, t.d1 * t.d1), limit * abs(limit)));
  });
  if (near < enough) return near;

  double inverse[9];
  adjugate(H, inverse);
  const double inverse_scale = inverse_of_largest(inverse);
  const LowerBound forward(H, scale, rounding);
  const LowerBound back(inverse, inverse_scale,
                        Rounding(inverse, inverse_scale, edges.largest1, edges.largest0));
  const vf limit = splat(static_cast<float>(2.0 * eps * eps * kMargin));
  return narrow_mask(edges.words, mask, [=](std::size_t i) {
    const vf x0 = load(edges.x0f + i), y0 = load(edges.y0f + i);
    const vf x1 = load(edges.x1f + i), y1 = load(edges.y1f + i);
    unsigned hits = ~0U;
    const vf f2 = forward.distance2(x0, y0, x1, y1, &hits);
    const vf b2 = back.distance2(x1, y1, x0, y0, &hits);
    return hits & bits(less_equal(f2 + b2, limit));
  });
}

// One direction of one vector of edges, in the form that the derivatives need. Let D be the step.
// H (I + D) x0 = H (x0 + D x0), so the forward error moves by P D x0 with P the derivative of
// x -> H x. The backward error: (I + D)^-1 H^-1 x1 = b - D b to first order, with b = H^-1 x1.
struct Side {
  vd P[2][3], z[3], r[2];  // derivative dr = P D z
};

// Third coordinates up to this count as not positive, so that everything stays finite. An edge
// without a residual has the weight zero.
constexpr double kSmallestThird = 1e-30;

struct LinearisedTransfer {
  Side side[2];
  vd r2;
  md defined;

  LinearisedTransfer(const Symmetric& s, vd x0, vd y0, vd x1, vd y1) {
    const vd zero = vd{}, one = splat(1.0), smallest = splat(kSmallestThird);
    const vd *H = s.forward, *G = s.back;  // third rows negated
    const vd w = -fma(H[6], x0, fma(H[7], y0, H[8]));
    const md ahead = less(smallest, w);
    const vd inverse_w = select(ahead, one / w, zero);
    const vd u[2] = {fma(H[0], x0, fma(H[1], y0, H[2])) * inverse_w,
                     fma(H[3], x0, fma(H[4], y0, H[5])) * inverse_w};
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) side[0].P[i][j] = fma(u[i], H[6 + j], H[3 * i + j]) * inverse_w;
    }
    side[0].z[0] = x0;
    side[0].z[1] = y0;
    side[0].z[2] = one;
    side[0].r[0] = u[0] - x1;
    side[0].r[1] = u[1] - y1;

    const vd v = -fma(G[6], x1, fma(G[7], y1, G[8]));
    const md behind = less(smallest, v);
    const vd inverse_v = select(behind, one / v, zero);
    const vd b[2] = {fma(G[0], x1, fma(G[1], y1, G[2])) * inverse_v,
                     fma(G[3], x1, fma(G[4], y1, G[5])) * inverse_v};
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) side[1].P[i][j] = i == j ? -one : zero;
      side[1].P[i][2] = b[i];
      side[1].z[i] = b[i];
    }
    side[1].z[2] = one;
    side[1].r[0] = b[0] - x0;
    side[1].r[1] = b[1] - y0;
    vd sum = vd{};
    for (const Side& one_side : side) {
      for (const vd r : one_side.r) sum = fma(r, r, sum);
    }
    r2 = splat(0.5) * sum;
    defined = both(ahead, behind);
  }
};

void normal_equations(const RefineArrays& a, const double* H, Loss loss, double eps2, double* out) {
  const Symmetric symmetric(H);
  const vd half = splat(0.5);
  robust_sums<kHomographyTriangle + kHomographyParameters + 1>(
      a, loss, eps2, out,
      [=](std::size_t i) {
        return LinearisedTransfer(symmetric, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i),
                                  load(a.y1 + i));
      },
      [&](const LinearisedTransfer& l, vd weight, md, auto sum) {
        const vd w = half * weight;
        for (const Side& side : l.side) {
          // J'J is the Kronecker product of P'P and z z', J'r that of P'r and z.
          const vd* z = side.z;
          vd PP[3][3], Pr[3], zz[3][3];
          for (int row = 0; row < 3; ++row) {
            const vd p0 = w * side.P[0][row], p1 = w * side.P[1][row];
            for (int col = row; col < 3; ++col) {
              PP[row][col] = fma(p0, side.P[0][col], p1 * side.P[1][col]);
              zz[row][col] = z[row] * z[col];
              zz[col][row] = zz[row][col];
            }
            Pr[row] = fma(p0, side.r[0], p1 * side.r[1]);
          }
          // Unrolled, so that the compiler knows the indices into the small matrices.
          int slot = 0;
#pragma GCC unroll 8
          for (int p = 0; p < kHomographyParameters; ++p) {
#pragma GCC unroll 8
            for (int q = p; q < kHomographyParameters; ++q, ++slot) {
              vd& total = sum(slot);
              total = fma(PP[p / 3][q / 3], zz[p % 3][q % 3], total);
            }
          }
#pragma GCC unroll 8
          for (int p = 0; p < kHomographyParameters; ++p, ++slot) {
            vd& total = sum(slot);
            total = fma(Pr[p / 3], z[p % 3], total);
          }
        }
      });
}

// The rows of an edge in the direct linear transform are (z, 0, -x1 z) and (0, z, -y1 z) with
// z = (x0, y0, 1). Four symmetric 3x3 sums are enough: those of z z', and of z z' times x1, y1 and
// x1^2 + y1^2.
void linear_sums(const RefineArrays& a, double* out) {
  const vd one = splat(1.0);
  sum_in_lanes<kLinearSums>(a.padded, out, [=](std::size_t i, auto sum) {
    const vd x0 = load(a.x0 + i), y0 = load(a.y0 + i), x1 = load(a.x1 + i);
    const vd y1 = load(a.y1 + i), weight = load(a.weight + i);
    const vd zz[6] = {x0 * x0, x0 * y0, x0, y0 * y0, y0, one};
    const vd factor[4] = {weight, weight * x1, weight * y1, weight * fma(x1, x1, y1 * y1)};
    for (int k = 0; k < 4; ++k) {
      for (int c = 0; c < 6; ++c) {
        vd& total = sum(6 * k + c);
        total = fma(factor[k], zz[c], total);
      }
    }
  });
}

void residuals(const RefineArrays& a, const double* H, double* r2_out) {
  const Symmetric symmetric(H);
  store_residuals(a.padded, r2_out, [=](std::size_t i) {
    return symmetric(load(a.x0 + i), load(a.y0 + i), load(a.x1 + i), load(a.y1 + i));
  });
}

void jacobian(const RefineArrays& a, const double* H, double* r_out, double* J_out) {
  const Symmetric symmetric(H);
  const vd scale = splat(0.70710678118654752);
  store_jacobian(a.padded, r_out, J_out, [=](std::size_t i) {
    const LinearisedTransfer l(symmetric, load(a.x0 + i), load(a.y0 + i), load(a.x1 + i),
                               load(a.y1 + i));
    Linearised<4, kHomographyParameters> out;
    for (int row = 0; row < 4; ++row) {
      const Side& side = l.side[row / 2];
      out.r[row] = scale * side.r[row % 2];
      for (int p = 0; p < kHomographyParameters; ++p) {
        out.J[row][p] = scale * side.P[row % 2][p / 3] * side.z[p % 3];
      }
    }
    return out;
  });
}

}  // namespace
}  // namespace manymatch

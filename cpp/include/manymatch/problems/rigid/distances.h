// Distances of mapped points: inliers among all edges, and the sums of a refinement.
#pragma once

#include "manymatch/problems/edge_loops.h"
#include "manymatch/problems/rigid/kernels.h"

namespace manymatch {
namespace {

// d = A x0 + t - x1 for one vector of edges.
template <class V, class Scalar>
struct Mapped {
  V A[9], t[3];

  explicit Mapped(const TransformNumbers& transform) {
    for (int c = 0; c < 9; ++c) A[c] = splat(static_cast<Scalar>(transform.A[c]));
    for (int c = 0; c < 3; ++c) t[c] = splat(static_cast<Scalar>(transform.t[c]));
  }

  V difference(int row, V x0, V y0, V z0, V target) const {
    const V* a = A + 3 * row;
    return fma(a[0], x0, fma(a[1], y0, fma(a[2], z0, t[row] - target)));
  }
  V distance2(const V* x0, const V* x1) const {
    V d[3];
    for (int row = 0; row < 3; ++row) d[row] = difference(row, x0[0], x0[1], x0[2], x1[row]);
    return fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
  }
};

// Masks that need no instruction. Always: all lanes. Finite: lanes with a finite r2; a residual
// below a limit is finite anyway.
struct Always {};
inline md both(Always, md other) { return other; }
inline vd select(Always, vd yes, vd) { return yes; }
struct Finite {
  vd r2;
};
inline md both(Finite, md other) { return other; }
inline vd select(Finite finite, vd yes, vd no) {
  return select(less(finite.r2, splat(__builtin_inf())), yes, no);
}

template <class Defined>
struct Distance {
  vd r2;
  Defined defined;
};

int inliers(const SpaceEdges& edges, const TransformNumbers& transform, double eps2, uint64_t* mask,
            double* r2_out) {
  const Mapped<vd, double> mapped(transform);
  const vd weight = splat(1.0 / transform.scale);
  return find_inliers(edges.words, eps2, mask, r2_out, [=](std::size_t i) {
    const vd x0[3] = {load(edges.x0 + i), load(edges.y0 + i), load(edges.z0 + i)};
    const vd x1[3] = {load(edges.x1 + i), load(edges.y1 + i), load(edges.z1 + i)};
    const vd r2 = weight * mapped.distance2(x0, x1);
    return Distance<Finite>{r2, {r2}};
  });
}

// Rounding errors in float32: every term of a component of d passes at most seven roundings of
// 2^-24 (its factors, their product if fma is two instructions, and four sums). The error of a
// component is at most 10 2^-24 times the sum of the absolute values of its terms.
int screen(const SpaceEdges& edges, const TransformNumbers& transform, double eps, uint64_t* mask) {
  constexpr double kUnit = 10.0 / (1 << 24);
  constexpr double kMargin = 1.0 + 1e-5;  // for the roundings after the components are known
  double error2 = 0.0;
  for (int row = 0; row < 3; ++row) {
    double terms = __builtin_fabs(transform.t[row]) + edges.largest1;
    for (int c = 0; c < 3; ++c) {
      terms += __builtin_fabs(transform.A[3 * row + c]) * edges.largest0;
    }
    error2 += kUnit * terms * (kUnit * terms);
  }
  const double reach = (eps * __builtin_sqrt(transform.scale) + __builtin_sqrt(error2)) * kMargin;
  const Mapped<vf, float> mapped(transform);
  const vf limit = splat(static_cast<float>(reach * reach * kMargin));
  return mask_edges<kFloats>(edges.words, mask, [=](std::size_t i) {
    const vf x0[3] = {load(edges.x0f + i), load(edges.y0f + i), load(edges.z0f + i)};
    const vf x1[3] = {load(edges.x1f + i), load(edges.y1f + i), load(edges.z1f + i)};
    return bits(less_equal(mapped.distance2(x0, x1), limit));
  });
}

void sums(const RefineArrays& a, const TransformNumbers& transform, Loss loss, double eps2,
          double* out) {
  const Mapped<vd, double> mapped(transform);
  const vd scale_weight = splat(1.0 / transform.scale);
  struct Terms {
    vd p[3], d[3], dd, r2;
    Always defined;
  };
  robust_sums<kSpaceSums>(
      a, loss, eps2, out,
      [=](std::size_t i) {
        const vd x0[3] = {load(a.x0 + i), load(a.y0 + i), load(a.z0 + i)};
        const vd x1[3] = {load(a.x1 + i), load(a.y1 + i), load(a.z1 + i)};
        Terms l;
        for (int row = 0; row < 3; ++row) {
          const vd* A = mapped.A + 3 * row;
          l.p[row] = fma(A[0], x0[0], fma(A[1], x0[1], A[2] * x0[2]));
          l.d[row] = l.p[row] + (mapped.t[row] - x1[row]);
        }
        l.dd = fma(l.d[0], l.d[0], fma(l.d[1], l.d[1], l.d[2] * l.d[2]));
        l.r2 = scale_weight * l.dd;
        return l;
      },
      [](const Terms& l, vd w, md, auto sum) {
        const vd *p = l.p, *d = l.d;
        const auto add = [&](int slot, vd x) { sum(slot) = fma(w, x, sum(slot)); };
        sum(kSumW) = sum(kSumW) + w;
        int slot = kSumPP;
        for (int row = 0; row < 3; ++row) {
          add(kSumP + row, p[row]);
          add(kSumD + row, d[row]);
          for (int col = row; col < 3; ++col) add(slot++, p[row] * p[col]);
          const int j = (row + 1) % 3, k = (row + 2) % 3;
          add(kSumPxD + row, fnma(p[k], d[j], p[j] * d[k]));
        }
        add(kSumPD, fma(p[0], d[0], fma(p[1], d[1], p[2] * d[2])));
        add(kSumDD, l.dd);
      });
}

void residuals(const RefineArrays& a, const TransformNumbers& transform, double* r2_out) {
  const Mapped<vd, double> mapped(transform);
  const vd weight = splat(1.0 / transform.scale);
  store_residuals(a.padded, r2_out, [=](std::size_t i) {
    const vd x0[3] = {load(a.x0 + i), load(a.y0 + i), load(a.z0 + i)};
    const vd x1[3] = {load(a.x1 + i), load(a.y1 + i), load(a.z1 + i)};
    return Distance<Always>{weight * mapped.distance2(x0, x1), {}};
  });
}

}  // namespace
}  // namespace manymatch

// Transforms of three correspondences each, one sample per vector lane: the rotation and
// translation of least squares (Kabsch), and for similarities the scale of least symmetric squares,
// the ratio of the sizes of the triangles (Horn).
//
// Three points lie in a plane, so the best rotation maps plane to plane and normal to normal, and
// only an angle in the plane remains. With the points of both triangles in coordinates of their own
// plane, relative to the centroids, its tangent is the sum of the cross products over the sum of
// the dot products. No singular value decomposition is needed.
#pragma once

#include "manymatch/problems/edge_loops.h"
#include "manymatch/problems/rigid/kernels.h"

namespace manymatch {
namespace {

// A triangle is flat if twice its area is below this part of the square of its longest side.
constexpr double kFlatTriangle3 = 1e-4;
// Largest scale of a sample, and inverse of the smallest; both clouds have about the same size.
constexpr double kMostScale = 16.0;

inline vd dot3(const vd* a, const vd* b) { return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2])); }

inline void cross3(const vd* a, const vd* b, vd* out) {
  out[0] = fnma(a[2], b[1], a[1] * b[2]);
  out[1] = fnma(a[0], b[2], a[2] * b[0]);
  out[2] = fnma(a[1], b[0], a[0] * b[1]);
}

inline vd max(vd a, vd b) { return select(less(a, b), b, a); }

// The triangle relative to its first point.
struct Triangle {
  vd first[3], d1[3], d2[3];
  vd side2[3];          // squared lengths of d1, d2 and of the side between them
  vd normal[3], area2;  // d1 x d2 and its squared length

  Triangle(const double (*x)[3][kThreePointBatch], int lane) {
    vd d3[3];
    for (int c = 0; c < 3; ++c) {
      first[c] = load(&x[0][c][lane]);
      d1[c] = load(&x[1][c][lane]) - first[c];
      d2[c] = load(&x[2][c][lane]) - first[c];
      d3[c] = d2[c] - d1[c];
    }
    side2[0] = dot3(d1, d1);
    side2[1] = dot3(d2, d2);
    side2[2] = dot3(d3, d3);
  }

  // Sets the normal. Returns the lanes whose triangles are neither too flat nor too small.
  md spans_a_plane(double least_height) {
    cross3(d1, d2, normal);
    area2 = dot3(normal, normal);
    const vd longest2 = max(side2[0], max(side2[1], side2[2]));
    const vd least2 = splat(least_height * least_height);
    return both(less(splat(kFlatTriangle3 * kFlatTriangle3) * longest2 * longest2, area2),
                less(least2 * longest2, area2));
  }
};

// The triangle in its plane: d1 = (along, 0) and d2 = (u, v) in the orthonormal basis e.
struct PlaneTriangle {
  vd e[3][3], along, u, v;

  explicit PlaneTriangle(const Triangle& t) {
    along = sqrt(t.side2[0]);
    const vd area = sqrt(t.area2);
    for (int c = 0; c < 3; ++c) {
      e[0][c] = t.d1[c] / along;
      e[2][c] = t.normal[c] / area;
    }
    cross3(e[2], e[0], e[1]);
    u = dot3(t.d2, e[0]);
    v = area / along;
  }
};

// |a - b| < tolerance for lengths given by their squares, without a root.
inline md lengths_agree(vd a2, vd b2, vd tolerance2) {
  const vd q = a2 + b2 - tolerance2;
  return either(less(q, vd{}), less(q * q, splat(4.0) * (a2 * b2)));
}

void consistent(const SpaceEdges& edges, std::size_t edge, const PairLimits& limits,
                uint64_t* mask) {
  const double* columns[6] = {edges.x0, edges.y0, edges.z0, edges.x1, edges.y1, edges.z1};
  vd here[6];
  for (int c = 0; c < 6; ++c) here[c] = splat(columns[c][edge]);
  const vd tolerance2 = splat(limits.tolerance2), least2 = splat(limits.least2);
  mask_edges<kDoubles>(edges.words, mask, [=](std::size_t i) {
    vd d[6];
    for (int c = 0; c < 6; ++c) d[c] = load(columns[c] + i) - here[c];
    const vd length0 = dot3(d, d), length1 = dot3(d + 3, d + 3);
    return bits(both(lengths_agree(length0, length1, tolerance2),
                     both(less_equal(least2, length0), less_equal(least2, length1))));
  });
}

template <bool kFreeScale>
void three_point(const ThreePointBatch& batch, const ThreePointLimits& limits,
                 ThreePointSolutions& out) {
  const vd one = splat(1.0), third = splat(1.0 / 3.0);
  out.count = 0;
  for (int first = 0; first < batch.count; first += kDoubles) {
    Triangle p(batch.x0, first), q(batch.x1, first);
    vd scale = one, scale2 = one;
    vd tolerance2 = splat(limits.tolerance * limits.tolerance);
    if constexpr (kFreeScale) {
      scale2 = (q.side2[0] + q.side2[1] + q.side2[2]) / (p.side2[0] + p.side2[1] + p.side2[2]);
      scale = sqrt(scale2);
      tolerance2 = tolerance2 * scale;
    }
    md valid = lengths_agree(scale2 * p.side2[0], q.side2[0], tolerance2);
    for (int k = 1; k < 3; ++k) {
      valid = both(valid, lengths_agree(scale2 * p.side2[k], q.side2[k], tolerance2));
    }
    if constexpr (kFreeScale) {
      valid =
          both(valid, both(less(splat(1.0 / kMostScale), scale), less(scale, splat(kMostScale))));
    }
    const int lanes = batch.count - first < kDoubles ? batch.count - first : kDoubles;
    const unsigned wanted = (1U << lanes) - 1;
    if (!(bits(valid) & wanted)) continue;
    valid = both(valid,
                 both(p.spans_a_plane(limits.least_height), q.spans_a_plane(limits.least_height)));
    const unsigned found = bits(valid) & wanted;
    if (!found) continue;

    const PlaneTriangle a(p), b(q);
    // Sums over the three points relative to their centroid.
    const vd a_sum = a.along + a.u, b_sum = b.along + b.u;
    const vd dots =
        fma(a.along, b.along, fma(a.u, b.u, a.v * b.v)) - third * fma(a_sum, b_sum, a.v * b.v);
    const vd crosses = fnma(a.v, b.u, a.u * b.v) - third * fnma(a.v, b_sum, a_sum * b.v);
    const vd length = sqrt(fma(dots, dots, crosses * crosses));
    const vd cosine = dots / length, sine = crosses / length;
    double columns[13][kDoubles];
    vd A[9];
    vd turned[2][3];  // where the basis of the first plane goes
    for (int c = 0; c < 3; ++c) {
      turned[0][c] = fma(cosine, b.e[0][c], sine * b.e[1][c]);
      turned[1][c] = fnma(sine, b.e[0][c], cosine * b.e[1][c]);
    }
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        A[3 * i + j] = scale * fma(turned[0][i], a.e[0][j],
                                   fma(turned[1][i], a.e[1][j], b.e[2][i] * a.e[2][j]));
        store(columns[3 * i + j], A[3 * i + j]);
      }
    }
    vd centre[3];
    for (int c = 0; c < 3; ++c) centre[c] = fma(third, p.d1[c] + p.d2[c], p.first[c]);
    for (int i = 0; i < 3; ++i) {
      store(columns[9 + i], fma(third, q.d1[i] + q.d2[i], q.first[i]) - dot3(A + 3 * i, centre));
    }
    store(columns[12], scale);
    for (int lane = 0; lane < lanes; ++lane) {
      if (!(found >> lane & 1U)) continue;
      TransformNumbers& transform = out.transform[out.count];
      for (int c = 0; c < 9; ++c) transform.A[c] = columns[c][lane];
      for (int c = 0; c < 3; ++c) transform.t[c] = columns[9 + c][lane];
      transform.scale = columns[12][lane];
      out.sample[out.count++] = first + lane;
    }
  }
}

}  // namespace
}  // namespace manymatch

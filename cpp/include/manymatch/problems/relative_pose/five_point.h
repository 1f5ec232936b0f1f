// Five-point relative pose in batches, one sample per vector lane.
//
// Null space by Householder reflections, constraints by cubic_constraints.h, roots by real_roots.h.
// The roots of all samples are then packed into full vectors, for E, the oriented epipolar test, R
// and t. R and t follow from the cofactors of E, cof(E) = (t t') R and [t]x E = (t t' - I) R,
// without a decomposition. The remaining poses are packed once more, polished on the five equations
// (polish_pose.h), and kept if all five points are in front of both cameras.
#pragma once

#include "manymatch/problems/epipolar.h"
#include "manymatch/problems/relative_pose/cubic_constraints.h"
#include "manymatch/problems/relative_pose/kernels.h"
#include "manymatch/problems/relative_pose/polish_pose.h"
#include "manymatch/problems/relative_pose/real_roots.h"

namespace manymatch {
namespace {

// Data of a sample that its roots need, by columns so that lanes can be stored directly.
struct FivePointState {
  alignas(64) double basis[4][9][kFivePointBatch];
  alignas(64) double bx[3][4][kFivePointBatch], by[3][4][kFivePointBatch];
  alignas(64) double bone[3][5][kFivePointBatch];
  alignas(64) double poly[kDegree + 1][kFivePointBatch];
  RootTask tasks[kFivePointBatch * kFivePointMaxRoots + kDoubles];
  int num_tasks;
};

// Null space of the 5x9 epipolar system.
inline void null_space(const FivePointBatch& batch, int first, vd basis[4][9]) {
  vd columns[5][9];
  for (int k = 0; k < 5; ++k) {
    for (int i = 0; i < 3; ++i) {
      const vd b1 = load(&batch.b1[k][i][first]);
      for (int j = 0; j < 3; ++j) columns[k][3 * i + j] = b1 * load(&batch.b0[k][j][first]);
    }
  }
  null_space<5>(columns, basis);
}

inline void queue_roots(FivePointState& state, const SturmChain& chain, int first, int count) {
  vd counts[kCells + 1];
  count_on_grid(chain, counts);
  double changes[kCells + 1][kDoubles];
  for (int c = 0; c <= kCells; ++c) store(changes[c], counts[c]);
  for (int lane = 0; lane < kDoubles && first + lane < count; ++lane) {
    const int sample = first + lane;
    const int room_ends = state.num_tasks + kFivePointMaxRoots;
    for (int c = 0; c < kCells; ++c) {
      const int at_low = static_cast<int>(changes[c][lane]);
      const int at_high = static_cast<int>(changes[c + 1][lane]);
      const int roots = at_low - at_high;
      const int room = room_ends - state.num_tasks;
      if (roots <= 0 || room <= 0) continue;
      // Cells 0-3 and 12-15 lie outside [-1, 1].
      const bool reversed = c < 4 || c >= 12;
      double low = c == 0 ? 0.0 : (reversed ? 1.0 / kBorders[c - 1] : kBorders[c - 1]);
      double high = c == kCells - 1 ? 0.0 : (reversed ? 1.0 / kBorders[c] : kBorders[c]);
      if (roots == 1) {
        state.tasks[state.num_tasks++] = RootTask{sample, reversed, low, high};
        continue;
      }
      ScalarChain scalar;
      double lanes[kDoubles];
      for (int n = 1; n <= kDegree; ++n) {
        store(lanes, chain.slope[n]);
        scalar.slope[n] = lanes[lane];
        store(lanes, chain.offset[n]);
        scalar.offset[n] = lanes[lane];
      }
      store(lanes, chain.last);
      scalar.last = lanes[lane];
      state.num_tasks += split_cell(scalar, reversed, low, high, at_low, at_high, 26, sample,
                                    state.tasks + state.num_tasks, room);
    }
  }
}

inline void prepare(const FivePointBatch& batch, FivePointState& state, int first) {
  vd basis[4][9], rows[10][20], poly[kDegree + 1];
  null_space(batch, first, basis);
  constraint_rows(basis, rows);
  eliminate(rows);
  const PolynomialMatrix B = polynomial_matrix(rows);
  determinant(B, poly);
  for (int n = 0; n < 4; ++n) {
    for (int i = 0; i < 9; ++i) store(&state.basis[n][i][first], basis[n][i]);
  }
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 4; ++k) store(&state.bx[i][k][first], B.x[i][k]);
    for (int k = 0; k < 4; ++k) store(&state.by[i][k][first], B.y[i][k]);
    for (int k = 0; k < 5; ++k) store(&state.bone[i][k][first], B.one[i][k]);
  }
  for (int k = 0; k <= kDegree; ++k) store(&state.poly[k][first], poly[k]);
  queue_roots(state, sturm_chain(poly), first, batch.count);
}

// The longest of three vectors, lane by lane.
inline void longest(const vd v[3][3], vd* out) {
  vd best = dot(v[0], v[0]);
  for (int i = 0; i < 3; ++i) out[i] = v[0][i];
  for (int k = 1; k < 3; ++k) {
    const vd length = dot(v[k], v[k]);
    const md longer = less(best, length);
    best = select(longer, length, best);
    for (int i = 0; i < 3; ++i) out[i] = select(longer, v[k][i], out[i]);
  }
}

// E of each lane's root, scaled to |t| = 1, that is to Frobenius norm sqrt(2).
inline void essential_from_root(const FivePointState& state, const int* sample, vd z, vd* E) {
  vd rows[3][3], normals[3][3], n[3];
  for (int i = 0; i < 3; ++i) {
    vd x = gather(state.bx[i][3], sample), y = gather(state.by[i][3], sample);
    for (int k = 2; k >= 0; --k) {
      x = fma(x, z, gather(state.bx[i][k], sample));
      y = fma(y, z, gather(state.by[i][k], sample));
    }
    vd one = gather(state.bone[i][4], sample);
    for (int k = 3; k >= 0; --k) one = fma(one, z, gather(state.bone[i][k], sample));
    rows[i][0] = x;
    rows[i][1] = y;
    rows[i][2] = one;
  }
  for (int i = 0; i < 3; ++i) cross(rows[i], rows[(i + 1) % 3], normals[i]);
  longest(normals, n);
  const vd nz = n[2] * z;
  vd norm2 = vd{};
  for (int i = 0; i < 9; ++i) {
    E[i] = fma(
        n[0], gather(state.basis[0][i], sample),
        fma(n[1], gather(state.basis[1][i], sample),
            fma(nz, gather(state.basis[2][i], sample), n[2] * gather(state.basis[3][i], sample))));
    norm2 = fma(E[i], E[i], norm2);
  }
  const vd scale = sqrt(splat(2.0) / norm2);
  for (int i = 0; i < 9; ++i) E[i] = E[i] * scale;
}

// R and t (up to its sign) of one vector of roots. Returns the lanes that may be a solution.
inline unsigned decompose(const FivePointBatch& batch, const int* sample, const vd* E, vd* R,
                          vd* t) {
  const vd zero = vd{}, one = splat(1.0);
  vd columns[3][3], cofactor[3][3];
  for (int c = 0; c < 3; ++c) {
    for (int r = 0; r < 3; ++r) columns[c][r] = E[3 * r + c];
  }
  for (int c = 0; c < 3; ++c) cross(columns[(c + 1) % 3], columns[(c + 2) % 3], cofactor[c]);
  longest(cofactor, t);
  const vd inverse = one / sqrt(dot(t, t));
  for (int i = 0; i < 3; ++i) t[i] = t[i] * inverse;

  // Oriented epipolar test: at all points in front of the cameras t x x1 and E x0 have the same
  // direction, or at all of them opposite ones; which one distinguishes R from its twisted twin.
  md all_same = less_equal(zero, zero), all_opposite = all_same;
  for (int k = 0; k < 5; ++k) {
    vd b0[3], b1[3], line[3], side[3];
    for (int c = 0; c < 3; ++c) {
      b0[c] = gather(batch.b0[k][c], sample);
      b1[c] = gather(batch.b1[k][c], sample);
    }
    cross(t, b1, side);
    for (int r = 0; r < 3; ++r) line[r] = dot(E + 3 * r, b0);
    const vd sign = dot(side, line);
    all_same = both(all_same, less(zero, sign));
    all_opposite = both(all_opposite, less(sign, zero));
    if (!(bits(either(all_same, all_opposite)) & kAllDoubles)) return 0;
  }
  const vd sigma = select(all_same, one, -one);
  for (int c = 0; c < 3; ++c) {
    vd turned[3];
    cross(t, columns[c], turned);
    for (int r = 0; r < 3; ++r) R[3 * r + c] = fnma(sigma, turned[r], cofactor[c][r]);
  }
  return bits(either(all_same, all_opposite)) & kAllDoubles;
}

inline void append_lanes(unsigned lanes, const int* sample, const vd* R, const vd* t,
                         FivePointSolutions& out) {
  double Rs[9][kDoubles], ts[3][kDoubles];
  for (int i = 0; i < 9; ++i) store(Rs[i], R[i]);
  for (int i = 0; i < 3; ++i) store(ts[i], t[i]);
  for (int lane = 0; lane < kDoubles; ++lane) {
    if (!(lanes >> lane & 1U)) continue;
    out.sample[out.count] = sample[lane];
    for (int i = 0; i < 9; ++i) out.R[out.count][i] = Rs[i][lane];
    for (int i = 0; i < 3; ++i) out.t[out.count][i] = ts[i][lane];
    ++out.count;
  }
}

// Roots of all samples, a full vector at a time; fills `out` with unpolished poses.
inline void solve_roots(const FivePointBatch& batch, const FivePointState& state,
                        FivePointSolutions& out) {
  for (int first = 0; first < state.num_tasks; first += kDoubles) {
    const int lanes = state.num_tasks - first < kDoubles ? state.num_tasks - first : kDoubles;
    const RootTask* task[kDoubles];
    int sample[kDoubles];
    for (int lane = 0; lane < kDoubles; ++lane) {
      // Spare lanes repeat the last task.
      task[lane] = state.tasks + first + (lane < lanes ? lane : lanes - 1);
      sample[lane] = task[lane]->sample;
    }
    vd p[kDegree + 1], E[9], R[9], t[3];
    for (int k = 0; k <= kDegree; ++k) {
      p[k] = from_lanes([&](int lane) {
        return state.poly[task[lane]->reversed ? kDegree - k : k][sample[lane]];
      });
    }
    const vd low = from_lanes([&](int lane) { return task[lane]->low; });
    const vd high = from_lanes([&](int lane) { return task[lane]->high; });
    double root[kDoubles];
    store(root, polish_roots(p, low, high));
    const vd z =
        from_lanes([&](int lane) { return task[lane]->reversed ? 1.0 / root[lane] : root[lane]; });
    essential_from_root(state, sample, z, E);
    const unsigned found = decompose(batch, sample, E, R, t) & ((1U << lanes) - 1);
    if (found) append_lanes(found, sample, R, t, out);
  }
}

// Polishes the poses in `out` in place and drops those that do not have all five points in front of
// the cameras.
inline void polish_solutions(const FivePointBatch& batch, FivePointSolutions& out) {
  const int count = out.count;
  out.count = 0;  // the writing position never overtakes the reading position
  for (int first = 0; first < count; first += kDoubles) {
    const int lanes = count - first < kDoubles ? count - first : kDoubles;
    int sample[kDoubles], at[kDoubles];
    for (int lane = 0; lane < kDoubles; ++lane) {
      at[lane] = first + (lane < lanes ? lane : lanes - 1);
      sample[lane] = out.sample[at[lane]];
    }
    vd R[9], t[3], b0[5][3], b1[5][3];
    for (int i = 0; i < 9; ++i) R[i] = from_lanes([&](int lane) { return out.R[at[lane]][i]; });
    for (int i = 0; i < 3; ++i) t[i] = from_lanes([&](int lane) { return out.t[at[lane]][i]; });
    for (int k = 0; k < 5; ++k) {
      for (int c = 0; c < 3; ++c) {
        b0[k][c] = gather(batch.b0[k][c], sample);
        b1[k][c] = gather(batch.b1[k][c], sample);
      }
    }
    md solved = polish_pose(b0, b1, R, t);
    solved = both(solved, orient_translation(b0, b1, R, t));
    append_lanes(bits(solved) & ((1U << lanes) - 1), sample, R, t, out);
  }
}

void five_point(const FivePointBatch& batch, FivePointSolutions& out) {
  FivePointState state;
  state.num_tasks = 0;
  out.count = 0;
  for (int first = 0; first < batch.count; first += kDoubles) prepare(batch, state, first);
  solve_roots(batch, state, out);
  polish_solutions(batch, out);
}

}  // namespace
}  // namespace manymatch

// Real roots of polynomials of degree ten: Sturm counts on a fixed grid, one polynomial per lane,
// then safeguarded Newton on brackets gathered from all lanes.
#pragma once

#include "manymatch/simd.h"

namespace manymatch {
namespace {

constexpr int kDegree = 10;
constexpr int kCells = 16;

// Interior cell borders, tan(pi (k - 8) / 16) for k = 1..15: equal steps of an angle cover the
// whole line, and +-1 is a border, so that a cell lies on one side of it.
constexpr double kBorders[kCells - 1] = {
    -5.0273394921258481,  -2.4142135623730950,  -1.4966057626654890,  -1.0,
    -0.66817863791929892, -0.41421356237309505, -0.19891236737965801, 0.0,
    0.19891236737965801,  0.41421356237309505,  0.66817863791929892,  1.0,
    1.4966057626654890,   2.4142135623730950,   5.0273394921258481};

// Sturm chain p0 = p, p1 = p', p_{k-1} = q_k p_k - p_{k+1}, kept as the linear quotients q_k and
// the leading coefficients, which is all that evaluation needs.
struct SturmChain {
  vd slope[kDegree + 1], offset[kDegree + 1];  // q_1 .. q_10
  vd last;                                     // p_10, a constant
  vd leading[kDegree + 1];
};

inline SturmChain sturm_chain(const vd p[kDegree + 1]) {
  SturmChain chain;
  vd a[kDegree + 1], b[kDegree + 1];
  for (int k = 0; k <= kDegree; ++k) a[k] = p[k];
  for (int k = 0; k < kDegree; ++k) b[k] = p[k + 1] * splat(static_cast<double>(k + 1));
  const vd one = splat(1.0);
  chain.leading[0] = a[kDegree];
  chain.leading[1] = b[kDegree - 1];
  for (int n = 1; n <= kDegree; ++n) {  // a has degree 11 - n, b has degree 10 - n
    const int top = kDegree + 1 - n;
    const vd inverse = one / b[top - 1];
    const vd slope = a[top] * inverse;
    // If b has degree zero, it has no lower coefficient.
    const vd below = top >= 2 ? b[top - 2] : vd{};
    const vd offset = fnma(slope, below, a[top - 1]) * inverse;
    chain.slope[n] = slope;
    chain.offset[n] = offset;
    if (n == kDegree) break;
    vd rest[kDegree + 1];
    rest[0] = fnma(offset, b[0], a[0]);
    for (int k = 1; k <= top - 2; ++k) {
      rest[k] = fnma(offset, b[k], fnma(slope, b[k - 1], a[k]));
    }
    for (int k = 0; k < top; ++k) a[k] = b[k];
    for (int k = 0; k <= top - 2; ++k) b[k] = -rest[k];
    chain.leading[n + 1] = b[top - 2];
  }
  chain.last = chain.leading[kDegree];
  return chain;
}

// Sign changes along the chain at x, as a floating-point count.
inline vd sign_changes(const SturmChain& chain, vd x) {
  vd upper = chain.last, below = vd{}, count = vd{};
  const vd zero = vd{}, one = splat(1.0);
  for (int n = kDegree; n >= 1; --n) {
    const vd value = fma(fma(chain.slope[n], x, chain.offset[n]), upper, -below);
    count = count + select(less(value * upper, zero), one, zero);
    below = upper;
    upper = value;
  }
  return count;
}

inline vd sign_changes_at_infinity(const SturmChain& chain, bool negative) {
  vd count = vd{};
  const vd zero = vd{}, one = splat(1.0);
  for (int n = 0; n < kDegree; ++n) {
    const vd product = chain.leading[n] * chain.leading[n + 1];
    count = count + select(less(negative ? -product : product, zero), one, zero);
  }
  return count;
}

// counts[c]: sign changes at border c of 17 (the outer two at infinity).
inline void count_on_grid(const SturmChain& chain, vd counts[kCells + 1]) {
  counts[0] = sign_changes_at_infinity(chain, true);
  for (int c = 1; c < kCells; ++c) counts[c] = sign_changes(chain, splat(kBorders[c - 1]));
  counts[kCells] = sign_changes_at_infinity(chain, false);
}

// A bracket of a root. If `reversed`, it brackets 1/z, from the lower z to the higher one: the
// outer cells then become finite and small.
struct RootTask {
  int sample;
  bool reversed;
  double low, high;
};

// One lane of a chain, for splitting the rare cell with several roots.
struct ScalarChain {
  double slope[kDegree + 1], offset[kDegree + 1], last;
};

inline int sign_changes(const ScalarChain& chain, double x) {
  double upper = chain.last, below = 0.0;
  int count = 0;
  for (int n = kDegree; n >= 1; --n) {
    const double value = (chain.slope[n] * x + chain.offset[n]) * upper - below;
    count += value * upper < 0.0 ? 1 : 0;
    below = upper;
    upper = value;
  }
  return count;
}

// Splits [low, high] until each part has one root; a pair closer than 2^-26 of the cell stays one
// bracket. Writes at most `capacity` tasks, in ascending order.
inline int split_cell(const ScalarChain& chain, bool reversed, double low, double high, int at_low,
                      int at_high, int depth, int sample, RootTask* out, int capacity) {
  const int roots = at_low - at_high;
  if (roots <= 0 || capacity <= 0) return 0;
  if (roots == 1 || depth == 0) {
    *out = RootTask{sample, reversed, low, high};
    return 1;
  }
  const double middle = 0.5 * (low + high);
  const int at_middle = sign_changes(chain, reversed ? 1.0 / middle : middle);
  const int first =
      split_cell(chain, reversed, low, middle, at_low, at_middle, depth - 1, sample, out, capacity);
  return first + split_cell(chain, reversed, middle, high, at_middle, at_high, depth - 1, sample,
                            out + first, capacity - first);
}

// Newton's method inside a bracket: a step that would leave it becomes a bisection. After a step of
// 1e-8 the error is at rounding level. Finished lanes are frozen, so that a lane does not depend on
// its neighbours.
inline vd polish_roots(const vd p[kDegree + 1], vd low, vd high) {
  const vd half = splat(0.5), zero = vd{}, tolerance = splat(1e-8);
  const auto value = [p](vd x) {
    vd f = p[kDegree];
    for (int k = kDegree - 1; k >= 0; --k) f = fma(f, x, p[k]);
    return f;
  };
  const vd at_low = value(low);
  vd x = half * (low + high);
  md running = less_equal(zero, zero);
  for (int iteration = 0; iteration < 40; ++iteration) {
    vd f = p[kDegree], slope = vd{};
    for (int k = kDegree - 1; k >= 0; --k) {
      slope = fma(slope, x, f);
      f = fma(f, x, p[k]);
    }
    const md same_side = less(zero, f * at_low);
    low = select(same_side, x, low);
    high = select(same_side, high, x);
    vd next = x - f / slope;
    // (next - low) (next - high) < 0 for both directions of the bracket
    const md inside = less((next - low) * (next - high), zero);
    const md exact = less_equal(abs(f), zero);
    next = select(inside, next, half * (low + high));
    next = select(either(exact, negate(running)), x, next);
    const md moving = less(tolerance * (splat(0.25) + abs(x)), abs(next - x));
    x = next;
    running = both(running, moving);
    if (!(bits(running) & kAllDoubles)) break;
  }
  return x;
}

}  // namespace
}  // namespace manymatch

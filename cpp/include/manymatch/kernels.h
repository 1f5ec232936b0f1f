// The functions that are compiled once per instruction set, as a table of pointers.
//
// Only plain structs cross this border, so that nothing inline is shared between the sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manymatch {

// Edges as structure of arrays, padded with NaN to a whole number of 64-edge words: a padding edge
// is an outlier of every pose. Points are on the normalised plane, `n` is 1 / |(x, y, 1)|.
struct EdgeArrays {
  const double *x0, *y0, *n0, *x1, *y1, *n1;
  const float *x0f, *y0f, *n0f, *x1f, *y1f, *n1f;
  std::size_t words;
};

// Edges of one refinement, padded to a multiple of eight with weight 0.
struct RefineArrays {
  const double *x0, *y0, *x1, *y1, *weight;
  std::size_t padded;
};

enum class Loss : int { kSquared = 0, kTruncated = 1, kCauchy = 2 };

// A batch of five-point problems: ray k of problem i has components b0[k][c][i], b1[k][c][i].
constexpr int kFivePointBatch = 64;
constexpr int kFivePointMaxRoots = 10;
struct FivePointBatch {
  alignas(64) double b0[5][3][kFivePointBatch];
  alignas(64) double b1[5][3][kFivePointBatch];
  int count;
};
struct FivePointSolutions {
  int count;
  int problem[kFivePointBatch * kFivePointMaxRoots];
  double R[kFivePointBatch * kFivePointMaxRoots][9];
  double t[kFivePointBatch * kFivePointMaxRoots][3];
};

struct Kernels {
  const char* name;
  // Superset of the inliers in float32: no edge that `inliers` reports is missing. `slack` bounds
  // the rounding of the numerator. Below `enough` edges it may stop early with a larger superset.
  // Returns the number of bits set.
  int (*screen)(const EdgeArrays&, const double* R, const double* t, double eps, double slack,
                int enough, uint64_t* mask);
  // Exact inliers in float64: r^2 < eps^2 and cheirality. r2 may be null.
  int (*inliers)(const EdgeArrays&, const double* R, const double* t, double eps2, uint64_t* mask,
                 double* r2);
  void (*five_point)(const FivePointBatch&, FivePointSolutions&);
  // out: 15 entries of the upper triangle of J^T W J by rows, 5 of J^T W r, the cost (0 for Cauchy:
  // the caller sums it from the residuals).
  void (*normal_equations)(const RefineArrays&, const double* R, const double* t,
                           const double* tangent, Loss, double eps2, double* out);
  // Squared residuals, infinite where undefined.
  void (*residuals)(const RefineArrays&, const double* R, const double* t, double* r2);
  // Signed residuals and their derivatives, row-major (padded, 5).
  void (*jacobian)(const RefineArrays&, const double* R, const double* t, const double* tangent,
                   double* r, double* J);
  // Positions, ascending, of the values above the row's threshold or above their column's.
  int (*above)(const float* values, std::size_t count, float row_threshold,
               const float* column_threshold, int32_t* hits);
  // Inner product in float64; the same bits for every instruction set and when a and b swap.
  double (*dot)(const float* a, const float* b, std::size_t count);
  // out[c] = x[c] * factor, computed in float64.
  void (*scaled)(const float* x, std::size_t count, double factor, float* out);
  // largest[c] = max(largest[c], values[c]).
  void (*raise)(const float* values, std::size_t count, float* largest);
};

// Name of the environment variable that chooses the set; without it the best one is taken.
constexpr const char* kInstructionSetVariable = "MANYMATCH_ISA";

// The set in use. Throws std::invalid_argument if the environment asks for one that is not there.
const Kernels& kernels();
// Null: what the environment asks for, or the best one. False if there is no such set.
bool force_instruction_set(const char* name);
int available_instruction_sets(const char** names, int capacity);

}  // namespace manymatch

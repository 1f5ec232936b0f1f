// HCM of a pose in float64, written directly from its definition. The benchmarks compare with it.
//
// One edge after the other, no tables, no batches, no float32. Compiled once per instruction set
// with the flags of the kernels of that set (see CMakeLists.txt).
#pragma once

#include <cstddef>

namespace manymatch {

struct PlainEdges {
  const double *x0, *y0, *x1, *y1;  // per edge, on the normalised planes
  const int *left, *right;          // per edge
  const double* p;                  // per edge: prior
  std::size_t num_edges;
  const double *a0, *a1;  // per vertex
  std::size_t num0, num1;
  double eps;
};

struct PlainKernels {
  // `sum0`, `sum1`: room for one number per vertex.
  double (*hcm)(const PlainEdges&, const double* R, const double* t, double* sum0, double* sum1);
};

}  // namespace manymatch

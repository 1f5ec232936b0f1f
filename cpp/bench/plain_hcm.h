// HCM of a pose, written straight from its definition in float64: what the benchmark compares with.
//
// One edge after the other, no tables, no batches, no float32. Compiled once per instruction set
// with the flags of the kernels of that set (see CMakeLists.txt).
#pragma once

#include <vector>

#include "manymatch/graph.h"
#include "manymatch/score/hcm.h"

namespace manymatch {

struct PlainGraph {
  std::vector<double> x0, y0, x1, y1;  // per edge, on the normalised planes
  std::vector<int> left, right;        // per edge
  std::vector<double> p;               // per edge: prior
  std::vector<double> a0, a1;          // per vertex
  double eps;

  // Points (x, y) by rows.
  PlainGraph(const Graph& graph, const Priors& priors, const double* points0, const double* points1,
             double threshold);
};

// `sum0`, `sum1`: room for one number per vertex.
using PlainHcm = double (*)(const PlainGraph&, const double* R, const double* t, double* sum0,
                            double* sum1);

// The one of the instruction set in use.
PlainHcm plain_hcm();

}  // namespace manymatch

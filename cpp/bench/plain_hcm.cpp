// Compiled once per instruction set; MANYMATCH_ISA names it.
#include "plain_hcm.h"

#include "manymatch/instruction_set.h"

namespace manymatch {

namespace {

double hcm(const PlainEdges& graph, const double* R, const double* t, double* sum0, double* sum1) {
  const double E[9] = {
      t[1] * R[6] - t[2] * R[3], t[1] * R[7] - t[2] * R[4], t[1] * R[8] - t[2] * R[5],
      t[2] * R[0] - t[0] * R[6], t[2] * R[1] - t[0] * R[7], t[2] * R[2] - t[0] * R[8],
      t[0] * R[3] - t[1] * R[0], t[0] * R[4] - t[1] * R[1], t[0] * R[5] - t[1] * R[2]};
  for (std::size_t v = 0; v < graph.num0; ++v) sum0[v] = 0.0;
  for (std::size_t v = 0; v < graph.num1; ++v) sum1[v] = 0.0;
  const double eps2 = graph.eps * graph.eps;
  for (std::size_t e = 0; e < graph.num_edges; ++e) {
    const double x0 = graph.x0[e], y0 = graph.y0[e], x1 = graph.x1[e], y1 = graph.y1[e];
    const double e0 = E[0] * x0 + E[1] * y0 + E[2], e1 = E[3] * x0 + E[4] * y0 + E[5];
    const double e2 = E[6] * x0 + E[7] * y0 + E[8];
    const double g0 = E[0] * x1 + E[3] * y1 + E[6], g1 = E[1] * x1 + E[4] * y1 + E[7];
    const double c = x1 * e0 + y1 * e1 + e2;
    const double den = e0 * e0 + e1 * e1 + g0 * g0 + g1 * g1;
    if (!(c * c < eps2 * den)) continue;
    // Depths of the two unit rays, in units of the baseline, both above 0.01.
    const double n0 = 1.0 / __builtin_sqrt(x0 * x0 + y0 * y0 + 1.0);
    const double n1 = 1.0 / __builtin_sqrt(x1 * x1 + y1 * y1 + 1.0);
    const double u0 = (R[0] * x0 + R[1] * y0 + R[2]) * n0;
    const double u1 = (R[3] * x0 + R[4] * y0 + R[5]) * n0;
    const double u2 = (R[6] * x0 + R[7] * y0 + R[8]) * n0;
    const double a = -(u0 * x1 + u1 * y1 + u2) * n1;
    const double p = -(u0 * t[0] + u1 * t[1] + u2 * t[2]);
    const double s = (x1 * t[0] + y1 * t[1] + t[2]) * n1;
    const double bound = 0.01 * (1.0 - a * a);
    if (!(p - a * s > bound && s - a * p > bound)) continue;
    sum0[graph.left[e]] += graph.p[e];
    sum1[graph.right[e]] += graph.p[e];
  }
  double total = 0.0;
  for (std::size_t v = 0; v < graph.num0; ++v) {
    if (sum0[v] > 0.0) total += __builtin_log1p(graph.a0[v] * sum0[v]);
  }
  for (std::size_t v = 0; v < graph.num1; ++v) {
    if (sum1[v] > 0.0) total += __builtin_log1p(graph.a1[v] * sum1[v]);
  }
  return total;
}

}  // namespace

template <>
const PlainKernels CompiledFor<PlainKernels, InstructionSet::MANYMATCH_ISA>::kernels = {.hcm = hcm};

}  // namespace manymatch

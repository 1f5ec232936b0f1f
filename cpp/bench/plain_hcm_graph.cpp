#include <cstring>

#include "manymatch/kernels.h"
#include "plain_hcm.h"

namespace manymatch {

#define MANYMATCH_PLAIN(isa) \
  double plain_hcm_##isa(const PlainGraph&, const double*, const double*, double*, double*)
MANYMATCH_PLAIN(baseline);
#if defined(MANYMATCH_X86)
MANYMATCH_PLAIN(avx2);
MANYMATCH_PLAIN(avx512);
#elif defined(MANYMATCH_ARM64)
MANYMATCH_PLAIN(neon);
#endif

PlainGraph::PlainGraph(const Graph& graph, const Priors& priors, const double* points0,
                       const double* points1, double threshold)
    : left(graph.left),
      right(graph.right),
      p(priors.p),
      a0(priors.a0),
      a1(priors.a1),
      eps(threshold) {
  for (std::size_t e = 0; e < left.size(); ++e) {
    const double* a = points0 + 2 * left[e];
    const double* b = points1 + 2 * right[e];
    x0.push_back(a[0]);
    y0.push_back(a[1]);
    x1.push_back(b[0]);
    y1.push_back(b[1]);
  }
}

PlainHcm plain_hcm() {
#if defined(MANYMATCH_X86)
  if (std::strcmp(kernels().name, "avx512") == 0) return plain_hcm_avx512;
  if (std::strcmp(kernels().name, "avx2") == 0) return plain_hcm_avx2;
#elif defined(MANYMATCH_ARM64)
  if (std::strcmp(kernels().name, "neon") == 0) return plain_hcm_neon;
#endif
  return plain_hcm_baseline;
}

}  // namespace manymatch

// The GMS filter.
#include "manymatch/filter/gms.h"

#include <nanobind/stl/tuple.h>

#include <tuple>

#include "arrays.h"

namespace manymatch {

namespace {

using Size = In<double, nb::shape<2>>;

std::tuple<Out<bool>, int, double, int> gms(const Points& points0, const Points& points1,
                                            const Edges& edges, const Size& size0,
                                            const Size& size1, double threshold, int grid,
                                            bool scales, bool rotations, bool crop,
                                            bool integer_mean) {
  if (grid < 2) throw nb::value_error("grid must be at least 2");
  const Graph graph = to_graph(edges, points0.shape(0), points1.shape(0));
  const GmsOptions options{threshold, grid, scales, rotations, crop, integer_mean};
  GmsResult result;
  {
    nb::gil_scoped_release release;
    result = gms_filter(graph, view_of(points0), view_of(points1), ImageSize(size0.data(), 2),
                        ImageSize(size1.data(), 2), options);
  }
  const double scale = result.scale < 0 ? 0.0 : kGmsScale[result.scale];
  return {flags_to_numpy(result.mask), result.num_kept, scale, result.rotation};
}

}  // namespace

void bind_gms(nb::module_& m) {
  m.def(
      "gms", &gms, nb::arg("points0"), nb::arg("points1"), nb::arg("edges"), nb::arg("size0"),
      nb::arg("size1"), nb::arg("threshold"), nb::arg("grid"), nb::arg("scales"),
      nb::arg("rotations"), nb::arg("crop"), nb::arg("integer_mean"),
      "Mask of the edges that are kept, their number, and the best scale and rotation (0 and -1 if "
      "no edge is kept).");
}

}  // namespace manymatch

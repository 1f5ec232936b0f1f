// Association: unit rows, k-nearest neighbours of both images, ranked edges.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "manymatch/associate/edges.h"
#include "manymatch/associate/neighbours.h"
#include "manymatch/associate/unit_rows.h"

namespace manymatch {

namespace {

using Rows = In<float, nb::ndim<2>>;
using EdgeTuple = std::tuple<Out<int64_t>, Out<float>, Out<int32_t>>;

// Writes into memory of NumPy, which uses large pages: first access to 4 KiB pages costs more than
// the arithmetic.
template <class T>
Out<bool> unit_rows(const In<T, nb::ndim<2>>& x,
                    nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> unit,
                    int threads) {
  constexpr std::size_t kChunk = 256;
  const std::size_t count = x.shape(0), dimension = x.shape(1);
  check_length("unit", unit.size(), x.size());
  std::vector<uint8_t> valid(count);
  {
    nb::gil_scoped_release release;
    Workers(threads).run(static_cast<int>((count + kChunk - 1) / kChunk), [&](int, int job) {
      const std::size_t begin = static_cast<std::size_t>(job) * kChunk;
      for (std::size_t i = begin; i < std::min(begin + kChunk, count); ++i) {
        valid[i] = unit_row(std::span(x.data() + i * dimension, dimension),
                            std::span(unit.data() + i * dimension, dimension));
      }
    });
  }
  return flags_to_numpy(valid);
}

using Owners = std::optional<In<int32_t, nb::ndim<1>>>;

UnitRows to_rows(const Rows& rows, const Flags& valid, const Owners& owners, const char* name) {
  check_length(name, valid.shape(0), rows.shape(0));
  if (rows.shape(0) > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
    throw nb::value_error("there must be fewer than 2^31 rows");
  }
  const std::span<const int32_t> given = view_of(owners);
  std::size_t keypoints = rows.shape(0);
  if (owners) {
    check_length("owners", given.size(), rows.shape(0));
    const auto [least, most] = std::minmax_element(given.begin(), given.end());
    keypoints = given.empty() ? 0 : static_cast<std::size_t>(*most) + 1;
    if (!given.empty() && (*least < 0 || keypoints > given.size())) {
      throw nb::value_error("owners must be numbers from 0, fewer than rows");
    }
  }
  return {rows.data(), valid.data(), rows.shape(0), rows.shape(1), given, keypoints};
}

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

Operator to_operator(const std::string& name) {
  if (name == "mutual") return Operator::kMutual;
  if (name == "oneway") return Operator::kOneWay;
  if (name == "union") return Operator::kUnion;
  throw nb::value_error("operator must be mutual, oneway or union");
}

EdgeTuple to_arrays(RankedEdges edges) {
  const std::size_t count = edges.rank.size();
  return {to_numpy(std::move(edges.ends), {count, 2}), to_numpy(std::move(edges.similarity)),
          to_numpy(std::move(edges.rank))};
}

EdgeTuple nearest_edges(const Rows& unit0, const Flags& valid0, const Owners& owners0,
                        const Rows& unit1, const Flags& valid1, const Owners& owners1,
                        std::size_t k0, std::size_t k1, const std::string& op,
                        std::optional<std::size_t> max_edges, int threads) {
  check_length("unit1", unit1.shape(1), unit0.shape(1));
  const UnitRows left = to_rows(unit0, valid0, owners0, "valid0");
  const UnitRows right = to_rows(unit1, valid1, owners1, "valid1");
  const Operator kind = to_operator(op);
  RankedEdges edges;
  {
    nb::gil_scoped_release release;
    edges = NeighbourSearch(left, right, k0, k1, threads).edges(kind, max_edges.value_or(kNoLimit));
  }
  return to_arrays(std::move(edges));
}

ListsView to_view(const In<int32_t, nb::ndim<2>>& index, const Rows& similarity,
                  std::size_t num_others) {
  check_length("similarity", similarity.shape(0), index.shape(0));
  check_length("similarity[0]", similarity.shape(1), index.shape(1));
  for (std::size_t n = 0; n < index.size(); ++n) {
    if (index.data()[n] >= 0 && static_cast<std::size_t>(index.data()[n]) >= num_others) {
      throw nb::value_error("index must hold positions in the other image");
    }
  }
  return {index.data(), similarity.data(), index.shape(0), index.shape(1)};
}

EdgeTuple edges_of_lists(const In<int32_t, nb::ndim<2>>& index0, const Rows& similarity0,
                         const In<int32_t, nb::ndim<2>>& index1, const Rows& similarity1,
                         const std::string& op, std::optional<std::size_t> max_edges) {
  const ListsView left = to_view(index0, similarity0, index1.shape(0));
  const ListsView right = to_view(index1, similarity1, index0.shape(0));
  const Operator kind = to_operator(op);
  RankedEdges edges;
  {
    nb::gil_scoped_release release;
    edges = ranked_edges(links_of_lists(left, right, kind), max_edges.value_or(kNoLimit));
  }
  return to_arrays(std::move(edges));
}

}  // namespace

void bind_associate(nb::module_& m) {
  const char* text =
      "Rows x / max(|x|, 1e-12) in float32; returns which rows are finite and not zero.";
  m.def("unit_rows", &unit_rows<float>, nb::arg("x").noconvert(), nb::arg("unit").noconvert(),
        nb::arg("threads") = 1, text);
  m.def("unit_rows", &unit_rows<double>, nb::arg("x").noconvert(), nb::arg("unit").noconvert(),
        nb::arg("threads") = 1, text);
  m.def("nearest_edges", &nearest_edges, nb::arg("unit0"), nb::arg("valid0"),
        nb::arg("owners0").none(), nb::arg("unit1"), nb::arg("valid1"), nb::arg("owners1").none(),
        nb::arg("k0"), nb::arg("k1"), nb::arg("operator"), nb::arg("max_edges").none() = nb::none(),
        nb::arg("threads") = 1,
        "Edges, similarity and rank by (rank, decreasing similarity, i, j) between keypoints that "
        "own rows of unit length.");
  m.def("edges_of_lists", &edges_of_lists, nb::arg("index0"), nb::arg("similarity0"),
        nb::arg("index1"), nb::arg("similarity1"), nb::arg("operator"),
        nb::arg("max_edges").none() = nb::none(),
        "Edges of the neighbour lists of two images by (rank, decreasing similarity, i, j).");
}

}  // namespace manymatch

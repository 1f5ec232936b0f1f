// NumPy arrays in and out of the core: inputs are contiguous, outputs own their data. Shapes are
// checked here only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manymatch/graph.h"

namespace manymatch {

namespace nb = nanobind;

template <class T, class... Shape>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu, Shape...>;
using Points = In<double, nb::shape<-1, 2>>;
using Table = In<double, nb::ndim<2>>;  // points of two or three coordinates
using Vector = In<double, nb::ndim<1>>;
using Edges = In<int32_t, nb::shape<-1, 2>>;
using Flags = In<bool, nb::ndim<1>>;
using Ranks = In<int32_t, nb::ndim<1>>;
using Similarities = In<float, nb::ndim<1>>;
using Matrix3 = In<double, nb::shape<3, 3>>;
using Vector3 = In<double, nb::shape<3>>;

template <class T>
using Out = nb::ndarray<nb::numpy, T>;

template <class T>
Out<T> to_numpy(std::vector<T> values, std::vector<std::size_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  nb::capsule owner(owned.release(),
                    [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(data, shape.size(), shape.data(), owner);
}

template <class T>
Out<T> to_numpy(std::vector<T> values) {
  const std::size_t size = values.size();
  return to_numpy(std::move(values), {size});
}

inline Out<bool> flags_to_numpy(const std::vector<uint8_t>& flags) {
  auto owned = std::make_unique<bool[]>(flags.size() + 1);
  for (std::size_t i = 0; i < flags.size(); ++i) owned[i] = flags[i] != 0;
  bool* data = owned.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<bool*>(p); });
  const std::size_t shape[1] = {flags.size()};
  return Out<bool>(data, 1, shape, owner);
}

// All entries by rows; empty if the array is None.
template <class T, class... Shape>
std::span<const T> view_of(const In<T, Shape...>& array) {
  return {array.data(), array.size()};
}
template <class T, class... Shape>
std::span<const T> view_of(const std::optional<In<T, Shape...>>& array) {
  return array ? view_of(*array) : std::span<const T>();
}
inline std::span<const uint8_t> flags_of_optional(const std::optional<Flags>& flags) {
  if (!flags) return {};
  return {reinterpret_cast<const uint8_t*>(flags->data()), flags->size()};
}

// Throws ValueError unless every edge joins existing vertices.
inline void check_edges(const Edges& edges, std::size_t n0, std::size_t n1) {
  for (std::size_t e = 0; e < edges.shape(0); ++e) {
    const int32_t l = edges(e, 0), r = edges(e, 1);
    if (l < 0 || r < 0 || static_cast<std::size_t>(l) >= n0 || static_cast<std::size_t>(r) >= n1) {
      const std::string text = "edges[" + std::to_string(e) + "] = (" + std::to_string(l) + ", " +
                               std::to_string(r) + ") is outside " + std::to_string(n0) + " x " +
                               std::to_string(n1) + " keypoints";
      throw nb::value_error(text.c_str());
    }
  }
}

inline void check_length(const char* name, std::size_t given, std::size_t wanted) {
  if (given != wanted) {
    const std::string text = std::string(name) + " has " + std::to_string(given) +
                             " entries, wanted " + std::to_string(wanted);
    throw nb::value_error(text.c_str());
  }
}

inline void check_dimension(const char* name, std::size_t given, int wanted) {
  if (given != static_cast<std::size_t>(wanted)) {
    const std::string text = std::string(name) + " has points of " + std::to_string(given) +
                             " coordinates, wanted " + std::to_string(wanted);
    throw nb::value_error(text.c_str());
  }
}

inline void check_positive(const char* name, double value) {
  if (!(value > 0.0)) {
    const std::string text = std::string(name) + " must be positive, got " + std::to_string(value);
    throw nb::value_error(text.c_str());
  }
}

inline Graph to_graph(const Edges& edges, std::size_t n0, std::size_t n1) {
  check_edges(edges, n0, n1);
  std::vector<int> left(edges.shape(0)), right(edges.shape(0));
  for (std::size_t e = 0; e < edges.shape(0); ++e) {
    left[e] = edges(e, 0);
    right[e] = edges(e, 1);
  }
  return {std::move(left), std::move(right), static_cast<int>(n0), static_cast<int>(n1)};
}

// Numbers of vertices that an edge list needs.
inline std::pair<std::size_t, std::size_t> vertex_counts(const Edges& edges) {
  int32_t n0 = 0, n1 = 0;
  for (std::size_t e = 0; e < edges.shape(0); ++e) {
    n0 = std::max(n0, edges(e, 0) + 1);
    n1 = std::max(n1, edges(e, 1) + 1);
  }
  return {static_cast<std::size_t>(std::max(n0, 0)), static_cast<std::size_t>(std::max(n1, 0))};
}

// Whether Ctrl-C was pressed. Takes the GIL for the question.
inline bool interrupt_pending() {
  nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

}  // namespace manymatch

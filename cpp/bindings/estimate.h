// The estimator of a geometric problem as a function of the module: the same for all of them.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "manymatch/estimate.h"
#include "manymatch/problems/points.h"

namespace manymatch {

// One pair as Python hands it over; keeps the arrays alive.
struct Pair {
  Table x0, x1;
  Edges edges;
  std::optional<Ranks> rank;
  std::optional<Flags> proposals;
  double eps;
  std::optional<Points> points0, points1;
  std::optional<Flags> kept;
  std::optional<Vector> parameters;  // what a problem takes besides points
  std::optional<Ranks> source;
  std::optional<Vector> belief;

  // Throws ValueError where the arrays do not fit each other.
  Pair(Table x0_, Table x1_, Edges edges_, std::optional<Ranks> rank_,
       std::optional<Flags> proposals_, double eps_, std::optional<Points> points0_ = {},
       std::optional<Points> points1_ = {}, std::optional<Flags> kept_ = {},
       std::optional<Vector> parameters_ = {}, std::optional<Ranks> source_ = {},
       std::optional<Vector> belief_ = {});

  GraphInput input() const;

  // What a problem is built from, besides the graph: the points and, if it takes more than them,
  // the parameters. Throws ValueError if the points have other dimensions than it wants.
  template <Problem P>
  typename P::Data data() const {
    check_dimension("x0", x0.shape(1), P::kDimension0);
    check_dimension("x1", x1.shape(1), P::kDimension1);
    const VertexPoints points{view_of(x0), view_of(x1), eps};
    if constexpr (std::is_same_v<typename P::Data, VertexPoints>) {
      return points;
    } else {
      return typename P::Data(points, view_of(parameters));
    }
  }
};

Method to_method(const std::string& name);

template <Problem P>
std::vector<ModelEstimate<typename P::Model>> estimate_pairs(const std::vector<const Pair*>& pairs,
                                                             const std::string& method,
                                                             const std::vector<Options>& options,
                                                             int threads) {
  check_length("options", options.size(), pairs.size());
  const Method chosen = to_method(method);
  std::vector<GraphInput> inputs;
  std::vector<typename P::Data> data;
  for (const Pair* pair : pairs) {
    inputs.push_back(pair->input());
    data.push_back(pair->data<P>());
  }
  Interrupt interrupt(interrupt_pending);
  std::vector<ModelEstimate<typename P::Model>> out;
  {
    nb::gil_scoped_release release;
    if (inputs.size() == 1) {
      Options alone = options[0];
      alone.threads = threads;
      out.push_back(estimate<P>(inputs[0], data[0], chosen, alone, interrupt));
    } else {
      out = estimate_many<P>(inputs, data, chosen, options, threads, interrupt);
    }
  }
  if (interrupt.requested()) throw nb::python_error();
  return out;
}

// (hcm, cardinality, inliers, squared residuals).
using ScoreTuple = std::tuple<double, int, Out<bool>, Out<double>>;

template <Problem P>
ScoreTuple score_pair(const Table& x0, const Table& x1, const Edges& edges, double eps, double q,
                      double delta, const typename P::Model& model,
                      std::optional<Vector> parameters = {}) {
  const Pair pair(x0, x1, edges, {}, {}, eps, {}, {}, {}, std::move(parameters));
  ModelScore s = score<P>(pair.input(), pair.data<P>(), model, q, delta);
  return {s.hcm, s.cardinality, flags_to_numpy(s.inliers), to_numpy(std::move(s.r2))};
}

// Adds the class of the estimates of a problem and the function that makes them. `ToPython` turns a
// model into arrays. Call it after bind_estimate.
template <Problem P, class ToPython>
void bind_problem(nb::module_& m, const char* class_name, const char* function_name,
                  const char* function_doc, ToPython to_python) {
  using Result = ModelEstimate<typename P::Model>;
  nb::class_<Result, Estimate>(m, class_name, "Result of one run.")
      .def_prop_ro(
          "model", [to_python](const Result& e) { return to_python(e.model); },
          nb::rv_policy::automatic)  // the arrays own their data
      .def_prop_ro(
          "alternatives",
          [to_python](const Result& e) {
            using Entry = std::tuple<decltype(to_python(e.model)), double, double, Out<int64_t>>;
            std::vector<Entry> all;
            for (const auto& other : e.alternatives) {
              all.emplace_back(to_python(other.model), other.probability, other.support,
                               to_numpy(other.matched));
            }
            return all;
          },
          nb::rv_policy::automatic, "Other models: (model, probability, support, matched edges).");
  m.def(function_name, &estimate_pairs<P>, nb::arg("pairs"), nb::arg("method"), nb::arg("options"),
        nb::arg("threads"), function_doc);
}

}  // namespace manymatch

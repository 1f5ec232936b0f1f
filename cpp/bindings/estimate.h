// Templates that bind the estimator, the score and the minimal solver of a geometric problem.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "manymatch/estimate.h"
#include "manymatch/problems/points.h"

namespace manymatch {

// One pair from Python; keeps the arrays alive.
struct Pair {
  Table x0, x1;
  Edges edges;
  std::optional<Ranks> rank;
  std::optional<Flags> proposals;
  double eps;
  std::optional<Points> points0, points1;
  std::optional<Flags> kept;
  std::optional<Vector> parameters;  // input of a problem besides points
  std::optional<Ranks> source;
  std::optional<Vector> belief;
  std::optional<Similarities> similarity;

  // Throws ValueError if the shapes of the arrays do not match.
  Pair(Table x0_, Table x1_, Edges edges_, std::optional<Ranks> rank_,
       std::optional<Flags> proposals_, double eps_, std::optional<Points> points0_ = {},
       std::optional<Points> points1_ = {}, std::optional<Flags> kept_ = {},
       std::optional<Vector> parameters_ = {}, std::optional<Ranks> source_ = {},
       std::optional<Vector> belief_ = {}, std::optional<Similarities> similarity_ = {});

  GraphInput input() const;

  // The data of a problem: the points and, if it needs more, the parameters. Throws ValueError if
  // the points have the wrong dimension.
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
                      std::optional<Vector> parameters = {}, std::optional<Vector> belief = {}) {
  const Pair pair(x0, x1, edges, {}, {}, eps, {}, {}, {}, std::move(parameters), {},
                  std::move(belief));
  ModelScore s = score<P>(pair.input(), pair.data<P>(), model, q, delta);
  return {s.hcm, s.cardinality, flags_to_numpy(s.inliers), to_numpy(std::move(s.r2))};
}

// Adds the function that scores a model: to_model(arrays...) makes the model of arguments `names`
// of the types Arrays.
template <Problem P, class... Arrays, class ToModel, class... Names>
void bind_score(nb::module_& m, const char* function_name, const char* function_doc,
                ToModel to_model, const Names&... names) {
  m.def(
      function_name,
      [to_model](const Table& x0, const Table& x1, const Edges& edges, double eps, double q,
                 double delta, const Arrays&... arrays, std::optional<Vector> belief) {
        return score_pair<P>(x0, x1, edges, eps, q, delta, to_model(arrays...), {},
                             std::move(belief));
      },
      nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"), nb::arg("q"),
      nb::arg("delta"), names..., nb::arg("belief").none() = nb::none(), function_doc);
}

// Solves `total` minimal samples. fill(batch, i, s) copies sample s to place i of a batch,
// solve(batch, solutions) is the kernel, and take(solutions, k) takes solution k. Returns the
// number of the sample of each solution.
template <class Batch, class Solutions, class Fill, class Solve, class Take>
std::vector<int64_t> solve_samples(std::size_t total, Fill fill, Solve solve, Take take) {
  const auto batch = std::make_unique<Batch>();
  const auto solutions = std::make_unique<Solutions>();
  std::vector<int64_t> sample;
  for (std::size_t first = 0; first < total; first += kBatch) {
    batch->count = static_cast<int>(std::min<std::size_t>(kBatch, total - first));
    for (std::size_t i = 0; i < at(batch->count); ++i) fill(*batch, i, first + i);
    solve(*batch, *solutions);
    for (int k = 0; k < solutions->count; ++k) {
      sample.push_back(static_cast<int64_t>(first) + solutions->sample[k]);
      take(*solutions, k);
    }
  }
  return sample;
}

// Copies the points of sample s to place i of a batch with columns x0, y0, x1 and y1.
template <class Batch, class Samples>
void fill_planar(Batch& batch, std::size_t i, const Samples& x0, const Samples& x1, std::size_t s) {
  for (std::size_t k = 0; k < x0.shape(1); ++k) {
    batch.x0[k][i] = x0(s, k, 0);
    batch.y0[k][i] = x0(s, k, 1);
    batch.x1[k][i] = x1(s, k, 0);
    batch.y1[k][i] = x1(s, k, 1);
  }
}

// Appends the entries of an array.
template <std::size_t N>
void append(std::vector<double>& values, const double (&entries)[N]) {
  values.insert(values.end(), entries, entries + N);
}

// Adds the class of the estimates of a problem and the function that makes them. to_python(model)
// turns a model into arrays. Call it after bind_estimate.
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
  const std::string doc = std::string(function_doc) +
                          " The threads share the work on a single pair; of several pairs, each "
                          "is estimated by one thread.";
  m.def(function_name, &estimate_pairs<P>, nb::arg("pairs"), nb::arg("method"), nb::arg("options"),
        nb::arg("threads"), doc.c_str());
}

}  // namespace manymatch

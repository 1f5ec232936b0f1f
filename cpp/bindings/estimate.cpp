// The estimator and the exact score.
#include "manymatch/estimate.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>

#include "arrays.h"

namespace manymatch {

namespace {

// One pair as Python hands it over; keeps the arrays alive.
struct Pair {
  Points x0, x1;
  Edges edges;
  std::optional<Ranks> rank;
  std::optional<Flags> proposals;
  double eps;
  std::optional<Points> points0, points1;
  std::optional<Flags> kept;

  Pair(Points x0_, Points x1_, Edges edges_, std::optional<Ranks> rank_,
       std::optional<Flags> proposals_, double eps_, std::optional<Points> points0_,
       std::optional<Points> points1_, std::optional<Flags> kept_)
      : x0(std::move(x0_)),
        x1(std::move(x1_)),
        edges(std::move(edges_)),
        rank(std::move(rank_)),
        proposals(std::move(proposals_)),
        eps(eps_),
        points0(std::move(points0_)),
        points1(std::move(points1_)),
        kept(std::move(kept_)) {
    check_edges(edges, x0.shape(0), x1.shape(0));
    check_positive("eps", eps);
    if (rank) check_length("rank", rank->shape(0), edges.shape(0));
    if (proposals) check_length("proposals", proposals->shape(0), edges.shape(0));
    if (points0.has_value() != points1.has_value()) {
      throw nb::value_error("points0 and points1 must be given together");
    }
    if (points0) check_length("points0", points0->shape(0), x0.shape(0));
    if (points1) check_length("points1", points1->shape(0), x1.shape(0));
    if (kept) check_length("kept", kept->shape(0), edges.shape(0));
  }

  PairInput input() const {
    return {x0.data(),
            x1.data(),
            static_cast<int>(x0.shape(0)),
            static_cast<int>(x1.shape(0)),
            edges.data(),
            static_cast<int64_t>(edges.shape(0)),
            rank ? rank->data() : nullptr,
            proposals ? reinterpret_cast<const uint8_t*>(proposals->data()) : nullptr,
            eps,
            points0 ? points0->data() : nullptr,
            points1 ? points1->data() : nullptr,
            kept ? reinterpret_cast<const uint8_t*>(kept->data()) : nullptr};
  }
};

Method to_method(const std::string& name) {
  if (name == "auto") return Method::kAuto;
  if (name == "hcm-mcm") return Method::kHcmMcm;
  if (name == "hcm") return Method::kHcm;
  if (name == "mcm") return Method::kMcm;
  if (name == "cm") return Method::kCm;
  throw nb::value_error(("method must be auto, hcm-mcm, hcm, mcm or cm, got " + name).c_str());
}

std::vector<Estimate> estimate(const std::vector<const Pair*>& pairs, const std::string& method,
                               const std::vector<Options>& options, int threads) {
  check_length("options", options.size(), pairs.size());
  const Method chosen = to_method(method);
  std::vector<PairInput> inputs;
  for (const Pair* pair : pairs) inputs.push_back(pair->input());
  Interrupt interrupt(interrupt_pending);
  std::vector<Estimate> out;
  {
    nb::gil_scoped_release release;
    if (inputs.size() == 1) {
      Options alone = options[0];
      alone.threads = threads;
      out.push_back(estimate_relative_pose(inputs[0], chosen, alone, interrupt));
    } else {
      out = estimate_relative_poses(inputs, chosen, options, threads, interrupt);
    }
  }
  if (interrupt.requested()) throw nb::python_error();
  return out;
}

std::tuple<double, int, Out<bool>, Out<double>> score(const Points& x0, const Points& x1,
                                                      const Edges& edges, double eps, double q,
                                                      double delta, const Matrix3& R,
                                                      const Vector3& t) {
  const Pair pair(x0, x1, edges, {}, {}, eps, {}, {}, {});
  PoseScore s = score_pose(pair.input(), to_pose(R, t), q, delta);
  return {s.hcm, s.cardinality, flags_to_numpy(s.inliers), to_numpy(std::move(s.r2))};
}

}  // namespace

void bind_estimate(nb::module_& m) {
  constexpr auto automatic = nb::rv_policy::automatic;  // the arrays own their data
  nb::class_<Options>(m, "Options", "Options of one run; see manymatch.Options.")
      .def(nb::init<>())
      .def_rw("min_iterations", &Options::min_iterations)
      .def_rw("max_iterations", &Options::max_iterations)
      .def_rw("confidence", &Options::confidence)
      .def_rw("safety", &Options::safety)
      .def_rw("pool_size", &Options::pool_size)
      .def_rw("q", &Options::q)
      .def_rw("delta", &Options::delta)
      .def_rw("guidance", &Options::guidance)
      .def_rw("seed", &Options::seed)
      .def_rw("without", &Options::without, "Ingredients of \"auto\" that are left out, as bits.");
  nb::class_<Pair>(m, "Pair", "Points on the normalised planes, edges, threshold.")
      .def(nb::init<Points, Points, Edges, std::optional<Ranks>, std::optional<Flags>, double,
                    std::optional<Points>, std::optional<Points>, std::optional<Flags>>(),
           nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("rank").none(),
           nb::arg("proposals").none(), nb::arg("eps"), nb::arg("points0").none() = nb::none(),
           nb::arg("points1").none() = nb::none(), nb::arg("kept").none() = nb::none());
  nb::class_<Estimate>(m, "Estimate", "Result of one run.")
      .def_ro("success", &Estimate::success)
      .def_ro("failure", &Estimate::failure)
      .def_prop_ro(
          "R", [](const Estimate& e) { return rotation_to_numpy(e.pose); }, automatic)
      .def_prop_ro(
          "t", [](const Estimate& e) { return translation_to_numpy(e.pose); }, automatic)
      .def_prop_ro(
          "inliers", [](const Estimate& e) { return flags_to_numpy(e.inliers); }, automatic)
      .def_prop_ro(
          "matched", [](const Estimate& e) { return to_numpy(e.matched); }, automatic)
      .def_prop_ro(
          "kept", [](const Estimate& e) { return flags_to_numpy(e.kept); }, automatic)
      .def_ro("hcm", &Estimate::hcm)
      .def_ro("cardinality", &Estimate::cardinality)
      .def_ro("num_inliers", &Estimate::num_inliers)
      .def_ro("iterations", &Estimate::iterations)
      .def_ro("refinements", &Estimate::refinements)
      .def_ro("pooled", &Estimate::pooled)
      .def_ro("worst_pooled", &Estimate::worst_pooled)
      .def_prop_ro("timing", [](const Estimate& e) {
        nb::typed<nb::dict, nb::str, double> d;
        d["setup"] = e.timing.setup;
        d["search"] = e.timing.search;
        d["local_refine"] = e.timing.local_refine;
        d["select"] = e.timing.select;
        d["polish"] = e.timing.polish;
        d["resolve"] = e.timing.resolve;
        d["total"] = e.timing.total;
        return d;
      });
  m.def("estimate", &estimate, nb::arg("pairs"), nb::arg("method"), nb::arg("options"),
        nb::arg("threads"),
        "Relative poses of pairs. One pair uses the threads within, several use one each.");
  m.def("score", &score, nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("eps"),
        nb::arg("q"), nb::arg("delta"), nb::arg("R"), nb::arg("t"),
        "Exact score of a pose: (hcm, cardinality, inliers, squared residuals).");
}

}  // namespace manymatch

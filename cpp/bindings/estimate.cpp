// Shared by the estimators of all problems: options, pairs, the common fields of a result.
#include "estimate.h"

namespace manymatch {

Pair::Pair(Table x0_, Table x1_, Edges edges_, std::optional<Ranks> rank_,
           std::optional<Flags> proposals_, double eps_, std::optional<Points> points0_,
           std::optional<Points> points1_, std::optional<Flags> kept_,
           std::optional<Vector> parameters_, std::optional<Ranks> source_,
           std::optional<Vector> belief_, std::optional<Similarities> similarity_)
    : x0(std::move(x0_)),
      x1(std::move(x1_)),
      edges(std::move(edges_)),
      rank(std::move(rank_)),
      proposals(std::move(proposals_)),
      eps(eps_),
      points0(std::move(points0_)),
      points1(std::move(points1_)),
      kept(std::move(kept_)),
      parameters(std::move(parameters_)),
      source(std::move(source_)),
      belief(std::move(belief_)),
      similarity(std::move(similarity_)) {
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
  if (source) check_length("source", source->shape(0), edges.shape(0));
  if (belief) check_length("belief", belief->shape(0), edges.shape(0));
  if (similarity) check_length("similarity", similarity->shape(0), edges.shape(0));
}

GraphInput Pair::input() const {
  return {static_cast<int>(x0.shape(0)),
          static_cast<int>(x1.shape(0)),
          view_of(edges),
          view_of(rank),
          flags_of_optional(proposals),
          view_of(points0),
          view_of(points1),
          flags_of_optional(kept),
          view_of(source),
          view_of(belief),
          view_of(similarity)};
}

Method to_method(const std::string& name) {
  if (name == "auto") return Method::kAuto;
  if (name == "hcm-mcm") return Method::kHcmMcm;
  if (name == "hcm") return Method::kHcm;
  if (name == "mcm") return Method::kMcm;
  if (name == "cm") return Method::kCm;
  throw nb::value_error(("method must be auto, hcm-mcm, hcm, mcm or cm, got " + name).c_str());
}

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
      .def_rw("automatic_threshold", &Options::automatic_threshold)
      .def_rw("disable", &Options::disabled, "Parts of \"auto\" that are switched off, as bits.");
  nb::class_<Pair>(m, "Pair",
                   "Points by vertex, edges, and the threshold in the unit of the points.")
      .def(nb::init<Table, Table, Edges, std::optional<Ranks>, std::optional<Flags>, double,
                    std::optional<Points>, std::optional<Points>, std::optional<Flags>,
                    std::optional<Vector>, std::optional<Ranks>, std::optional<Vector>,
                    std::optional<Similarities>>(),
           nb::arg("x0"), nb::arg("x1"), nb::arg("edges"), nb::arg("rank").none(),
           nb::arg("proposals").none(), nb::arg("eps"), nb::arg("points0").none() = nb::none(),
           nb::arg("points1").none() = nb::none(), nb::arg("kept").none() = nb::none(),
           nb::arg("parameters").none() = nb::none(), nb::arg("source").none() = nb::none(),
           nb::arg("belief").none() = nb::none(), nb::arg("similarity").none() = nb::none());
  nb::class_<Estimate>(m, "Estimate", "The fields that the results of all problems share.")
      .def_ro("success", &Estimate::success)
      .def_ro("failure", &Estimate::failure)
      .def_prop_ro(
          "inliers", [](const Estimate& e) { return flags_to_numpy(e.inliers); }, automatic)
      .def_prop_ro(
          "matched", [](const Estimate& e) { return to_numpy(e.matched); }, automatic)
      .def_prop_ro(
          "kept", [](const Estimate& e) { return flags_to_numpy(e.kept); }, automatic)
      .def_prop_ro(
          "trust", [](const Estimate& e) { return to_numpy(e.trust); }, automatic)
      .def_ro("hcm", &Estimate::hcm)
      .def_ro("cardinality", &Estimate::cardinality)
      .def_ro("num_inliers", &Estimate::num_inliers)
      .def_ro("iterations", &Estimate::iterations)
      .def_ro("refinements", &Estimate::refinements)
      .def_ro("pooled", &Estimate::pooled)
      .def_ro("worst_pooled", &Estimate::worst_pooled)
      .def_ro("threshold", &Estimate::threshold, "The threshold used, divided by the given one.")
      .def_ro("noise", &Estimate::noise)
      .def_ro("noise_deviation", &Estimate::noise_deviation)
      .def_ro("support", &Estimate::support)
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
}

}  // namespace manymatch

// The compiled module `manymatch._core`. Each file of this folder adds its functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "manymatch/dispatch.h"

namespace nb = nanobind;

namespace manymatch {

void bind_absolute_pose(nb::module_& m);
void bind_associate(nb::module_& m);
void bind_estimate(nb::module_& m);
void bind_fundamental(nb::module_& m);
void bind_gms(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_homography(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_relative_pose(nb::module_& m);
void bind_rigid(nb::module_& m);
void bind_unknown_focal(nb::module_& m);

namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (InstructionSet isa : available_instruction_sets()) names.emplace_back(name_of(isa));
  return names;
}

void force(const std::optional<std::string>& name) {
  if (!force_instruction_set(name ? name->c_str() : nullptr)) {
    std::string text = "name must be one of";
    for (const std::string& known : instruction_sets()) text += " " + known;
    text += " here, got " + *name;
    throw nb::value_error(text.c_str());
  }
}

}  // namespace
}  // namespace manymatch

NB_MODULE(_core, m) {
  using namespace manymatch;
  m.doc() = "Compiled core of manymatch: plain arrays in, plain arrays out.";
  m.def(
      "instruction_set", [] { return std::string(name_of(instruction_set())); },
      "Name of the instruction set in use.");
  m.def("instruction_sets", &instruction_sets, "Instruction sets that run here, best first.");
  m.def("force_instruction_set", &force, nb::arg("name").none(),
        "Use one instruction set from now on; None for the best one.");
  bind_associate(m);
  bind_graph(m);
  bind_gms(m);
  bind_estimate(m);
  bind_absolute_pose(m);
  bind_fundamental(m);
  bind_homography(m);
  bind_maps(m);
  bind_relative_pose(m);
  bind_rigid(m);
  bind_unknown_focal(m);
}

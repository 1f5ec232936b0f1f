// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/fundamental/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/fundamental/edge_kernels.h"
#include "manymatch/problems/fundamental/seven_point.h"

namespace manymatch {

template <>
const FundamentalKernels CompiledFor<FundamentalKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .screen = screen,
    .inliers = inliers,
    .seven_point = seven_point,
    .normal_equations = normal_equations,
    .residuals = residuals,
    .jacobian = jacobian,
};

}  // namespace manymatch

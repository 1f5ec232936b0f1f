// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/relative_pose/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/relative_pose/edge_kernels.h"
#include "manymatch/problems/relative_pose/five_point.h"
#include "manymatch/problems/relative_pose/refine_kernels.h"

namespace manymatch {

template <>
const RelativePoseKernels CompiledFor<RelativePoseKernels, InstructionSet::MANYMATCH_ISA>::kernels =
    {
        .screen = screen,
        .inliers = inliers,
        .five_point = five_point,
        .normal_equations = normal_equations,
        .residuals = residuals,
        .jacobian = jacobian,
};

}  // namespace manymatch

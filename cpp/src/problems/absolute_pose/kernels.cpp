// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/absolute_pose/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/absolute_pose/projection.h"
#include "manymatch/problems/absolute_pose/three_point.h"

namespace manymatch {

template <>
const AbsolutePoseKernels CompiledFor<AbsolutePoseKernels, InstructionSet::MANYMATCH_ISA>::kernels =
    {
        .screen = screen,
        .inliers = inliers,
        .three_point = three_point,
        .normal_equations = normal_equations,
        .residuals = residuals,
        .jacobian = jacobian,
};

}  // namespace manymatch

// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/homography/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/homography/four_point.h"
#include "manymatch/problems/homography/transfer.h"

namespace manymatch {

template <>
const HomographyKernels CompiledFor<HomographyKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .screen = screen,
    .inliers = inliers,
    .four_point = four_point,
    .three_point = three_point,
    .normal_equations = normal_equations,
    .linear_sums = linear_sums,
    .residuals = residuals,
    .jacobian = jacobian,
};

}  // namespace manymatch

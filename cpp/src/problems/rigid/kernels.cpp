// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/rigid/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/rigid/distances.h"
#include "manymatch/problems/rigid/three_point.h"

namespace manymatch {

template <>
const RigidKernels CompiledFor<RigidKernels, InstructionSet::MANYMATCH_ISA>::kernels = {
    .screen = screen,
    .inliers = inliers,
    .rigid_three_point = three_point<false>,
    .similarity_three_point = three_point<true>,
    .consistent = consistent,
    .sums = sums,
    .residuals = residuals,
};

}  // namespace manymatch

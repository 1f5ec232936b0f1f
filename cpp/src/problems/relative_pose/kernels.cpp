// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/problems/relative_pose/kernels.h"

#include "manymatch/instruction_set.h"
#include "manymatch/problems/relative_pose/edge_kernels.h"
#include "manymatch/problems/relative_pose/five_point.h"
#include "manymatch/problems/relative_pose/refine_kernels.h"

namespace manymatch {

namespace {

template <class Z>
constexpr EpipolarKernels<Z> kEpipolar = {
    .screen = screen<Z>,
    .inliers = inliers<Z>,
    .normal_equations = normal_equations<Z>,
    .residuals = residuals<Z>,
    .jacobian = jacobian<Z>,
};

}  // namespace

template <>
const RelativePoseKernels CompiledFor<RelativePoseKernels, InstructionSet::MANYMATCH_ISA>::kernels =
    {kEpipolar<One>, five_point};

template <>
const UnknownFocalKernels CompiledFor<UnknownFocalKernels, InstructionSet::MANYMATCH_ISA>::kernels =
    kEpipolar<double>;

}  // namespace manymatch

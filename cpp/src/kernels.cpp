// Compiled once per instruction set; MANYMATCH_ISA names it (see CMakeLists.txt).
#include "manymatch/kernels.h"

#include "manymatch/associate/select_kernels.h"
#include "manymatch/geometry/edge_kernels.h"
#include "manymatch/refine/refine_kernels.h"
#include "manymatch/solvers/five_point.h"

#define MANYMATCH_TEXT_(x) #x
#define MANYMATCH_TEXT(x) MANYMATCH_TEXT_(x)
#define MANYMATCH_JOIN_(a, b) a##b
#define MANYMATCH_JOIN(a, b) MANYMATCH_JOIN_(a, b)

namespace manymatch {

extern const Kernels MANYMATCH_JOIN(kernels_, MANYMATCH_ISA);
const Kernels MANYMATCH_JOIN(kernels_, MANYMATCH_ISA) = {
    .name = MANYMATCH_TEXT(MANYMATCH_ISA),
    .screen = screen,
    .inliers = inliers,
    .five_point = five_point,
    .normal_equations = normal_equations,
    .residuals = residuals,
    .jacobian = jacobian,
    .above = above,
    .dot = dot,
    .scaled = scaled,
    .raise = raise,
};

}  // namespace manymatch

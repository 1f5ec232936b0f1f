// Every method for relative pose with unknown focal lengths, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/unknown_focal/problem.h"

namespace manymatch {

extern template class Estimator<UnknownFocalProblem>;

}  // namespace manymatch

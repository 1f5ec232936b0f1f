// Every method for relative pose, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/relative_pose/problem.h"

namespace manymatch {

extern template class Estimator<RelativePoseProblem>;

}  // namespace manymatch

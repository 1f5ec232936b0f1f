// Every method for absolute poses, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/absolute_pose/problem.h"

namespace manymatch {

extern template class Estimator<AbsolutePoseProblem>;

}  // namespace manymatch

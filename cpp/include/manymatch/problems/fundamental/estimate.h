// Every method for fundamental matrices, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/fundamental/problem.h"

namespace manymatch {

extern template class Estimator<FundamentalProblem>;

}  // namespace manymatch

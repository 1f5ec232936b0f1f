// Every method for homographies, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/homography/problem.h"

namespace manymatch {

extern template class Estimator<HomographyProblem>;

}  // namespace manymatch

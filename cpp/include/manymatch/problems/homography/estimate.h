// Every method for homographies and affine maps, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/homography/problem.h"

namespace manymatch {

extern template class Estimator<HomographyProblem>;
extern template class Estimator<AffineProblem>;

}  // namespace manymatch

// Every method for rigid transforms and similarities, compiled once.
#pragma once

#include "manymatch/estimate.h"
#include "manymatch/problems/rigid/problem.h"

namespace manymatch {

extern template class Estimator<RigidProblem>;
extern template class Estimator<SimilarityProblem>;

}  // namespace manymatch

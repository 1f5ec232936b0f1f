#include "manymatch/problems/rigid/estimate.h"

namespace manymatch {

template class Estimator<RigidProblem>;
template class Estimator<SimilarityProblem>;

}  // namespace manymatch

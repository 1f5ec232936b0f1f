#include "manymatch/problems/unknown_focal/estimate.h"

namespace manymatch {

template class Estimator<UnknownFocalProblem>;

}  // namespace manymatch

#include "manymatch/problems/relative_pose/estimate.h"

namespace manymatch {

template class Estimator<RelativePoseProblem>;

}  // namespace manymatch

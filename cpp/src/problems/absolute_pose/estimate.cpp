#include "manymatch/problems/absolute_pose/estimate.h"

namespace manymatch {

template class Estimator<AbsolutePoseProblem>;

}  // namespace manymatch

#include "manymatch/problems/fundamental/estimate.h"

namespace manymatch {

template class Estimator<FundamentalProblem>;

}  // namespace manymatch

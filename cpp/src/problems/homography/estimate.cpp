#include "manymatch/problems/homography/estimate.h"

namespace manymatch {

template class Estimator<HomographyProblem>;

}  // namespace manymatch

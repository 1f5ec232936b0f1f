#include "manymatch/problems/homography/estimate.h"

namespace manymatch {

template class Estimator<HomographyProblem>;
template class Estimator<AffineProblem>;

}  // namespace manymatch

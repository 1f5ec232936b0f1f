// Every method for one problem. CMake compiles this file once per problem: MANYMATCH_PROBLEM is the
// class and MANYMATCH_PROBLEM_HEADER the file that defines it.
#include "manymatch/estimator.h"

#include MANYMATCH_PROBLEM_HEADER

namespace manymatch {

using P = MANYMATCH_PROBLEM;

template ModelEstimate<P::Model> estimate<P>(const GraphInput&, const P::Data&, Method,
                                             const Options&, Interrupt&);
template std::vector<ModelEstimate<P::Model>> estimate_many<P>(std::span<const GraphInput>,
                                                               std::span<const P::Data>, Method,
                                                               std::span<const Options>, int,
                                                               Interrupt&);
template ModelScore score<P>(const GraphInput&, const P::Data&, const P::Model&, double, double);

}  // namespace manymatch

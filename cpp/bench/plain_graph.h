// A graph for the plain HCM of the instruction set in use.
#pragma once

#include <span>
#include <vector>

#include "manymatch/dispatch.h"
#include "manymatch/graph.h"
#include "manymatch/problems/points.h"
#include "manymatch/problems/relative_pose/pose.h"
#include "manymatch/score/priors.h"
#include "plain_hcm.h"

namespace manymatch {

class PlainGraph {
 public:
  PlainGraph(const Graph& graph, const Priors& priors, const VertexPoints& points)
      : left_(graph.left), right_(graph.right), priors_(priors), eps_(points.eps) {
    for (std::size_t e = 0; e < left_.size(); ++e) {
      for (std::size_t k = 0; k < 2; ++k) {
        columns_[k].push_back(points.x0[2 * at(left_[e]) + k]);
        columns_[2 + k].push_back(points.x1[2 * at(right_[e]) + k]);
      }
    }
    sum0_.resize(priors_.a0.size());
    sum1_.resize(priors_.a1.size());
  }

  double hcm(const Pose& pose) {
    const PlainEdges edges{columns_[0].data(),
                           columns_[1].data(),
                           columns_[2].data(),
                           columns_[3].data(),
                           left_.data(),
                           right_.data(),
                           priors_.p.data(),
                           left_.size(),
                           priors_.a0.data(),
                           priors_.a1.data(),
                           sum0_.size(),
                           sum1_.size(),
                           eps_};
    return kernels<PlainKernels>().hcm(edges, pose.R, pose.t, sum0_.data(), sum1_.data());
  }

 private:
  std::vector<double> columns_[4];  // x0, y0, x1, y1 per edge
  std::vector<int> left_, right_;
  Priors priors_;
  double eps_;
  std::vector<double> sum0_, sum1_;
};

}  // namespace manymatch

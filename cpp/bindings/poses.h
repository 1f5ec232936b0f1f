// Poses from and to NumPy, and correspondences for their refinement.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "arrays.h"
#include "manymatch/problems/points.h"
#include "manymatch/problems/relative_pose/pose.h"

namespace manymatch {

using Matrices3 = In<double, nb::shape<-1, 3, 3>>;
using Vectors3 = In<double, nb::shape<-1, 3>>;

inline Pose to_pose(const Matrix3& R, const Vector3& t) {
  Pose pose;
  std::copy_n(R.data(), 9, pose.R);
  std::copy_n(t.data(), 3, pose.t);
  return pose;
}

inline Out<double> rotation_to_numpy(const Pose& pose) {
  return to_numpy(std::vector<double>(pose.R, pose.R + 9), {3, 3});
}

inline Out<double> translation_to_numpy(const Pose& pose) {
  return to_numpy(std::vector<double>(pose.t, pose.t + 3));
}

inline std::vector<Pose> to_poses(const Matrices3& R, const Vectors3& t) {
  check_length("t", t.shape(0), R.shape(0));
  std::vector<Pose> poses(R.shape(0));
  for (std::size_t i = 0; i < poses.size(); ++i) {
    std::copy_n(R.data() + 9 * i, 9, poses[i].R);
    std::copy_n(t.data() + 3 * i, 3, poses[i].t);
  }
  return poses;
}

// Correspondences of image points with points of two or three coordinates, for the kernels of a
// refinement. Weights are 1 if none are given.
struct RefineInput {
  RefineColumns columns;
  AlignedVector<double> weights;

  template <class Others>
  RefineInput(const Points& x0, const Others& x1, std::span<const double> weight) {
    const std::size_t count = x0.shape(0), dimension = x1.shape(1);
    check_length("x1", x1.shape(0), count);
    weights.assign((count + kRefineLanes - 1) / kRefineLanes * kRefineLanes, 0.0);
    columns.resize(count, weights.size(), 2, static_cast<int>(dimension));
    for (std::size_t i = 0; i < count; ++i) {
      columns.x0[i] = x0(i, 0);
      columns.y0[i] = x0(i, 1);
      columns.x1[i] = x1(i, 0);
      columns.y1[i] = x1(i, 1);
      if (dimension == 3) columns.z1[i] = x1(i, 2);
      weights[i] = weight.empty() ? 1.0 : weight[i];
    }
  }

  RefineArrays arrays() const { return columns.arrays(weights); }
};

inline Loss to_loss(const std::string& name) {
  if (name == "truncated") return Loss::kTruncated;
  if (name == "cauchy") return Loss::kCauchy;
  if (name == "squared") return Loss::kSquared;
  throw nb::value_error(("loss must be truncated, cauchy or squared, got " + name).c_str());
}

}  // namespace manymatch

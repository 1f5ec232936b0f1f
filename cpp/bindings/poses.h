// Poses from and to NumPy.
#pragma once

#include <algorithm>
#include <vector>

#include "arrays.h"
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

}  // namespace manymatch

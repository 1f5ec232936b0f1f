// Random poses, rays and points for the tests of the geometry.
#pragma once

#include <cmath>
#include <vector>

#include "manymatch/dispatch.h"
#include "manymatch/problems/relative_pose/problem.h"
#include "random_graph.h"

using namespace manymatch;

struct Vec {
  double x, y, z;
};

inline Vec operator*(double a, const Vec& v) { return {a * v.x, a * v.y, a * v.z}; }
inline Vec operator+(const Vec& a, const Vec& b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
inline Vec unit(const Vec& v) { return 1.0 / std::sqrt(v.x * v.x + v.y * v.y + v.z * v.z) * v; }

// R X + t.
inline Vec transform(const Pose& p, const Vec& X) {
  return {p.R[0] * X.x + p.R[1] * X.y + p.R[2] * X.z + p.t[0],
          p.R[3] * X.x + p.R[4] * X.y + p.R[5] * X.z + p.t[1],
          p.R[6] * X.x + p.R[7] * X.y + p.R[8] * X.z + p.t[2]};
}

inline Pose random_pose(Source& random, double angle) {
  Pose pose;
  const double w[3] = {random.in(-angle, angle), random.in(-angle, angle),
                       random.in(-angle, angle)};
  rotate(pose.R, w);
  for (double& c : pose.t) c = random.in(-1, 1);
  normalise(pose);
  return pose;
}

// Distance of two poses: the largest difference of an entry.
inline double distance(const double* R, const double* t, const Pose& pose) {
  double worst = 0;
  for (int i = 0; i < 9; ++i) worst = std::max(worst, std::abs(R[i] - pose.R[i]));
  for (int i = 0; i < 3; ++i) worst = std::max(worst, std::abs(t[i] - pose.t[i]));
  return worst;
}

// A point that both cameras see, with coordinates on the normalised planes up to `wide`.
struct Seen {
  Vec X, X1;
};
inline Seen random_point(Source& random, const Pose& pose, double wide) {
  while (true) {
    const double z = random.in(1, 6);
    const Vec X{z * random.in(-wide, wide), z * random.in(-wide, wide), z};
    const Vec X1 = transform(pose, X);
    if (X1.z > 0 && std::abs(X1.x) < wide * X1.z && std::abs(X1.y) < wide * X1.z) return {X, X1};
  }
}

// Calls visit(name) once for each instruction set of this machine, with that set in use.
template <class Visit>
void for_each_instruction_set(Visit&& visit) {
  for (InstructionSet isa : available_instruction_sets()) {
    force_instruction_set(name_of(isa));
    visit(name_of(isa));
  }
  force_instruction_set(nullptr);
}

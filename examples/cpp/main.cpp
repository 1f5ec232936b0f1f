// Relative pose of two cameras from a graph with several candidate matches per keypoint.
#include <manymatch/estimate.h>
#include <manymatch/problems/relative_pose/problem.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

int main() {
  // 200 points seen by two cameras; camera 1 is turned by 10 degrees about the vertical axis.
  // Points are on the normalised image planes: (pixel - principal point) / focal length.
  const double cosine = std::cos(0.1745), sine = std::sin(0.1745);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> place(-1.0, 1.0), depth(4.0, 8.0), noise(-5e-4, 5e-4);
  constexpr int kPoints = 200;
  std::vector<double> x0, x1;
  std::vector<int32_t> edges, rank;
  for (int i = 0; i < kPoints; ++i) {
    const double z = depth(random), X = place(random) * z / 2, Y = place(random) * z / 2;
    const double X1 = cosine * X + sine * z - 1.0, Y1 = Y, Z1 = -sine * X + cosine * z;
    x0.insert(x0.end(), {X / z, Y / z});
    x1.insert(x1.end(), {X1 / Z1 + noise(random), Y1 / Z1 + noise(random)});
    // Three candidates: for every second point the true match is the best one, for the others it is
    // the second best.
    for (int k = 0; k < 3; ++k) {
      const bool right = k == i % 2;
      edges.insert(edges.end(), {i, right ? i : (i + 17 + 31 * k) % kPoints});
      rank.push_back(k + 1);
    }
  }

  const manymatch::GraphInput graph{kPoints, kPoints, edges, rank, {}};
  const manymatch::VertexPoints points{x0, x1, 2e-3};  // with the inlier threshold
  manymatch::Interrupt interrupt;
  const auto found = manymatch::estimate<manymatch::RelativePoseProblem>(
      graph, points, manymatch::Method::kAuto, manymatch::Options(), interrupt);
  if (!found.success) {
    std::printf("no pose: %s\n", found.failure.c_str());
    return 1;
  }
  std::printf("%d of %d points matched\n", found.cardinality, kPoints);
  for (int row = 0; row < 3; ++row) {
    const double* R = found.model.R + 3 * row;
    std::printf("R = %7.4f %7.4f %7.4f   t = %7.4f\n", R[0], R[1], R[2], found.model.t[row]);
  }
  const bool right = std::abs(found.model.R[0] - cosine) < 1e-3 && found.model.t[0] < -0.99;
  return right ? 0 : 1;
}

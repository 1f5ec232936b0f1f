// The five-point solver on every instruction set: finds the pose and copes with any input.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "check.h"
#include "two_view.h"

namespace {

void set_ray(double rays[5][3][kFivePointBatch], int k, int problem, const Vec& v) {
  const double c[3] = {v.x, v.y, v.z};
  for (int i = 0; i < 3; ++i) rays[k][i][problem] = c[i];
}

struct Problems {
  std::unique_ptr<FivePointBatch> batch = std::make_unique<FivePointBatch>();
  std::vector<Pose> poses;

  Problems(Source& random, int count, double wide) {
    batch->count = count;
    for (int i = 0; i < count; ++i) {
      poses.push_back(random_pose(random, 0.5));
      for (int k = 0; k < 5; ++k) {
        const Seen seen = random_point(random, poses.back(), wide);
        set_ray(batch->b0, k, i, unit(seen.X));
        set_ray(batch->b1, k, i, unit(seen.X1));
      }
    }
  }
};

std::unique_ptr<FivePointSolutions> solve(const FivePointBatch& batch) {
  auto out = std::make_unique<FivePointSolutions>();
  kernels<RelativePoseKernels>().five_point(batch, *out);
  return out;
}

// Must hold for any input.
void check_sound(const FivePointBatch& batch, const FivePointSolutions& out) {
  std::vector<int> count(static_cast<std::size_t>(batch.count), 0);
  for (int s = 0; s < out.count; ++s) {
    const int problem = out.sample[s];
    CHECK(problem >= 0 && problem < batch.count && (s == 0 || out.sample[s - 1] <= problem));
    CHECK(++count[static_cast<std::size_t>(problem)] <= kFivePointMaxRoots);
    Pose pose;
    std::copy_n(out.R[s], 9, pose.R);
    std::copy_n(out.t[s], 3, pose.t);
    CHECK(is_finite(pose));
    normalise(pose);  // changes nothing: it was a rotation and a unit vector
    CHECK(distance(out.R[s], out.t[s], pose) < 1e-11);
    const double* R = pose.R;
    const double det = R[0] * (R[4] * R[8] - R[5] * R[7]) - R[1] * (R[3] * R[8] - R[5] * R[6]) +
                       R[2] * (R[3] * R[7] - R[4] * R[6]);
    CHECK_NEAR(det, 1.0, 1e-9);
  }
}

void test_finds_the_pose() {
  Source random(11);
  int missed = 0, total = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Problems problems(random, kFivePointBatch, repeat % 2 ? 0.6 : 2.0);
    const auto out = solve(*problems.batch);
    check_sound(*problems.batch, *out);
    for (int i = 0; i < kFivePointBatch; ++i, ++total) {
      double nearest = 1;
      for (int s = 0; s < out->count; ++s) {
        if (out->sample[s] == i) {
          nearest = std::min(nearest, distance(out->R[s], out->t[s], problems.poses[i]));
        }
      }
      missed += nearest < 1e-6 ? 0 : 1;
    }
  }
  CHECK(missed * 200 <= total);  // a few ill-conditioned problems may lose digits
}

// Bad rays in some problems do not change the answers of the others.
void test_bad_rays() {
  Source random(13);
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Problems good(random, kFivePointBatch, 1.0);
  const auto expected = solve(*good.batch);
  for (double value : {0.0, nan, infinity, -infinity, 1e200, 1e-200, 5e-324}) {
    Problems mixed = Problems(random, 0, 1.0);
    *mixed.batch = *good.batch;
    for (int i = 0; i < kFivePointBatch; i += 3) {
      for (int k = 0; k < (i % 2 ? 1 : 5); ++k) {
        for (int c = 0; c < 3; ++c) mixed.batch->b0[k][c][i] = value;
        if (i % 4) set_ray(mixed.batch->b1, k, i, {value, value, value});
      }
    }
    const auto out = solve(*mixed.batch);
    check_sound(*mixed.batch, *out);
    int a = 0, b = 0;
    for (int i = 0; i < kFivePointBatch; ++i) {
      for (; a < out->count && out->sample[a] < i; ++a) {
      }
      for (; b < expected->count && expected->sample[b] < i; ++b) {
      }
      if (i % 3 == 0) continue;
      for (; b < expected->count && expected->sample[b] == i; ++a, ++b) {
        CHECK(a < out->count && out->sample[a] == i);
        CHECK(std::memcmp(out->R[a], expected->R[b], sizeof out->R[a]) == 0);
      }
    }
  }
}

// Repeated rays, a single ray, no translation: any valid answer is accepted.
void test_degenerate() {
  Source random(14);
  Problems problems(random, kFivePointBatch, 1.0);
  FivePointBatch& batch = *problems.batch;
  for (int i = 0; i < kFivePointBatch; ++i) {
    for (int k = 1; k < 5; ++k) {
      for (int c = 0; c < 3; ++c) {
        if (i % 4 == 0 || k == 1) batch.b0[k][c][i] = batch.b0[0][c][i];
        if (i % 4 == 0 || (k == 1 && i % 4 == 1)) batch.b1[k][c][i] = batch.b1[0][c][i];
        if (i % 4 == 3) batch.b1[k][c][i] = batch.b0[k][c][i];
      }
    }
  }
  check_sound(batch, *solve(batch));
  batch.count = 0;
  CHECK_EQ(solve(batch)->count, 0);
}

// Sets with fused operations agree to the last bit; the baseline differs by rounding.
void test_sets_agree() {
  Source random(15);
  const Problems problems(random, kFivePointBatch, 1.0);
  std::unique_ptr<FivePointSolutions> fused;
  for_each_instruction_set([&](const char* name) {
    auto out = solve(*problems.batch);
    if (std::strcmp(name, "baseline") != 0 && !fused) {
      fused = std::move(out);
    } else if (std::strcmp(name, "baseline") != 0) {
      CHECK_EQ(out->count, fused->count);
      const auto count = static_cast<std::size_t>(out->count);
      CHECK(std::memcmp(out->sample, fused->sample, count * sizeof(int)) == 0);
      CHECK(std::memcmp(out->R, fused->R, count * sizeof out->R[0]) == 0);
      CHECK(std::memcmp(out->t, fused->t, count * sizeof out->t[0]) == 0);
    } else if (fused) {
      int close = 0;
      for (int s = 0; s < fused->count; ++s) {
        Pose pose;
        std::copy_n(fused->R[s], 9, pose.R);
        std::copy_n(fused->t[s], 3, pose.t);
        bool found = false;
        for (int o = 0; o < out->count; ++o) {
          found |=
              out->sample[o] == fused->sample[s] && distance(out->R[o], out->t[o], pose) < 1e-6;
        }
        close += found ? 1 : 0;
      }
      CHECK(close >= fused->count - 2 && std::abs(out->count - fused->count) <= 2);
    }
  });
}

}  // namespace

int main() {
  for_each_instruction_set([](const char*) {
    test_finds_the_pose();
    test_bad_rays();
    test_degenerate();
  });
  test_sets_agree();
  CHECK(!force_instruction_set("no such set"));
  return check::finish();
}

// The noise of keypoints from residuals, compared with numerical integrals and simulations.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "check.h"
#include "manymatch/score/noise.h"
#include "random_graph.h"

namespace {

// Density of the distance of a normal error from a line (1), a point in an image (2) or in space
// (3).
double density(int dimensions, double r, double scale) {
  const double u = r / scale;
  const double factor = dimensions == 2 ? 1.0 : std::sqrt(2.0 / std::numbers::pi);
  return factor / scale * std::pow(u, dimensions - 1) * std::exp(-0.5 * u * u);
}

// Simpson's rule.
template <class F>
double integral(F f, double last) {
  constexpr int kSteps = 20000;
  double sum = f(0.0) + f(last);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 ? 4.0 : 2.0) * f(last * i / kSteps);
  return sum * last / (3.0 * kSteps);
}

void test_law() {
  for (int dimensions : {1, 2, 3}) {
    const ResidualLaw law{dimensions};
    for (double scale : {0.1, 0.4, 1.0, 3.0}) {
      for (double limit : {0.3, 1.0, 4.0}) {
        const auto p = [&](double r) { return density(dimensions, r, scale); };
        const double share = integral(p, limit);
        CHECK_NEAR(law.share_below(limit, scale), share, 1e-9);
        const double square = integral([&](double r) { return r * r * p(r); }, limit) / share;
        CHECK_NEAR(law.mean_square_below(limit, scale), square / (dimensions * scale * scale),
                   1e-8);
        // With a normal decay from the peak, the densities of all bands must integrate to one.
        const auto fall = [&](double r) { return std::exp(-0.5 * r * r / (scale * scale)); };
        const double step = 1e-6;
        const auto per_distance = [&](double r) {
          return fall(r) * law.size_of_band(std::max(r - step, 0.0), r + step) /
                 (r + step - std::max(r - step, 0.0));
        };
        CHECK_NEAR(law.peak(scale) * integral(per_distance, 12.0 * scale), 1.0, 1e-4);
      }
    }
    CHECK_EQ(law.size_of_band(0.0, 1.0), 1.0);  // the threshold
  }
}

struct Mixture {
  std::vector<double> squared, weight;

  void add(double residual) {
    squared.push_back(residual * residual);
    weight.push_back(1.0);
  }
};

std::pair<double, double> normals(Source& random) {
  const double r = std::sqrt(-2.0 * std::log(1.0 - random.uniform()));
  const double angle = 2.0 * std::numbers::pi * random.uniform();
  return {r * std::cos(angle), r * std::sin(angle)};
}

// `count` true residuals and `wrong` evenly spread ones, some of them beyond all windows.
Mixture mixture(uint64_t seed, ResidualLaw law, double scale, int count, int wrong) {
  constexpr double kFarthest = 20.0;
  Source random(seed);
  Mixture m;
  for (int i = 0; i < count; ++i) {
    const auto [a, b] = normals(random);
    const double c = law.dimensions == 3 ? normals(random).first : 0.0;
    m.add(scale * (law.dimensions == 1 ? std::abs(a) : std::hypot(a, b, c)));
  }
  for (int i = 0; i < wrong; ++i) {
    const double u = random.uniform();
    m.add(kFarthest * std::pow(u, 1.0 / law.dimensions));
  }
  return m;
}

NearResiduals near(const Mixture& m, ResidualLaw law) { return {m.squared, m.weight, law}; }

// The reported deviation matches the spread of the estimates. If the noise nearly fills the band
// and many edges are wrong, the spread is larger than reported and the scale a little low.
void test_recovers_the_scale() {
  constexpr int kSeeds = 60;
  for (int dimensions : {1, 2, 3}) {
    const ResidualLaw law{dimensions};
    for (double scale : {0.1, 0.3, 1.0}) {
      for (const auto& [count, wrong] : {std::pair{60, 60}, {200, 400}, {600, 3000}}) {
        double mean = 0.0, sum = 0.0, squares = 0.0;
        for (int i = 0; i < kSeeds; ++i) {
          const auto seed = static_cast<uint64_t>(100 * dimensions + i);
          const Mixture m = mixture(seed, law, scale, count, wrong);
          const Noise noise = estimate_noise(near(m, law), law, 0);
          const double z = (noise.scale - scale) / noise.deviation;
          mean += noise.scale / kSeeds;
          sum += z / kSeeds;
          squares += z * z / kSeeds;
        }
        CHECK_NEAR(mean, scale, 0.1 * scale);
        CHECK(std::sqrt(squares) > 0.7);
        if (scale < 1.0) {
          CHECK_NEAR(sum, 0.0, 0.5);
          CHECK(std::sqrt(squares) < 1.6);
        } else {
          CHECK(std::sqrt(squares) < 2.8);
        }
      }
    }
  }
}

// A model that was fitted to edges is closer to them than the true model.
void test_degrees_of_freedom() {
  const ResidualLaw law{2};
  const Mixture m = mixture(7, law, 0.3, 40, 0);
  const Noise none = estimate_noise(near(m, law), law, 0);
  const Noise some = estimate_noise(near(m, law), law, 8);
  CHECK_NEAR(some.scale / none.scale, std::sqrt(40.0 / 32.0), 0.01);
  CHECK_NEAR(some.deviation, some.scale / std::sqrt(4.0 * 32.0), 0.01 * some.deviation);
  // Fewer edges than a sample still give a finite result.
  const Noise few = estimate_noise(near(mixture(8, law, 0.3, 3, 0), law), law, 8);
  CHECK(few.scale > 0.0 && few.deviation >= 0.4 * few.scale);
  CHECK(std::isfinite(estimate_noise(near(Mixture(), law), law, 4).scale));
}

// If the true edges have larger residuals, the noise is larger.
void test_monotone() {
  for (int dimensions : {1, 2, 3}) {
    const ResidualLaw law{dimensions};
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Mixture base = mixture(300 + seed, law, 0.1, 150, 300);
      double scale = 0.0, spread = 0.0;
      for (double factor : {1.0, 1.5, 2.5, 4.0, 7.0, 10.0}) {
        Mixture m = base;
        for (std::size_t i = 0; i < 150; ++i) m.squared[i] *= factor * factor;
        const NearResiduals residuals = near(m, law);
        const double more = estimate_noise(residuals, law, 0).scale;
        const double wider = residual_spread(residuals, law);
        CHECK(more > scale && wider > spread);
        scale = more;
        spread = wider;
      }
    }
  }
}

// Wrong edges are counted outside the window, weighted by their weights.
void test_near_residuals() {
  for (int dimensions : {1, 2, 3}) {
    const ResidualLaw law{dimensions};
    const Mixture m = mixture(400, law, 0.2, 100, 20000);
    NearResiduals residuals = near(m, law);
    CHECK_NEAR(residuals.density, 20000.0 / law.size_of_band(0.0, 20.0), 0.03 * residuals.density);
    CHECK_EQ(residuals.total, static_cast<double>(residuals.squared.size()));
    for (double r2 : residuals.squared) CHECK(r2 < 25.0);
    std::vector<double> half(m.weight.size(), 0.5);
    CHECK_NEAR(NearResiduals(m.squared, half, law).density, 0.5 * residuals.density, 1e-9);
    // An edge of weight zero has no effect.
    Mixture more = mixture(401, law, 0.2, 100, 100);
    const double without = residual_spread(near(more, law), law);
    for (int i = 0; i < 100; ++i) {
      more.squared.push_back(0.01 * i);
      more.weight.push_back(0.0);
    }
    CHECK_NEAR(residual_spread(near(more, law), law), without, 1e-12);
  }
}

// Nearly true edges, all within the window: they widen the spread of the edges that are not there
// by chance, but hardly change the noise of the true ones.
void test_spread() {
  for (int dimensions : {1, 2, 3}) {
    const ResidualLaw law{dimensions};
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Mixture alone = mixture(500 + seed, law, 0.2, 200, 20);
      Mixture crowd = alone;
      Source random(600 + seed);
      for (int i = 0; i < 150; ++i) {  // denser near the model, and finite there
        crowd.add(4.0 * std::pow(random.uniform(), 1.0 / std::max(dimensions - 1, 1)));
      }
      CHECK_NEAR(residual_spread(near(alone, law), law), 0.2, 0.06);
      const NearResiduals residuals = near(crowd, law);
      CHECK(residual_spread(residuals, law) > 1.5 * estimate_noise(residuals, law, 0).scale);
      CHECK_NEAR(estimate_noise(near(crowd, law), law, 0).scale, 0.2, 0.06);
    }
  }
}

// Evenly spread edges have their density wherever it is counted; true edges do not matter.
void test_density_of_wrong_edges() {
  CHECK_NEAR(density_of_wrong_edges({}, 15.0, 30.0, 0.01), 0.01, 1e-15);
  std::vector<double> squared;
  for (int i = 0; i < 4000; ++i) squared.push_back((i * 0.05) * (i * 0.05));  // up to 200
  const double wrong = 4000 - 301;                                            // beyond 15
  CHECK_NEAR(density_of_wrong_edges(squared, 15.0, 30.0, 0.01),
             (299.0 / 15.0 + 2.0) / (wrong + 200), 1e-4);
  const double before = density_of_wrong_edges(squared, 15.0, 30.0, 0.01);
  squared.insert(squared.end(), 500, 0.5);
  CHECK_EQ(density_of_wrong_edges(squared, 15.0, 30.0, 0.01), before);
  squared.insert(squared.end(), 500, 400.0);
  CHECK(density_of_wrong_edges(squared, 15.0, 30.0, 0.01) > before);
}

}  // namespace

int main() {
  test_law();
  test_recovers_the_scale();
  test_degrees_of_freedom();
  test_monotone();
  test_near_residuals();
  test_spread();
  test_density_of_wrong_edges();
  return check::finish();
}

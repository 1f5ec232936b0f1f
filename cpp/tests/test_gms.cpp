// The GMS filter: supports are maximum matchings, and any points stay inside their grids.
#include <algorithm>
#include <numeric>

#include "check.h"
#include "manymatch/filter/cell_matching.h"
#include "manymatch/filter/frame.h"
#include "manymatch/filter/gms.h"
#include "random_graph.h"

namespace {

// Sets with up to 64 right vertices use bit sets, larger ones do not; both must be exact.
void test_cell_matching() {
  Source random(71);
  for (int g = 0; g < 80; ++g) {
    const int n1 = g % 4 == 0 ? 60 + random.pick(60) : 1 + random.pick(20);
    const Graph graph = random_graph(random, 1 + random.pick(40), n1, random.in(0.02, 0.3));
    CellMatching cells(graph);
    MaximumMatching matching(graph);
    for (int k = 0; k < 40; ++k) {
      const Mask mask = random_mask(random, graph.num_edges(), random.uniform());
      std::vector<int> edges;
      for_each_bit(mask, [&](int e) { edges.push_back(e); });
      random.shuffle(edges);
      CHECK_EQ(cells.cardinality(edges), matching.cardinality(mask));
    }
  }
}

// A path on which the greedy start leaves an augmenting path through all vertices.
void test_long_augmenting_path() {
  for (int length : {2, 63, 64, 65, 300}) {
    Edges list;
    for (int i = 0; i + 1 < length; ++i) {
      list.emplace_back(i, i);
      list.emplace_back(i, i + 1);
    }
    list.emplace_back(length - 1, 0);
    const Graph graph = make_graph(list, length, length);
    std::vector<int> edges(graph.num_edges());
    std::iota(edges.begin(), edges.end(), 0);
    CHECK_EQ(CellMatching(graph).cardinality(edges), length);
  }
}

// Points near any border, rounded to single precision, stay below the number of cells.
void test_frames_contain_their_points() {
  Source random(72);
  const bool unshifted[2] = {false, false};
  for (int k = 0; k < 20000; ++k) {
    const double width = 1 + random.pick(5000), height = 1 + random.pick(5000);
    const double x = random.chance(0.3) ? width * (1.0 - 1e-9) : random.in(-width, 2.0 * width);
    const double y = random.chance(0.3) ? -1e-12 : random.in(-height, 2.0 * height);
    const double size[2] = {width, height}, point[2] = {x, y};
    const Frame frame = image_frame({{x, y}, {x, y}}, size);
    for (int grid : {2, 5, 14, 20, 28, 40, 256, 512}) {
      const int cell = shifted_cell(frame, point, grid, unshifted);
      CHECK(cell >= 0 && cell < grid * grid);
    }
  }
}

double coordinate(Source& random, int kind) {
  switch (kind % 5) {
    case 0:
      return random.in(0.0, 640.0);
    case 1:
      return 32.0 * random.pick(21);  // borders of cells
    case 2:
      return 100.0;  // all the same
    case 3:
      return random.in(-1e9, 1e9);
    default:
      return random.in(-1e-7, 1e-7);
  }
}

void test_any_points() {
  Source random(73);
  const double size[2] = {640.0, 640.0};
  for (int k = 0; k < 400; ++k) {
    const int n0 = 1 + random.pick(40), n1 = 1 + random.pick(120);
    const Graph graph = random_graph(random, n0, n1, random.in(0.0, 0.3));
    std::vector<double> points0, points1;
    for (int i = 0; i < 2 * n0; ++i) points0.push_back(coordinate(random, k));
    for (int i = 0; i < 2 * n1; ++i) points1.push_back(coordinate(random, k / 5));
    GmsOptions options;
    options.grid = k % 7 == 0 ? 256 : 2 + random.pick(24);
    options.threshold = random.in(0.0, 3.0);
    options.crop = random.chance(0.5);
    options.integer_mean = random.chance(0.5);
    const GmsResult all = gms_filter(graph, points0, points1, size, size, options);
    CHECK_EQ(all.mask.size(), graph.num_edges());
    CHECK_EQ(std::count(all.mask.begin(), all.mask.end(), 1), all.num_kept);
    CHECK((all.num_kept == 0) == (all.scale < 0) && (all.scale < 0) == (all.rotation < 0));
    options.scales = options.rotations = false;
    const GmsResult one = gms_filter(graph, points0, points1, size, size, options);
    CHECK(one.num_kept <= all.num_kept);
  }
}

}  // namespace

int main() {
  test_cell_matching();
  test_long_augmenting_path();
  test_frames_contain_their_points();
  test_any_points();
  return check::finish();
}

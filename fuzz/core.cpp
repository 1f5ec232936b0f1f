// Feeds arbitrary bytes to functions of the core and checks that every result is sound.
//
// With clang, -fsanitize=fuzzer calls LLVMFuzzerTestOneInput; the environment variable FUZZ_TARGET
// names the target. With FUZZ_REPLAY the program runs all files of fuzz/corpus/core_<target>.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "manymatch/associate/neighbours.h"
#include "manymatch/estimate.h"
#include "manymatch/filter/gms.h"
#include "manymatch/problems/homography/problem.h"
#include "manymatch/problems/relative_pose/problem.h"

using namespace manymatch;

namespace {

#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

// Reads values from the bytes; zeros after their end.
class Bytes {
 public:
  Bytes(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::size_t left() const { return size_ - next_; }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof(T), left());
    std::memcpy(&value, data_ + next_, n);
    next_ += n;
    return value;
  }
  int below(int limit) { return take<uint8_t>() % limit; }
  // Usually a number in [-1, 1], sometimes any number.
  double coordinate() {
    const uint8_t kind = take<uint8_t>();
    if (kind == 255) return take<double>();
    return (kind * 256 + take<uint8_t>()) / 32768.0 - 1.0;
  }

 private:
  const uint8_t* data_;
  std::size_t size_, next_ = 0;
};

struct Input {
  std::vector<double> x0, x1;
  std::vector<int32_t> edges, rank;
  std::vector<uint8_t> mask;  // one flag per edge
  double eps;
  Options options;

  explicit Input(Bytes& bytes) {
    const int n0 = bytes.below(24), n1 = bytes.below(24);
    eps = std::pow(10.0, -bytes.below(13));
    options.min_iterations = 1;
    options.max_iterations = 1 + bytes.below(200);
    options.pool_size = 1 + bytes.below(20);
    options.seed = bytes.take<uint8_t>();
    options.threads = 1 + bytes.below(2);
    options.disabled = bytes.take<uint8_t>();
    options.delta = std::pow(10.0, -1 - bytes.below(11));
    options.q = (1 + bytes.below(99)) / 100.0;
    options.guidance = bytes.below(11) / 10.0;
    for (int i = 0; i < 2 * n0; ++i) x0.push_back(bytes.coordinate());
    for (int i = 0; i < 2 * n1; ++i) x1.push_back(bytes.coordinate());
    std::set<std::pair<int, int>> known;
    while (n0 && n1 && bytes.left() > 0 && known.size() < 200) {
      const std::pair<int, int> edge(bytes.below(n0), bytes.below(n1));
      const uint8_t rest = bytes.take<uint8_t>();
      if (!known.insert(edge).second) continue;
      edges.insert(edges.end(), {edge.first, edge.second});
      rank.push_back(1 + rest % 7);
      mask.push_back(rest >> 7);
    }
  }
  GraphInput graph() const {
    GraphInput input{
        static_cast<int>(x0.size() / 2), static_cast<int>(x1.size() / 2), edges, rank, {}};
    const auto usable = [](double x) { return std::abs(x) < 1e9; };
    if (std::all_of(x0.begin(), x0.end(), usable) && std::all_of(x1.begin(), x1.end(), usable)) {
      input.points0 = x0;
      input.points1 = x1;
    }
    return input;
  }
  Mask inliers() const {
    Mask bits(mask_words(mask.size()));
    for (std::size_t e = 0; e < mask.size(); ++e) {
      if (mask[e]) set_bit(bits, static_cast<int>(e));
    }
    return bits;
  }
};

// Whether no two edges have a common vertex.
bool one_to_one(const std::vector<int32_t>& ends, const std::vector<int64_t>& chosen) {
  std::set<int> left, right;
  for (int64_t e : chosen) {
    const std::size_t i = 2 * static_cast<std::size_t>(e);
    if (!left.insert(ends[i]).second || !right.insert(ends[i + 1]).second) return false;
  }
  return true;
}

template <Problem P>
void run_estimator(Bytes bytes) {
  const Method method = static_cast<Method>(bytes.below(5));
  const Input input(bytes);
  const typename P::Data data{input.x0, input.x1, input.eps};
  Interrupt interrupt;
  const auto found = estimate<P>(input.graph(), data, method, input.options, interrupt);
  REQUIRE(found.success == found.failure.empty());
  REQUIRE(std::isfinite(found.hcm) && found.hcm >= 0.0);
  REQUIRE(found.inliers.size() == input.edges.size() / 2);
  REQUIRE(static_cast<int>(found.matched.size()) == found.cardinality);
  REQUIRE(found.cardinality <= found.num_inliers);
  REQUIRE(!found.success || found.cardinality >= P::kSampleSize);
  REQUIRE(one_to_one(input.edges, found.matched));
  for (int64_t e : found.matched) REQUIRE(found.inliers[static_cast<std::size_t>(e)]);
  if (!found.success) return;
  const Options& o = input.options;
  const ModelScore exact = score<P>(input.graph(), data, found.model, o.q, o.delta);
  REQUIRE(exact.hcm == found.hcm && exact.inliers == found.inliers);
}

// Augments from a vertex by depth-first search: a slow alternative to MaximumMatching.
bool augment(const Graph& graph, const Mask& mask, int l, std::vector<int>& partner,
             std::vector<char>& seen) {
  for (std::size_t e = 0; e < graph.num_edges(); ++e) {
    const int r = graph.right[e];
    if (graph.left[e] != l || !(mask[e / 64] >> (e % 64) & 1) || seen[at(r)]) continue;
    seen[at(r)] = 1;
    if (partner[at(r)] < 0 || augment(graph, mask, partner[at(r)], partner, seen)) {
      partner[at(r)] = l;
      return true;
    }
  }
  return false;
}

void run_matching(Bytes bytes) {
  const Input input(bytes);
  const Graph graph = input.graph().graph();
  const Mask mask = input.inliers();
  std::vector<int> partner(at(graph.num1), -1);
  int expected = 0;
  for (int l = 0; l < graph.num0; ++l) {
    std::vector<char> seen(at(graph.num1), 0);
    expected += augment(graph, mask, l, partner, seen);
  }
  MaximumMatching matching(graph);
  REQUIRE(matching.cardinality(mask) == expected);
  REQUIRE(matching.cardinality(mask) == expected);  // with used buffers
  std::vector<double> cost(graph.words() * 64, 0.0);
  for (std::size_t e = 0; e < graph.num_edges(); ++e) cost[e] = input.rank[e];
  const auto cheapest = cheapest_maximum_matching(graph, mask, cost);
  REQUIRE(static_cast<int>(cheapest.size()) == expected && one_to_one(input.edges, cheapest));
  const auto heaviest = heaviest_matching(graph, mask, cost);
  const auto total = [&](const std::vector<int64_t>& chosen) {
    double sum = 0.0;
    for (int64_t e : chosen) sum += cost[static_cast<std::size_t>(e)];
    return sum;
  };
  REQUIRE(one_to_one(input.edges, heaviest) && total(heaviest) >= total(cheapest));
}

void run_gms(Bytes bytes) {
  GmsOptions options;
  options.grid = 2 + bytes.below(40);
  options.threshold = bytes.below(12);
  const uint8_t flags = bytes.take<uint8_t>();
  options.scales = flags & 1;
  options.rotations = flags & 2;
  options.crop = flags & 4;
  options.integer_mean = flags & 8;
  const Input input(bytes);
  const GraphInput graph = input.graph();
  if (graph.points0.empty() || graph.points1.empty()) return;
  const double size[2] = {1.0, 1.0};
  const GmsResult found =
      gms_filter(graph.graph(), graph.points0, graph.points1, size, size, options);
  REQUIRE(found.mask.size() == graph.num_edges());
  REQUIRE(found.num_kept == std::count(found.mask.begin(), found.mask.end(), 1));
}

void run_sampler(Bytes bytes) {
  const Input input(bytes);
  const Graph graph = input.graph().graph();
  const std::vector<int> edges = first_edges(graph.num_edges());
  if (!why_unsolvable(graph, edges, true, 5).empty()) return;
  const Proposals proposals(graph, edges, false);
  auto scratch = proposals.scratch();
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    std::array<int, 5> sample{};
    int64_t wasted = 0;
    if (!proposals.draw(input.options.seed, iteration, scratch, sample, &wasted, 10'000)) continue;
    REQUIRE(one_to_one(input.edges, {sample.begin(), sample.end()}));
  }
  const double chance = proposals.clean_chance(input.inliers(), 5);
  REQUIRE(chance >= 0.0 && chance <= 1.0);
}

void run_neighbours(Bytes bytes) {
  const std::size_t n0 = at(bytes.below(20)), n1 = at(bytes.below(20)), dimension = 2;
  const std::size_t k = at(1 + bytes.below(6));
  const Operator op = static_cast<Operator>(bytes.below(3));
  const int threads = 1 + bytes.below(2);
  std::vector<float> rows[2];
  bool valid[2][20];
  const std::size_t count[2] = {n0, n1};
  for (int side = 0; side < 2; ++side) {
    for (std::size_t i = 0; i < count[side]; ++i) {
      const uint8_t angle = bytes.take<uint8_t>();  // few angles: many equal similarities
      valid[side][i] = angle != 255;
      rows[side].push_back(static_cast<float>(std::cos(angle / 16 * 0.4)));
      rows[side].push_back(static_cast<float>(std::sin(angle / 16 * 0.4)));
    }
  }
  NeighbourSearch search({rows[0].data(), valid[0], n0, dimension, {}, n0},
                         {rows[1].data(), valid[1], n1, dimension, {}, n1}, k, k, threads);
  const RankedEdges found = search.edges(op, 1000);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (std::size_t e = 0; e < found.rank.size(); ++e) {
    const int64_t i = found.ends[2 * e], j = found.ends[2 * e + 1];
    REQUIRE(valid[0][i] && valid[1][j] && seen.insert({i, j}).second);
    REQUIRE(found.rank[e] >= 1 && found.rank[e] <= static_cast<int32_t>(k));
    REQUIRE(e == 0 || found.rank[e - 1] <= found.rank[e]);
  }
}

const std::map<std::string, void (*)(Bytes)> kTargets = {
    {"relative_pose", run_estimator<RelativePoseProblem>},
    {"homography", run_estimator<HomographyProblem>},
    {"matching", run_matching},
    {"gms", run_gms},
    {"sampler", run_sampler},
    {"neighbours", run_neighbours},
};

}  // namespace

#ifdef FUZZ_REPLAY

int main(int, char** argv) {
  int replayed = 0;
  for (const auto& [name, target] : kTargets) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / ("core_" + name);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> content((std::istreambuf_iterator<char>(file)), {});
      target({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
      ++replayed;
    }
  }
  std::printf("%d files replayed\n", replayed);
  return replayed > 0 ? 0 : 1;
}

#else

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const auto target = kTargets.at(std::getenv("FUZZ_TARGET"));
  target({data, size});
  return 0;
}

#endif

// The pool compared with a list that is searched for its worst entry.
#include <tuple>

#include "check.h"
#include "manymatch/ransac/pool.h"
#include "random_graph.h"

namespace {

using Item = std::tuple<double, int64_t, int>;  // score, insertion, model

std::vector<Item> sorted(const Pool<int>& pool) {
  std::vector<Item> items;
  for (const auto& entry : pool.entries()) {
    items.emplace_back(entry.score, entry.inserted, entry.model);
  }
  std::sort(items.begin(), items.end());
  return items;
}

// Scores are small integers, which makes ties common.
void compare(Source& random, int capacity, int insertions) {
  Pool<int> pool(capacity);
  std::vector<Item> reference;
  int64_t inserted = 0;
  for (int model = 0; model < insertions; ++model) {
    const double score = random.pick(8);
    const bool full = reference.size() == static_cast<std::size_t>(capacity);
    // Of several worst entries the oldest is replaced: it is the first in sorted order.
    const bool better = !full || score > std::get<0>(reference.front());
    CHECK_EQ(pool.full(), full);
    CHECK_EQ(pool.admits(score), better);
    pool.insert(model, score);
    if (better) {
      if (full) reference.erase(reference.begin());
      reference.emplace_back(score, inserted++, model);
      std::sort(reference.begin(), reference.end());
    }
    CHECK(sorted(pool) == reference);
    CHECK_EQ(pool.worst_score(), std::get<0>(reference.front()));
  }
}

}  // namespace

int main() {
  Source random(5);
  for (int capacity : {1, 2, 3, 10, 64}) {
    for (int repeat = 0; repeat < 5; ++repeat) compare(random, capacity, 200);
  }
  return check::finish();
}

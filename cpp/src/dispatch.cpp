// Chooses among the compiled instruction sets at run time.
#include <atomic>
#include <cstring>

#include "manymatch/kernels.h"

namespace manymatch {

extern const Kernels kernels_baseline;
#if defined(MANYMATCH_X86)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

// Best first.
int list_available(const Kernels** out) {
  int count = 0;
#if defined(MANYMATCH_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) out[count++] = &kernels_avx512;
  if (avx2) out[count++] = &kernels_avx2;
#endif
  out[count++] = &kernels_baseline;
  return count;
}

const Kernels* best() {
  const Kernels* sets[3];
  list_available(sets);
  return sets[0];
}

std::atomic<const Kernels*>& current() {
  static std::atomic<const Kernels*> set{best()};
  return set;
}

}  // namespace

const Kernels& kernels() { return *current().load(std::memory_order_relaxed); }

bool force_instruction_set(const char* name) {
  if (!name) {
    current() = best();
    return true;
  }
  const Kernels* sets[3];
  const int count = list_available(sets);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(sets[i]->name, name) == 0) {
      current() = sets[i];
      return true;
    }
  }
  return false;
}

int available_instruction_sets(const char** names, int capacity) {
  const Kernels* sets[3];
  const int count = list_available(sets);
  for (int i = 0; i < count && i < capacity; ++i) names[i] = sets[i]->name;
  return count < capacity ? count : capacity;
}

}  // namespace manymatch

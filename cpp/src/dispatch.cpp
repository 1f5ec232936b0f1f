// Chooses among the compiled instruction sets at run time.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "manymatch/kernels.h"

namespace manymatch {

extern const Kernels kernels_baseline;
#if defined(MANYMATCH_X86)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#elif defined(MANYMATCH_ARM64)
extern const Kernels kernels_neon;
#endif

namespace {

constexpr int kMostSets = 3;

// Best first.
int list_available(const Kernels** out) {
  int count = 0;
#if defined(MANYMATCH_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) out[count++] = &kernels_avx512;
  if (avx2) out[count++] = &kernels_avx2;
#elif defined(MANYMATCH_ARM64)
  out[count++] = &kernels_neon;
#endif
  out[count++] = &kernels_baseline;
  return count;
}

const Kernels* find(const char* name) {
  const Kernels* sets[kMostSets];
  const int count = list_available(sets);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(sets[i]->name, name) == 0) return sets[i];
  }
  return nullptr;
}

// The set that the environment asks for, else the best one.
const Kernels* choose() {
  const Kernels* sets[kMostSets];
  const int count = list_available(sets);
  const char* wanted = std::getenv(kInstructionSetVariable);
  if (!wanted || !*wanted) return sets[0];
  if (const Kernels* set = find(wanted)) return set;
  std::string text = std::string(kInstructionSetVariable) + " must be one of";
  for (int i = 0; i < count; ++i) text += std::string(" ") + sets[i]->name;
  throw std::invalid_argument(text + " on this machine, or not set, got '" + wanted + "'");
}

std::atomic<const Kernels*> current{nullptr};  // null until the first use

}  // namespace

const Kernels& kernels() {
  const Kernels* set = current.load(std::memory_order_relaxed);
  if (!set) {
    set = choose();
    current = set;
  }
  return *set;
}

bool force_instruction_set(const char* name) {
  const Kernels* set = name ? find(name) : nullptr;
  if (name && !set) return false;
  current = set;
  return true;
}

int available_instruction_sets(const char** names, int capacity) {
  const Kernels* sets[kMostSets];
  const int count = list_available(sets);
  for (int i = 0; i < count && i < capacity; ++i) names[i] = sets[i]->name;
  return count < capacity ? count : capacity;
}

}  // namespace manymatch

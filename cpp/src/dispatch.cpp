#include "manymatch/dispatch.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace manymatch {

namespace {

constexpr int kNotChosen = -1;
std::atomic<int> current{kNotChosen};

// The set with a name, or kNotChosen if it does not run on this machine.
int find(const std::string& name) {
  for (InstructionSet isa : available_instruction_sets()) {
    if (name == name_of(isa)) return static_cast<int>(isa);
  }
  return kNotChosen;
}

// The set that the environment variable names, or the best one.
int choose() {
  const std::vector<InstructionSet> available = available_instruction_sets();
  const char* wanted = std::getenv(kInstructionSetVariable);
  if (!wanted || !*wanted) return static_cast<int>(available.front());
  const int found = find(wanted);
  if (found != kNotChosen) return found;
  std::string text = std::string(kInstructionSetVariable) + " must be one of";
  for (InstructionSet isa : available) text += std::string(" ") + name_of(isa);
  throw std::invalid_argument(text + " on this machine, or not set, got '" + wanted + "'");
}

}  // namespace

const char* name_of(InstructionSet isa) {
  switch (isa) {
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::neon:
      return "neon";
    default:
      return "baseline";
  }
}

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512) sets.push_back(InstructionSet::avx512);
  if (avx2) sets.push_back(InstructionSet::avx2);
#elif defined(__aarch64__)
  sets.push_back(InstructionSet::neon);
#endif
  sets.push_back(InstructionSet::baseline);
  return sets;
}

InstructionSet instruction_set() {
  int set = current.load(std::memory_order_relaxed);
  if (set == kNotChosen) {
    set = choose();
    current = set;
  }
  return static_cast<InstructionSet>(set);
}

bool force_instruction_set(const char* name) {
  const int set = name ? find(name) : kNotChosen;
  if (name && set == kNotChosen) return false;
  current = set;
  return true;
}

}  // namespace manymatch

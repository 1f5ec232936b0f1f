// The choice of an instruction set at run time.
#pragma once

#include <string>
#include <vector>

#include "manymatch/instruction_set.h"

namespace manymatch {

// Environment variable that chooses the set; if unset, the best one is used.
constexpr const char* kInstructionSetVariable = "MANYMATCH_ISA";

// The set in use. Throws std::invalid_argument if the variable names a set that does not run here.
InstructionSet instruction_set();
const char* name_of(InstructionSet isa);
// Null goes back to the set that the environment names, or the best one. False if the named set
// does not run here.
bool force_instruction_set(const char* name);
// The sets that run on this machine, best first.
std::vector<InstructionSet> available_instruction_sets();

// The kernels of the set in use.
template <class Table>
const Table& kernels() {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::avx512:
      return CompiledFor<Table, InstructionSet::avx512>::kernels;
    case InstructionSet::avx2:
      return CompiledFor<Table, InstructionSet::avx2>::kernels;
#elif defined(__aarch64__)
    case InstructionSet::neon:
      return CompiledFor<Table, InstructionSet::neon>::kernels;
#endif
    default:
      return CompiledFor<Table, InstructionSet::baseline>::kernels;
  }
}

}  // namespace manymatch

// The choice of an instruction set at run time.
#pragma once

#include <string>
#include <vector>

#include "manymatch/instruction_set.h"

namespace manymatch {

// Name of the environment variable that chooses the set; without it the best one is taken.
constexpr const char* kInstructionSetVariable = "MANYMATCH_ISA";

// The set in use. Throws std::invalid_argument if the environment asks for one that is not there.
InstructionSet instruction_set();
const char* name_of(InstructionSet isa);
// Null: what the environment asks for, or the best one. False if there is no such set.
bool force_instruction_set(const char* name);
// Sets that run on this machine, best first.
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

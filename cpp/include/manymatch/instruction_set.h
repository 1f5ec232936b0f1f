// The instruction sets that kernels are compiled for, and where their tables are found.
//
// Kernels are grouped in tables of function pointers; a table is a plain struct that belongs to the
// code that uses it (`RelativePoseKernels`, `AssociateKernels`). The source file of a table is
// compiled once per instruction set and defines `CompiledFor<Table, set>::kernels`; the function
// `kernels<Table>()` in dispatch.h picks one at run time.
//
// This header is included by files compiled per instruction set. Such files include nothing that
// has inline functions of a library: code compiled for AVX-512 could be merged by the linker with
// the same function compiled for an older processor.
#pragma once

namespace manymatch {

enum class InstructionSet { baseline, avx2, avx512, neon };

template <class Table, InstructionSet isa>
struct CompiledFor {
  static const Table kernels;
};

}  // namespace manymatch

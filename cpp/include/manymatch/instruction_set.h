// The instruction sets for which kernels are compiled, and the tables of kernels.
//
// A table is a plain struct of function pointers, declared next to the code that uses it
// (`RelativePoseKernels`, `AssociateKernels`). Its source file is compiled once per instruction set
// and defines `CompiledFor<Table, set>::kernels`; `kernels<Table>()` in dispatch.h picks one at run
// time.
//
// Files that are compiled per instruction set include this header. They must not include headers
// with inline library functions: the linker could replace such a function, compiled for an older
// processor, by the same function compiled for AVX-512.
#pragma once

namespace manymatch {

enum class InstructionSet { baseline, avx2, avx512, neon };

template <class Table, InstructionSet isa>
struct CompiledFor {
  static const Table kernels;
};

}  // namespace manymatch

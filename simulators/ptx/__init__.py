"""Runs NVIDIA's PTX on a CPU: translates a kernel to machine code and executes its grid.

    source, parser, body   text → program (program.py)
    table + the families   a handler for each key of uhal/ptx/instructions.py: what forms mean
    checks                 accesses to memory, checked as the caller asks: off, on, strict
    count                  what kernels ask of a GPU, counted: instructions, accesses, branches
    turns                  loops that stride over the grid, cut so that neighbors stay together
    emitter, entry         functions → LLVM IR; how a kernel's threads are run
    translate              LLVM IR → object code, one kernel at a time
    cache                  object code → a shared library, kept between processes
    runtime/               C: blocks over threads, barriers, warp operations, checks, faults
    launch                 a kernel from Python, for tests and a quick look

The table's section numbers refer to the PTX ISA manual, version 9.0.
"""

"""Mistakes in the simulated drivers."""

from __future__ import annotations

from build_support.mutants.compiled import Compiled

CUDA = ("tests/unit/test_simulator_cuda.py", "tests/simulated/test_cuda_driver.py")
PTX = ("tests/simulators/ptx/test_checks.py", "tests/simulated/test_ptx_faults.py")


def _sim(
    path: str, text: str, replacement: str, tests: tuple[str, ...], behind: str = ""
) -> Compiled:
    return Compiled(f"simulators/{path}", text, replacement, tests, behind)


def _hsa(path: str, text: str, replacement: str, suite: str, behind: str = "") -> Compiled:
    tests = (f"tests/simulated/test_hsa_driver{suite}.py",)
    return Compiled(f"simulators/hsa/{path}", text, replacement, tests, behind)


MISTAKES = (
    _sim(
        "cuda/launches.cpp",
        "value < 0 || static_cast<unsigned>(value) > most",
        "value < 0",
        CUDA,
    ),
    _sim(
        "cuda/kernel_work.cpp",
        "function.entry->static_shared_bytes + dynamic_shared + profile.shared_reserved_per_block",
        "function.entry->static_shared_bytes + dynamic_shared",
        CUDA,
    ),
    _sim(
        "engine/memory.cpp",
        "pattern",
        "0",
        CUDA,
        behind="std::memset(allocation.view, ",
    ),
    _sim(
        "engine/memory.cpp",
        "round_up(allocation.bytes, alignment)",
        "allocation.bytes",
        CUDA,
        behind="used_ -= ",
    ),
    _sim(
        "ptx/runtime/watch.c",
        "reader < READERS",
        "reader < 1",
        ("tests/simulated/test_ptx_faults.py",),
    ),
    _sim(
        "hsa/copy_calls.cpp",
        "destination == nullptr || source == nullptr",
        "destination == nullptr",
        ("tests/simulated/test_hsa_driver_refusals.py", "tests/simulated/test_hsa_driver.py"),
        behind='return in_runtime("hsa_memory_copy", [&](Call &call) {\n        if (',
    ),
    _sim(
        "cuda/events.cpp",
        "!reached(start) || !reached(*end)",
        "!reached(start)",
        CUDA,
    ),
    _sim(
        "cuda/fills.cpp",
        "what.dst % size != 0 || what.pitch % size != 0",
        "what.pitch % size != 0",
        CUDA,
    ),
    _sim(
        "engine/memory.cpp",
        "cost < bytes || cost > capacity_ - used_",
        "cost < bytes",
        CUDA,
    ),
    _sim(
        "engine/memory.cpp",
        "bytes <= allocation.bytes - offset",
        "true",
        CUDA,
    ),
    _sim("engine/scheduler.cpp", "!lost", "true", CUDA, behind="if ("),
    _sim("engine/scheduler.cpp", "!point.reached()", "false", CUDA),
    _hsa("packets.cpp", "grid[axis] != 1 || group[axis] != 1", "grid[axis] != 1", "_refusals"),
    _hsa(
        "packets.cpp",
        "packet.group_segment_size < kernel.group_bytes",
        "false",
        "_refusals",
    ),
    _hsa("processor.cpp", "waiting == 0 || (!all && any)", "waiting == 0", "_order"),
    _hsa("queue_calls.cpp", "value < found.announced", "false", "_refusals"),
    _hsa(
        "ranges.cpp",
        "program - range.program < range.bytes",
        "program - range.program <= range.bytes",
        "",
    ),
    _sim(
        "tops/events.cpp",
        "!reached(start) || !reached(*stop)",
        "!reached(start)",
        ("tests/simulated/test_tops_runtime.py",),
    ),
    _sim(
        "tops/launches.cpp",
        "options.cooperative && shape.blocks() > profile.clusters",
        "false",
        ("tests/simulated/test_tops_readings.py", "tests/simulated/test_tops_runtime.py"),
    ),
    _sim(
        "tops/launches.cpp",
        "stream->limit_sips != 0 && wanted.shape.block[0] > stream->limit_sips",
        "false",
        ("tests/simulated/test_tops_runtime.py",),
    ),
    _sim("ptx/runtime/check.c", "address % site->bytes != 0", "0", PTX),
    _sim("ptx/runtime/check.c", "bytes <= length - distance", "1", PTX),
    _sim(
        "ptx/runtime/warp.c",
        "ballot == members || ballot == 0",
        "ballot == members",
        ("tests/simulators/ptx/test_kernels.py",),
    ),
)

"""Mistakes in compiled sources: a table, built once, of which a process switches one on.

Each is an expression that stands once in its file, and another in its place. A text that is found
no more is an error of the table. The variable `UHAL_MUTANT` holds the number of the one that is on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "UHAL_MUTANT"


class StaleTextError(Exception):
    """A text of the table stands in its file no more, or more than once."""


@dataclass(frozen=True)
class Compiled:
    """A mistake in a compiled source, and the tests nearest to it, nearest first."""

    path: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    behind: str = ""
    """What stands before the text where the text alone stands more than once."""


def _lane(path: str, text: str, replacement: str, *tests: str, behind: str = "") -> Compiled:
    files = tuple(f"tests/unit/{test}.py" for test in tests)
    return Compiled(f"cython_src/{path}", text, replacement, files, behind)


def _host(path: str, text: str, replacement: str, *tests: str) -> Compiled:
    return Compiled(f"host_backend/runtime/{path}", text, replacement, tests)


MISTAKES = (
    _lane(
        "memory/fills.pxi",
        "buffer.nbytes % width or buffer.address % width",
        "buffer.nbytes % width",
        *("test_lane_buffers", "test_lane_refusals"),
    ),
    _lane(
        "memory/copies.pxi",
        "array.nbytes != buffer.nbytes",
        "array.nbytes > buffer.nbytes",
        *("test_lane_buffers", "test_lane_refusals"),
        behind='array = host_values().byte_array("source", source)\n        if ',
    ),
    _lane(
        "memory/pointer.pxi",
        "isinstance(address, bool) or not isinstance(address, int)",
        "not isinstance(address, int)",
        *("test_lane_buffers", "test_lane_refusals", "test_lane_objects"),
    ),
    _lane(
        "memory/block.pxi",
        "(<Block>block).stamp_count == 0 or (<Block>block).stamps.stream_id != stream_id",
        "(<Block>block).stamp_count == 0",
        *("test_lane_pool", "test_lane_memory_of_launches"),
    ),
    _lane(
        "launch/launch_sequence.pxi",
        "passed.start + passed.size * passed.dtype.itemsize > buffer.nbytes",
        "passed.start + passed.size > buffer.nbytes",
        "test_lane_launch_sequence",
    ),
    _lane(
        "launch/launch_sequence.pxi",
        "(size is None) != (dtype is None)",
        "False",
        "test_lane_launch_sequence",
    ),
    _lane(
        "launch/packing.pxi",
        "fabs(number) <= FLT_MAX or not isfinite(number)",
        "True",
        "test_lane_arguments",
    ),
    _lane(
        "launch/remembered_call.pxi",
        "taken.layouts[index] != layout",
        "False",
        "test_lane_remembered_call",
    ),
    _lane(
        "interop/dlpack.pxi",
        "buffer.readonly and not copy",
        "False",
        *("test_lane_interop", "test_lane_buffers"),
        behind="return versioned_capsule(exported, shape, strides, own, flags)\n    if ",
    ),
    _lane(
        "interop/foreign.pxi",
        "where is not None and where != context.ordinal",
        "False",
        *("test_lane_interop", "test_lane_buffers"),
    ),
    _lane(
        "interop/foreign.pxi",
        "type(producer) is int and 0 < producer < 2**64",
        "type(producer) is int and 0 <= producer < 2**64",
        *("test_malformed_tensors", "test_lane_interop"),
    ),
    _lane(
        "streams/stream.pxi",
        'min(max(read_index("priority", priority), greatest), least)',
        'read_index("priority", priority)',
        *("test_lane_objects", "test_lane_refusals"),
    ),
    _lane(
        "profile/session.pxi",
        "session.count >= session.limit",
        "session.count > session.limit",
        "test_profile",
    ),
    _lane(
        "profile/watching.pxi",
        "2 if kind == OPERATION_SET_16 else 1",
        "1",
        "test_profile",
    ),
    _lane(
        "launch/packing.pxi",
        "<uint64_t>geometry[axis] * geometry[3 + axis] > function.max_grid_threads",
        "<uint64_t>geometry[axis] * geometry[3 + axis] > function.max_grid_threads + 1",
        "test_launch_config",
    ),
    _lane(
        "capture/capture_order.pxi",
        "max(clock.get(number, 0), reached)",
        "reached",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "not (buffer.readonly and slot.is_written)",
        "True",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.context is plan.context",
        "True",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.context is not plan.context or not buffer.nbytes",
        "not buffer.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "one.address < other.address + other.nbytes",
        "one.address <= other.address + other.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.address + buffer.nbytes <= slot.buffer.address + slot.buffer.nbytes",
        "buffer.address + buffer.nbytes < slot.buffer.address + slot.buffer.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "memory/copies_2d.pxi",
        "(height - 1) * step + width > size",
        "height * step > size",
        *("test_lane_buffers", "test_lane_refusals"),
    ),
    _lane(
        "memory/copies_2d.pxi",
        "first.start < second.start + (second.height - 1) * second.pitch + second.width",
        "first.start <= second.start + (second.height - 1) * second.pitch + second.width",
        "test_lane_buffers",
    ),
    _lane(
        "memory/copies_2d.pxi",
        "second.start < first.start + (first.height - 1) * first.pitch + first.width",
        "second.start < first.start + (first.height - 1) * first.pitch",
        "test_lane_buffers",
    ),
    _lane(
        "memory/segments.pxi",
        "bytes",
        "0",
        *("test_lane_pool", "test_lane_memory_limit"),
        behind="except BaseException:\n        pool.bytes_reserved -= ",
    ),
    _lane(
        "memory/sharing.pxi",
        "note_exported(buffer)",
        "0",
        *("test_lane_interop", "test_lane_pool"),
    ),
    _lane(
        "interop/dlpack.pxi",
        "UHAL_DLPACK_COPIED",
        "0",
        *("test_lane_interop", "test_lane_buffers"),
        behind="copy_in(exported, buffer, None)\n        flags = ",
    ),
    _host(
        "api_stream.cpp",
        "error != 0 || done",
        "true",
        *("tests/host_runtime/test_streams.py", "tests/unit/test_host_waits.py"),
    ),
    _host(
        "check.cpp",
        "(flags & UHAL_HOST_CHECK_WRITE) != 0 && is_constant(address)",
        "false",
        "tests/unit/test_host_check.py",
    ),
    _host(
        "event.cpp",
        "mark_ && mark_->held_once() && mark_->done()",
        "mark_ && mark_->done()",
        "tests/host_runtime/test_streams.py",
    ),
    Compiled(
        "uhal/emulation/address_ranges.h",
        "address - below->start < below->bytes",
        "address - below->start <= below->bytes",
        ("tests/unit/test_address_ranges.py",),
    ),
    Compiled(
        "rocm_backend/runtime/aql.c",
        "index - taken >= queue->size",
        "index - taken > queue->size",
        ("tests/unit/test_aql.py", "tests/simulated/test_rocm_backend.py"),
    ),
    Compiled(
        "rocm_backend/runtime/graph_exec.c",
        "other != newest && !other->is_stale[i]",
        "0",
        ("tests/simulated/test_rocm_graphs.py",),
    ),
    Compiled(
        "opencl_backend/runtime/launch.c",
        "argument->kind == UHAL_CL_ARGUMENT_VALUE ? argument->size : sizeof(uint64_t)",
        "sizeof(uint64_t)",
        ("tests/opencl/test_backend.py",),
    ),
    Compiled(
        "simulators/cuda/launches.cpp",
        "value < 0 || static_cast<unsigned>(value) > most",
        "value < 0",
        ("tests/unit/test_simulator_cuda.py", "tests/simulated/test_cuda_driver.py"),
    ),
    Compiled(
        "simulators/cuda/kernel_work.cpp",
        "function.entry->static_shared_bytes + dynamic_shared > profile.shared_per_block_optin",
        "dynamic_shared > profile.shared_per_block_optin",
        ("tests/unit/test_simulator_cuda.py", "tests/simulated/test_cuda_driver.py"),
    ),
    Compiled(
        "simulators/engine/memory.cpp",
        "pattern",
        "0",
        ("tests/unit/test_simulator_cuda.py", "tests/simulated/test_cuda_driver.py"),
        behind="std::memset(allocation.view, ",
    ),
    Compiled(
        "simulators/engine/memory.cpp",
        "round_up(allocation.bytes, alignment)",
        "allocation.bytes",
        ("tests/unit/test_simulator_cuda.py", "tests/simulated/test_cuda_driver.py"),
        behind="used_ -= ",
    ),
    Compiled(
        "simulators/ptx/runtime/watch.c",
        "reader < READERS",
        "reader < 1",
        ("tests/simulated/test_ptx_faults.py",),
    ),
    Compiled(
        "simulators/hsa/copy_calls.cpp",
        "destination == nullptr || source == nullptr",
        "destination == nullptr",
        ("tests/simulated/test_hsa_driver_refusals.py", "tests/simulated/test_hsa_driver.py"),
        behind='return in_runtime("hsa_memory_copy", [&](Call &call) {\n        if (',
    ),
)

_SWITCH = f"""
#ifndef UHAL_MUTANT
#define UHAL_MUTANT
#include <stdlib.h>
__attribute__((unused)) static int uhal_mutant(int number) {{
    static int chosen = -1;
    if (chosen < 0) {{
        const char *text = getenv("{VARIABLE}");
        chosen = text != NULL ? atoi(text) : 0;
    }}
    return chosen == number;
}}
#endif
"""
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_LANE = "cython_src/lane.pyx"
_LANE_SWITCH = f'''
cdef extern from *:
    """{_SWITCH.replace(chr(10), chr(10) + "    ")}"""
    bint uhal_mutant(int number) noexcept nogil
'''


def with_switches(root: Path, mistakes: Iterable[Compiled] = MISTAKES) -> Mapping[str, str]:
    """Return the sources, by path, with a switch at each mistake; the first has the number 1.

    Raises `StaleTextError` for a text that does not stand once in its file.
    """
    found: dict[str, str] = {}
    by_path: dict[str, list[tuple[int, Compiled]]] = defaultdict(list)
    for number, one in enumerate(mistakes, 1):
        by_path[one.path].append((number, one))
    for path, planted in by_path.items():
        source = (root / path).read_text("utf-8")
        is_cython = path.endswith((".pyx", ".pxi"))
        for number, one in planted:
            sought = one.behind + one.text
            count = source.count(sought)
            if count != 1:
                raise StaleTextError(
                    f"{path}: expected {sought!r} once, found it {count} times. Correct its row "
                    f"in build_support/mutants/compiled.py."
                )
            switched = (
                f"(({one.replacement}) if uhal_mutant({number}) else ({one.text}))"
                if is_cython
                else f"(uhal_mutant({number}) ? ({one.replacement}) : ({one.text}))"
            )
            source = source.replace(sought, one.behind + switched)
        found[path] = source if is_cython else _behind_includes(source)
    if any(path.startswith("cython_src/") for path in found):
        lane = found.get(_LANE) or (root / _LANE).read_text("utf-8")
        head, line, rest = lane.partition("\nimport atexit")
        found[_LANE] = head + _LANE_SWITCH + line + rest
    return found


def _behind_includes(source: str) -> str:
    """Add the switch where no macro that a source defines for its headers comes too late."""
    place = max((found.end() for found in _INCLUDE.finditer(source)), default=0)
    return source[:place] + _SWITCH + source[place:]

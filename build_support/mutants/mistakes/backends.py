"""Mistakes in the native parts of the backends."""

from __future__ import annotations

from build_support.mutants.compiled import Compiled


def _host(path: str, text: str, replacement: str, *tests: str) -> Compiled:
    return Compiled(f"host_backend/runtime/{path}", text, replacement, tests)


def _rocm(path: str, text: str, replacement: str, *tests: str, behind: str = "") -> Compiled:
    return Compiled(f"rocm_backend/runtime/{path}", text, replacement, tests, behind)


def _opencl(path: str, text: str, replacement: str, test: str) -> Compiled:
    tests = (f"tests/opencl/{test}.py",)
    return Compiled(f"opencl_backend/runtime/{path}", text, replacement, tests)


MISTAKES = (
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
    _host(
        "memory.cpp",
        "before->first + before->second.bytes > start",
        "before->first + before->second.bytes >= start",
        "tests/host_runtime/test_memory.py",
    ),
    _host(
        "memory.cpp",
        "after->first < start + bytes",
        "after->first <= start + bytes",
        "tests/host_runtime/test_memory.py",
    ),
    _host(
        "memory.cpp",
        "bytes <= found->second.bytes - offset",
        "true",
        "tests/host_runtime/test_memory.py",
    ),
    _host(
        "memory.cpp",
        "found == pinned_.end() || found->second.owned",
        "found == pinned_.end()",
        "tests/host_runtime/test_memory.py",
    ),
    _host(
        "graph.cpp",
        "version.get() != newest_ && !version->is_stale[step]",
        "false",
        "tests/host_runtime/test_graphs.py",
    ),
    _host(
        "graph.cpp",
        "end_ && used_ != &stream && !end_->done()",
        "false",
        "tests/host_runtime/test_graphs.py",
    ),
    _host(
        "launch_memory.cpp",
        "away < distance || closer",
        "away < distance",
        *("tests/unit/test_host_check.py", "tests/unit/test_host_failures.py"),
    ),
    _host(
        "module.cpp",
        "tables_->instruction_level > instruction_level()",
        "false",
        *("tests/host_runtime/test_modules.py", "tests/unit/test_host_failures.py"),
    ),
    _host(
        "scheduler.cpp",
        "self.calls_ != 0",
        "self.called_ != 0",
        "tests/host_runtime/test_called_runners.py",
    ),
    _host(
        "stream_run.cpp",
        "device_.error.load(std::memory_order_relaxed) != 0",
        "false",
        *("tests/host_runtime/test_processes.py", "tests/host_runtime/test_graphs.py"),
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
    _rocm(
        "ranges.c",
        "past - below->bytes < above->start - address",
        "past - below->bytes > above->start - address",
        *("tests/simulated/test_rocm_backend.py", "tests/rocr/test_backend.py"),
    ),
    _rocm(
        "aql_packet.c",
        "geometry->shared_bytes <= UINT32_MAX - kernel->group_bytes",
        "1",
        "tests/unit/test_aql.py",
    ),
    _rocm(
        "graph.c",
        "last != NULL && last->kind == UHAL_HSA_STEP_LAUNCHES",
        "last != NULL",
        *("tests/rocr/test_backend.py", "tests/simulated/test_rocm_graphs.py"),
    ),
    _rocm(
        "graph.c",
        "(kernel->kernarg_bytes + unit - 1) / unit * unit",
        "kernel->kernarg_bytes",
        *("tests/rocr/test_backend.py", "tests/simulated/test_rocm_graphs.py"),
    ),
    _rocm(
        "capture.c",
        "own == NULL && one->count == UHAL_HSA_CAPTURE_STREAMS",
        "0",
        "tests/simulated/test_rocm_graphs.py",
    ),
    _rocm(
        "capture.c",
        "one->members[0].behind[i] < one->members[i].behind[i]",
        "0",
        *("tests/conformance/test_capture.py", "tests/conformance/test_capture_rules.py"),
    ),
    _rocm(
        "capture.c",
        "joined->behind[i] < point->behind[i]",
        "1",
        *("tests/conformance/test_capture.py", "tests/conformance/test_capture_rules.py"),
    ),
    Compiled(
        "opencl_backend/runtime/launch.c",
        "argument->kind == UHAL_CL_ARGUMENT_VALUE ? argument->size : sizeof(uint64_t)",
        "sizeof(uint64_t)",
        ("tests/opencl/test_backend.py", "tests/conformance/test_launches.py"),
    ),
    _opencl("launch.c", "one->changes != changes", "0", "test_backend"),
    _opencl("launch.c", "shared_bytes == 0 ? 1 : shared_bytes", "shared_bytes", "test_backend"),
    _opencl(
        "launch.c",
        "grid[2] != 1 ? 3 : grid[1] != 1 ? 2 : 1",
        "grid[1] != 1 ? 2 : 1",
        "test_backend",
    ),
    _opencl(
        "event.c",
        "status == 0 && *nanoseconds == 0",
        "status == 0 && *nanoseconds != 0",
        "test_memory",
    ),
    _opencl(
        "memory.c",
        "bytes <= found.place.bytes - (address - found.place.start)",
        "1",
        "test_memory",
    ),
    _opencl(
        "stream.c",
        "atomic_load(&stream->completed) >= atomic_load(&stream->submitted)",
        "true",
        "test_backend",
    ),
    Compiled(
        "cuda_backend/adapters.c",
        "wanted->cluster[0] != 0",
        "wanted->cluster[0] > 1",
        ("tests/unit/test_lane_launch_ex.py",),
    ),
    Compiled(
        "cuda_backend/adapters.c",
        "wanted->has_priority",
        "0",
        ("tests/unit/test_lane_launch_ex.py",),
    ),
    Compiled(
        "cuda_backend/adapters.c",
        "shared_bytes",
        "0",
        ("tests/unit/test_lane_launch_ex.py",),
        behind=".sharedMemBytes = ",
    ),
    Compiled(
        "tops_backend/adapters.c",
        "wanted->cooperative",
        "0",
        ("tests/unit/test_tops_programs.py", "tests/simulated/test_tops_readings.py"),
    ),
    Compiled(
        "tops_backend/adapters.c",
        "layout == NULL || layout->bytes > sizeof(packed->block)",
        "layout == NULL",
        ("tests/simulated/test_tops_readings.py", "tests/unit/test_tops_programs.py"),
    ),
    Compiled(
        "tops_backend/adapters.c",
        "config.blockDim.z",
        "1",
        ("tests/unit/test_lane_launch_ex.py", "tests/simulated/test_tops_readings.py"),
        behind="attribute->val.ThreadDim[0] = ",
    ),
    Compiled(
        "uhal/emulation/address_ranges.h",
        "uhal_ranges_at(ranges, middle)->start <= address",
        "uhal_ranges_at(ranges, middle)->start < address",
        ("tests/unit/test_address_ranges.py",),
    ),
    Compiled(
        "uhal/emulation/address_ranges.h",
        "address - below->start < below->bytes",
        "address - below->start <= below->bytes",
        ("tests/unit/test_address_ranges.py",),
    ),
)

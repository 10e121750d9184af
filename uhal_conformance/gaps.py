"""Permanent gaps of backends: uhal's own, and other backends' in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Tests in which numpy and a device share memory.
_NUMPYS = (
    "a_buffer_describes_numpys_memory",
    "a_copy_is_a_copy",
    "a_kernel_writes_into_numpys_memory",
    "a_tensor_elsewhere_is_refused",
    "an_array_over_a_buffer_keeps_the_memory",
    "an_export_waits_for_the_work_before_it",
    "closing_a_description_leaves_the_consumers_memory_alone",
    "closing_an_exported_buffer_leaves_the_consumers_memory_alone",
    "numpy_reads_device_memory_in_place",
    "read_only_memory_stays_read_only",
    "shapes_of_one_and_of_none_are_contiguous",
    "strided_tensors_are_refused",
    "the_memory_described_is_kept_and_let_go",
    "what_is_no_tensor_is_refused",
)
_NUMPY_ELSEWHERE = {f"test_{name}[[]*": "numpy reads the host's memory only" for name in _NUMPYS}
_NO_ADDRESS = "DLPack describes its memory by a buffer's handle, not by an address"

HELD = (
    "a_stream_goes_on_while_another_is_held",
    "no_stream_waits_for_the_default_stream",
    "waiting_is_for_the_record_that_was_made_before",
)
"""Tests that hold a stream while another stream continues."""

UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "host": {
        "test_events_with_every_flag*INTERPROCESS*": "memory of one process",
    },
    "cuda": {
        **_NUMPY_ELSEWHERE,
        "test_events_with_every_flag*INTERPROCESS-*": "such an event has no times",
        **{
            f"test_what_is_no_image_is_refused[[]*-{damage}]": "damages ELF headers only"
            for damage in ("wrong class", "wrong machine", "wrong type", "no sections")
        },
    },
    "rocm": {
        **_NUMPY_ELSEWHERE,
        "test_streams_of_other_libraries[[]*": "HIP's streams are no queues",
        "test_native_stream_ordered_memory[[]*": "HSA has no stream-ordered allocation",
        "test_a_sidecar_file_is_read[[]*": "a code object tells no types to contradict",
    },
    "tops": {
        **_NUMPY_ELSEWHERE,
        "test_a_capsule_nobody_takes_frees_its_hold*": "DLPack has no device type for GCUs",
        "test_a_graph_takes_other_parameters*": "no function that does it is known",
    },
    "opencl": {
        **_NUMPY_ELSEWHERE,
        "test_a_capsule_nobody_takes_frees_its_hold*": _NO_ADDRESS,
        **{
            f"test_{name}[[]*": (
                "on a CPU whoever waits for a stream may run the kernel that holds another"
            )
            for name in HELD
        },
        "test_streams_of_other_libraries[[]*": "a queue is not a stream of ours",
        "test_native_stream_ordered_memory[[]*": "OpenCL has no stream-ordered allocation",
        **{
            f"test_what_is_no_image_is_refused[[]*-{damage}]": "damages ELF headers only"
            for damage in ("wrong class", "wrong machine", "wrong type")
        },
        **{
            f"test_{name}_leave_nothing[[]*": "the runtime's own pools grow before they rest"
            for name in ("rounds_of_everything", "launches_alone")
        },
        "test_a_graph_*": "it has no graphs of its own: uhal keeps the list of a plan",
        "test_faults*": "a kernel that traps on a CPU ends the process, which is the device",
        "test_a_plan_that_faults_names_its_launches*": "the same",
    },
    "webgpu": {
        **_NUMPY_ELSEWHERE,
        "test_a_capsule_nobody_takes_frees_its_hold*": _NO_ADDRESS,
        "test_streams_of_other_libraries[[]*": "wgpu has one queue and no streams",
        "test_native_stream_ordered_memory[[]*": "WebGPU has no stream-ordered allocation",
        **{
            f"test_what_is_no_image_is_refused[[]*-{damage}]": "damages ELF headers only"
            for damage in ("wrong class", "wrong machine", "wrong type")
        },
        "test_a_graph_*": "it has no graphs of its own: uhal keeps the list of a plan",
        **{
            f"test_atomics_*[[]webgpu-{dtype}*": "WGSL has atomics of 32 bits"
            for dtype in ("i64", "u64", "f64")
        },
        "test_atomics_lose_nothing_where_blocks_meet[[]*": "its sums are of 64 bits",
        "test_faults*": "WGSL has no trap and no address outside of buffers: no kernel faults",
        "test_a_plan_that_faults_names_its_launches*": "the same",
        **{
            f"test_{name}[[]*": "work is held by a kernel that waits for the host"
            for name in (
                "ctrl_c_ends_every_wait",
                "closing_what_others_wait_for",
                "ctrl_c_ends_the_wait_at_exit",
            )
        },
    },
}
"""Reasons of gaps, by backend and by patterns of tests' names."""

UNSUPPORTED_FIXTURES: Mapping[str, Mapping[str, str]] = {
    "webgpu": {"gate": "a kernel sees only the host's writes before its launch"},
}
"""Fixtures that cannot be made, by backend."""


@dataclass(frozen=True)
class Gaps:
    """Content of a file of gaps: two JSON objects whose values are reasons."""

    tests: Mapping[str, str] = field(default_factory=dict)
    """Reasons by pattern of test names."""
    fixtures: Mapping[str, str] = field(default_factory=dict)
    """Gaps of unavailable fixtures: `gate` holds a stream until it is opened."""


def read_gaps(path: Path) -> Gaps:
    """Read a file of gaps. Raises `ValueError` that names the file's mistake."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as failure:
        raise ValueError(f"{path}: {failure}") from None
    expected = 'expected {"tests": {pattern: reason}, "fixtures": {name: reason}}'
    if not isinstance(found, dict) or not set(found) <= {"tests", "fixtures"}:
        raise ValueError(f"{path}: {expected}")
    for part in found.values():
        if not isinstance(part, dict) or not all(
            isinstance(one, str) and one for one in part.values()
        ):
            raise ValueError(f"{path}: {expected}, every reason a text")
    return Gaps(**found)

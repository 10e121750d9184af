"""The HSA interface in rocm_backend/abi.h: layouts, compared with C and AMD's own header."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.host_runtime.driver import ROOT
from tests.requirements import needed
from uhal.abi import Header

PATH = ROOT / "rocm_backend" / "abi.h"
HEADER = Header.load(PATH)
VENDOR = [os.environ.get("UHAL_TEST_HSA_INCLUDE", ""), "/opt/rocm/include", "/usr/include"]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_c = needed(CC, "no C compiler")

# Size and member offsets in bytes, from "HSA Runtime Programmer's Reference Manual" and AMD.
LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    "hsa_agent_t": (8, {"handle": 0}),
    "hsa_signal_t": (8, {"handle": 0}),
    "hsa_dim3_t": (12, {"x": 0, "y": 4, "z": 8}),
    "hsa_pitched_ptr_t": (24, {"base": 0, "pitch": 8, "slice": 16}),
    "hsa_queue_t": (
        40,
        {"type": 0, "features": 4, "base_address": 8, "doorbell_signal": 16, "size": 24, "id": 32},
    ),
    "hsa_kernel_dispatch_packet_t": (
        64,
        {
            **{"header": 0, "setup": 2, "workgroup_size_x": 4, "workgroup_size_z": 8},
            **{"grid_size_x": 12, "grid_size_z": 20, "private_segment_size": 24},
            **{"group_segment_size": 28, "kernel_object": 32, "kernarg_address": 40},
            **{"completion_signal": 56},
        },
    ),
    "hsa_barrier_and_packet_t": (64, {"header": 0, "dep_signal": 8, "completion_signal": 56}),
    "hsa_amd_pointer_info_t": (
        56,
        {
            **{"size": 0, "type": 4, "agentBaseAddress": 8, "hostBaseAddress": 16},
            **{"sizeInBytes": 24, "userData": 32, "agentOwner": 40, "global_flags": 48},
        },
    ),
    "hsa_amd_memory_pool_link_info_t": (
        28,
        {"atomic_support_32bit": 16, "coherent_support": 18, "link_type": 20, "numa_distance": 24},
    ),
    "hsa_amd_event_t": (32, {"event_type": 0, "memory_fault": 8}),
    "hsa_amd_gpu_memory_fault_info_t": (24, {"virtual_address": 8, "fault_reason_mask": 16}),
    "hsa_amd_profiling_dispatch_time_t": (16, {"start": 0, "end": 8}),
    "hsa_amd_profiling_async_copy_time_t": (16, {"start": 0, "end": 8}),
}


def offsets(name: str) -> dict[str, int]:
    """Return the offset that ctypes gives each member in the table."""
    structure = HEADER.ctype(name)
    # Members of an anonymous union are not listed, but getattr finds them.
    return {member: getattr(structure, member).offset for member in LAYOUTS[name][1]}


@cache
def vendor_include() -> str | None:
    return next((one for one in VENDOR if one and Path(one, "hsa", "hsa_ext_amd.h").exists()), None)


def printed(
    expressions: list[str], folder: Path, *includes: str, flags: tuple[str, ...]
) -> list[int]:
    assert CC is not None
    lines = "".join(f'    printf("%lld\\n", (long long)({one}));\n' for one in expressions)
    source = folder / "k.c"
    head = "".join(f"#include {include}\n" for include in includes)
    source.write_text(
        f"{head}#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{{\n{lines}}}\n"
    )
    subprocess.run([CC, *flags, str(source), "-o", str(folder / "k")], check=True)
    done = subprocess.run([folder / "k"], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def facts() -> dict[str, int]:
    """Return the value of each C expression, as ctypes computes it from our header."""
    expected = dict(HEADER.constants)
    for name in LAYOUTS:
        expected[f"sizeof({name})"] = ctypes.sizeof(HEADER.ctype(name))
        found = offsets(name)
        expected |= {f"offsetof({name}, {member})": found[member] for member in found}
    return expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str) -> None:
    size, members = LAYOUTS[name]
    assert ctypes.sizeof(HEADER.ctype(name)) == size
    assert offsets(name) == members


def test_handles_pass_in_one_register() -> None:
    signal, value = HEADER.argtypes("hsa_signal_store_relaxed")
    assert ctypes.sizeof(signal) == ctypes.sizeof(value) == 8
    assert value is ctypes.c_int64


def test_ready_made_headers() -> None:
    of = HEADER.constants

    def header(kind: str, barrier: int, acquire: str, release: str) -> int:
        return (
            of[f"HSA_PACKET_TYPE_{kind}"] << of["HSA_PACKET_HEADER_TYPE"]
            | barrier << of["HSA_PACKET_HEADER_BARRIER"]
            | of[f"HSA_FENCE_SCOPE_{acquire}"] << of["HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE"]
            | of[f"HSA_FENCE_SCOPE_{release}"] << of["HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE"]
        )

    assert header("KERNEL_DISPATCH", 0, "SYSTEM", "SYSTEM") == 0x1402
    assert header("KERNEL_DISPATCH", 1, "SYSTEM", "SYSTEM") == 0x1502
    assert header("BARRIER_AND", 1, "SYSTEM", "SYSTEM") == 0x1503
    assert header("KERNEL_DISPATCH", 1, "AGENT", "AGENT") == 0x0B02


@needs_c
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_compiler_agrees(language: str, tmp_path: Path) -> None:
    expected = facts()
    flags = ("-x", language, "-Wall", "-Werror")
    assert printed(list(expected), tmp_path, f'"{PATH}"', flags=flags) == list(expected.values())


@needs_c
@pytest.mark.skipif(vendor_include() is None, reason="no HSA headers here")
def test_amds_header_agrees(tmp_path: Path) -> None:
    """Each name that AMD's release has means the same here; our header may have newer names."""
    folder = vendor_include()
    assert folder is not None
    theirs = "".join(path.read_text("utf-8") for path in Path(folder, "hsa").glob("hsa*.h"))
    known = set(re.findall(r"\w+", theirs))
    ours = {
        expression: value
        for expression, value in facts().items()
        if set(re.findall(r"\w+", expression)) <= known | {"sizeof", "offsetof"}
    }
    assert len(ours) > 180
    includes = ("<hsa/hsa.h>", "<hsa/hsa_ext_amd.h>")
    assert printed(list(ours), tmp_path, *includes, flags=(f"-I{folder}",)) == list(ours.values())


@needs_c
@pytest.mark.skipif(vendor_include() is None, reason="no HSA headers here")
def test_amds_prototypes_agree(tmp_path: Path) -> None:
    """Our prototypes follow AMD's header: a compiler rejects two different types for one name."""
    assert CC is not None
    statements = re.findall(r"^[a-z][^;{}]*\([^;{}]*\);", PATH.read_text("utf-8"), re.MULTILINE)
    source = tmp_path / "k.c"
    include = "#include <hsa/hsa.h>\n#include <hsa/hsa_ext_amd.h>\n"
    source.write_text(include + "\n".join(statements))
    command = [CC, "-fsyntax-only", f"-I{vendor_include()}", str(source)]
    subprocess.run(command, check=True)
    declared = [name for name in HEADER.prototypes if any(f"{name}(" in one for one in statements)]
    assert declared == list(HEADER.prototypes)

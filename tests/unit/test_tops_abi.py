"""TopsRuntime's header in ctypes and in C: sizes, offsets, numbers, generations."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from tests.abi_headers import parameters
from tests.host_kernels import has_compiler
from tests.requirements import needed
from uhal.abi import Header

ABI = Path(__file__).parents[2] / "tops_backend" / "abi.h"

SIZES = {
    "topsDeviceProp_t": 792,
    "topsIpcMemHandle_t": 64,
    "topsIpcEventHandle_t": 64,
    "topsDim3": 12,
    "topsLaunchAttribute": 40,
    "uhalTopsLaunchConfig56": 56,
    "uhalTopsLaunchConfig64": 64,
    "uhalTopsLaunchConfig72": 72,
}
OFFSETS = {
    "topsDeviceProp_t": {
        "totalGlobalMem": 256,
        "sharedMemPerBlock": 264,
        "maxThreadsPerBlock": 272,
        "maxThreadsDim": 276,
        "maxGridSize": 288,
        "clockRate": 300,
        "memoryBusWidth": 308,
        "major": 312,
        "multiProcessorCount": 320,
        "maxThreadsPerMultiProcessor": 324,
        "arch": 336,
        "concurrentKernels": 340,
        "pciDeviceID": 352,
        "maxSharedMemoryPerMultiProcessor": 360,
        "canMapHostMemory": 368,
        "gcuArchName": 372,
        "cooperativeLaunch": 628,
        "pageableMemoryAccess": 660,
        "unifiedAddressing": 664,
        "mc_channel": 668,
        "localMemPerThread": 672,
        "localUuidId": 680,
        "remoteUuidId": 696,
    },
    "topsLaunchAttribute": {"id": 0, "val": 8},
    "uhalTopsLaunchConfig56": {
        "attrs": 0,
        "blockDim": 8,
        "dynamicSmemBytes": 24,
        "gridDim": 32,
        "numAttrs": 44,
        "stream": 48,
    },
    "uhalTopsLaunchConfig64": {
        "gridDim": 32,
        "localSmemBytes": 44,
        "numAttrs": 48,
        "stream": 56,
    },
    "uhalTopsLaunchConfig72": {
        "gridDim": 32,
        "localSmemBytes": 48,
        "numAttrs": 56,
        "stream": 64,
    },
}


def header() -> Header:
    return Header.load(ABI)


def test_layouts_are_the_published_ones() -> None:
    for name, size in SIZES.items():
        assert ctypes.sizeof(header().ctype(name)) == size, name
    for name, offsets in OFFSETS.items():
        for field, offset in offsets.items():
            assert getattr(header().ctype(name), field).offset == offset, f"{name}.{field}"


def test_both_forms_of_a_launch_without_attributes_read_the_same() -> None:
    """With no attribute and no stream, both forms of the structure give the same launch."""
    wide = header().ctype("uhalTopsLaunchConfig72")()
    wide.blockDim.x, wide.gridDim.x, wide.dynamicSmemBytes = 12, 2, 4096
    narrow = header().ctype("uhalTopsLaunchConfig64").from_buffer_copy(bytes(wide))
    assert (narrow.blockDim.x, narrow.gridDim.x, narrow.dynamicSmemBytes) == (12, 2, 4096)
    assert (narrow.numAttrs, narrow.localSmemBytes, narrow.stream) == (0, 0, None)


def test_numbers_that_differ_from_cudas() -> None:
    constants = header().constants
    assert constants["topsStreamPerThread"] == 2
    assert constants["topsDeviceAttributeMaxThreadsPerBlock"] == 9
    assert constants["topsErrorNotReady"] == 600
    assert constants["topsErrorNoBinaryForGcu"] == 209
    # Two names share one code: the runtime may answer with either name.
    assert constants["topsErrorMemoryAllocation"] == constants["topsErrorOutOfMemory"] == 2
    assert constants["topsErrorInvalidResourceHandle"] == constants["topsErrorInvalidHandle"] == 400


def test_arguments_that_cuda_has_not() -> None:
    assert parameters(header(), "topsMallocAsync") == ("void**", "u64", "void*", "u64")
    assert parameters(header(), "topsSetDevice") == ("i32",)
    assert parameters(header(), "topsEventRecord") == ("void*", "void*")
    assert parameters(header(), "topsIpcOpenMemHandle") == (
        "void**",
        "struct topsIpcMemHandle_t",
        "u32",
    )


def test_what_only_the_newer_library_has_is_declared() -> None:
    newer = {
        name.removeprefix("UHAL_TOPS_NEWER_")
        for name in header().constants
        if name.startswith("UHAL_TOPS_NEWER_")
    }
    assert newer < set(header().prototypes)
    assert "topsModuleLaunchKernelEx" in newer and "topsModuleLaunchKernel" not in newer


@needed(has_compiler(), "needs a compiler")
@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_compiler_agrees(language: str, tmp_path: Path) -> None:
    checks = [f"_Static_assert(sizeof({name}) == {size}, #SIZE);" for name, size in SIZES.items()]
    checks += [
        f"_Static_assert(offsetof({name}, {field}) == {offset}, #SIZE);"
        for name, offsets in OFFSETS.items()
        for field, offset in offsets.items()
    ]
    text = '#include "abi.h"\n' + "\n".join(checks).replace("#SIZE", '"layout"')
    if language == "c++":
        text = text.replace("_Static_assert", "static_assert")
    source = tmp_path / "layout.c"
    source.write_text(text, encoding="utf-8")
    command = ["cc", "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run([*command, f"-I{ABI.parent}", str(source)], check=True)

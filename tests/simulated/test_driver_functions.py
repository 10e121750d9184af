"""Every driver function: exported, found by version, refused where it is not simulated."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.simulated.driver_functions import Form, forms
from tests.simulated.process import (
    LIBRARY,
    needs_simulator,
    run_program,
    run_python,
)
from tests.simulated_driver import HEADER

pytestmark = needs_simulator

HEADERS = next(
    (path for path in Path("/usr/local").glob("cuda*/include") if (path / "cuda.h").is_file()), None
)
NEWEST = 13050


def test_the_library_exports_what_the_list_says() -> None:
    listed = [symbol for form in forms() for symbol in form.symbols]
    assert len(listed) == len(set(listed))
    said = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1].split("@")[0] for line in said.splitlines()}
    assert {symbol for symbol in exported if symbol.startswith("cu")} == set(listed)


def test_the_list_has_every_form_of_nvidias_headers() -> None:
    if HEADERS is None:
        pytest.skip("no cuda.h of a CUDA toolkit here")
    text = "".join(path.read_text() for path in HEADERS.glob("cuda*Typedefs.h"))
    version = re.search(r"CUDA_VERSION (\d+)", (HEADERS / "cuda.h").read_text())
    assert version is not None
    theirs = {(name, int(since)) for name, since in re.findall(r"PFN_(cu\w+?)_v(\d+)\)", text)}
    assert len(theirs) > 500
    ours = {(form.name, form.since) for form in forms() if form.since <= int(version[1])}
    assert ours == theirs
    # Per-thread forms are compared by name alone: some headers give the first form's version.
    theirs_too = set(re.findall(r"PFN_(cu\w+?)_v\d+(_ptsz|_ptds)\)", text))
    assert {(form.name, form.suffix) for form in forms() if form.suffix} >= theirs_too


def test_versions_are_those_the_backend_states() -> None:
    since = {form.symbol: form.since for form in forms()}
    stated = {
        name.removeprefix("UHAL_SINCE_"): version
        for name, version in HEADER.constants.items()
        if name.startswith("UHAL_SINCE_")
    }
    assert len(stated) > 100
    assert {name: since[name] for name in stated} == stated


def test_what_is_not_simulated_refuses_in_words(tmp_path: Path) -> None:
    report = tmp_path / "report"
    refusing = [form for form in forms() if form.reason]
    assert len(refusing) > 250
    arguments = [f"{one.name} {one.symbol} {one.since} {one.suffix or '-'}" for one in refusing]
    answers = run_program("call_with_zeros.py", *arguments, UHAL_SIM_REPORT=str(report))
    assert answers.splitlines() == [
        f"{form.symbol} 801 not supported ({form.symbol}: {form.reason})" for form in refusing
    ]
    told = re.findall(r"call +(\w+)\n +what +(.+)\n", report.read_text())
    assert sorted(told) == sorted((form.symbol, form.reason) for form in refusing)


# Attributes by which programs detect a feature, each with a function of the feature.
ATTRIBUTES = {
    "MAXIMUM_TEXTURE1D_WIDTH": (21, "cuTexObjectCreate"),
    "MANAGED_MEMORY": (83, "cuMemAllocManaged"),
    "CONCURRENT_MANAGED_ACCESS": (89, "cuMemPrefetchAsync_v2"),
    "CAN_USE_STREAM_MEM_OPS_V1": (92, "cuStreamBatchMemOp"),
    "CAN_USE_64_BIT_STREAM_MEM_OPS_V1": (93, "cuStreamWaitValue64"),
    "COOPERATIVE_LAUNCH": (95, "cuLaunchCooperativeKernel"),
    "COOPERATIVE_MULTI_DEVICE_LAUNCH": (96, "cuLaunchCooperativeKernelMultiDevice"),
    "CAN_FLUSH_REMOTE_WRITES": (98, "cuFlushGPUDirectRDMAWrites"),
    "HOST_REGISTER_SUPPORTED": (99, "cuMemHostRegister_v2"),
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": (102, "cuMemCreate"),
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": (103, "cuMemExportToShareableHandle"),
    "SPARSE_CUDA_ARRAY_SUPPORTED": (112, "cuMemMapArrayAsync"),
    "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED": (114, "cuImportExternalSemaphore"),
    "MEMORY_POOLS_SUPPORTED": (115, "cuMemAllocAsync"),
    "GPU_DIRECT_RDMA_SUPPORTED": (116, "cuFlushGPUDirectRDMAWrites"),
    "MEMPOOL_SUPPORTED_HANDLE_TYPES": (119, "cuMemPoolExportToShareableHandle"),
    "CAN_USE_64_BIT_STREAM_MEM_OPS": (122, "cuStreamWaitValue64_v2"),
    "CAN_USE_STREAM_WAIT_VALUE_NOR": (123, "cuStreamWaitValue32_v2"),
    "DMA_BUF_SUPPORTED": (124, "cuMemGetHandleForAddressRange"),
    "IPC_EVENT_SUPPORTED": (125, "cuIpcGetEventHandle"),
    "TENSOR_MAP_ACCESS_SUPPORTED": (127, "cuTensorMapEncodeTiled"),
    "HANDLE_TYPE_FABRIC_SUPPORTED": (128, "cuMemExportToShareableHandle"),
    "MULTICAST_SUPPORTED": (132, "cuMulticastCreate"),
    "MEM_DECOMPRESS_ALGORITHM_MASK": (136, "cuMemBatchDecompressAsync"),
}


def test_attributes_deny_what_is_refused() -> None:
    numbers = " ".join(str(number) for number, _ in ATTRIBUTES.values())
    answers = run_python("-c", ASK_ATTRIBUTES, str(LIBRARY), numbers, UHAL_SIM_CUDA_PROFILE="sm_90")
    said = dict(zip(ATTRIBUTES, answers.split(), strict=True))
    simulated = {form.symbol: not form.reason for form in forms()}
    assert {name: answer != "0" for name, answer in said.items()} == {
        name: simulated[symbol] for name, (_, symbol) in ATTRIBUTES.items()
    }


def test_attributes_have_the_vendors_numbers() -> None:
    if HEADERS is None:
        pytest.skip("no cuda.h of a CUDA toolkit here")
    text = (HEADERS / "cuda.h").read_text()
    theirs = dict(re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+) = (\d+)", text))
    ours = {name: str(number) for name, (number, _) in ATTRIBUTES.items()}
    assert {name: theirs.get(name) for name in ours} == ours


ASK_ATTRIBUTES = """
import ctypes, sys
library, value = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
assert library.cuInit(0) == 0
for number in sys.argv[2].split():
    assert library.cuDeviceGetAttribute(ctypes.byref(value), int(number), 0) == 0
    print(value.value)
"""


@pytest.mark.parametrize("version", [11040, 12040, NEWEST])
def test_a_driver_finds_what_its_version_has(version: int) -> None:
    found = run_python("-c", FIND_ALL, str(LIBRARY), UHAL_SIM_CUDA_DRIVER=str(version))
    newest: dict[str, Form] = {}
    for form in forms():
        if form.since <= version:
            newest[form.name] = max(newest.get(form.name, form), form, key=lambda one: one.since)
    assert dict(line.split() for line in found.splitlines()) == {
        name: form.symbol for name, form in newest.items()
    }


# Runs in its own process, because a library reads its settings once. Prints name and symbol.
FIND_ALL = """
import ctypes, sys
from tests.simulated.driver_functions import forms
library = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
assert library.cuDriverGetVersion(ctypes.byref(version)) == 0
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
symbols = {address(getattr(library, form.symbol)): form.symbol for form in forms()}
for name in sorted({form.name for form in forms()}):
    found, flags = ctypes.c_void_p(), ctypes.c_uint64()
    asked = name.encode(), ctypes.byref(found), version, flags
    code = library.cuGetProcAddress(*asked)
    assert code == (0 if found.value else 500), (name, code)
    if found.value:
        print(name, symbols[found.value])
"""

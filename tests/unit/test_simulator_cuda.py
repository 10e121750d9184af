"""The simulated CUDA driver itself: kernels, refusals, and faults."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import children, host_kernels
from tests.requirements import needed
from tests.simulated_driver import HEADER, LIBRARY, ROOT, Driver, copy_of_library, refused

VENDOR = next(
    (path for path in Path("/usr/local").glob("cuda*/include") if (path / "cuda.h").is_file()), None
)

pytestmark = needed(LIBRARY.exists() and host_kernels.has_compiler(), "make simulators")

HOST_KERNELS = """
#include <uhal/kernel.h>
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) { GRID_STRIDE(i, n) { y[i] += a * x[i]; } }
KERNEL(unused, (u32 *out)) { GRID_STRIDE(i, 1) { out[i] = 0; } }
"""
"""Host build that runs in place of the machine code of tests/data/cuda/sm_80.cubin."""

CUBIN = ROOT / "tests" / "data" / "cuda" / "sm_80.cubin"

PTX = """
.version {version}
.target {target}
.address_size 64
.visible .global .align 4 .b8 table[16];

.visible .entry add_one(.param .u64 n, .param .u64 values) .maxntid 512, 1, 1 {{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .f32 %f;
    ld.param.u64 %d0, [n];
    ld.param.u64 %d1, [values];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    mov.u32 %r4, %nctaid.x; mul.lo.u32 %r5, %r4, %r1;
    cvt.u64.u32 %d2, %r3; cvt.u64.u32 %d3, %r5;
next:
    setp.ge.u64 %p, %d2, %d0;
    @%p bra done;
    shl.b64 %d4, %d2, 2; add.u64 %d5, %d1, %d4;
    ld.global.f32 %f, [%d5]; add.f32 %f, %f, 0f3F800000; st.global.f32 [%d5], %f;
    add.u64 %d2, %d2, %d3;
    bra next;
done:
    ret;
}}

.visible .entry scale(.param .u64 values, .param .u32 n, .param .f64 by) {{
    .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>; .reg .f32 %f<2>; .reg .f64 %by;
    .shared .align 4 .b8 tile[128];
    ld.param.u64 %d0, [values]; ld.param.u32 %r0, [n]; ld.param.f64 %by, [by];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    add.u32 %r2, %r2, %r1;
    setp.ne.u32 %p, %r2, %r1;
    @%p ret;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %d0, %d1;
    cvt.rn.f32.f64 %f0, %by;
    ld.global.f32 %f1, [%d2]; mul.f32 %f1, %f1, %f0; st.global.f32 [%d2], %f1;
    ret;
}}

.visible .entry read_table(.param .u64 out) {{
    .reg .b32 %r<4>; .reg .b64 %d;
    ld.param.u64 %d, [out];
    ld.global.v2.u32 {{%r0, %r1}}, [table];
    ld.global.v2.u32 {{%r2, %r3}}, [table+8];
    st.global.v4.u32 [%d], {{%r0, %r1, %r2, %r3}};
    ret;
}}

.visible .entry textured(.param .u64 out) {{
    .reg .f32 %f<5>; .reg .b64 %d;
    ld.param.u64 %d, [out];
    tex.1d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%d, {{%f4}}];
    ret;
}}
"""


class PtxDriver(Driver):
    """A driver with the kernels of this file."""

    def load(self, version: str = "6.4", target: str = "sm_75") -> Any:
        image = PTX.format(version=version, target=target).encode()
        return self.make("cuModuleLoadData", "CUmodule", image)

    def add_one(self, function: Any, count: int, address: int, stream: Any = None) -> None:
        self.launch(function, ctypes.c_uint64(count), ctypes.c_uint64(address), stream=stream)


Opener = Callable[..., PtxDriver]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "kernels.so"
    path.write_bytes(host_kernels.build(HOST_KERNELS))
    return path


@pytest.fixture
def opened(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    numbers = itertools.count()

    def open_driver(**settings: str) -> PtxDriver:
        for name in [name for name in os.environ if name.startswith("UHAL_SIM_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("UHAL_SIM_KERNELS", str(kernels))
        for name, value in settings.items():
            monkeypatch.setenv(f"UHAL_SIM_{name}", value)
        driver = PtxDriver(copy_of_library(tmp_path / str(next(numbers))))
        # Settings are read at the first call.
        driver.dll.cuDriverGetVersion(ctypes.byref(ctypes.c_int()))
        return driver

    yield open_driver


@pytest.fixture(params=["eager", "lazy", "random:7"])
def schedule(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What it runs


def test_a_kernel_runs_in_stream_order_under_every_schedule(
    opened: Opener, schedule: str, rng: np.random.Generator
) -> None:
    driver = opened(SCHEDULE=schedule)
    driver.open()
    function = driver.function(driver.load(), "add_one")
    stream = driver.make("cuStreamCreate", "CUstream", 1)
    data = rng.standard_normal(1000).astype(np.float32)
    address = driver.allocate(data.size)
    driver.upload(address, data, stream)
    for _ in range(50):
        driver.add_one(function, data.size, address, stream)
    result = driver.download(address, data.size, stream)
    expected = data.copy()
    for _ in range(50):
        expected += np.float32(1)
    np.testing.assert_array_equal(result, expected)


def test_parameters_lie_where_the_image_says(opened: Opener) -> None:
    driver = opened()
    driver.open()
    function = driver.function(driver.load(), "scale")
    address = driver.allocate(8)
    driver.upload(address, np.arange(8, dtype=np.float32))
    driver.launch(function, ctypes.c_uint64(address), ctypes.c_uint32(8), ctypes.c_double(2.5))
    np.testing.assert_array_equal(driver.download(address, 8), 2.5 * np.arange(8))
    found = []
    for index in range(3):
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        driver.call.cuFuncGetParamInfo(function, index, ctypes.byref(offset), ctypes.byref(size))
        found.append((offset.value, size.value))
    assert found == [(0, 8), (8, 4), (16, 8)]


def test_modules_have_variables_of_their_own(opened: Opener) -> None:
    driver = opened()
    driver.open()
    results = []
    for first in (10, 20):
        module = driver.load()
        address, size = HEADER.ctype("CUdeviceptr")(), ctypes.c_size_t()
        driver.call.cuModuleGetGlobal_v2(
            ctypes.byref(address), ctypes.byref(size), module, b"table"
        )
        assert size.value == 16
        driver.upload(address.value, np.arange(first, first + 4, dtype=np.uint32))
        results.append((driver.function(module, "read_table"), first))
    for function, first in results:
        out = driver.allocate(4)
        driver.launch(function, ctypes.c_uint64(out))
        expected = np.arange(first, first + 4)
        np.testing.assert_array_equal(driver.download(out, 4).view(np.uint32), expected)


def test_events_tell_time_and_order(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    start, end, plain = (driver.make("cuEventCreate", "CUevent", flags) for flags in (0, 0, 2))
    elapsed = ctypes.c_float()
    with refused("CUDA_ERROR_INVALID_HANDLE"):
        driver.call.cuEventElapsedTime(ctypes.byref(elapsed), start, end)
    for event in (start, end, plain):
        driver.call.cuEventRecord(event, None)
    assert driver.call.unchecked("cuEventQuery")(end) == 600
    with refused("CUDA_ERROR_NOT_READY"):
        driver.call.cuEventElapsedTime(ctypes.byref(elapsed), start, end)
    driver.call.cuEventSynchronize(start)
    for begin, last in ((start, end), (end, start)):
        with refused("CUDA_ERROR_NOT_READY"):
            driver.call.cuEventElapsedTime(ctypes.byref(elapsed), begin, last)
    driver.call.cuEventSynchronize(end)
    driver.call.cuEventElapsedTime(ctypes.byref(elapsed), start, end)
    assert elapsed.value >= 0
    with refused("CUDA_ERROR_INVALID_HANDLE"):
        driver.call.cuEventElapsedTime(ctypes.byref(elapsed), start, plain)


def test_a_graph_replays_with_new_parameters(opened: Opener, schedule: str) -> None:
    driver = opened(SCHEDULE=schedule)
    driver.open()
    function = driver.function(driver.load(), "add_one")
    first, second = driver.allocate(8), driver.allocate(8)
    zeros = np.zeros(8, np.float32)
    driver.upload(first, zeros)
    driver.upload(second, zeros)
    driver.call.cuCtxSynchronize()
    stream = driver.make("cuStreamCreate", "CUstream", 1)
    driver.call.cuStreamBeginCapture_v2(stream, 0)
    driver.add_one(function, 8, first, stream)
    graph = HEADER.ctype("CUgraph")()
    driver.call.cuStreamEndCapture(stream, ctypes.byref(graph))
    count = ctypes.c_size_t(1)
    nodes = (HEADER.ctype("CUgraphNode") * 1)()
    driver.call.cuGraphGetNodes(graph, nodes, ctypes.byref(count))
    assert count.value == 1
    graph_exec = driver.make("cuGraphInstantiateWithFlags", "CUgraphExec", graph, 0)
    driver.call.cuGraphLaunch(graph_exec, stream)
    parameters = HEADER.ctype("CUDA_KERNEL_NODE_PARAMS")()
    driver.call.cuGraphKernelNodeGetParams_v2(nodes[0], ctypes.byref(parameters))
    values = (ctypes.c_uint64(8), ctypes.c_uint64(second))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    parameters.kernelParams = pointers
    driver.call.cuGraphExecKernelNodeSetParams_v2(graph_exec, nodes[0], ctypes.byref(parameters))
    driver.call.cuGraphLaunch(graph_exec, stream)
    driver.call.cuGraphLaunch(graph_exec, stream)
    np.testing.assert_array_equal(driver.download(first, 8, stream), np.full(8, 1))
    np.testing.assert_array_equal(driver.download(second, 8, stream), np.full(8, 2))


# What it refuses


def test_images_for_other_targets_and_newer_drivers(opened: Opener) -> None:
    driver = opened(CUDA_PROFILE="sm_86", CUDA_DRIVER="11040")
    driver.open()
    with refused("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "9.0 is newer than 7.4"):
        driver.load(version="9.0")
    with refused("CUDA_ERROR_INVALID_PTX", "sm_90"):
        driver.load(target="sm_90")
    with refused("CUDA_ERROR_INVALID_IMAGE"):
        driver.make("cuModuleLoadData", "CUmodule", b"no image at all" + bytes(64))
    log = ctypes.create_string_buffer(256)
    options = (HEADER.ctype("CUjit_option") * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    image = PTX.format(version="9.0", target="sm_75").encode()
    with refused("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"):
        driver.make("cuModuleLoadDataEx", "CUmodule", image, 2, options, values)
    assert b"9.0 is newer than 7.4" in log.value
    assert values[1] == len(log.value)


def test_a_driver_has_the_functions_of_its_version(opened: Opener) -> None:
    old = opened(CUDA_DRIVER="11040")
    address, status = ctypes.c_void_p(), ctypes.c_int()
    assert old.dll.cuGetProcAddress(b"cuMemAlloc", ctypes.byref(address), 3020, 0) == 0
    assert address.value == old.call.address("cuMemAlloc_v2")
    assert old.dll.cuGetProcAddress(b"cuLaunchKernelEx", ctypes.byref(address), 11040, 0) == 500
    new = opened(CUDA_DRIVER="13000")
    find = new.call.unchecked("cuGetProcAddress_v2")
    for name, version, expected in (
        (b"cuLaunchKernelEx", 11050, 2),
        (b"cuLaunchKernelEx", 11060, 0),
        (b"cuNothing", 13000, 1),
    ):
        assert find(name, ctypes.byref(address), version, 0, ctypes.byref(status)) == 0
        assert status.value == expected
        assert bool(address.value) == (expected == 0)


def test_kernels_that_it_cannot_run(opened: Opener, tmp_path: Path) -> None:
    report = tmp_path / "report"
    driver = opened(REPORT=str(report))
    driver.open()
    module = driver.load()
    words = "tex.1d.v4.f32.f32 is not executed here (PTX ISA §9.7.10 Texture)"
    with refused("CUDA_ERROR_INVALID_PTX", words):
        driver.function(module, "textured")
    assert words in report.read_text()
    assert re.search(r"PTX +line 55 of .*\n +tex\.1d", report.read_text())
    with refused("CUDA_ERROR_NOT_FOUND"):
        driver.function(module, "missing")


def test_machine_code_runs_through_a_host_build(opened: Opener) -> None:
    driver = opened(CUDA_PROFILE="sm_80")
    driver.open()
    module = driver.make("cuModuleLoadData", "CUmodule", CUBIN.read_bytes() + bytes(64))
    x, y = driver.allocate(8), driver.allocate(8)
    driver.upload(x, np.arange(8, dtype=np.float32))
    driver.upload(y, np.ones(8, np.float32))
    values = (ctypes.c_uint64(8), ctypes.c_float(3), ctypes.c_uint64(x), ctypes.c_uint64(y))
    driver.launch(driver.function(module, "saxpy"), *values)
    np.testing.assert_array_equal(driver.download(y, 8), 3 * np.arange(8) + 1)
    with refused("CUDA_ERROR_NOT_SUPPORTED", "no host build of this kernel"):
        driver.function(module, "indexed")
    with refused("CUDA_ERROR_NOT_SUPPORTED", "takes 1 parameters, the image's 3"):
        driver.function(module, "unused")


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ({"grid": (0, 1, 1)}, "CUDA_ERROR_INVALID_VALUE"),
        ({"grid": (1, 65536, 1)}, "CUDA_ERROR_INVALID_VALUE"),
        ({"block": (1, 1, 65)}, "CUDA_ERROR_INVALID_VALUE"),
        ({"block": (1024, 1, 1)}, "CUDA_ERROR_INVALID_VALUE"),
        ({"shared": 49153}, "CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_launches_beyond_the_limits(opened: Opener, shape: dict[str, Any], name: str) -> None:
    driver = opened()
    driver.open()
    function = driver.function(driver.load(), "add_one")
    values = (ctypes.c_uint64(0), ctypes.c_uint64(0))
    with refused(name):
        driver.launch(function, *values, **shape)
    driver.launch(function, *values, block=(512, 1, 1), shared=49152)
    driver.call.cuFuncSetAttribute(function, 8, 99 * 1024)
    driver.launch(function, *values, shared=99 * 1024)
    with refused("CUDA_ERROR_INVALID_VALUE"):
        driver.call.cuFuncSetAttribute(function, 8, 100 * 1024)
    resident = ctypes.c_int()
    for shared, blocks in ((99 * 1024, 1), (99 * 1024 + 1, 0), (49 * 1024, 2), (49 * 1024 + 1, 1)):
        driver.call.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(resident), function, 32, shared
        )
        assert resident.value == blocks, shared


def test_copies_and_fills_reach_no_further_than_an_allocation(opened: Opener) -> None:
    driver = opened()
    driver.open()
    one, other = driver.allocate(4), driver.allocate(4)
    host = np.zeros(16, np.uint8)
    at = host.ctypes.data
    for offset, nbytes, fits in ((0, 16, True), (12, 4, True), (12, 5, False), (0, 17, False)):
        for call, arguments in (
            (driver.call.cuMemcpyHtoDAsync_v2, (one + offset, at, nbytes)),
            (driver.call.cuMemcpyDtoHAsync_v2, (at, one + offset, nbytes)),
            (driver.call.cuMemcpyDtoDAsync_v2, (other, one + offset, nbytes)),
            (driver.call.cuMemcpyDtoDAsync_v2, (one + offset, other, nbytes)),
            (driver.call.cuMemsetD8Async, (one + offset, 0, nbytes)),
        ):
            expected = nullcontext() if fits else refused("CUDA_ERROR_INVALID_VALUE")
            with expected:
                call(*arguments, None)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_fills_are_of_whole_values(opened: Opener, size: int) -> None:
    driver = opened()
    driver.open()
    address = driver.allocate(16)
    fill = getattr(driver.call, f"cuMemsetD{8 * size}Async")
    fill_2d = getattr(driver.call, f"cuMemsetD2D{8 * size}Async")
    fill(address + size, 7, 3, None)
    fill_2d(address + size, 3 * size, 7, 2, 3, None)
    for offset in range(1, size):
        with refused("CUDA_ERROR_INVALID_VALUE"):
            fill(address + offset, 7, 3, None)
        with refused("CUDA_ERROR_INVALID_VALUE"):
            fill_2d(address, 3 * size + offset, 7, 2, 3, None)
    with refused("CUDA_ERROR_INVALID_VALUE"):
        fill_2d(address, size, 7, 2, 3, None)
    fill_2d(address, size, 7, 2, 1, None)


def test_handles_that_outlived_their_object(opened: Opener) -> None:
    driver = opened()
    driver.open()
    stream = driver.make("cuStreamCreate", "CUstream", 0)
    driver.call.cuStreamDestroy_v2(stream)
    with refused("CUDA_ERROR_INVALID_HANDLE"):
        driver.call.cuStreamSynchronize(stream)
    address = driver.allocate(4)
    driver.call.cuMemFree_v2(address)
    with refused("CUDA_ERROR_INVALID_VALUE"):
        driver.call.cuMemFree_v2(address)
    with refused("CUDA_ERROR_INVALID_VALUE"):
        driver.upload(address, np.zeros(4, np.float32))


def test_calls_that_do_not_go_with_a_capture(opened: Opener) -> None:
    driver = opened()
    driver.open()
    blocking = driver.make("cuStreamCreate", "CUstream", 0)
    graph = HEADER.ctype("CUgraph")()

    def spoiled_by(name: str, call: Callable[[], object]) -> None:
        driver.call.cuStreamBeginCapture_v2(blocking, 0)
        with refused(name):
            call()
        with refused("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
            driver.call.cuStreamEndCapture(blocking, ctypes.byref(graph))

    spoiled_by("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", lambda: driver.allocate(4))
    spoiled_by(
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        lambda: driver.call.cuStreamSynchronize(blocking),
    )
    event = driver.make("cuEventCreate", "CUevent", 0)
    spoiled_by("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", lambda: driver.call.cuEventRecord(event, None))
    assert driver.live("graph") == 0


# What it punishes


def capture_two(driver: PtxDriver) -> tuple[Any, Any, Any, Any]:
    """Capture a launch of a second stream that joins; return both streams, the memory and the
    event."""
    driver.open()
    function = driver.function(driver.load(), "add_one")
    address = driver.allocate(4)
    driver.upload(address, np.zeros(4, np.float32))
    driver.call.cuCtxSynchronize()
    origin, joined = (driver.make("cuStreamCreate", "CUstream", 1) for _ in range(2))
    event = driver.make("cuEventCreate", "CUevent", 0)
    driver.call.cuStreamBeginCapture_v2(origin, 2)
    driver.add_one(function, 4, address, stream=origin)
    driver.call.cuEventRecord(event, origin)
    driver.call.cuStreamWaitEvent(joined, event, 0)
    driver.add_one(function, 4, address, stream=joined)
    driver.call.cuEventRecord(event, joined)
    return origin, joined, address, event


def capture_status(driver: PtxDriver, stream: Any) -> int:
    status = ctypes.c_int()
    driver.call.cuStreamIsCapturing(stream, ctypes.byref(status))
    return status.value


def end_capture(driver: PtxDriver, stream: Any) -> Any:
    graph = HEADER.ctype("CUgraph")()
    driver.call.cuStreamEndCapture(stream, ctypes.byref(graph))
    return graph


def test_a_joined_stream_may_be_destroyed_while_its_capture_goes_on(
    opened: Opener, schedule: str
) -> None:
    driver = opened(SCHEDULE=schedule)
    origin, joined, address, event = capture_two(driver)
    driver.call.cuStreamDestroy_v2(joined)
    assert capture_status(driver, origin) == 1
    # The graph contains the destroyed stream's work, and the event still refers to the graph.
    driver.call.cuStreamWaitEvent(origin, event, 0)
    graph = end_capture(driver, origin)
    executable = driver.make("cuGraphInstantiateWithFlags", "CUgraphExec", graph, 0)
    driver.call.cuGraphLaunch(executable, origin)
    driver.call.cuStreamSynchronize(origin)
    np.testing.assert_array_equal(driver.download(address, 4), 2)


def test_what_a_destroyed_stream_captured_has_to_be_joined(opened: Opener) -> None:
    driver = opened()
    origin, joined, address, _ = capture_two(driver)
    driver.call.cuStreamDestroy_v2(joined)
    with refused("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"):
        end_capture(driver, origin)
    assert driver.live("graph") == 0
    driver.call.cuStreamSynchronize(origin)
    np.testing.assert_array_equal(driver.download(address, 4), 0)


def test_a_capture_goes_with_the_stream_it_began_on(opened: Opener) -> None:
    driver = opened()
    origin, joined, _, event = capture_two(driver)
    driver.call.cuStreamDestroy_v2(origin)
    assert capture_status(driver, joined) == 0
    assert driver.live("graph") == 0
    with refused("CUDA_ERROR_CAPTURED_EVENT"):
        driver.call.cuEventSynchronize(event)
    driver.call.cuStreamSynchronize(joined)


def test_a_missing_synchronization_shows(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    pinned = ctypes.c_void_p()
    driver.call.cuMemHostAlloc(ctypes.byref(pinned), 16, 0)
    host = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(pinned.value or 0))
    address = driver.allocate(4)
    driver.upload(address, np.arange(4, dtype=np.float32))
    driver.call.cuMemcpyDtoHAsync_v2(pinned, address, 16, None)
    assert np.isnan(host).all()
    driver.call.cuStreamSynchronize(None)
    np.testing.assert_array_equal(host, np.arange(4))


def test_pageable_sources_are_read_at_once_and_pinned_ones_later(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    pinned = ctypes.c_void_p()
    driver.call.cuMemHostAlloc(ctypes.byref(pinned), 16, 0)
    host = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(pinned.value or 0))
    for source, seen in ((np.zeros(4, np.float32), 1), (host, 2)):
        address = driver.allocate(4)
        source[:] = 1
        driver.upload(address, source)
        source[:] = 2
        np.testing.assert_array_equal(driver.download(address, 4), np.full(4, seen))


def test_streams_wait_for_each_other_only_where_cuda_says(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    function = driver.function(driver.load(), "add_one")
    for flags, ordered in ((0, True), (1, False)):
        address = driver.allocate(4)
        driver.upload(address, np.zeros(4, np.float32))
        driver.call.cuCtxSynchronize()
        driver.add_one(function, 4, address)
        stream = driver.make("cuStreamCreate", "CUstream", flags)
        seen = driver.download(address, 4, stream)
        np.testing.assert_array_equal(seen, np.full(4, 1 if ordered else 0))
        event = driver.make("cuEventCreate", "CUevent", 2)
        driver.call.cuEventRecord(event, None)
        driver.call.cuStreamWaitEvent(stream, event, 0)
        np.testing.assert_array_equal(driver.download(address, 4, stream), np.full(4, 1))


def test_stream_ordered_memory_exists_only_in_order(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    one, other = (driver.make("cuStreamCreate", "CUstream", 1) for _ in range(2))
    address = driver.make("cuMemAllocAsync", "CUdeviceptr", 16, one).value
    driver.upload(address, np.zeros(4, np.float32), other)
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS"):
        driver.call.cuStreamSynchronize(other)


@pytest.mark.parametrize("offset", [1 << 20, -(1 << 20)])
def test_a_kernel_that_leaves_its_memory_loses_the_device(opened: Opener, offset: int) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    function = driver.function(driver.load(), "add_one")
    address = driver.allocate(4)
    pinned = ctypes.c_void_p()
    driver.call.cuMemHostAlloc(ctypes.byref(pinned), 16, 0)
    behind = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(pinned.value or 0))
    behind[:] = 7
    driver.add_one(function, 4, address + offset)
    driver.add_one(function, 4, address)
    driver.call.cuMemcpyDtoHAsync_v2(pinned, address, 16, None)
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS", "kernel add_one"):
        driver.call.cuCtxSynchronize()
    # the work queued after the fault did not run
    assert (behind == 7).all()
    for call in (
        lambda: driver.allocate(4),
        lambda: driver.call.cuStreamSynchronize(None),
        lambda: driver.make("cuEventCreate", "CUevent", 0),
        lambda: driver.call.cuMemFree_v2(address),
    ):
        with refused("CUDA_ERROR_ILLEGAL_ADDRESS"):
            call()


def test_freed_host_and_misaligned_addresses_are_no_memory(opened: Opener) -> None:
    host = np.zeros(4, np.float32)

    def freed(driver: Driver) -> int:
        address = driver.allocate(4)
        driver.call.cuMemFree_v2(address)
        return address

    for name, address_of in (
        ("ILLEGAL", freed),
        ("ILLEGAL", lambda driver: host.ctypes.data),
        ("MISALIGNED", lambda driver: driver.allocate(4) + 2),
    ):
        driver = opened()
        driver.open()
        function = driver.function(driver.load(), "add_one")
        driver.add_one(function, 1, address_of(driver))
        with refused(f"CUDA_ERROR_{name}_ADDRESS"):
            driver.call.cuCtxSynchronize()
    assert not host.any()


def test_the_host_cannot_touch_device_memory() -> None:
    program = f"""
import ctypes
cu = ctypes.CDLL({str(LIBRARY)!r})
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
assert cu.cuMemAlloc_v2(ctypes.byref(address), 16) == 0
print("allocated", flush=True)
ctypes.c_float.from_address(address.value).value
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout.strip() == "allocated"


def test_a_full_queue_waits_for_its_oldest_work(opened: Opener) -> None:
    driver = opened(SCHEDULE="lazy")
    driver.open()
    function = driver.function(driver.load(), "add_one")
    address = driver.allocate(1)
    driver.upload(address, np.zeros(1, np.float32))
    for _ in range(3000):
        driver.add_one(function, 1, address)
    assert driver.download(address, 1)[0] == 3000


def test_callbacks_run_in_order_and_may_not_call_the_driver(opened: Opener) -> None:
    driver = opened()
    driver.open()
    seen: list[int] = []

    def called_back(_: object) -> None:
        seen.append(driver.call.unchecked("cuCtxSynchronize")())

    callback = HEADER.ctype("CUhostFn")(called_back)
    for _ in range(3):
        driver.call.cuLaunchHostFunc(None, callback, None)
    driver.call.cuStreamSynchronize(None)
    assert seen == [800, 800, 800]


# Several devices, several processes


def test_devices_reach_each_other_only_as_peers(opened: Opener) -> None:
    driver = opened(CUDA_DEVICES="2", CUDA_PROFILE="sm_80,sm_90")
    first = driver.open(0)
    theirs = driver.allocate(4)
    driver.upload(theirs, np.zeros(4, np.float32))
    driver.call.cuCtxSynchronize()
    second = driver.open(1)
    ours = driver.allocate(4)
    driver.call.cuMemcpyPeerAsync(ours, second, theirs, first, 16, None)
    np.testing.assert_array_equal(driver.download(ours, 4), np.zeros(4))
    function = driver.function(driver.load(), "add_one")
    driver.call.cuCtxEnablePeerAccess(first, 0)
    driver.add_one(function, 4, theirs)
    np.testing.assert_array_equal(driver.download(theirs, 4), np.ones(4))
    driver.call.cuCtxDisablePeerAccess(first)
    driver.add_one(function, 4, theirs)
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS"):
        driver.call.cuCtxSynchronize()
    driver.call.cuCtxSetCurrent(first)
    np.testing.assert_array_equal(driver.download(theirs, 4), np.ones(4))


def test_an_address_tells_its_device(opened: Opener) -> None:
    driver = opened(CUDA_DEVICES="2")
    ordinal, context = 9, 1  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL and _CONTEXT
    for number in (0, 1):
        own = driver.open(number)
        address = driver.allocate(4)
        for at in (address, address + 15):
            assert driver.make("cuPointerGetAttribute", "CUdevice", ordinal, at).value == number
            found = driver.make("cuPointerGetAttribute", "CUcontext", context, at)
            assert bytes(found) == bytes(own)
    pinned = ctypes.c_void_p()
    driver.call.cuMemHostAlloc(ctypes.byref(pinned), 16, 0)
    assert driver.make("cuPointerGetAttribute", "CUdevice", ordinal, pinned.value).value == 0


def multiply_shared(handle: str) -> None:
    """Run in another process: open the memory and write to it."""
    driver = Driver(LIBRARY)
    driver.open()
    made = HEADER.ctype("CUipcMemHandle").from_buffer_copy(bytes.fromhex(handle))
    address = driver.make("cuIpcOpenMemHandle_v2", "CUdeviceptr", made, 1)
    driver.upload(address.value, 10 * driver.download(address.value, 4))
    driver.call.cuCtxSynchronize()
    driver.call.cuIpcCloseMemHandle(address.value)


def test_memory_is_shared_with_another_process(opened: Opener) -> None:
    driver = opened()
    driver.open()
    address = driver.allocate(4)
    driver.upload(address, np.arange(4, dtype=np.float32))
    driver.call.cuCtxSynchronize()
    handle = driver.make("cuIpcGetMemHandle", "CUipcMemHandle", address)
    children.check_child(multiply_shared, bytes(handle).hex())
    np.testing.assert_array_equal(driver.download(address, 4), 10 * np.arange(4))
    with refused("CUDA_ERROR_INVALID_CONTEXT"):
        driver.make("cuIpcOpenMemHandle_v2", "CUdeviceptr", handle, 1)


def call_in_a_forked_child() -> None:
    driver = Driver(LIBRARY)
    driver.open()
    child = os.fork()
    if child == 0:
        os._exit(driver.call.unchecked("cuCtxSynchronize")())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_forked_child_has_no_driver() -> None:
    assert children.check_child(call_in_a_forked_child) == "3\n"


# Instruments


def test_calls_fail_when_told(opened: Opener) -> None:
    driver = opened(FAIL="cuMemAlloc_v2:2:2")
    driver.open()
    driver.allocate(4)
    with refused("CUDA_ERROR_OUT_OF_MEMORY"):
        driver.allocate(4)
    driver.allocate(4)
    driver.fail("cuStreamCreate", 1, 719)
    with refused("CUDA_ERROR_LAUNCH_FAILED"):
        driver.make("cuStreamCreate", "CUstream", 0)
    with refused("CUDA_ERROR_LAUNCH_FAILED", "injected into cuStreamCreate"):
        driver.allocate(4)


def test_live_objects_are_counted(opened: Opener) -> None:
    driver = opened()
    driver.open()
    kinds = ("stream", "event", "module", "allocation", "pinned", "graph_exec")
    before = [driver.live(kind) for kind in kinds]
    stream = driver.make("cuStreamCreate", "CUstream", 0)
    event = driver.make("cuEventCreate", "CUevent", 0)
    module = driver.load()
    address = driver.allocate(4)
    after = [driver.live(kind) for kind in kinds]
    assert [count - start for count, start in zip(after, before, strict=True)] == [1, 1, 1, 1, 0, 0]
    driver.call.cuStreamDestroy_v2(stream)
    driver.call.cuEventDestroy_v2(event)
    driver.call.cuModuleUnload(module)
    driver.call.cuMemFree_v2(address)
    assert [driver.live(kind) for kind in kinds] == before
    assert driver.live("unicorn") == -1


def test_fresh_memory_is_nan_in_every_format(opened: Opener, rng: np.random.Generator) -> None:
    driver = opened()
    driver.open()
    for count in (1, 63, 64, 1025, *(int(n) for n in rng.integers(1, 5000, 5))):
        address = driver.allocate(count)
        assert (driver.download(address, count).view(np.uint8) == 0xFF).all()
        # reused memory is poisoned like new memory
        driver.upload(address, np.zeros(count, np.float32))
        driver.call.cuMemFree_v2(address)


def test_freed_memory_of_any_size_comes_back(opened: Opener, rng: np.random.Generator) -> None:
    driver = opened(CUDA_MEMORY=str(1 << 20))
    driver.open()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def left() -> int:
        driver.call.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value

    whole = left()
    held: list[int] = []
    for size in (1, 255, 256, 257, 4097, *(int(n) for n in rng.integers(1, 9000, 20))):
        address = ctypes.c_uint64()
        before = left()
        driver.call.cuMemAlloc_v2(ctypes.byref(address), size)
        assert before - left() == -(-size // 256) * 256
        held.append(address.value)
        if rng.random() < 0.5:
            driver.call.cuMemFree_v2(held.pop(int(rng.integers(len(held)))))
    for one in held:
        driver.call.cuMemFree_v2(one)
    assert left() == whole


def test_memory_runs_out(opened: Opener) -> None:
    driver = opened(CUDA_MEMORY=str(1 << 20))
    driver.open()
    driver.allocate(1 << 17)
    with refused("CUDA_ERROR_OUT_OF_MEMORY"):
        driver.allocate(1 << 18)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (1 << 19, 1 << 20)


@pytest.mark.parametrize(
    "setting", [{"SCHEDULE": "sometimes"}, {"CUDA_PROFILE": "sm_1"}, {"FAIL": "cuInit"}]
)
def test_settings_that_mean_nothing_are_refused(
    opened: Opener, setting: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    driver = opened(**setting)
    with refused("CUDA_ERROR_UNKNOWN", "UHAL_SIM_"):
        driver.call.cuInit(0)
    assert "UHAL_SIM_" in capfd.readouterr().err


# The headers it is built on


ABI = ("cuda_backend/abi.h", "simulators/cuda/wider_abi.h", "simulators/cuda/graph_abi.h")
STRUCTS = re.compile(r"^typedef (?:struct|union) (\w+) \{(.*?)^\} \1;", re.MULTILINE | re.DOTALL)
# Names in NVIDIA's headers.
THEIR_NAMES = {
    "CUDA_KERNEL_NODE_PARAMS": "CUDA_KERNEL_NODE_PARAMS_v2",
    "CUDA_EVENT_NODE_PARAMS": "CUDA_EVENT_WAIT_NODE_PARAMS",
    "CUstreamMemOpValueParams": "struct CUstreamMemOpWaitValueParams_st",
}
# Later versions append members to these structures.
GROWING = {"CUDA_HOST_NODE_PARAMS_v2", "CUDA_EVENT_NODE_PARAMS"}


@pytest.mark.parametrize("header", ABI)
def test_structures_are_the_vendors(header: str, tmp_path: Path) -> None:
    if VENDOR is None:
        pytest.skip("no cuda.h of a CUDA toolkit here")
    text = re.sub(r"/\*.*?\*/", "", (ROOT / header).read_text(encoding="utf-8"), flags=re.DOTALL)
    asked = []
    for name, body in STRUCTS.findall(text):
        asked += [] if name in GROWING else [f"sizeof({name})"]
        fields = re.findall(r"\b(\w+)(?:\[\d+\])?;", body)
        asked += [f"offsetof({name}, {field})" for field in fields]
    assert len(asked) > 20
    vendors = [THEIR_NAMES.get(name := re.split(r"[(,)]", one)[1], name) for one in asked]
    theirs = [
        re.sub(r"\(\w+", f"({name}", one, count=1) for name, one in zip(vendors, asked, strict=True)
    ]
    ours = ask_compiler(tmp_path, f'"{ROOT / header}"', asked)
    assert dict(zip(asked, ours, strict=True)) == dict(
        zip(asked, ask_compiler(tmp_path, "<cuda.h>", theirs), strict=True)
    )


def ask_compiler(folder: Path, header: str, expressions: list[str]) -> list[str]:
    """Values of constant expressions, from a C compiler that reads the header."""
    source, program = folder / "ask.c", folder / "ask"
    includes = [f"#include {one}" for one in (header, "<stddef.h>", "<stdio.h>")]
    prints = [f'printf("%zu\\n", {one});' for one in expressions]
    source.write_text("\n".join([*includes, "int main(void) {", *prints, "return 0; }"]))
    command = ["cc", "-std=c11", "-w", f"-I{VENDOR}", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("header", ABI)
def test_prototypes_are_the_vendors(header: str, tmp_path: Path) -> None:
    if VENDOR is None:
        pytest.skip("no cuda.h of a CUDA toolkit here")
    text = (ROOT / header).read_text(encoding="utf-8")
    prototypes = re.findall(r"^CUresult cu\w+\([^;]*\);", text, re.MULTILINE)
    assert len(prototypes) > 50
    # The installed toolkit may be older than the simulated driver.
    theirs = (VENDOR / "cuda.h").read_text(encoding="utf-8", errors="replace")
    prototypes = [one for one in prototypes if one.split("(")[0].split()[-1] in theirs]
    assert len(prototypes) > 40
    source = tmp_path / "compare.c"
    # cuda.h only declares older forms of functions if this macro is defined.
    lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cuda.h>", *prototypes]
    source.write_text(
        "\n".join(lines).replace("CUDA_KERNEL_NODE_PARAMS *", "CUDA_KERNEL_NODE_PARAMS_v2 *")
    )
    command = ["cc", "-std=c11", "-fsyntax-only", f"-I{VENDOR}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

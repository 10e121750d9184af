"""Modules of the host runtime."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.host_kernels import build, has_compiler
from tests.host_runtime.driver import HEADER, Driver, HostFailure
from tests.host_runtime.kernels import u32, u64
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")


def test_modules_do_not_know_each_other(driver: Driver, image: bytes) -> None:
    """Two loads of the same bytes are two modules, each with its own variables."""
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    counts = []
    with driver.module(image) as first, driver.module(image) as second, driver.stream() as stream:
        for module, times in ((first, 3), (second, 5)):
            for _ in range(times):
                driver.launch(driver.function(module, "count"), (1, 1, 1), (1, 1, 1), stream)
        for module in (first, second):
            driver.api.uhalHostModuleGetGlobal(address, size, module, b"counter")
            got = np.empty(4, np.uint32)
            assert size.value == got.nbytes
            driver.read(got, address.value, stream)
            counts.append(got[0])
        with pytest.raises(HostFailure, match="NOT_FOUND"):
            driver.api.uhalHostModuleGetGlobal(address, size, first, b"nothing")
        with pytest.raises(HostFailure, match="NOT_FOUND"):
            driver.function(first, "nothing")
    assert counts == [3, 5]


def test_changed_bytes_are_loaded_afresh(driver: Driver) -> None:
    source = "#include <uhal/kernel.h>\nKERNEL(answer, (u32 *out)) {{ out[0] = {}; }}\n"
    images = [build(source.format(answer)) for answer in (41, 42)]
    with driver.stream() as stream, driver.memory(4) as out:
        for number in range(60):
            with driver.module(images[number % 2]) as module:
                answer = driver.function(module, "answer")
                driver.launch(answer, (1, 1, 1), (1, 1, 1), stream, u64(out))
                got = np.empty(1, np.uint32)
                driver.read(got, out, stream)
            assert got[0] == 41 + number % 2


def test_a_module_outlives_its_handle_while_launches_wait(driver: Driver, image: bytes) -> None:
    module = driver.load(image)
    affine = driver.function(module, "affine")
    with driver.stream() as stream, driver.memory(4) as x:
        driver.write(x, np.zeros(1, np.uint32), stream)
        with driver.held(stream):
            for _ in range(20):
                values = (u64(1), u32(1), u32(1), u64(x))
                driver.launch(affine, (1, 1, 1), (1, 1, 1), stream, *values)
            driver.api.uhalHostModuleUnload(module)
        got = np.empty(1, np.uint32)
        driver.read(got, x, stream)
    assert got[0] == 20


def test_images_that_are_none(driver: Driver) -> None:
    before = driver.live()
    other = 'extern "C" __attribute__((visibility("default"))) int nothing() { return 1; }'
    twice = build("#include <uhal/kernel.h>\nKERNEL(again, ()) {}\n")
    old = twice.replace(
        b"UHModule" + (1).to_bytes(4, "little"), b"UHModule" + (7).to_bytes(4, "little")
    )
    newer = twice.replace(
        b"UHModule" + (1).to_bytes(4, "little") + (1).to_bytes(4, "little"),
        b"UHModule" + (1).to_bytes(4, "little") + (9).to_bytes(4, "little"),
    )
    cases = [
        (b"not a library", "SHARED_OBJECT_INIT_FAILED"),
        (build(other), "INVALID_IMAGE"),
        (old, "INVALID_IMAGE"),
    ]
    if newer != twice:
        cases.append((newer, "NO_BINARY_FOR_CPU"))
    for image, name in cases:
        with pytest.raises(HostFailure, match=name):
            driver.load(image)
        assert driver.api.uhalHostLastErrorText()
    assert driver.live() == before


def test_descriptors(driver: Driver, module: ctypes.c_void_p) -> None:
    info = HEADER.ctype("uhalHostKernelInfo")()
    count = ctypes.c_uint()
    driver.api.uhalHostModuleGetKernelCount(count, module)
    found = {}
    for index in range(count.value):
        driver.api.uhalHostModuleGetKernel(info, index, module)
        parameters = [
            (each.size, each.alignment, each.flags, chr(each.dtype) if each.dtype else "")
            for each in info.parameters[: info.parameter_count]
        ]
        found[info.entry.decode()] = (info.parameter_text.decode(), parameters)
    assert list(found)[:2] == ["saxpy", "affine"]
    assert found["saxpy"] == (
        "(u64 n, f32 a, const f32 *x, f32 *y)",
        [(8, 8, 0, "Q"), (4, 4, 0, "f"), (8, 8, 3, "f"), (8, 8, 1, "f")],
    )
    assert found["aggregate"][1][1] == (24, 8, 0, "")
    with pytest.raises(HostFailure, match="INVALID_VALUE"):
        driver.api.uhalHostModuleGetKernel(info, count.value, module)

"""Helpers that record, change and instantiate graphs of the host runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tests.host_runtime.driver import HEADER, Driver
from tests.host_runtime.kernels import u32, u64

RELAXED = HEADER.constants["UHAL_HOST_STREAM_CAPTURE_MODE_RELAXED"]
N = 500
"""Number of elements of a buffer: several blocks, with a last block that is not full."""


class Numbers:
    """A buffer of u32 on the device, and its expected contents."""

    def __init__(self, driver: Driver, address: int, rng: np.random.Generator) -> None:
        self._driver = driver
        self.address = address
        self.expected = rng.integers(0, 2**32, N, "u4")
        with driver.stream() as stream:
            driver.write(address, self.expected, stream)
            driver.api.uhalHostStreamSynchronize(stream)

    def check(self) -> None:
        got = np.full(N, 0xA5A5A5A5, "u4")
        with self._driver.stream() as stream:
            self._driver.read(got, self.address, stream)
            self._driver.api.uhalHostStreamSynchronize(stream)
        assert np.array_equal(got, self.expected)


@contextmanager
def numbers(driver: Driver, rng: np.random.Generator) -> Iterator[Numbers]:
    with driver.memory(4 * N) as address:
        yield Numbers(driver, address, rng)


def begin(driver: Driver, stream: ctypes.c_void_p) -> None:
    driver.api.uhalHostStreamBeginCapture(stream, RELAXED)


def end(driver: Driver, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    driver.api.uhalHostStreamEndCapture(stream, graph)
    return graph


def status(driver: Driver, stream: ctypes.c_void_p) -> int:
    told = ctypes.c_int()
    driver.api.uhalHostStreamIsCapturing(stream, told)
    return told.value


def instantiate(driver: Driver, graph: ctypes.c_void_p) -> ctypes.c_void_p:
    executable = ctypes.c_void_p()
    driver.api.uhalHostGraphInstantiate(executable, graph)
    return executable


def kernels_of(driver: Driver, graph: ctypes.c_void_p) -> list[int]:
    count = ctypes.c_size_t()
    driver.api.uhalHostGraphGetKernels(graph, None, count)
    nodes = (ctypes.c_void_p * count.value)()
    driver.api.uhalHostGraphGetKernels(graph, nodes, count)
    return [node or 0 for node in nodes]


@contextmanager
def recorded(
    driver: Driver, stream: ctypes.c_void_p, record: Callable[[], object]
) -> Iterator[tuple[ctypes.c_void_p, list[int]]]:
    """Yield an executable graph of the work that `record` enqueues, and its kernels."""
    begin(driver, stream)
    record()
    graph = end(driver, stream)
    executable = instantiate(driver, graph)
    try:
        yield executable, kernels_of(driver, graph)
    finally:
        driver.api.uhalHostGraphExecDestroy(executable)
        driver.api.uhalHostGraphDestroy(graph)


def affine(
    driver: Driver,
    module: ctypes.c_void_p,
    stream: ctypes.c_void_p,
    buffer: Numbers,
    factor: int,
    addend: int,
) -> None:
    function = driver.function(module, "affine")
    values = (u64(N), u32(factor), u32(addend), u64(buffer.address))
    driver.launch(function, (3, 1, 1), (64, 1, 1), stream, *values)


def change_affine(
    driver: Driver,
    module: ctypes.c_void_p,
    executable: ctypes.c_void_p,
    node: int,
    buffer: Numbers,
    factor: int,
    addend: int,
) -> None:
    values = (u64(N), u32(factor), u32(addend), u64(buffer.address))
    pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
    function = driver.function(module, "affine")
    driver.api.uhalHostGraphExecKernelNodeSetParams(
        executable, node, function, 3, 1, 1, 64, 1, 1, 0, pointers
    )

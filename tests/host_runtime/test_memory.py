"""Memory of the host runtime: allocations, copies, fills."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from tests.host_kernels import has_compiler
from tests.host_runtime.driver import Driver, HostFailure
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")


def test_allocations(driver: Driver) -> None:
    for nbytes in (1, 255, 257, 1 << 20, 9 << 20):
        with driver.memory(nbytes) as address:
            assert address % 256 == 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.api.uhalHostMemGetInfo(free, total)
    assert 0 < free.value <= total.value
    for nbytes, name in (
        (0, "INVALID_VALUE"),
        (total.value * 2, "OUT_OF_MEMORY"),
        (1 << 62, "OUT_OF_MEMORY"),
        ((1 << 64) - 1, "OUT_OF_MEMORY"),
    ):
        with pytest.raises(HostFailure, match=name), driver.memory(nbytes):
            pass
    with pytest.raises(HostFailure, match="INVALID_VALUE"):
        driver.api.uhalHostMemFree(12345)


def test_untouched_memory_counts(driver: Driver) -> None:
    """Each allocation would fit alone, but both together are refused."""
    total, free = ctypes.c_size_t(), ctypes.c_size_t()
    driver.api.uhalHostMemGetInfo(free, total)
    taken: list[int] = []
    address = ctypes.c_uint64()
    try:
        with pytest.raises(HostFailure, match="OUT_OF_MEMORY"):
            for _ in range(100):
                driver.api.uhalHostMemAlloc(address, total.value // 10)
                taken.append(address.value)
        assert len(taken) <= 10
    finally:
        for each in taken:
            driver.api.uhalHostMemFree(each)


def test_pageable_sources_may_be_reused_at_once(driver: Driver) -> None:
    for nbytes in (1, 200, 64 << 10):
        with driver.stream() as stream, driver.memory(nbytes) as address:
            source = np.full(nbytes, 1, np.uint8)
            with driver.held(stream):
                driver.write(address, source, stream)
                source[:] = 2
            got = np.zeros(nbytes, np.uint8)
            driver.read(got, address, stream)
            assert (got == 1).all()


def test_a_large_pageable_copy_waits_for_the_stream(driver: Driver) -> None:
    nbytes = (64 << 10) + 1
    with driver.stream() as stream, driver.memory(nbytes) as address:
        source = np.full(nbytes, 1, np.uint8)
        worker = threading.Thread(target=driver.write, args=(address, source, stream))
        with driver.held(stream):
            worker.start()
            worker.join(0.2)
            assert worker.is_alive()
        worker.join()
        source[:] = 2
        got = np.zeros(nbytes, np.uint8)
        driver.read(got, address, stream)
        assert (got == 1).all()


def test_pinned_copies_are_queued(driver: Driver) -> None:
    nbytes = 1000
    with (
        driver.stream() as stream,
        driver.memory(nbytes) as address,
        driver.pinned(nbytes) as source,
        driver.pinned(nbytes) as target,
    ):
        source[:] = 1
        target[:] = 0
        with driver.held(stream):
            driver.write(address, source, stream)
            driver.read(target, address, stream)
            source[:] = 2  # the copy reads the source when it runs
            assert not target.any()
        assert (target == 2).all()


def test_registered_ranges(driver: Driver) -> None:
    api = driver.api
    array = np.zeros(10_000, np.uint8)
    start = array.ctypes.data
    pinned = ctypes.c_int()

    def is_pinned(offset: int, nbytes: int) -> bool:
        api.uhalHostMemHostIsPinned(pinned, start + offset, nbytes)
        return bool(pinned.value)

    assert not is_pinned(0, 1)
    api.uhalHostMemHostRegister(start + 100, 1000, 0)
    assert is_pinned(100, 1000) and is_pinned(1099, 1)
    assert not is_pinned(99, 2) and not is_pinned(100, 1001) and not is_pinned(1100, 1)
    with pytest.raises(HostFailure, match="ALREADY_REGISTERED"):
        api.uhalHostMemHostRegister(start, 101, 0)
    with pytest.raises(HostFailure, match="ALREADY_REGISTERED"):
        api.uhalHostMemHostRegister(start + 1099, 5, 0)
    api.uhalHostMemHostUnregister(start + 100)
    with pytest.raises(HostFailure, match="NOT_REGISTERED"):
        api.uhalHostMemHostUnregister(start + 100)
    assert not is_pinned(100, 1)


def test_ranges_may_touch_and_are_whole(driver: Driver) -> None:
    api = driver.api
    array = np.zeros(10_000, np.uint8)
    start = array.ctypes.data
    for offset in (1000, 0, 2000):
        api.uhalHostMemHostRegister(start + offset, 1000, 0)
    for offset in (0, 1000, 2000):
        with pytest.raises(HostFailure, match="NOT_REGISTERED"):
            api.uhalHostMemHostUnregister(start + offset + 1)
        api.uhalHostMemHostUnregister(start + offset)
    with driver.pinned(64) as own:
        with pytest.raises(HostFailure, match="NOT_REGISTERED"):
            api.uhalHostMemHostUnregister(own.ctypes.data)


def test_device_copies_may_overlap(driver: Driver, seed: int) -> None:
    n = 100_000
    data = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
    with driver.stream() as stream, driver.memory(n) as address:
        for source, target, nbytes in ((0, 7, n - 7), (7, 0, n - 7), (0, 0, n), (5, 90_000, 10)):
            driver.write(address, data, stream)
            driver.api.uhalHostMemcpyDtoDAsync(address + target, address + source, nbytes, stream)
            got = np.empty(n, np.uint8)
            driver.read(got, address, stream)
            expected = data.copy()
            expected[target : target + nbytes] = data[source : source + nbytes]
            np.testing.assert_array_equal(got, expected)


def test_memsets(driver: Driver) -> None:
    # The memory is larger than the memset, by one element of the widest type.
    with driver.stream() as stream, driver.memory(4 * 100_001) as address:
        for dtype, call in (
            (np.uint8, driver.api.uhalHostMemsetD8Async),
            (np.uint16, driver.api.uhalHostMemsetD16Async),
            (np.uint32, driver.api.uhalHostMemsetD32Async),
        ):
            for count in (0, 1, 3, 17, 100_000):
                value = int(np.iinfo(dtype).max // 3 + 5)
                got = np.zeros(count + 1, dtype)
                driver.write(address, got, stream)
                call(address, value, count, stream)
                driver.read(got, address, stream)
                assert (got[:count] == value).all() and got[count] == 0


def test_stream_ordered_memory(driver: Driver) -> None:
    before = driver.live()["allocation"]
    address = ctypes.c_uint64()
    with driver.stream() as stream:
        driver.api.uhalHostMemAllocAsync(address, 4096, stream)
        with driver.held(stream):
            driver.api.uhalHostMemsetD8Async(address.value, 1, 4096, stream)
            driver.api.uhalHostMemFreeAsync(address.value, stream)
            assert driver.live()["allocation"] == before + 1
    assert driver.live()["allocation"] == before

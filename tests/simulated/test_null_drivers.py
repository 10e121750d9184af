"""The null runtimes, which measure launches, receive every call."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels
from benchmarks.measuring import NullDriver, launch_form, measure
from benchmarks.suites import NULL_HIP, NULL_RUNTIME, NULL_TOPS
from benchmarks.workers.uhal_calls import as_seen
from tests.children import check_child
from tests.requirements import needed
from uhal import Api, DeviceBuffer, Module, Stream


def needs(library: Path) -> pytest.MarkDecorator:
    return needed(library.is_file(), f"the do-nothing {library.name} is not built: make simulators")


def launch_through_packets(library: str, seed: int) -> None:
    """Launch more often than a queue and its argument memory hold; each launch has its
    arguments."""
    rng = np.random.default_rng(seed)
    Api.quick_init(0, "rocm")
    function = Module.from_bytes(kernels.hsaco()).get_function(
        "eight", kernels.declaration("eight")
    )
    driver = NullDriver(library)
    driver.expect(kernels.sizes("eight"))
    x, out = (DeviceBuffer.uninitialized(16, "f32") for _ in range(2))
    with Stream() as stream:
        for count in (1, int(rng.integers(2, 1000)), 100_000):
            values = (int(rng.integers(2**63)), 1, None, x, out, float(rng.random()), 2.0, 3)
            driver.take()
            for _ in range(count):
                function[2, 64, 0, stream](*values)
            stream.synchronize()
            arrived = driver.take()
            assert arrived["launches"] == count
            total = sum(bits for _, bits in as_seen("eight", values))
            assert arrived["checksum"] == count * total % 2**64
        wrong = launch_form("bound", lambda _: function[1, 1, 0, stream](*values), [(8, 1)])
        with pytest.raises(SystemExit, match="calls should bring launches to"):
            measure("uhal", [wrong], driver)


@needs(NULL_RUNTIME)
def test_packets_are_counted(seed: int) -> None:
    library = str(NULL_RUNTIME)
    check_child(
        *(launch_through_packets, library, seed), environment={"UHAL_ROCM_LIBRARY": library}
    )


def launch_through_hip(library: str, seed: int) -> None:
    """Pass arguments in both ways: by a pointer to each, and in one block."""
    rng = np.random.default_rng(seed)
    hip = ctypes.CDLL(library)
    driver = NullDriver(library)
    driver.expect([4, 8])
    small, large = ctypes.c_uint32(int(rng.integers(2**32))), ctypes.c_uint64(int(rng.integers(9)))
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(small), ctypes.addressof(large))
    block = np.array([small.value, large.value], "u8")
    extra = (ctypes.c_void_p * 5)(1, block.ctypes.data, 2, None, 3)
    for given in ((pointers, None), (None, extra)):
        hip.hipModuleLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, *given)
        arrived = driver.take()
        assert (arrived["launches"], arrived["checksum"]) == (1, small.value + large.value)


@needs(NULL_HIP)
def test_launches_of_hip_are_counted(seed: int) -> None:
    check_child(launch_through_hip, str(NULL_HIP), seed)


def launch_on_a_gcu(library: str, seed: int) -> None:
    """Launches and their setup, through uhal."""
    rng = np.random.default_rng(seed)
    Api.quick_init(0, "tops")
    function = Module.from_bytes(kernels.topsfb()).get_function(
        "eight", kernels.declaration("eight")
    )
    driver = NullDriver(library)
    driver.expect(kernels.sizes("eight"))
    x, out = (DeviceBuffer.uninitialized(1024, "f32") for _ in range(2))
    with Stream() as stream:
        count = int(rng.integers(2, 3000))
        values = (int(rng.integers(2**63)), 1, None, x, out, float(rng.random()), 2.0, 3)
        driver.take()
        for _ in range(count):
            function[2, 4, 0, stream](*values)
        x.copy_from(np.zeros(1024, np.float32), stream=stream)
        arrived = driver.take()
    total = sum(bits for _, bits in as_seen("eight", values))
    assert arrived["launches"] == count
    assert arrived["checksum"] == count * total % 2**64
    assert (arrived["copies"], arrived["copied_bytes"]) == (1, 4096)


@needs(NULL_TOPS)
def test_launches_of_a_gcu_are_counted(seed: int) -> None:
    library = str(NULL_TOPS)
    check_child(*(launch_on_a_gcu, library, seed), environment={"UHAL_TOPS_LIBRARY": library})

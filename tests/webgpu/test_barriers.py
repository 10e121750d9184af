"""Barriers stay where work-items share memory, in shared memory and in storage."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from opencl_backend import compile as opencl_compile
from tests.requirements import missing
from uhal import Device, DeviceBuffer, Module
from uhal.errors import LibraryNotFoundError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import Cutter
from webgpu_backend.translator import translate

BLOCK = 192
SOURCE = """
#include <uhal/warp.h>
KERNEL(total, (const u32 *x, u32 *out)) {
    REGISTER(u32, sum, 192);
    THREADS(t) { sum(t) = x[t]; }
    warp_reduce(THIS_BLOCK, sum, Add());
    THREADS(t) { out[t] = sum(t); }
}
KERNEL(turned, (const u32 *x, u32 *out, u32 rounds)) {
    REGISTER(u32, value, 192);
    REGISTER(u32, other, 192);
    THREADS(t) { value(t) = x[t]; }
    for (u32 round = 0; round < rounds; ++round) {
        warp_shuffle(THIS_BLOCK, value, 31 - round, other);
        THREADS(t) { value(t) = 3 * value(t) + other(t) + t; }
    }
    THREADS(t) { out[t] = value(t); }
}
KERNEL(slots, (const u32 *x, u32 *out, u32 rounds)) {
    SHARED(u32, kept, 192 * 4);
    THREADS(t) { for (u32 i = 0; i < 4; ++i) kept[4 * t + i] = 0; }
    BARRIER();
    for (u32 round = 0; round < rounds; ++round) {
        THREADS(t) { kept[4 * t + round % 4] = x[t] + round; }
        BARRIER();
        THREADS(t) {
            u32 sum = 0;
            for (u32 i = 0; i < 4; ++i) sum += kept[4 * (191 - t) + i];
            out[t] = sum;
        }
        BARRIER();
    }
}
KERNEL(mirrored, (const u32 *x, u32 *kept, u32 *out)) {
    THREADS(t) { kept[t] = x[t] + 1; }
    BARRIER();
    THREADS(t) { out[t] = kept[191 - t]; }
}
KERNEL(in_place, (const u32 *x, u32 *out)) {
    REGISTER(u32, value, 192);
    THREADS(t) { value(t) = x[191 - t]; }
    BARRIER();
    THREADS(t) { out[t] = value(t); }
}
"""
Numbers = npt.NDArray[np.uint32]


@pytest.fixture(scope="module")
def image() -> bytes:
    try:
        return opencl_compile.kernels(SOURCE)
    except LibraryNotFoundError as reason:
        missing(str(reason))


@pytest.fixture
def x(rng: np.random.Generator) -> Numbers:
    return rng.integers(0, 1 << 16, BLOCK, "u4")


def text_of(image: bytes, name: str) -> str:
    module = SpirvModule(image, "the kernels")
    one = Cutter(module).cut(module.entries[name])
    cut = SpirvModule(one.image, name)
    return translate(cut, cut.entries[name], 128, len(one.hidden)).text


def launched(image: bytes, name: str, x: Numbers, *numbers: int) -> Numbers:
    out = DeviceBuffer.from_numpy(np.full(BLOCK, 0xA5A5A5A5, "u4"))
    kernel = Module.from_bytes(image).get_function(name)
    kernel[1, BLOCK](DeviceBuffer.from_numpy(x), out, *numbers)
    return out.to_numpy()


def test_an_exchange_of_lanes_has_one_barrier(device: Device, image: bytes, x: Numbers) -> None:
    text = text_of(image, "total")
    exchanges = re.findall(r"^[rs]\d+\[.*\] = ", text, re.MULTILINE)
    # One more line writes the result.
    assert text.count("workgroupBarrier();") == len(exchanges) - 1
    assert text.count("storageBarrier();") == 1
    out = launched(image, "total", x)
    assert (out.reshape(-1, 32) == x.reshape(-1, 32).sum(1)[:, None]).all()


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_exchanges_in_a_loop(device: Device, image: bytes, x: Numbers, rounds: int) -> None:
    """Each round has one exchange, so odd and even rounds use different arrays."""
    expected, place = x.copy(), np.arange(BLOCK, dtype="u4")
    for one in range(rounds):
        expected = 3 * expected + expected[place // 32 * 32 + 31 - one] + place
    assert (launched(image, "turned", x, rounds) == expected).all()


@pytest.mark.parametrize("rounds", [3, 6])
def test_values_of_earlier_rounds_are_kept(
    device: Device, image: bytes, x: Numbers, rounds: int
) -> None:
    """A work-item's place varies with the round, so no second array may take turns."""
    kept = np.zeros((BLOCK, 4), "u4")
    for one in range(rounds):
        kept[:, one % 4] = x + np.uint32(one)
    assert (launched(image, "slots", x, rounds) == kept.sum(1)[::-1]).all()


def test_storage_that_work_items_share(device: Device, image: bytes, x: Numbers) -> None:
    assert text_of(image, "mirrored").count("storageBarrier();") == 1
    kept, out = (DeviceBuffer.from_numpy(np.zeros(BLOCK, "u4")) for _ in range(2))
    Module.from_bytes(image).get_function("mirrored")[1, BLOCK](
        DeviceBuffer.from_numpy(x), kept, out
    )
    assert (out.to_numpy() == x[::-1] + 1).all()


def test_two_parameters_may_be_one_buffer(device: Device, image: bytes, x: Numbers) -> None:
    assert text_of(image, "in_place").count("storageBarrier();") == 1
    both = DeviceBuffer.from_numpy(x)
    Module.from_bytes(image).get_function("in_place")[1, BLOCK](both, both)
    assert (both.to_numpy() == x[::-1]).all()

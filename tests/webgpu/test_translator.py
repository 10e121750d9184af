"""Kernels become WGSL that naga accepts, or an error says why not; damaged kernels never crash."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import SOAK, rounds
from tests.webgpu.kernels import cut, entries
from uhal import Device
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images.spirv import SpirvModule
from webgpu_backend.translator import translate

IMMEDIATE_BYTES = 128
REFUSED = "of f64, which WebGPU devices do not compute"


def translated(name: str, entry: str, immediate_bytes: int = IMMEDIATE_BYTES) -> str:
    one = cut(name, entry)
    module = SpirvModule(one.image, entry)
    return translate(module, module.entries[entry], immediate_bytes, len(one.hidden)).text


def test_most_kernels_translate(rng: np.random.Generator) -> None:
    every = list(entries())
    drawn = every if SOAK else [every[at] for at in rng.permutation(len(every))[:60]]
    refused = []
    for name, entry in drawn:
        try:
            assert "fn kernel(" in translated(name, entry)
        except NotSupportedError as reason:
            assert str(reason).endswith(REFUSED), f"{entry}: {reason}"
            assert entry.endswith("_f64")
            refused.append(entry)
    # 7 % of all entries are refused. A sample may contain a larger share by chance.
    assert len(refused) <= len(drawn) * (0.07 if SOAK else 0.2), refused


def test_naga_accepts_what_is_written(device: Device, rng: np.random.Generator) -> None:
    every = [(name, entry) for name, entry in entries() if not entry.endswith("_f64")]
    drawn = every if SOAK else [every[at] for at in rng.permutation(len(every))[:25]]
    for name, entry in drawn:
        ubridge.load_module(name, device=device).get_function(entry)


def test_parameters_beyond_the_immediates_are_a_uniform_buffer() -> None:
    text = translated("unary", "usqr_f32", 0)
    assert "var<uniform> P: Params;" in text and "var<immediate>" not in text


def test_the_same_kernel_gives_the_same_text() -> None:
    assert translated("reduce", "fast_sum_f32") == translated("reduce", "fast_sum_f32")


@pytest.mark.parametrize("entry", ["affine_f32", "affine_u8"])
def test_damaged_modules_are_refused_or_translated(entry: str, rng: np.random.Generator) -> None:
    image = np.frombuffer(cut("affine", entry).image, "u4")
    for _ in range(rounds(150, 50000)):
        damaged = image.copy()
        for at in rng.integers(5, image.size, rng.integers(1, 4)):
            kind = rng.integers(3)
            damaged[at] = (
                rng.integers(1 << 32)
                if kind == 0
                else damaged[rng.integers(5, image.size)]
                if kind == 1
                else damaged[at] ^ np.uint32(1 << int(rng.integers(32)))
            )
        if rng.integers(8) == 0:
            damaged = damaged[: rng.integers(1, image.size)]
        try:
            module = SpirvModule(damaged.tobytes(), entry)
            for one in module.entries.values():
                translate(module, one, IMMEDIATE_BYTES)
        except (InvalidImageError, NotSupportedError):
            pass


def test_a_refused_kernel_is_named(device: Device) -> None:
    module = ubridge.load_module("unary", device=device)
    with pytest.raises(NotSupportedError, match=r"kernel 'uexp_f64' has exp of f64"):
        module.get_function("uexp_f64")

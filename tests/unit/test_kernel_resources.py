"""Registers, spills, shared memory and occupancy, by `ptxas` and by metadata of code objects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hsaco_writer import Kernel, write
from tests.requirements import needed
from uhal.errors import ArgumentValueError, InvalidImageError
from uhal.profiler.resources import KernelResources, of_image, parse
from uhal.profiler.resources_table import text

ROOT = Path(__file__).resolve().parents[2]
PTX = ROOT / "tests" / "simulators" / "ptx" / "counted.ptx"
TOLD = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'wide' for 'sm_90'
ptxas info    : Function properties for wide
    320 bytes stack frame, 344 bytes spill stores, 340 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 320 bytes cumulative stack size
ptxas info    : Compiling entry function 'calls' for 'sm_90'
ptxas info    : Function properties for calls
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
ptxas info    : Function properties for _Z6calledf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""
"""Output of ptxas 13.0."""


def kernel(target: str, registers: int, shared: int = 0, wave: int = 32) -> KernelResources:
    return KernelResources("k", target, registers, 0, 0, 0, shared, wave)


def test_what_ptxas_says_is_read() -> None:
    assert parse(TOLD, "sm_90") == [
        KernelResources("wide", "sm_90", 32, 344, 340, 320, 0),
        KernelResources("calls", "sm_90", 10, 0, 0, 0, 256),
    ]
    assert [one.spills for one in parse(TOLD, "sm_90")] == [True, False]


@pytest.mark.parametrize(
    ("target", "registers", "threads", "shared", "wanted"),
    [
        ("sm_90", 32, 1024, 0, 1),
        ("sm_90", 33, 1024, 0, 0.5),  # 40 registers a thread allow 12 of 16 warps per scheduler
        ("sm_80", 128, 256, 0, 0.25),
        ("sm_80", 255, 1024, 0, 0),
        ("sm_75", 64, 256, 0, 1),
        ("sm_86", 16, 128, 48 << 10, 2 * 4 / 48),
        ("sm_86", 16, 32, 0, 16 / 48),  # at most 16 blocks
        ("gfx90a", 128, 256, 0, 0.5),
        ("gfx90a", 16, 256, 32 << 10, 2 * 4 / 32),
        ("gfx1100", 96, 256, 0, 1),
        ("gfx1030", 128, 256, 0, 0.5),
    ],
)
def test_occupancy(target: str, registers: int, threads: int, shared: int, wanted: float) -> None:
    wave = 64 if target == "gfx90a" else 32
    assert kernel(target, registers, shared, wave).occupancy(threads) == pytest.approx(wanted)
    assert kernel(target, registers, 0, wave).occupancy(threads, shared) == pytest.approx(wanted)


def test_occupancy_is_unknown_of_other_targets() -> None:
    assert kernel("sm_35", 16).occupancy(64) is None
    assert KernelResources("k", "sm_90", None, 0, 0, 0, 0).occupancy(64) is None


@needed(shutil.which("ptxas") is not None, "ptxas")
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_ptx_is_compiled_for_a_target(target: str) -> None:
    found = {one.kernel: one for one in of_image(PTX.read_bytes(), target)}
    assert found["banks"].shared == 4096
    assert found["transpose_padded"].shared == 32 * 33 * 4
    assert found["copy"].shared == 0
    for one in found.values():
        assert one.registers is not None
        assert 0 < one.registers < 64
        assert not one.spills
        occupancy = one.occupancy(256)
        assert occupancy is not None
        assert 0 < occupancy <= 1


@needed(shutil.which("ptxas") is not None, "ptxas")
def test_what_ptxas_refuses() -> None:
    with pytest.raises(InvalidImageError, match="ptxas refuses it for sm_90"):
        of_image(b".version 8.0\n.target sm_80\n.address_size 64\nnonsense", "sm_90")


def test_code_objects_say_it_themselves() -> None:
    more = {".vgpr_count": 96, ".vgpr_spill_count": 3}
    image = write([Kernel("one", group=4096, private=12, more=more), Kernel("other")])
    one, other = of_image(image)
    assert (one.kernel, one.registers, one.spill_stores, one.stack) == ("one", 96, 12, 12)
    assert one.shared == 4096
    assert one.spills
    assert (other.registers, other.spill_stores, other.spills) == (None, None, False)
    assert "one" in text([one, other], 256)


def test_images_of_ours_for_amd() -> None:
    image = (ROOT / "ubridge" / "kernels" / "images" / "rocm" / "affine.hipfb").read_bytes()
    found = of_image(image)
    assert len({one.target for one in found}) > 1
    for one in of_image(image, found[0].target):
        assert one.target == found[0].target
        occupancy = one.occupancy(256)
        assert occupancy is not None
        assert 0 < occupancy <= 1
    with pytest.raises(ArgumentValueError, match=r"expected one of .*, got 'gfx000'"):
        of_image(image, "gfx000")


def test_ptx_needs_a_target() -> None:
    with pytest.raises(ArgumentValueError, match="expected a target for PTX, as in sm_90"):
        of_image(PTX.read_bytes())

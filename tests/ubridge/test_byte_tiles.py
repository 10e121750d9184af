"""Products of 8-bit matrices on tensor cores: their instructions in images and at run time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tests.requirements import missing
from tests.sampling import rounds
from tests.shipped_ptx import shipped_entries, shipped_texts
from tests.simulated.process import needs_simulator, run_freely
from tests.ubridge.test_candle_quantized_kernels import MULTIPLIED, TILES

TARGETS = ("sm_75", "sm_80")
OF_16 = ("q2_K", "q3_K", "q6_K")
"""Formats with 16 elements per scale; the others have 32."""
PART = 64
"""Number of a tile's columns that a block multiplies at a time."""

PROGRAM = """
import sys
import numpy as np
from tests.ubridge.test_candle_quantized_kernels import check_matrix_product
from uhal import Device
with Device(0, backend="cuda") as device:
    name, *numbers, seed = sys.argv[1:]
    rng = np.random.default_rng(int(seed))
    check_matrix_product(device, rng, name, *map(int, numbers))
"""


def multiplied(name: str, target: str) -> Counter[str]:
    """The instructions that multiply 16 or 32 bytes of a tile's rows and columns, by shape."""
    deep = 16 if name in OF_16 else 32
    fragments = TILES[name][0] // 16 * (PART // 4 // 8)
    if target == "sm_75":
        return Counter({"m8n8k16": fragments * 2 * deep // 16})
    return Counter({f"m16n8k{deep}": fragments})


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_has_them_for_every_matrix_product(target: str) -> None:
    text = shipped_texts("quantized")[target].decode()
    bodies = dict(re.findall(r"^\.visible \.entry (\w+)\((.*?)^}", text, re.MULTILINE | re.DOTALL))
    for entry, body in bodies.items():
        name = entry.removeprefix("mul_mat_")
        shapes = Counter(re.findall(r"mma\.sync\.aligned\.(\w+)\.row\.col\.s32\.s8\.s8\.s32", body))
        assert shapes == (multiplied(name, target) if name in MULTIPLIED else Counter()), entry


def disassembler() -> str:
    """Return NVIDIA's own disassembler, from its wheel or a toolkit."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [str(one.locate()) for one in files if one.name == "nvdisasm"]
    return next(iter(found), shutil.which("nvdisasm")) or missing(
        "pip install nvidia-cuda-nvdisasm"
    )


@pytest.mark.drawn(1)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_the_binaries_have_them(target: str, tmp_path: Path) -> None:
    entries = shipped_entries("quantized")
    (binary,) = (one for one in entries if one.description == f"cubin for {target}")
    path = tmp_path / "binary.cubin"
    path.write_bytes(binary.image())
    command = [disassembler(), "--print-code", str(path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sections = re.split(r"^\s*\.section\s+\.text\.(\w+),", told, flags=re.MULTILINE)[1:]
    assert {f"mul_mat_{name}" for name in MULTIPLIED} <= set(sections[::2])
    for entry, code in zip(sections[::2], sections[1::2], strict=True):
        name = entry.removeprefix("mul_mat_")
        shapes = Counter(re.findall(r"\bIMMA\.168(\d\d)\.S8\.S8", code))
        expected = multiplied(name, "sm_80") if name in MULTIPLIED else Counter[str]()
        assert {f"m16n8k{depth}": count for depth, count in shapes.items()} == expected, entry


@pytest.mark.drawn(1)
@needs_simulator
@pytest.mark.parametrize("target", TARGETS)
def test_they_are_executed(rng: np.random.Generator, target: str) -> None:
    """Trace one lane, so that each instruction it executes is counted."""
    environment = {
        "UHAL_SIM_CUDA_PROFILE": target,
        "UHAL_SIM_TRACE": f"0,0,0:{rng.integers(32)},{rng.integers(4)},0",
        # Make uhal choose PTX: the simulator does not execute binaries.
        "UHAL_SIM_CUDA_DRIVER": "12040",
    }
    for name in rng.choice(MULTIPLIED, rounds(1, len(MULTIPLIED)), replace=False):
        columns = 256 * int(rng.integers(1, 3))
        rows, count = int(rng.integers(1, TILES[name][0])), int(rng.integers(1, PART + 1))
        numbers = (rows, count, columns, int(rng.integers(1 << 62)))
        done = run_freely("-c", PROGRAM, name, *map(str, numbers), **environment)
        assert done.returncode == 0, done.stderr[-4000:]
        shapes = Counter(
            re.findall(r"^ *\d+  mma\.sync\.aligned\.(\w+)\.", done.stderr, re.MULTILINE)
        )
        spans = columns // (16 if name in OF_16 else 32)
        expected = {shape: n * spans for shape, n in multiplied(name, target).items()}
        assert shapes == expected, name

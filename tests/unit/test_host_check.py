"""Checked mode on the host: errors name the lines of planted mistakes, and right kernels pass."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uhal.compile
from tests.host_kernels import has_compiler
from tests.requirements import needed
from uhal import Device, DeviceBuffer, Module
from uhal.errors import DeviceError, KernelAssertionError

pytestmark = [
    needed(has_compiler(), "kernels are compiled here"),
    needed(shutil.which("addr2line"), "lines need binutils"),
]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).parent / "planted" / "kernels.cpp"

CASES: dict[str, tuple[list[Any], tuple[int, ...], str]] = {
    # kernel: sizes of buffers of its 4-byte arguments, grid, block and shared bytes, words
    "missing_barrier": ([256, 256], (1, 256), "race on tile[255]: write of 4 bytes"),
    "store_past_end": (
        [256],
        (4, 64),
        "write of 4 bytes at y[256], outside of argument 0 'y', whose memory has 256 elements of 4 "
        "bytes from there: block (3, 0, 0), thread (63, 0, 0), at",
    ),
    "load_before_start": ([100, 100], (1, 64), "read of 4 bytes at x[-3], outside of argument 0"),
    "vector_load": ([64, 64], (1, 8), "read of 16 bytes at x[1], whose address 0x"),
    "shared_race": ([1], (1, 64), "race on count[0]"),
    "uninitialized": ([64], (1, 64), "read of 4 bytes of tile[32], block (0, 0, 0), thread (32,"),
    "uninitialized_dynamic": ([64], (1, 64, 256), "of dynamic shared memory[0], block (0, 0, 0)"),
    "past_shared": (
        [1],
        (1, 64),
        "write of 4 bytes at tile[32], outside of its 128 bytes of shared",
    ),
    "endless_loop": ([1, 64], (1, 64), "it has run for 1 s (UHAL_HOST_CHECK_SECONDS)"),
    "race_between_blocks": ([1], (3, 64), "race on y[0]"),
    "wild_store": ([64], (1, 64), "write of 4 bytes at 0x123456780000, which is no memory of"),
    "copy": (["freed", 64], (1, 64), "read of 4 bytes at x[0], whose memory was freed: block (0,"),
    "writes_constant": ([4], (1, 4), "write of 4 bytes to a constant: block (0, 0, 0), thread (0,"),
    "straddles_the_end": ([63], (1, 64), "write of 8 bytes at y[62], outside of argument 0 'y'"),
    "volatile_store": ([64], (1, 64), "write of 4 bytes at y[64], outside of argument 0 'y'"),
    "unaligned_load": ([319, 64], (1, 64), "read of 4 bytes at x[316], outside of argument 0 'x'"),
    "left_by_another_block": ([128], (2, 64), "read of 4 bytes of kept[0], block (1, 0, 0), thr"),
    "fence_alone": ([1], (2, 64), "race on y[0]"),
    "fence_too_early": ([2], (2, 64), "race on y[0]"),
    "atomic_and_plain": ([1], (1, 64), "race on y[0]: write of 4 bytes"),
    "write_after_read": ([128], (1, 64), "race on y[0]: read of 4 bytes"),
    "copies_past_end": ([63, 64], (1, 8), "read of 32 bytes at x[56], outside of argument 0 'x'"),
    # With two arguments in one allocation, the error names the nearer argument.
    "moves_past_end": (
        [[0, 64], [64, 127]],
        (1, 8),
        "write of 32 bytes at y[56], outside of argument 1 'y'",
    ),
    "fills_past_end": ([63], (1, 8), "write of 32 bytes at y[56], outside of argument 0 'y'"),
    "null_pointer": ([None], (1, 64), "at a null pointer (0), as argument 0 'nothing' is"),
}

CHILD = """
import json, sys
from uhal import Device, DeviceBuffer, Module
whole = []
def made(size, dtype):
    if isinstance(size, list):
        whole[:] = whole or [DeviceBuffer.zeros(127, dtype)]
        return whole[0][slice(*size)]
    if size != "freed":
        return None if size is None else DeviceBuffer.zeros(size, dtype)
    with DeviceBuffer.zeros(64, dtype) as gone:
        return gone.as_device_ptr()
image, kernel, sizes, shape = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
Device(0, "host").__enter__()
function = Module.from_file(image).get_function(kernel)
types = [parameter.dtype for parameter in function.signature]
buffers = [made(size, dtype) for size, dtype in zip(sizes, types)]
try:
    function[tuple(shape)](*buffers)
    Device.current().synchronize()
except Exception as error:
    print(error)
"""


@cache
def checked() -> bytes:
    return uhal.compile.host(SOURCE, checked=True)


def lines_of(kernel: str) -> list[int]:
    """Return the lines of a kernel that end in its mark."""
    text = SOURCE.read_text(encoding="utf-8").splitlines()
    start = next(
        number
        for number, line in enumerate(text)
        if line.startswith("KERNEL") and f"({kernel}," in line
    )
    end = next(number for number in range(start, len(text)) if text[number] == "}")
    return [number + 1 for number in range(start, end) if text[number].endswith("// here")]


def told(folder: Path, kernel: str, sizes: list[Any], shape: tuple[int, ...]) -> str:
    """Return the output of a launch in another process."""
    image = folder / "planted.so"
    image.write_bytes(checked())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "UHAL_HOST_CHECK": "1"}
    environment["UHAL_HOST_CHECK_SECONDS"] = "1"
    given = [str(image), kernel, json.dumps(sizes), json.dumps(shape)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *given],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.stdout + done.stderr


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("kernel", CASES)
def test_a_planted_mistake_is_named(kernel: str, tmp_path: Path) -> None:
    sizes, shape, words = CASES[kernel]
    said = told(tmp_path, kernel, sizes, shape)
    assert f"kernel {kernel}: " in said and words in said, said
    lines = lines_of(kernel)
    assert lines
    for line in lines:
        assert f"kernels.cpp:{line}" in said, said
    # The message names the launch by its line.
    call = next(n for n, text in enumerate(CHILD.splitlines(), 1) if "(*buffers)" in text)
    assert f"It was this one: {kernel} grid" in said and f"[<string>:{call}]" in said


def test_static_and_dynamic_shared_memory_share_48_kib(tmp_path: Path) -> None:
    fits, beyond = ((1, 64, 49152 - 40000 - spare) for spare in (0, -4))
    assert told(tmp_path, "static_and_dynamic", [64], fits) == ""
    said = told(tmp_path, "static_and_dynamic", [64], beyond)
    assert "kernel static_and_dynamic: tile: the block has more than 48 KiB of shared" in said


def test_a_failed_assertion_is_named() -> None:
    with Device(0, "host"), Module.from_bytes(checked()) as module:
        y = DeviceBuffer.zeros(4, "u32")
        module.get_function("asserts")[1, 4](DeviceBuffer.from_numpy(np.uint32([2, 1, 0, 3])), y)
        with pytest.raises(KernelAssertionError) as caught:
            Device.current().synchronize()
        (line,) = lines_of("asserts")
        said = f"ASSERT(x[t] > 0) failed in kernel asserts, line {line}"
        assert str(caught.value).startswith(said) and "x[t] = 0" in str(caught.value)


def test_every_planted_mistake_that_the_language_can_make_has_its_twin() -> None:
    """Each bug planted for the simulated driver in CUDA C++ is also planted here."""
    text = (ROOT / "tests" / "simulated" / "planted" / "bugs.cu").read_text("utf-8")
    planted = set(re.findall(r"__global__ void (\w+)\(", text))
    # A barrier stands between regions, so no thread can skip it; only ASSERT can trap.
    beyond = {"divergent_barrier", "deadlock", "stops"}
    right = {"with_barrier", "prints"}
    assert planted - beyond - right == planted & {*CASES, "asserts"}


def test_a_barrier_stands_between_regions() -> None:
    source = "#include <uhal/kernel.h>\nKERNEL(k, ()) { THREADS(t) { if (t) BARRIER(); } }\n"
    with pytest.raises(DeviceError, match=r"BARRIER\(\) stands between THREADS regions"):
        uhal.compile.host(source, checked=True)


def test_what_is_right_passes(rng: np.random.Generator) -> None:
    size = 100
    values = rng.integers(-1000, 1000, size).astype("f4")
    with Device(0, "host"), Module.from_bytes(checked()) as module:
        x = DeviceBuffer.from_numpy(values)
        y, count = DeviceBuffer.zeros(2 * size, "f32"), DeviceBuffer.zeros(1, "u32")
        module.get_function("reversed_by_warps")[2, 128](size, x, y[:], count)
        padded = np.concatenate([values, np.zeros(28, "f4")]).reshape(-1, 32)[:, ::-1].ravel()
        assert np.array_equal(y.to_numpy()[:size], padded[:size] + values.sum())
        copied = values.copy()
        copied[3] = 0
        assert np.array_equal(y.to_numpy()[size:], copied)
        assert count.to_numpy()[0] == 256
        tile = DeviceBuffer.zeros(256, "f32")
        module.get_function("with_barrier")[1, 256](DeviceBuffer.zeros(256, "f32"), tile)
        narrow = DeviceBuffer.zeros(200, "u8")
        module.get_function("bytes_apart")[2, 100](narrow)
        assert np.array_equal(narrow.to_numpy(), np.repeat(np.arange(100, dtype="u1"), 2))
        written, arrived, total = (DeviceBuffer.zeros(n, "u32") for n in (20, 1, 1))
        module.get_function("last_block")[20, 32](written, arrived, total)
        assert total.to_numpy()[0] == 190
        x = DeviceBuffer.from_numpy(values[:64])
        y, z = (DeviceBuffer.from_numpy(np.full(64, np.nan, "f4")) for _ in range(2))
        module.get_function("rows")[1, 8](x, y, z)
        assert np.array_equal(y.to_numpy(), values[:64]) and not z.to_numpy().any()


def test_the_variable_asks_for_checked_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "#include <uhal/kernel.h>\nKERNEL(k, (u32 *x)) { THREADS(t) { x[t] = 1; } }\n"
    monkeypatch.delenv("UHAL_HOST_CHECK", raising=False)
    assert b"uhal_host_check" not in uhal.compile.host(source)
    monkeypatch.setenv("UHAL_HOST_CHECK", "1")
    assert b"uhal_host_check" in uhal.compile.host(source)
    assert b"uhal_host_check" not in uhal.compile.host(source, checked=False)


def test_what_does_not_compile_is_said() -> None:
    with pytest.raises(DeviceError, match="no_such_thing"):
        uhal.compile.host("#include <uhal/kernel.h>\nKERNEL(k, ()) { no_such_thing(); }\n")
    with pytest.raises(FileNotFoundError):
        uhal.compile.host(Path("/nonexistent/k.cpp"))

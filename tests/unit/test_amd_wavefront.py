"""The kernel language in its form for AMD's devices, run on this CPU.

The simulated ROCm row runs host builds of kernels, so it does not test the part of
`<uhal/kernel.h>` for AMD's compiler. Here that part is compiled with functions that follow the ISA
manual's instructions (amd_wavefront.h), for wavefronts of 32 and of 64.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.test_language import expected_lanes, warps
from tests.host_kernels import INCLUDE, compiler, has_compiler
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")

HERE = Path(__file__).parent
LANGUAGE = HERE.parent / "conformance" / "kernels" / "language.cu"
Array = np.ndarray[Any, np.dtype[Any]]
Launch = Callable[..., None]


@pytest.fixture(scope="module", params=[32, 64])
def launch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Runs a kernel of language.cu, given its name, blocks, block shape, numbers and arrays."""
    folder = tmp_path_factory.mktemp("wavefront")
    source, made = folder / "k.cpp", folder / "k.so"
    source.write_text(f'#include "amd_wavefront.h"\n#include "{LANGUAGE}"\n', encoding="utf-8")
    flags = [f"-DWAVEFRONT={request.param}", f"-I{INCLUDE}", f"-I{HERE}"]
    flags += ["-D__GFX9__"] if request.param == 64 else []
    flags += ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*compiler(), *flags, str(source), "-o", str(made)], check=True)
    library = ctypes.CDLL(str(made))

    def run(name: str, blocks: int, shape: int | Sequence[int], *arguments: int | Array) -> None:
        extents = [shape, 1, 1] if isinstance(shape, int) else shape
        values = [one if isinstance(one, int) else one.ctypes.data for one in arguments]
        library.launch(
            getattr(library, name),
            (ctypes.c_uint32 * 3)(blocks, 1, 1),
            (ctypes.c_uint32 * 3)(*extents),
            (ctypes.c_uint64 * 5)(*values),
        )

    return run


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4"])
def test_lanes(launch: Launch, dtype: str, rng: np.random.Generator) -> None:
    name = f"lanes_{dtype[0]}{8 * int(dtype[1])}"
    for shape in (1, 31, 32, 33, 64, 100, [5, 4, 5]):
        threads = int(np.prod(shape))
        values = (rng.standard_normal(threads) * 100).astype(dtype)
        source = rng.integers(0, 32, threads, "u4")
        amount = int(rng.integers(1, 32))
        out = np.full((15, threads), 77, dtype)
        launch(name, 1, shape, amount, values, source, out)
        for number, one in enumerate(expected_lanes(values, source, amount)):
            assert np.array_equal(out[number], one), (shape, number, amount)


def test_votes(launch: Launch, rng: np.random.Generator) -> None:
    for threads in (1, 32, 33, 64, 100, 192):
        flags = rng.integers(0, 2, threads, "u4")
        masks, found = np.zeros(threads, "u4"), np.zeros(3, "u4")
        launch("votes", 1, threads, flags, masks, found)
        for start, one in zip(range(0, threads, 32), warps(flags), strict=True):
            mask = sum(int(bit) << lane for lane, bit in enumerate(one))
            assert (masks[start : start + 32] == mask).all()
        assert found.tolist() == [flags.sum(), flags.any(), flags.all()]


@pytest.mark.parametrize("name", ["i32", "u64", "f32", "f64", "block", "system"])
def test_atomics(launch: Launch, name: str, rng: np.random.Generator) -> None:
    dtype = np.dtype("u4" if name in ("block", "system") else f"{name[0]}{int(name[1:]) // 8}")
    values, words = rng.integers(0, 1000, 50).astype(dtype), rng.integers(0, 1000, (50, 9))
    words = words.astype(dtype)
    left, told = words.copy(), np.zeros_like(words)
    launch(f"returns_{name}", 2, 32, 50, values, left, told)
    columns = np.moveaxis(words, 0, 1)
    expected = [
        columns[0] + values,
        np.minimum(columns[1], values),
        np.maximum(columns[2], values),
        *(values, values, columns[5]),
    ]
    if dtype.kind != "f":
        expected += [columns[6] & values, columns[7] | values, columns[8] ^ values]
    count = len(expected)
    assert np.array_equal(told[:, :count], words[:, :count])
    assert np.array_equal(left[:, :count], np.stack(expected, 1))


def test_atomics_on_shared_memory(launch: Launch, rng: np.random.Generator) -> None:
    values, out = rng.integers(0, 1 << 32, 90, "u4"), np.zeros(10, "u4")
    launch("atomics_block", 1, 96, values.size, values, out)
    assert out[0] == np.add.reduce(values, dtype="u4") and out[9] == 45
    assert (out[1], out[2], out[4], out[5]) == (values.min(), values.max(), 90, values[7])


def test_fast_mathematics(launch: Launch, rng: np.random.Generator) -> None:
    size = 100
    x, y = rng.uniform(0.1, 10, size).astype("f4"), rng.uniform(-3, 3, size).astype("f4")
    out = np.zeros((12, size), "f4")
    launch("fast", 2, 32, size, x, y, out)
    a, b = x.astype("f8"), y.astype("f8")
    expected = [
        *(np.exp(b), np.exp2(b), np.log(a), np.log2(a), np.sin(b), np.cos(b), np.tanh(b)),
        *(np.sqrt(a), 1 / np.sqrt(a), 1 / a, b / a, a**b),
    ]
    for number, (got, exact) in enumerate(zip(out, expected, strict=True)):
        np.testing.assert_allclose(got, exact, 2e-5, 2e-6, err_msg=str(number))

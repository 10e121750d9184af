"""Counts of kernels with known memory requests (counted.cu), over all blocks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from simulators.ptx import cache
from simulators.ptx.count import CLASSES
from simulators.ptx.launch import Module
from simulators.ptx.parser import parse
from simulators.ptx.translate import translate
from tests.simulators.ptx.conftest import HERE
from uhal.profiler.counts import KernelCounts, from_counts

PTX = HERE / "counted.ptx"


@pytest.fixture(scope="module")
def module() -> Module:
    return Module(PTX.read_text(), "count")


def aligned(values: np.ndarray) -> np.ndarray:
    """Return a copy that begins at a multiple of 256 bytes, as a device's allocation does."""
    raw = np.empty(values.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    held = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    held[...] = values
    return held


def poisoned(*shape: int) -> np.ndarray:
    return aligned(np.full(shape, np.nan, np.float32))


def counted(
    module: Module,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *arguments: int | np.ndarray,
) -> KernelCounts:
    launch = module.kernel(name).prepare(grid, block, arguments)
    launch.run()
    return from_counts(name, str(PTX), launch.counts)


def test_a_copy_in_order(module: Module, rng: np.random.Generator) -> None:
    blocks = int(rng.integers(1, 9))
    x, y = aligned(rng.random(128 * blocks, np.float32)), poisoned(128 * blocks)
    found = counted(module, "copy", (blocks,), (128,), x, y)
    np.testing.assert_array_equal(y, x)
    assert (found.sectors_per_request("load"), found.sectors_per_request("store")) == (4, 4)
    assert (found.coalescing, found.moved, found.bank_factor) == (1, 1, None)
    assert found.sums("global", "load").requests == 4 * blocks
    assert found.metrics()["smsp__thread_inst_executed_per_inst_executed.ratio"] == 32
    assert found.classes["load_global"] == found.classes["store_global"] == x.size
    assert found.thread_instructions == sum(found.classes.values())


def test_a_copy_of_vectors(module: Module, rng: np.random.Generator) -> None:
    x, y = aligned(rng.random(4 * 256, np.float32)), poisoned(4 * 256)
    found = counted(module, "copy_vectors", (2,), (128,), x, y)
    np.testing.assert_array_equal(y, x)
    assert (found.sectors_per_request("load"), found.sectors_per_request("store")) == (16, 16)
    assert (found.coalescing, found.moved) == (1, 1)


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (3, 12), (8, 32), (32, 32)])
def test_a_strided_load(
    module: Module, rng: np.random.Generator, stride: int, sectors: int
) -> None:
    x, y = aligned(rng.random(256 * stride, np.float32)), poisoned(256)
    found = counted(module, "copy_strided", (2,), (128,), x, y, stride)
    np.testing.assert_array_equal(y, x[::stride])
    assert found.sectors_per_request("load") == sectors
    load = found.sums("global", "load")
    assert load.ideal_sectors * sectors == load.sectors * 4
    assert load.used_bytes == 4 * 256


@pytest.mark.parametrize(("offset", "sectors"), [(0, 4), (1, 5), (7, 5), (8, 4)])
def test_a_load_at_an_offset(
    module: Module, rng: np.random.Generator, offset: int, sectors: int
) -> None:
    x, y = aligned(rng.random(256 + offset, np.float32)), poisoned(256)
    found = counted(module, "copy_offset", (2,), (128,), x, y, offset)
    np.testing.assert_array_equal(y, x[offset:])
    assert found.sectors_per_request("load") == sectors


def test_a_broadcast_load(module: Module, rng: np.random.Generator) -> None:
    x, y = aligned(rng.random(4, np.float32)), poisoned(4 * 64)
    found = counted(module, "broadcast", (4,), (64,), x, y)
    np.testing.assert_array_equal(y, np.repeat(x, 64))
    assert found.sectors_per_request("load") == 1
    assert found.sums("global", "load").used_bytes == 4 * 4 * 2


@pytest.mark.parametrize(
    ("name", "store_sectors", "bank_factor"),
    [("transpose", 32, None), ("transpose_tiled", 4, 16.5), ("transpose_padded", 4, 1)],
)
def test_transposes(
    module: Module,
    rng: np.random.Generator,
    name: str,
    store_sectors: int,
    bank_factor: float | None,
) -> None:
    n = 32 * int(rng.integers(1, 5))
    x, y = aligned(rng.random((n, n), np.float32)), poisoned(n, n)
    found = counted(module, name, (n // 32, n // 32), (32, 8), x, y, n)
    np.testing.assert_array_equal(y, x.T)
    assert found.sectors_per_request("load") == 4
    assert found.sectors_per_request("store") == store_sectors
    assert found.bank_factor == bank_factor
    assert found.moved == (4.5 if name == "transpose" else 1)


@pytest.mark.parametrize(("stride", "turns"), [(1, 1), (2, 2), (4, 4), (32, 32), (33, 1), (0, 1)])
def test_bank_conflicts(module: Module, rng: np.random.Generator, stride: int, turns: int) -> None:
    x, y = aligned(rng.random(1024, np.float32)), poisoned(32)
    found = counted(module, "banks", (1,), (32,), x, y, stride)
    np.testing.assert_array_equal(y, x[np.arange(32) * stride % 1024])
    load = found.sums("shared", "load")
    assert (load.requests, load.wavefronts, load.ideal_wavefronts) == (1, turns, 1)
    store = found.sums("shared", "store")
    assert store.wavefronts == store.ideal_wavefronts == store.requests == 32
    conflicts = found.metrics()["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"]
    assert conflicts == turns - 1


def test_banks_serve_vectors_by_quarters(module: Module, rng: np.random.Generator) -> None:
    x, y = aligned(rng.random(128, np.float32)), poisoned(128)
    found = counted(module, "bank_vectors", (1,), (32,), x, y)
    shared = found.sums("shared")
    assert (shared.requests, shared.wavefronts, shared.ideal_wavefronts) == (2, 8, 8)


def test_divergence(module: Module, rng: np.random.Generator) -> None:
    odd, even = (int(one) for one in rng.integers(2, 20, 2))
    x, y = aligned(rng.random(128, np.float32)), poisoned(128)
    found = counted(module, "diverge", (2,), (64,), x, y, odd, even)
    # Each warp diverges once, at the condition; the loops' branches have uniform lanes.
    assert sum(one.divergent for one in found.branches) == 4
    lanes = found.metrics()["smsp__thread_inst_executed_per_inst_executed.ratio"]
    assert lanes is not None
    assert 16 < lanes < 32
    assert any("lanes part" in line.advice for line in found.lines)


@pytest.mark.parametrize(("name", "together"), [("add_to_one", 32), ("add_to_own", 1)])
def test_atomics(module: Module, rng: np.random.Generator, name: str, together: int) -> None:
    x = aligned(rng.integers(0, 100, 128).astype(np.float32))
    y = aligned(np.zeros(128, np.float32))
    found = counted(module, name, (2,), (64,), x, y)
    assert y.sum() == x.sum()
    assert found.lanes_on_one_address == together
    assert found.sums("global", "atomic").requests == 4
    assert found.sectors_per_request("atomic") == (1 if together == 32 else 4)


def test_lanes_that_skip_turns_meet_at_barriers(module: Module) -> None:
    y = poisoned(5, 64)
    found = counted(module, "skip_turns", (1,), (64,), y)
    for turn in range(5):
        took = np.arange(64) >> turn & 1 == 1
        np.testing.assert_array_equal(y[turn], np.where(took, turn, np.nan))
    store = found.sums("global", "store")
    assert (store.requests, store.lanes) == (2 * 5, 5 * 32)
    # Bits 0 to 2 differ between the 8 lanes of a sector; bits 3 and 4 select half of the sectors.
    assert store.sectors == 2 * (4 + 4 + 4 + 2 + 2)


def test_classes_of_instructions(module: Module, rng: np.random.Generator) -> None:
    x = aligned(rng.integers(-(1 << 60), 1 << 60, 64))
    y = aligned(np.zeros(64, np.int64))
    found = counted(module, "divide", (1,), (64,), x, y, 7)
    np.testing.assert_array_equal(y, np.trunc(x.astype(np.longdouble) / 7).astype(np.int64))
    assert found.classes["int_div64"] == 64
    assert set(found.classes) <= set(CLASSES)


def test_tensor_cores_and_ldmatrix(module: Module, rng: np.random.Generator) -> None:
    a = rng.standard_normal((4, 8, 8)).astype(np.float16)
    y = poisoned(32, 4)
    found = counted(module, "multiply", (1,), (32,), aligned(a).view(np.uint32), y)
    left = np.block([[a[0], a[2]], [a[1], a[3]]]).astype(np.float64)
    right = np.concatenate([a[0].T, a[1].T]).astype(np.float64)
    lane = np.arange(32)[:, None]
    rows = lane // 4 + 8 * (np.arange(4) // 2)
    columns = lane % 4 * 2 + np.arange(4) % 2
    np.testing.assert_allclose(y, (left @ right)[rows, columns], rtol=1e-3, atol=1e-3)
    assert found.metrics()["sm__inst_executed_pipe_tensor.sum"] == 1
    assert found.classes["matrix_shared"] == 32
    assert found.bank_factor == 1


def test_nothing_is_counted_twice_by_several_workers(
    module: Module, rng: np.random.Generator
) -> None:
    x, y = aligned(rng.random(128 * 64, np.float32)), poisoned(128 * 64)
    counts = []
    for workers in (1, 3):
        launch = module.kernel("copy").prepare((64,), (128,), [x, y], workers=workers)
        launch.run()
        counts.append(launch.counts)
    assert counts[0] == counts[1]


# -- other kernels ---------------------------------------------------------------------------------


def test_other_kernels_do_not_change() -> None:
    program = parse(PTX.read_text())
    for name in program.entries:
        text = translate(program, name).ir
        assert "counted" not in text
        assert "call void %" not in text or "count" not in text


def test_the_key_of_other_kernels_leaves_counting_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "ptx"
    shutil.copytree(cache.HERE, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "HERE", here)
    monkeypatch.setattr(cache, "RUNTIME", here / "runtime")
    monkeypatch.setattr(cache, "NUMERICS", here / "runtime" / "numerics.c")
    before = {check: cache.translator_version.__wrapped__(check) for check in ("on", "count")}
    for name in ("count.py", "runtime/count.h", "runtime/count.c"):
        with (here / name).open("a") as file:
            file.write("\n")
    after = {check: cache.translator_version.__wrapped__(check) for check in ("on", "count")}
    assert after["on"] == before["on"]
    assert after["count"] != before["count"]

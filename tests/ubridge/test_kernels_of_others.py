"""A backend of another distribution adds its kernels to ubridge, without edits to ubridge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tests.ubridge.op_runs_decoding
import tests.ubridge.op_runs_windows
import ubridge as ub
from tests.conformance.rows import ROWS
from tests.sampling import SOAK, rounds
from tests.ubridge.op_rows import OpRow
from tests.ubridge.op_runs import RUNS, Trial
from tests.ubridge.operands import LAYOUTS
from tests.ubridge.promised import within
from ubridge import OPS
from ubridge.backends import CANDLE, BackendKernels, ImageFolder, kernels_of
from ubridge.device import registry
from ubridge.device.registry import OURS
from uhal import Device, doctor
from uhal.errors import ArgumentTypeError, NotFoundError, NotSupportedError
from uhal_conformance.kept_folders import kept_folder
from uhal_conformance.row import in_place

ROOT = Path(__file__).resolve().parents[2]
SKELETON = OpRow("skeleton", "skeleton", lambda op, dtype, other: dtype in op.dtypes)
PROMISED = [op for op in OPS.values() if op.dtypes]

# They add their runs.
assert tests.ubridge.op_runs_decoding and tests.ubridge.op_runs_windows


@pytest.fixture(scope="module")
def skeleton(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device of `tests/skeleton_backend`, installed for this module of tests."""
    row = next(row for row in ROWS if row.name == "skeleton")
    with in_place(row, kept_folder(request.config, "kernels")):
        device = Device(0, "skeleton")
        yield device
        device.close()


def test_the_demo_network_runs_in_a_process_of_its_own(skeleton: Device) -> None:
    command = [sys.executable, "-m", "uhal", "network_test", "--backend", "skeleton"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith("Launched compute kernel successfully.\n")


def test_the_doctor_runs_a_kernel(skeleton: Device) -> None:
    check = doctor.check_device("skeleton", 0)
    assert check.right, check


def test_operations_keep_their_promises(skeleton: Device, rng: np.random.Generator) -> None:
    some = range(len(PROMISED)) if SOAK else rng.permutation(len(PROMISED))[:16]
    tried = set()
    with skeleton:
        for op in (PROMISED[index] for index in some):
            for _ in range(rounds(1, 8)):
                dtype, layout = str(rng.choice(op.dtypes)), str(rng.choice(LAYOUTS))
                told = f"{op.name} {dtype} {layout}"
                trial = Trial(SKELETON, skeleton, rng, op, dtype, layout)
                for outcome in RUNS[op.family.name](trial):
                    within(outcome, op.accuracy, SKELETON, told)
                    tried.add(op.name)
    assert len(tried) > len(some) // 2, tried


def test_its_product_kernel_comes_before_the_tiled_one(
    skeleton: Device, rng: np.random.Generator
) -> None:
    executor = ub.DeviceExecutor.of(skeleton)
    before = Counter(executor.matmul_launches)
    # Use no size of 1: such a matrix equals its transpose in memory.
    m, k, n = (int(size) for size in rng.integers(2, 150, 3))
    left, right = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    for dtype, transposed, kernel in (
        ("f4", False, "strips"),
        ("f4", True, "tiled"),
        ("f8", False, "tiled"),
    ):
        a, b = (ub.array(one.astype(dtype), device=skeleton) for one in (left, right))
        if transposed:
            a = ub.array(left.T.astype(dtype), device=skeleton).T
        assert ub.matmul_choice(a, b).kernel == kernel
        exact = left.astype(dtype).astype(np.longdouble) @ right.astype(dtype).astype(np.longdouble)
        got = (a @ b).to_numpy()
        bound = k * np.finfo(got.dtype).eps * (abs(left) @ abs(right))
        assert (abs(got - exact) <= bound).all()
    assert Counter(executor.matmul_launches) - before == {"strips": 1, "tiled": 2}


def test_metadata_is_read_at_the_first_device_only_and_for_others_kernels() -> None:
    program = """
import importlib.metadata, numpy
asked = []
importlib.metadata.entry_points = lambda **given: asked.append(given) or ()
import ubridge, ubridge.backends
print(asked)
ubridge.ones(3, "f32", device="host") + 1
print(asked)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.stdout, done.stderr) == ("[]\n[{'group': 'uhal.backends'}]\n", "")


# -- errors --------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the installed entry points by entry points with the given values."""

    def put(**found: object) -> None:
        points = [
            SimpleNamespace(value=value.replace("_", ":"), load=lambda one=one: one)
            for value, one in found.items()
        ]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda **asked: points)

    return put


def test_a_backend_nobody_brings_kernels_for(installed: Callable[..., None]) -> None:
    installed()
    with pytest.raises(NotSupportedError) as caught:
        kernels_of("theirs")
    assert str(caught.value).startswith(
        f"ubridge has no kernels for the theirs backend, only for {', '.join(OURS)}; "
        "a distribution brings them by an entry point of the group ubridge.backends"
    )


def test_an_entry_point_that_names_something_else(installed: Callable[..., None]) -> None:
    installed(theirs_kernels={})
    with pytest.raises(ImportError, match=r"theirs = theirs:kernels .*BackendKernels, got dict"):
        kernels_of("theirs")


def test_two_distributions_for_one_backend(installed: Callable[..., None]) -> None:
    installed(a_kernels=1, b_kernels=2)
    with pytest.raises(ImportError, match=r"is a:kernels and b:kernels: uninstall"):
        kernels_of("theirs")


def test_what_is_found_is_kept(
    installed: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_loaded", {})
    mine = BackendKernels(CANDLE, ImageFolder(tmp_path, ".spv", "pip install"))
    installed(theirs_kernels=mine)
    assert kernels_of("theirs") is mine
    installed()
    assert kernels_of("theirs") is mine


def test_a_lowering_of_no_operation(tmp_path: Path) -> None:
    images = ImageFolder(tmp_path, ".spv", "pip install")
    wrong: Any = {"exp": next(iter(CANDLE.values()))}
    with pytest.raises(ArgumentTypeError, match=r"operations and families as keys, got 'exp'"):
        BackendKernels(wrong, images)


def test_a_folder_of_images(tmp_path: Path) -> None:
    images = ImageFolder(tmp_path, ".spv", "pip install theirs")
    for name in ("unary.spv", "binary.spv", "binary.spv.sig", "ternary.cl"):
        (tmp_path / name).touch()
    device = Device(0, "host")
    assert images.modules() == ["binary", "unary"]
    assert images.find("unary", device).path == tmp_path / "unary.spv"
    expected = "no kernel module 'ternary'; did you mean unary or binary"
    with pytest.raises(NotFoundError, match=expected):
        images.find("ternary", device)

"""Products by cuBLASLt, tested with a fake library that multiplies; reasons why it is not used."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

import ubridge
from tests.conformance.rows import prepared_rows
from tests.fake_libcublaslt import build
from ubridge import DeviceExecutor
from ubridge.device import executor
from ubridge.prepare.matmul import cublaslt
from uhal import Device, Stream

DTYPES = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20, "f64": 2.0**-48}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cublaslt"))


Opener = Callable[[], AbstractContextManager[Device]]


@contextmanager
def opened_afresh() -> Iterator[Device]:
    """Open the simulated device; ubridge forgets it before and after the test."""
    device = Device(0, backend="cuda")
    executor._forget(device.context)
    with device:
        yield device
    executor._forget(device.context)


@pytest.fixture
def open_device(
    request: pytest.FixtureRequest, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> Opener:
    """Opens the simulated device with the fake library, for products of any size."""
    if "cuda-sim" not in prepared_rows(request.config.getoption("--device")):
        pytest.skip("the fake library multiplies in the host's memory; a real device takes part")
    request.getfixturevalue("simulated")("cuda-sim")
    monkeypatch.setenv(cublaslt.LIBRARY_VARIABLE, str(stand_in))
    monkeypatch.setattr(cublaslt, "LEAST_WORK", 1)
    return opened_afresh


def tensor(rng: np.random.Generator, dtype: str, *shape: int) -> ubridge.DeviceTensor:
    return ubridge.asarray(rng.standard_normal(shape)).astype(dtype)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(open_device: Opener, rng: np.random.Generator, dtype: str) -> None:
    with open_device() as device, Stream() as stream:
        for turned in (0, 1, 2, 3):
            m, n, k = (int(one) for one in rng.integers(2, 40, 3))
            x = tensor(rng, dtype, 2, k, m).mT if turned & 1 else tensor(rng, dtype, 2, m, k)
            # All batches share a weight, which is a part of larger rows.
            y = tensor(rng, dtype, n, k + 3).T[3:] if turned & 2 else tensor(rng, dtype, k, n)
            assert ubridge.matmul_choice(x, y).kernel == "cublaslt"
            device.synchronize()
            got = ubridge.matmul(x, y, stream=stream).to_numpy(stream=stream).astype(np.float64)
            wide = x.to_numpy().astype(np.float64), y.to_numpy().astype(np.float64)
            expected = wide[0] @ wide[1]
            magnitude = np.abs(wide[0]) @ np.abs(wide[1])
            assert (np.abs(got - expected) <= DTYPES[dtype] * magnitude).all()
        assert DeviceExecutor.of(device).matmul_launches == {"cublaslt": 4}


def test_a_product_is_planned_once_and_all_is_given_back(
    open_device: Opener, stand_in: Path, rng: np.random.Generator
) -> None:
    library = ctypes.CDLL(str(stand_in))
    live, plans, products = (
        ctypes.c_long.in_dll(library, f"fake_{name}") for name in ("live", "plans", "products")
    )
    told = (ctypes.c_uint32 * 4).in_dll(library, "fake_alignment")
    with open_device():
        before = plans.value, products.value
        x = tensor(rng, "f32", 20, 20)
        for _ in range(3):
            ubridge.matmul(x, x)
        # The trial adds one plan and one product.
        assert (plans.value - before[0], products.value - before[1]) == (2, 4)
        assert list(told) == [256] * 4
        flat = tensor(rng, "f32", 401)[1:].reshape(20, 20)
        ubridge.matmul(flat, x)
        # ubridge's second operand is the library's first operand.
        assert list(told) == [256, 4, 256, 256]
        assert live.value > 0
    assert live.value == 0


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("refuse", "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)"),
        ("wrong", "a product of two small matrices came out wrong"),
        ("none", "a product of two small matrices is not supported"),
    ],
)
def test_what_cannot_multiply_is_not_used(
    open_device: Opener,
    stand_in: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    reason: str,
) -> None:
    monkeypatch.setenv("FAKE_CUBLASLT", mode)
    with open_device():
        x = ubridge.ones((32, 32))
        choice = ubridge.matmul_choice(x, x)
        assert choice.kernel == "tiled"
        assert reason in dict(choice.passed_over)["cublaslt"]
        np.testing.assert_array_equal((x @ x).to_numpy(), np.full((32, 32), 32, np.float32))
    assert ctypes.c_long.in_dll(ctypes.CDLL(str(stand_in)), "fake_live").value == 0


def test_what_it_has_no_algorithm_for_goes_on(
    open_device: Opener, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("FAKE_CUBLASLT", "only aligned")
    with open_device() as device:
        x = ubridge.ones((20, 20))
        ubridge.matmul(ubridge.ones(401)[1:].reshape(20, 20), x)
        assert DeviceExecutor.of(device).matmul_launches == {"tiled": 1}
        ubridge.matmul(x, x)
        assert DeviceExecutor.of(device).matmul_launches == {"tiled": 1, "cublaslt": 1}


def test_without_the_library(open_device: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cublaslt.LIBRARY_VARIABLE, "/nowhere/libcublasLt.so.13")
    with open_device():
        x = ubridge.ones((32, 32))
        choice = ubridge.matmul_choice(x, x)
        assert "/nowhere/libcublasLt.so.13" in dict(choice.passed_over)["cublaslt"]


def test_small_products_and_captures_do_not_open_it(
    open_device: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_device() as device:
        x = ubridge.ones((32, 32))
        with DeviceExecutor.of(device).layouts.capture():
            told = dict(ubridge.matmul_choice(x, x).passed_over)["cublaslt"]
        assert told == "not opened yet, and nothing can be tried during a capture"
        assert ubridge.matmul_choice(x, x).kernel == "cublaslt"
        monkeypatch.setattr(cublaslt, "LEAST_WORK", 32**3 + 1)
        told = dict(ubridge.matmul_choice(x, x).passed_over)["cublaslt"]
        assert told == "32768 multiplications, and it pays from 32769 on"
        monkeypatch.setattr(cublaslt, "LEAST_WORK", 1)
        rows = ubridge.ones((1, 32)).broadcast_to((32, 32))
        told = dict(ubridge.matmul_choice(rows, x).passed_over)["cublaslt"]
        assert told == "rows or columns that overlap"


def test_the_header_is_nvidias() -> None:
    """Compare values of constants and kinds of parameters with an installed toolkit or wheel."""
    folders = [*Path("/usr/local").glob("cuda*/include")]
    for one in map(Path, sys.path):
        folders += one.glob("nvidia/*/include")
    folder = next((one for one in folders if (one / "cublasLt.h").is_file()), None)
    if folder is None:
        pytest.skip("no cublasLt.h here")
    text = "".join(
        (folder / name).read_text("utf-8")
        for name in ("cublasLt.h", "cublas_api.h", "library_types.h")
    )
    header = cublaslt._header()
    for name, value in header.constants.items():
        if name.startswith("CU"):
            found = re.search(rf"\b{name}\s*=\s*(\d+)", text)
            assert found and int(found[1]) == value, name
    for name, prototype in header.prototypes.items():
        found = re.search(rf"\b{name}\(([^;]*)\);", text)
        assert found, name
        assert len(found[1].split(",")) == max(len(prototype.parameters), 1), name

"""The kernel chosen for a product, its report, and its result."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
import uhal
from tests.simulated.process import needs_simulator, run_python
from ubridge import DeviceExecutor
from ubridge.core.question import Question
from ubridge.prepare.matmul.table import MatmulLowering
from uhal import Device

DEVICES = ("cuda-sim",)


def drawn(rng: np.random.Generator, *shape: int, dtype: str = "f16") -> ubridge.DeviceTensor:
    return ubridge.asarray(rng.standard_normal(shape).astype(np.float32)).astype(dtype)


def chosen(x: ubridge.DeviceTensor, y: ubridge.DeviceTensor) -> tuple[str, dict[str, str]]:
    choice = ubridge.matmul_choice(x, y)
    assert str(choice).startswith(f"{choice.kernel}: {choice.reason}")
    return choice.kernel, dict(choice.passed_over)


def test_halves_go_to_tensor_cores(device: Device, rng: np.random.Generator) -> None:
    kernel, others = chosen(drawn(rng, 64, 32), drawn(rng, 32, 64))
    processors = device.limits.processors
    assert kernel == "tensor_64"
    assert others["tensor_128"] == f"only 1 tiles for {processors} processors"
    many = drawn(rng, processors, 16, 16)
    assert chosen(many, many)[0] == "tensor_128"
    # Operands are a transposed view, a broadcast batch, and a dtype that requires casts.
    assert chosen(drawn(rng, 32, 64).T, drawn(rng, 1, 32, 64))[0] == "tensor_64"
    assert chosen(drawn(rng, 16, 16), drawn(rng, 16, 16, dtype="f32"))[0] == "tiled"


@pytest.mark.parametrize(
    ("shape", "dtype", "step", "reason"),
    [
        ((64, 64), "f32", 1, "for bf16 and f16, not f32"),
        ((64, 64), "f64", 1, "for bf16 and f16, not f64"),
        ((15, 64), "f16", 1, "a size below 16"),
        ((64, 64), "f16", 2, "neither rows nor columns of neighboring elements"),
    ],
)
def test_what_stays_with_the_tiles(
    device: Device,
    rng: np.random.Generator,
    shape: tuple[int, int],
    dtype: str,
    step: int,
    reason: str,
) -> None:
    x = drawn(rng, 2 * shape[0], 2 * shape[1], dtype=dtype)[::2, : shape[1] * step : step]
    kernel, others = chosen(x, drawn(rng, shape[1], 64, dtype=dtype))
    assert kernel == "tiled"
    assert others["tensor_64"] == reason


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products(device: Device, rng: np.random.Generator, dtype: str) -> None:
    m, n, k = (int(one) for one in rng.integers(17, 90, 3))
    x = drawn(rng, 3, m, k, dtype=dtype)
    y = drawn(rng, n, k, dtype=dtype).T
    before = DeviceExecutor.of(device).matmul_launches.get("tensor_64", 0)
    got = ubridge.matmul(x, y).to_numpy().astype(np.float64)
    assert DeviceExecutor.of(device).matmul_launches["tensor_64"] == before + 1
    wide = x.to_numpy().astype(np.float64), y.to_numpy().astype(np.float64)
    expected = wide[0] @ wide[1]
    ulp = 2.0**-10 if dtype == "f16" else 2.0**-7
    allowed = ulp * np.abs(expected) + 2.0**-20 * (np.abs(wide[0]) @ np.abs(wide[1]))
    assert (np.abs(got - expected) <= allowed).all()


def test_more_products_than_a_grid_takes(device: Device, rng: np.random.Generator) -> None:
    executor = DeviceExecutor.of(device)
    matmuls = executor.lowering(ubridge.OPS["matmul"])
    assert isinstance(matmuls, MatmulLowering)
    x, y = drawn(rng, 5, 16, 16), drawn(rng, 5, 16, 16)
    whole = (x.dtype, x.layout)
    out = ubridge.zeros((5, 16, 16), "f16")
    most, matmuls._most = matmuls._most, 2
    try:
        # No other caller asks for capturable products here.
        question = Question(ubridge.OPS["matmul"], (whole, whole), whole, is_capturable=True)
        ready = executor.ready(question)
        ready.launch(None, out.buffer, x.buffer, y.buffer)
    finally:
        matmuls._most = most
    assert len(ready.prepared.launches) == 3
    np.testing.assert_array_equal(out.to_numpy(), ubridge.matmul(x, y).to_numpy())


@needs_simulator
def test_a_device_without_them() -> None:
    program = (
        "import ubridge; from uhal import Api; Api.quick_init();"
        "x = ubridge.ones((32, 32), 'f16'); print(ubridge.matmul_choice(x, x));"
        "print(int((x @ x).to_numpy().astype('f8').sum()))"
    )
    told, total = run_python("-c", program, UHAL_SIM_CUDA_PROFILE="sm_75").splitlines()
    assert told.startswith("tiled: takes any")
    assert "written for compute capability 8.0 or later, and the device has 7.5" in told
    assert int(total) == 32**3


def test_only_matrices_at_uneven_distances_are_copied_first(
    device: Device, rng: np.random.Generator
) -> None:
    even = drawn(rng, 3, 2, 32, 32)
    uneven = drawn(rng, 2, 3, 32, 32).permute(1, 0, 2, 3)

    def kernels(x: ubridge.DeviceTensor, y: ubridge.DeviceTensor) -> int:
        with uhal.profile() as found:
            ubridge.matmul(x, y)
        return len(found.kernels)

    pairs = (even, even), (even[:, 1], even[0, 0]), (even, even[:1, :1]), (even.mT, even)
    assert [kernels(x, y) for x, y in pairs] == [1] * 4
    assert [kernels(uneven, even), kernels(even, uneven)] == [2, 2]

"""Kernels for manual launches against numpy in double precision, at every awkward size."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from tests.sampling import rounds
from uhal import Device, DeviceBuffer, Function, LaunchConfig, launch
from uhal.errors import ArgumentTypeError, NotFoundError

Matrix = npt.NDArray[np.float32]
Reference = npt.NDArray[np.float64]

TOLERANCE = 1e-5
GUARD = 64
SENTINEL = np.float32(-12345.0)
SIZES = (1, 2, 3, 7, 13, 15, 16, 17, 31, 64, 97, 255, 257)


class Activation(IntEnum):
    """The `kind` of `activationf32`."""

    RELU = 0
    GELU = 1
    LEAKY_RELU = 2
    TANH = 3


REFERENCES: dict[Activation, Callable[[Reference], Reference]] = {
    Activation.RELU: lambda x: np.where(x < 0, 0, x),
    Activation.GELU: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    Activation.LEAKY_RELU: lambda x: np.where(x < 0, 0.1 * x, x),
    Activation.TANH: np.tanh,
}


class Output:
    """A poisoned result; kernels may not touch the guards behind it."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        count = int(np.prod(shape))
        poison = np.full(count + GUARD, np.nan, np.float32)
        poison[count:] = SENTINEL
        self.whole = DeviceBuffer.from_numpy(poison)
        self.buffer = self.whole[:count]

    def to_numpy(self) -> Matrix:
        values = self.whole.to_numpy()
        assert (values[len(values) - GUARD :] == SENTINEL).all(), "written past the end"
        return values[: len(values) - GUARD].reshape(self.shape)


def kernel(module: str, entry: str) -> Function:
    return ubridge.load_module(module).get_function(entry)


def activate(data: DeviceBuffer, rows: int, cols: int, kind: Activation) -> None:
    config = LaunchConfig.for_num_elems(rows * cols, device=data.device)
    launch(kernel("activation", "activationf32"), args=(data, rows, cols, int(kind)), config=config)


def random_matrix(rng: np.random.Generator, rows: int, cols: int) -> Matrix:
    return rng.standard_normal((rows, cols), np.float32)


def assert_close(got: Matrix, expected: Reference, largest: float = 0.0) -> None:
    """Assert equal NaNs and infinities, and an error within the tolerance of the largest value."""
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite].astype(np.float32))
    if finite.any():
        largest = max(largest, np.abs(expected[finite]).max())
        error = np.abs(got[finite] - expected[finite]).max()
        assert error <= TOLERANCE * largest, f"error {error} of at most {largest}"


def convolved(values: Reference, weight: Reference) -> Reference:
    windows = np.lib.stride_tricks.sliding_window_view(values, weight.shape)
    return np.einsum("ijkl,kl->ij", windows, weight)


def assert_sums(
    got: Matrix, sums: Callable[[Reference, Reference], Reference], x: Matrix, y: Matrix
) -> None:
    """Assert sums within the tolerance of the sum of magnitudes: terms may cancel."""
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    error, terms = abs(got - sums(wide_x, wide_y)), sums(abs(wide_x), abs(wide_y))
    assert (error <= TOLERANCE * terms).all(), f"error {(error / terms).max()} of the terms"


def random_geometry(rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    grid = tuple(int(size) for size in rng.integers(1, 5, 3))
    block = tuple(int(size) for size in rng.integers(1, 11, 3))
    return {"grid": grid, "block": block}


class TestMatmul:
    def product(self, a: Matrix, b: Matrix) -> Matrix:
        (m, k), n = a.shape, b.shape[1]
        out = Output(m, n)
        inputs = DeviceBuffer.from_numpy(a.ravel()), DeviceBuffer.from_numpy(b.ravel())
        matmul = kernel("batch_matmul_legacy", "batch_matmul_legacy")
        grid = (-(-n // 4), -(-m // 256))
        launch(matmul, args=(*inputs, out.buffer, m, k, n), grid=grid, block=(16, 16))
        return out.to_numpy()

    def test_random_sizes(self, device: Device, rng: np.random.Generator) -> None:
        for _ in range(rounds(40, 2000)):
            m, k, n = (int(size) for size in rng.choice(SIZES, 3))
            a, b = random_matrix(rng, m, k), random_matrix(rng, k, n)
            assert_sums(self.product(a, b), np.matmul, a, b)

    def test_any_geometry_is_right(self, device: Device, rng: np.random.Generator) -> None:
        matmul = kernel("batch_matmul_legacy", "batch_matmul_legacy")
        for _ in range(rounds(30, 1000)):
            m, k, n = (int(size) for size in rng.integers(1, 70, 3))
            a, b, out = random_matrix(rng, m, k), random_matrix(rng, k, n), Output(m, n)
            inputs = DeviceBuffer.from_numpy(a.ravel()), DeviceBuffer.from_numpy(b.ravel())
            launch(matmul, args=(*inputs, out.buffer, m, k, n), **random_geometry(rng))
            assert_sums(out.to_numpy(), np.matmul, a, b)

    def test_largest_block(self, device: Device, rng: np.random.Generator) -> None:
        a, b = random_matrix(rng, 1100, 5), random_matrix(rng, 5, 3)
        out = Output(1100, 3)
        inputs = DeviceBuffer.from_numpy(a.ravel()), DeviceBuffer.from_numpy(b.ravel())
        matmul = kernel("batch_matmul_legacy", "batch_matmul_legacy")
        matmul[1, matmul.attributes.max_threads_per_block](*inputs, out.buffer, 1100, 5, 3)
        assert_sums(out.to_numpy(), np.matmul, a, b)

    def test_nan_and_infinity_stay_in_their_row_and_column(
        self, device: Device, rng: np.random.Generator
    ) -> None:
        a, b = random_matrix(rng, 19, 21), random_matrix(rng, 21, 23)
        a[3, 5] = np.nan
        b[7, 2] = np.inf
        with np.errstate(invalid="ignore"):
            expected = a.astype(np.float64) @ b.astype(np.float64)
        assert_close(self.product(a, b), expected)

    def test_nothing_to_sum_is_zero(self, device: Device) -> None:
        got = self.product(np.zeros((5, 0), np.float32), np.zeros((0, 4), np.float32))
        np.testing.assert_array_equal(got, np.zeros((5, 4)))


class TestActivation:
    @pytest.mark.parametrize("kind", Activation)
    def test_against_numpy(
        self, device: Device, rng: np.random.Generator, kind: Activation
    ) -> None:
        for _ in range(rounds(10, 300)):
            rows, cols = (int(size) for size in rng.choice(SIZES, 2))
            values = random_matrix(rng, rows, cols) * np.float32(10.0 ** rng.uniform(-6, 2))
            data = Output(rows, cols)
            data.buffer.copy_from(values.ravel())
            activate(data.buffer, rows, cols, kind)
            # If there are few values, all may be near -4, where gelu subtracts two close numbers.
            largest = float(np.abs(values).max()) if kind is Activation.GELU else 0.0
            expected = REFERENCES[kind](values.astype(np.float64))
            assert_close(data.to_numpy(), expected, largest)

    @pytest.mark.parametrize("kind", Activation)
    def test_each_value_to_a_few_ulps(
        self, device: Device, rng: np.random.Generator, kind: Activation
    ) -> None:
        """Errors are relative to each value; gelu is tested where numpy's formula is exact."""
        least = -3.0 if kind is Activation.GELU else -30.0
        values = rng.uniform(least, 30.0, 10_000).astype(np.float32)
        values[:5_000] *= (10.0 ** rng.uniform(-10, 0, 5_000)).astype(np.float32)
        data = DeviceBuffer.from_numpy(values)
        activate(data, 1, values.size, kind)
        expected = REFERENCES[kind](values.astype(np.float64))
        # At -3, gelu magnifies a rounding error of its exponent by x² + 1 = 10.
        tolerance = 3e-6 if kind is Activation.GELU else 1e-6
        np.testing.assert_allclose(data.to_numpy(), expected, rtol=tolerance)

    @pytest.mark.parametrize("kind", Activation)
    def test_special_values(self, device: Device, kind: Activation) -> None:
        values = np.array([np.nan, np.inf, -np.inf, 0.0, 1e38, -1e38, 1e-45, -1e-45], np.float32)
        data = DeviceBuffer.from_numpy(values)
        activate(data, 2, 4, kind)
        with np.errstate(all="ignore"):
            expected = REFERENCES[kind](values.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(data.to_numpy(), expected, rtol=1e-6, atol=1e-44)

    def test_gelu_where_exponentials_overflow(
        self, device: Device, rng: np.random.Generator
    ) -> None:
        """Test to the last subnormal result, at -10.7; relative errors grow with the exponent."""
        values = -rng.uniform(8, 12, 5_000).astype(np.float32)
        data = DeviceBuffer.from_numpy(values)
        activate(data, 1, values.size, Activation.GELU)
        wide = values.astype(np.longdouble)
        twice_u = 2 * np.sqrt(2 / np.longdouble(np.pi)) * (wide + 0.044715 * wide**3)
        expected = wide / (1 + np.exp(-twice_u))
        assert (abs(expected) > np.finfo(np.float32).tiny).sum() > 1000
        np.testing.assert_allclose(data.to_numpy(), expected, rtol=1e-4, atol=3e-45)

    def test_any_geometry_applies_it_once(self, device: Device, rng: np.random.Generator) -> None:
        leaky_relu = kernel("activation", "activationf32")
        for _ in range(rounds(30, 1000)):
            rows, cols = (int(size) for size in rng.integers(1, 40, 2))
            values = random_matrix(rng, rows, cols)
            data = Output(rows, cols)
            data.buffer.copy_from(values.ravel())
            arguments = (data.buffer, rows, cols, int(Activation.LEAKY_RELU))
            launch(leaky_relu, args=arguments, **random_geometry(rng))
            expected = REFERENCES[Activation.LEAKY_RELU](values.astype(np.float64))
            assert_close(data.to_numpy(), expected)

    @pytest.mark.parametrize("kind", [-1, 4, 2**31 - 1])
    def test_unknown_kind_poisons(self, device: Device, kind: int) -> None:
        data = DeviceBuffer.zeros(9, "f32")
        kernel("activation", "activationf32")[1, 9](data, 3, 3, kind)
        assert np.isnan(data.to_numpy()).all()


class TestConvolution:
    def result(self, values: Matrix, weight: Matrix, device: Device) -> Matrix:
        (height, width), (kh, kw) = values.shape, weight.shape
        out = Output(height - kh + 1, width - kw + 1)
        inputs = DeviceBuffer.from_numpy(values.ravel()), DeviceBuffer.from_numpy(weight.ravel())
        config = LaunchConfig.for_num_elems(out.buffer.size, device=device)
        arguments = (*inputs, out.buffer, width, height, kw, kh)
        launch(kernel("convolution", "convolution"), args=arguments, config=config)
        return out.to_numpy()

    def test_random_sizes(self, device: Device, rng: np.random.Generator) -> None:
        for _ in range(rounds(40, 1000)):
            height, width = (int(size) for size in rng.choice(SIZES[:-2], 2))
            kh, kw = int(rng.integers(1, min(height, 9) + 1)), int(rng.integers(1, width + 1))
            values, weight = random_matrix(rng, height, width), random_matrix(rng, kh, kw)
            assert_sums(self.result(values, weight, device), convolved, values, weight)

    def test_any_geometry_is_right(self, device: Device, rng: np.random.Generator) -> None:
        convolution = kernel("convolution", "convolution")
        for _ in range(rounds(30, 1000)):
            height, width = (int(size) for size in rng.integers(3, 60, 2))
            values, weight = random_matrix(rng, height, width), random_matrix(rng, 3, 2)
            out = Output(height - 2, width - 1)
            inputs = (
                DeviceBuffer.from_numpy(values.ravel()),
                DeviceBuffer.from_numpy(weight.ravel()),
            )
            arguments = (*inputs, out.buffer, width, height, 2, 3)
            launch(convolution, args=arguments, **random_geometry(rng))
            assert_sums(out.to_numpy(), convolved, values, weight)

    def test_nan_and_infinity_reach_their_windows_only(
        self, device: Device, rng: np.random.Generator
    ) -> None:
        values, weight = random_matrix(rng, 20, 40), random_matrix(rng, 3, 3)
        values[4, 6] = np.nan
        values[10, 30] = -np.inf
        with np.errstate(invalid="ignore"):
            expected = convolved(values.astype(np.float64), weight.astype(np.float64))
        assert_close(self.result(values, weight, device), expected)

    @pytest.mark.parametrize("kw, kh", [(0, 1), (1, 0), (6, 1), (1, 5)])
    def test_weight_that_does_not_fit(self, device: Device, kw: int, kh: int) -> None:
        values, weight = DeviceBuffer.zeros(20, "f32"), DeviceBuffer.zeros(20, "f32")
        out = Output(4, 5)
        kernel("convolution", "convolution")[2, 8](values, weight, out.buffer, 5, 4, kw, kh)
        assert np.isnan(out.to_numpy()).all()


class TestRefusals:
    def test_wrong_dtype_is_the_lane_s_to_refuse(self, device: Device) -> None:
        with pytest.raises(ArgumentTypeError, match="activationf32, argument 0 'data'"):
            activate(DeviceBuffer.zeros(4, "f64"), 2, 2, Activation.RELU)

    def test_unknown_module(self, device: Device) -> None:
        with pytest.raises(
            NotFoundError, match="no kernel module 'nonsense'; there are activation"
        ):
            ubridge.load_module("nonsense")

"""The demo network's kernels against numpy in double precision, at every awkward size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from tests.sampling import rounds
from ubridge import legacy_ops
from ubridge.legacy_ops import ROWS, Activation
from uhal import Device, DeviceBuffer, Function, launch
from uhal.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, NotFoundError

Matrix = npt.NDArray[np.float32]
Reference = npt.NDArray[np.float64]

TOLERANCE = 1e-5
GUARD = 64
SENTINEL = np.float32(-12345.0)
SIZES = (1, 2, 3, 7, 13, 15, 16, 17, 31, 64, 97, 255, 257)

REFERENCES: dict[Activation, Callable[[Reference], Reference]] = {
    Activation.RELU: lambda x: np.where(x < 0, 0, x),
    Activation.GELU: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    Activation.LEAKY_RELU: lambda x: np.where(x < 0, 0.1 * x, x),
    Activation.TANH: np.tanh,
}


class Output:
    """A poisoned result with guards behind it that no kernel may touch."""

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


def random_matrix(rng: np.random.Generator, rows: int, cols: int) -> Matrix:
    return rng.standard_normal((rows, cols), np.float32)


def assert_close(got: Matrix, expected: Reference, largest: float = 0.0) -> None:
    """The same NaNs and infinities, the rest within the tolerance of the largest, or of more."""
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
    """`sums(x, y)`, each within the tolerance of its terms: a sum alone may be next to nothing."""
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
        legacy_ops.matmul(
            DeviceBuffer.from_numpy(a.ravel()),
            DeviceBuffer.from_numpy(b.ravel()),
            out.buffer,
            m,
            k,
            n,
        )
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

    @pytest.mark.parametrize("m, n", [(0, 4), (4, 0), (0, 0)])
    def test_no_result_launches_nothing(self, device: Device, m: int, n: int) -> None:
        got = self.product(np.ones((m, 3), np.float32), np.ones((3, n), np.float32))
        assert got.shape == (m, n)


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
            legacy_ops.activation(data.buffer, rows, cols, kind)
            # Of few values all may be some -4, where gelu is a small difference of x and x.
            largest = float(np.abs(values).max()) if kind is Activation.GELU else 0.0
            expected = REFERENCES[kind](values.astype(np.float64))
            assert_close(data.to_numpy(), expected, largest)

    @pytest.mark.parametrize("kind", Activation)
    def test_each_value_to_a_few_ulps(
        self, device: Device, rng: np.random.Generator, kind: Activation
    ) -> None:
        """Relative to each value, not to the largest; gelu where numpy's formula is exact."""
        least = -3.0 if kind is Activation.GELU else -30.0
        values = rng.uniform(least, 30.0, 10_000).astype(np.float32)
        values[:5_000] *= (10.0 ** rng.uniform(-10, 0, 5_000)).astype(np.float32)
        data = DeviceBuffer.from_numpy(values)
        legacy_ops.activation(data, 1, values.size, kind)
        expected = REFERENCES[kind](values.astype(np.float64))
        # At -3 gelu magnifies a rounded exponent x² + 1 = 10 times.
        tolerance = 3e-6 if kind is Activation.GELU else 1e-6
        np.testing.assert_allclose(data.to_numpy(), expected, rtol=tolerance)

    @pytest.mark.parametrize("kind", Activation)
    def test_special_values(self, device: Device, kind: Activation) -> None:
        values = np.array([np.nan, np.inf, -np.inf, 0.0, 1e38, -1e38, 1e-45, -1e-45], np.float32)
        data = DeviceBuffer.from_numpy(values)
        legacy_ops.activation(data, 2, 4, kind)
        with np.errstate(all="ignore"):
            expected = REFERENCES[kind](values.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(data.to_numpy(), expected, rtol=1e-6, atol=1e-44)

    def test_gelu_where_exponentials_overflow(
        self, device: Device, rng: np.random.Generator
    ) -> None:
        """Down to the last subnormal number, at -10.7; relative errors grow with the exponent."""
        values = -rng.uniform(8, 12, 5_000).astype(np.float32)
        data = DeviceBuffer.from_numpy(values)
        legacy_ops.activation(data, 1, values.size, Activation.GELU)
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
    def test_unknown_kind_is_refused_and_poisons(self, device: Device, kind: int) -> None:
        data = DeviceBuffer.zeros(9, "f32")
        with pytest.raises(ArgumentValueError, match="expected one of 0 RELU, 1 GELU"):
            legacy_ops.activation(data, 3, 3, kind)
        kernel("activation", "activationf32")[1, 9](data, 3, 3, kind)
        assert np.isnan(data.to_numpy()).all()

    def test_nothing_launches_nothing(self, device: Device) -> None:
        legacy_ops.activation(DeviceBuffer.zeros(0, "f32"), 0, 7, Activation.TANH)


class TestConvolution:
    def result(self, values: Matrix, weight: Matrix) -> Matrix:
        (height, width), (kh, kw) = values.shape, weight.shape
        out = Output(height - kh + 1, width - kw + 1)
        legacy_ops.convolution(
            DeviceBuffer.from_numpy(values.ravel()),
            DeviceBuffer.from_numpy(weight.ravel()),
            out.buffer,
            width,
            height,
            kw,
            kh,
        )
        return out.to_numpy()

    def test_random_sizes(self, device: Device, rng: np.random.Generator) -> None:
        for _ in range(rounds(40, 1000)):
            height, width = (int(size) for size in rng.choice(SIZES[:-2], 2))
            kh, kw = int(rng.integers(1, min(height, 9) + 1)), int(rng.integers(1, width + 1))
            values, weight = random_matrix(rng, height, width), random_matrix(rng, kh, kw)
            assert_sums(self.result(values, weight), convolved, values, weight)

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
        assert_close(self.result(values, weight), expected)

    @pytest.mark.parametrize("kw, kh", [(0, 1), (1, 0), (6, 1), (1, 5)])
    def test_weight_that_does_not_fit(self, device: Device, kw: int, kh: int) -> None:
        values, weight = DeviceBuffer.zeros(20, "f32"), DeviceBuffer.zeros(20, "f32")
        out = Output(4, 5)
        with pytest.raises(
            ArgumentValueError, match="at least 1 x 1 and at most the input's 4 x 5"
        ):
            legacy_ops.convolution(values, weight, out.buffer, 5, 4, kw, kh)
        kernel("convolution", "convolution")[2, 8](values, weight, out.buffer, 5, 4, kw, kh)
        assert np.isnan(out.to_numpy()).all()


class TestTable:
    def test_rows_name_the_parameters_of_the_kernels(self, device: Device) -> None:
        """The sources are the same on every backend, so any device can tell."""
        for row in ROWS.values():
            signature = kernel(row.module, row.entry).signature
            assert signature is not None
            assert tuple(parameter.name for parameter in signature) == row.arguments

    def test_every_backend_has_all_three_operations(self) -> None:
        operations = {operation for operation, _ in ROWS}
        backends = {backend for _, backend in ROWS}
        assert set(ROWS) == {(operation, name) for operation in operations for name in backends}


class TestRefusals:
    def test_short_buffers_are_named(self, device: Device) -> None:
        short, enough = DeviceBuffer.zeros(11, "f32"), DeviceBuffer.zeros(12, "f32")
        with pytest.raises(ArgumentValueError, match="matmul, 'b': expected at least 12 elements"):
            legacy_ops.matmul(enough, short, enough, 3, 4, 3)
        with pytest.raises(ArgumentValueError, match="activation, 'data': expected at least 12"):
            legacy_ops.activation(short, 3, 4, Activation.RELU)
        with pytest.raises(ArgumentValueError, match="convolution, 'input': expected at least 12"):
            legacy_ops.convolution(short, enough, enough, 3, 4, 2, 2)

    @pytest.mark.parametrize(
        "size, error", [(-1, ArgumentRangeError), (1 << 32, ArgumentRangeError)]
    )
    def test_sizes_fit_the_parameter(
        self, device: Device, size: int, error: type[Exception]
    ) -> None:
        data = DeviceBuffer.zeros(4, "f32")
        with pytest.raises(error, match=r"matmul, 'm': expected an int in 0…4294967295"):
            legacy_ops.matmul(data, data, data, size, 1, 1)

    def test_kinds_of_arguments(self, device: Device) -> None:
        data = DeviceBuffer.zeros(4, "f32")
        with pytest.raises(ArgumentTypeError, match=r"matmul, 'k': expected an int, got float"):
            legacy_ops.matmul(data, data, data, 2, 2.0, 2)  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match="'data': expected a DeviceBuffer, got ndarray"):
            legacy_ops.activation(np.zeros(4), 2, 2, Activation.RELU)  # type: ignore[arg-type]

    def test_wrong_dtype_is_the_lane_s_to_refuse(self, device: Device) -> None:
        with pytest.raises(ArgumentTypeError, match="activationf32, argument 0 'data'"):
            legacy_ops.activation(DeviceBuffer.zeros(4, "f64"), 2, 2, Activation.RELU)

    def test_unknown_module(self, device: Device) -> None:
        with pytest.raises(
            NotFoundError, match="no kernel module 'nonsense'; there are activation"
        ):
            ubridge.load_module("nonsense")

"""`ubridge.array_api` beside array-api-strict, the standard's own implementation over numpy.

hypothesis draws the arguments of each function of the standard, by the names of the parameters. If
array-api-strict accepts the arguments, both results have the same dtype, shape and numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.requirements import needed_module
from tests.sampling import SOAK, rounds
from tests.ubridge.op_rows import row_of
from uhal import ArgumentValueError, Device

strict = needed_module("array_api_strict")
hypothesis = needed_module("hypothesis")
st = needed_module("hypothesis.strategies")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan)

ABSENT = {
    "complex64": "complex numbers",
    "complex128": "complex numbers",
    "conj": "complex numbers",
    "imag": "complex numbers",
    "real": "complex numbers",
    "fft": "an extension",
    "linalg": "an extension",
    "broadcast_shapes": "of the standard 2025.12",
    "isin": "of the standard 2025.12",
}
"""Names of array-api-strict that are absent here, and why."""
OF_STRICT = {
    "ArrayAPIStrictFlags",
    "Device",
    "__version__",
    "get_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "set_array_api_strict_flags",
}
DIFFERENT = {
    "astype": "floats outside an integer type saturate; the standard leaves it open",
    "linspace": "integers are rounded down from f64; the standard asks for floats",
    "mean": "an empty tensor raises an error instead of NaN",
    "std": "with at most `correction` elements, an error replaces NaN",
    "var": "with at most `correction` elements, an error replaces NaN",
}
"""Functions that differ from array-api-strict, and how; no such arguments are drawn."""
FREE = ("empty", "empty_like")
"""Functions whose elements are arbitrary."""

SCALARS: dict[str, Callable[[], Any]] = {
    "fill_value": lambda: st.integers(0, 9),
    "start": lambda: st.integers(-9, 9),
    "stop": lambda: st.integers(-9, 9),
    "step": lambda: st.sampled_from([-3, -1, 1, 2]),
    "num": lambda: st.integers(0, 9),
    "k": lambda: st.integers(-3, 3),
    "n_rows": lambda: st.integers(0, 4),
    "n_cols": lambda: st.one_of(st.none(), st.integers(0, 4)),
    "n": lambda: st.integers(1, 3),
    "keepdims": st.booleans,
    "descending": st.booleans,
    "include_initial": st.booleans,
    "endpoint": st.booleans,
    "copy": lambda: st.sampled_from([None, True]),
    "side": lambda: st.sampled_from(["left", "right"]),
    "indexing": lambda: st.sampled_from(["xy", "ij"]),
    "correction": lambda: st.sampled_from([0.0, 1.0]),
    "kind": lambda: st.sampled_from(
        ["bool", "integral", "signed integer", "unsigned integer", "real floating", "numeric"]
    ),
}
"""Strategies of parameters that are no arrays, by their names."""


class Drawing:
    """Draws the arguments of one call."""

    def __init__(self, name: str, data: Any) -> None:
        self.name = name
        self.draw = data.draw
        self.rng = np.random.default_rng(self.draw(st.integers(0, 2**32 - 1)))
        self.kinds = {
            "bitwise": (*INTEGERS, "bool"),
            "logical": ("bool",),
        }.get(name.partition("_")[0], DTYPES)
        self.dtype = self.draw(st.sampled_from(self.kinds))
        least = 2 if name in ("mean", "std", "var") else 0
        lengths = st.lists(st.integers(least, 4), min_size=min(least, 1), max_size=3)
        self.shape = self.draw(lengths.map(tuple))

    def array(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """Return a random array: whole small numbers, for floats also fractions and specials."""
        dtype = dtype or self.dtype
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        low = 0 if dtype[0] == "u" or self.name == "pow" else -4
        if dtype in INTEGERS:
            whole = self.rng.integers(low, 7, shape)
            if self.name in ("remainder", "floor_divide"):
                whole = np.where(whole == 0, 3, whole)
            return np.abs(whole).astype(dtype) if "shift" in self.name else whole.astype(dtype)
        array = np.where(
            self.rng.random(shape) < 0.3,
            self.rng.choice(SPECIAL, shape),
            self.rng.standard_normal(shape) * 2,
        )
        # Sums of different orders lose different digits near 0.
        plain = ("sum", "prod", "mean", "std", "var", "matmul", "tensordot", "vecdot", "cumulative")
        if self.name.startswith(plain):
            array = self.rng.integers(1, 4, shape)
        return array.astype(dtype)

    def axis(self, rank: int) -> int:
        hypothesis.assume(rank > 0)
        return int(self.draw(st.integers(-rank, rank - 1)))

    def argument(self, parameter: str, given: dict[str, Any]) -> Any:
        """Return the argument of a parameter; `given` has the earlier arguments."""
        first = given.get("x", given.get("x1"))
        shape = self.shape if first is None else first.shape
        rank = len(shape)
        if parameter in SCALARS:
            return self.draw(SCALARS[parameter]())
        found: Callable[[], Any] = getattr(self, f"_{parameter}", lambda: inspect.Parameter.empty)
        self.given_shape, self.rank, self.given = shape, rank, given
        return found()

    def _x(self) -> Any:
        if self.name in ("asarray", "astype"):
            return abs(self.array(self.shape, self.draw(st.sampled_from(INTEGERS)))).astype(
                self.dtype
            )
        return self.array(self.shape)

    def _x1(self) -> Any:
        if self.name == "searchsorted":
            return np.sort(self.rng.integers(0, 9, 5)).astype(
                self.dtype if self.dtype != "bool" else "int32"
            )
        if self.name in ("matmul", "tensordot", "vecdot"):
            return self.array((2, 3))
        return self.array(self.shape)

    def _x2(self) -> Any:
        if self.name == "matmul":
            return self.array(self.draw(st.sampled_from([(3,), (3, 2), (4, 3, 1)])))
        if self.name == "tensordot":
            return self.array((2, 3))
        if self.name == "searchsorted":
            return self.array(self.shape, self.given["x1"].dtype.name)
        if self.name == "vecdot":
            return self.array(self.draw(st.sampled_from([(3,), (2, 3), (2, 1)])))
        ones = self.draw(st.lists(st.booleans(), min_size=self.rank, max_size=self.rank))
        kind = self.draw(st.sampled_from([self.dtype, self.dtype, *self.kinds]))
        spread = [1 if one else n for one, n in zip(ones, self.given_shape, strict=True)]
        return self.array(tuple(spread)[self.draw(st.integers(0, self.rank)) :], kind)

    def _condition(self) -> Any:
        return self.array(self.shape, "bool")

    def _axis(self) -> Any:
        several = self.name in ("sum", "prod", "mean", "max", "min", "std", "var", "any", "all")
        if several or self.name in ("flip", "count_nonzero"):
            kind = self.draw(st.sampled_from(["none", "one", "all"]))
            if kind != "one" or not self.rank:
                return None if kind == "none" or not self.rank else tuple(range(self.rank))
        if self.name == "squeeze":
            ones = [at for at, n in enumerate(self.given_shape) if n == 1]
            hypothesis.assume(ones)
            return ones[0]
        if self.name == "vecdot":
            return -1
        if self.name == "roll" and self.draw(st.booleans()):
            return None
        if self.name in ("expand_dims", "stack"):
            return int(self.draw(st.integers(-self.rank - 1, self.rank)))
        if self.name == "repeat" and not isinstance(self.given["repeats"], int):
            return None
        return self.axis(self.rank)

    def _axes(self) -> Any:
        if self.name == "tensordot":
            return self.draw(st.sampled_from([((0,), (0,)), ((0, 1), (0, 1)), ((1,), (1,)), 0]))
        return tuple(self.draw(st.permutations(range(self.rank))))

    def _dtype(self) -> Any:
        if self.name == "linspace":
            return self.draw(st.sampled_from(FLOATS))
        return self.draw(st.sampled_from(DTYPES if self.name == "astype" else (*INTEGERS, *FLOATS)))

    _to = _dtype
    _from_ = _dtype

    def _type(self) -> Any:
        return self.draw(st.sampled_from(FLOATS if self.name == "finfo" else INTEGERS))

    def _shape(self) -> Any:
        if self.name == "reshape":
            return (-1,) if 0 not in self.given_shape else self.given_shape
        if self.name == "broadcast_to":
            return (2, *self.given_shape)
        return self.shape

    def _shift(self) -> Any:
        return self.draw(st.integers(-5, 5))

    def _repetitions(self) -> Any:
        return tuple(self.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))

    def _repeats(self) -> Any:
        return self.draw(st.integers(0, 3))

    def _source(self) -> Any:
        return self.axis(self.rank)

    _destination = _source

    def _min(self) -> Any:
        return self.draw(st.one_of(st.none(), st.integers(0, 1)))

    def _max(self) -> Any:
        return self.draw(st.one_of(st.none(), st.integers(2, 3)))

    _obj = _x

    def _indices(self) -> Any:
        hypothesis.assume(self.rank and min(self.given_shape) > 0)
        if self.name == "take_along_axis":
            return self.rng.integers(0, self.given_shape[-1], self.given_shape)
        return self.rng.integers(0, min(self.given_shape), 3)

    def _arrays_and_dtypes(self) -> Any:
        return [
            self.array(self.shape),
            *self.draw(st.lists(st.sampled_from(DTYPES), max_size=2)),
            1,
        ]

    def _arrays(self) -> Any:
        dtypes = [self.draw(st.sampled_from([self.dtype, self.dtype, *DTYPES])) for _ in range(2)]
        if self.name == "meshgrid":
            return [self.array((int(self.rng.integers(1, 4)),)) for _ in range(2)]
        return [self.array(self.shape, one) for one in dtypes]


def arguments(name: str, drawing: Drawing) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional arguments and the keyword arguments of a call."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for one in inspect.signature(getattr(strict, name)).parameters.values():
        value = drawing.argument(one.name, given)
        if value is inspect.Parameter.empty:
            assert one.default is not one.empty, one
            continue
        given[one.name] = value
        if one.kind is one.VAR_POSITIONAL:
            positional += value
        elif one.kind is one.KEYWORD_ONLY:
            keywords[one.name] = value
        else:
            positional.append(value)
    return positional, keywords


def converted(value: Any, namespace: Any, tensor: Callable[[Any], Any]) -> Any:
    """Return an argument as a namespace takes it."""
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, list):
        return [converted(one, namespace, tensor) for one in value]
    return getattr(namespace, value) if isinstance(value, str) and value in DTYPES else value


def assert_agree(name: str, got: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, two in zip(got, expected, strict=True):
            assert_agree(name, one, two)
        return
    if not hasattr(expected, "shape"):
        same = ("bits", "eps", "max", "min", "smallest_normal")
        if hasattr(expected, "bits"):
            found = [(getattr(got, one, None), getattr(expected, one, None)) for one in same]
            assert all(one == two for one, two in found), found
        elif hasattr(expected, "_np_dtype"):
            assert got.dtype == expected._np_dtype
        else:
            assert got == expected
        return
    exact = np.asarray(expected._array)
    array = got.to_numpy()
    assert array.dtype == exact.dtype, (array.dtype, exact.dtype)
    assert array.shape == exact.shape, (array.shape, exact.shape)
    if name in FREE:
        return
    tolerance = 2e-6 if exact.dtype == np.float32 else 1e-14
    least = 1e-6 if exact.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(array, exact, tolerance, least if exact.dtype.kind == "f" else 0)


NAMES = sorted(
    name
    for name in set(strict.__all__) - set(ABSENT) - OF_STRICT
    if inspect.isfunction(getattr(strict, name)) and name[0] != "_"
)


@pytest.fixture(autouse=True)
def _images(device: Device) -> None:
    row_of(device.backend).require_images()


def test_the_namespace_has_every_name(device: Device) -> None:
    import ubridge as ub

    namespace = ub.zeros(1, device=device).__array_namespace__(api_version="2024.12")
    missing = set(strict.__all__) - OF_STRICT - set(dir(namespace))
    assert missing == set(ABSENT)
    assert set(DIFFERENT) <= set(NAMES)
    assert len(DIFFERENT) + len(ABSENT) <= 40
    with pytest.raises(ValueError, match=r"api_version: expected 2024\.12 or earlier"):
        ub.zeros(1, device=device).__array_namespace__(api_version="2099.12")


@pytest.mark.entries(drawn=4)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_agrees(device: Device, name: str, seed: int) -> None:
    import ubridge as ub

    ours = ub.zeros(1, device=device).__array_namespace__()
    agreed = 0

    def agrees(data: Any) -> None:
        nonlocal agreed
        positional, keywords = arguments(name, Drawing(name, data))
        hypothesis.note(f"{name}{tuple(positional)} {keywords}")

        def call(namespace: Any, tensor: Callable[[Any], Any]) -> Any:
            each = [converted(one, namespace, tensor) for one in positional]
            by_name = {k: converted(v, namespace, tensor) for k, v in keywords.items()}
            return getattr(namespace, name)(*each, **by_name)

        try:
            with np.errstate(all="ignore"):
                expected = call(strict, strict.asarray)
        except Exception:
            hypothesis.reject()  # the standard leaves it open
        assert_agree(name, call(ours, lambda array: ub.asarray(array, device=device)), expected)
        agreed += 1

    test = hypothesis.given(st.data())(agrees)
    settings = hypothesis.settings(
        max_examples=rounds(8, 500) if device.backend == "host" else rounds(2, 20),
        database=None,
        deadline=None,
        # Shrinking a counterexample takes minutes, so only a soak does this.
        phases=list(hypothesis.Phase) if SOAK else [hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(settings(test))()
    assert agreed


def test_take_of_several_axes_needs_an_axis(device: Device) -> None:
    import ubridge as ub

    namespace = ub.zeros(1, device=device).__array_namespace__()
    x, at = namespace.asarray([[1.0, 2.0], [3.0, 4.0]]), namespace.asarray([1, 0, 1])
    assert namespace.take(x[0], at).to_numpy().tolist() == [2, 1, 2]
    assert namespace.take(x, at, axis=1).to_numpy().tolist() == [[2, 1, 2], [4, 3, 4]]
    with pytest.raises(ArgumentValueError, match="take: expected an axis for 2 axes"):
        namespace.take(x, at)

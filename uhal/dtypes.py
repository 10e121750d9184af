"""The table of element types, which gives every spelling and width.

Kernel sources use the same names (`f32`, `u64`); `as_dtype` also takes numpy's and C's. `bf16` and
`f8e4m3` need `ml_dtypes`, imported only when they are used with numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, Union

import numpy as np

from uhal._installation import require_first_import

require_first_import(__name__)

if TYPE_CHECKING:
    import numpy.typing as npt

Kind = Literal["bool", "int", "uint", "float"]
DTypeLike: TypeAlias = Union["DType", "npt.DTypeLike"]


class DType:
    """An element type. One object per type: compare with `is` or `==`.

    A `DType` equals its numpy dtype and has the same hash; numpy's functions take a `DType` as a
    dtype.
    """

    # With docstrings, for `help` and `inspect.getdoc`.
    __slots__ = {
        "_hash": "",
        "_numpy": "",
        "_numpy_name": "",
        "c_spellings": "The names C, C++, CUDA and HIP have for it.",
        "code": "One character, as the compiled lane reads it.",
        "itemsize": "Bytes of one element.",
        "kind": "`bool`, `int`, `uint` or `float`.",
        "max": "Largest value of an integer type, else `None`.",
        "min": "Smallest value of an integer type, else `None`.",
        "name": "The name in kernel sources: `f32`.",
    }

    name: str
    code: str
    kind: Kind
    itemsize: int
    min: int | None
    max: int | None
    c_spellings: tuple[str, ...]

    def __init__(
        self, name: str, code: str, kind: Kind, itemsize: int, numpy_name: str, c_spellings: str
    ) -> None:
        bits = 8 * itemsize
        ranges = {"int": (-(1 << bits - 1), (1 << bits - 1) - 1), "uint": (0, (1 << bits) - 1)}
        self.name = name
        self.code = code
        self.kind = kind
        self.itemsize = itemsize
        self.min, self.max = ranges.get(kind, (None, None))
        self.c_spellings = tuple(spelling.strip() for spelling in c_spellings.split(","))
        self._numpy_name = numpy_name
        self._numpy: np.dtype[Any] | None = None
        self._hash: int | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype. `ModuleNotFoundError` if `ml_dtypes` is needed but missing."""
        found = self._numpy
        if found is None:
            found = self._numpy = self._find_numpy_dtype()
        return found

    @property
    def numpy_spelling(self) -> str:
        """The numpy type as programs spell it: `np.float32`, `ml_dtypes.bfloat16`."""
        if self._needs_ml_dtypes:
            return f"ml_dtypes.{self._numpy_name}"
        return "np.bool_" if self.kind == "bool" else f"np.{self._numpy_name}"

    def _find_numpy_dtype(self) -> np.dtype[Any]:
        if not self._needs_ml_dtypes:
            return np.dtype(self._numpy_name)
        try:
            import ml_dtypes
        except ImportError as error:
            raise ModuleNotFoundError(
                f"{self.name} needs the package ml_dtypes to be held in a numpy array: "
                "pip install ml_dtypes"
            ) from error
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self._numpy_name))
        return dtype

    @property
    def _needs_ml_dtypes(self) -> bool:
        return self.name in ("bf16", "f8e4m3")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return as_dtype(other) is self
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            try:
                found = self._hash = hash(self.dtype)
            except ModuleNotFoundError:
                return hash(self.name)
        return found

    def __repr__(self) -> str:
        return f"uhal.dtypes.{'bool_' if self.name == 'bool' else self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))


# name, code, kind, bytes, numpy's name, the names in C and similar languages (LP64)
bool_ = DType("bool", "?", "bool", 1, "bool", "bool, _Bool")
i8 = DType("i8", "b", "int", 1, "int8", "int8_t, char, signed char")
u8 = DType("u8", "B", "uint", 1, "uint8", "uint8_t, unsigned char, uchar, std::byte")
i16 = DType(
    "i16", "h", "int", 2, "int16", "int16_t, short, short int, signed short, signed short int"
)
u16 = DType("u16", "H", "uint", 2, "uint16", "uint16_t, unsigned short, unsigned short int, ushort")
i32 = DType("i32", "i", "int", 4, "int32", "int32_t, int, signed, signed int")
u32 = DType("u32", "I", "uint", 4, "uint32", "uint32_t, unsigned int, unsigned, uint")
i64 = DType(
    "i64",
    "q",
    "int",
    8,
    "int64",
    "int64_t, long, long int, long long, long long int, signed long, signed long int, "
    "signed long long, signed long long int, ssize_t, ptrdiff_t, intptr_t",
)
u64 = DType(
    "u64",
    "Q",
    "uint",
    8,
    "uint64",
    "uint64_t, unsigned long, unsigned long int, unsigned long long, unsigned long long int, "
    "ulong, size_t, std::size_t, uintptr_t",
)
f16 = DType("f16", "e", "float", 2, "float16", "__half, half, _Float16, __fp16")
bf16 = DType(
    "bf16",
    "g",
    "float",
    2,
    "bfloat16",
    "__nv_bfloat16, nv_bfloat16, __hip_bfloat16, hip_bfloat16, __bf16",
)
f32 = DType("f32", "f", "float", 4, "float32", "float")
f64 = DType("f64", "d", "float", 8, "float64", "double")
f8e4m3 = DType("f8e4m3", "8", "float", 1, "float8_e4m3fn", "__nv_fp8_e4m3, __hip_fp8_e4m3")

ALL: tuple[DType, ...] = (
    bool_,
    i8,
    u8,
    i16,
    u16,
    i32,
    u32,
    i64,
    u64,
    f16,
    bf16,
    f32,
    f64,
    f8e4m3,
)
"""Every element type, in the order of the table."""

_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY_NAME = {dtype._numpy_name: dtype for dtype in ALL}
# C takes the words of a type in any order.
_BY_C_WORDS = {
    tuple(sorted(spelling.split())): dtype for dtype in ALL for spelling in dtype.c_spellings
}

C_SPECIFIERS = frozenset(
    "void char short int long float double signed unsigned _Bool bool _Complex complex _Imaginary "
    "__complex__ __int128 __float128 __fp16 __bf16 _Float16 _Float32 _Float64 _Float128 "
    "_Float32x _Float64x _Decimal32 _Decimal64 _Decimal128".split()
)
"""Words of C that name a type, alone or together, and never a parameter."""


def as_dtype(value: object) -> DType:
    """Return the element type `value` names.

    Takes a `DType`, one of our names (`"f32"`; so `"i8"` is one byte wide), a C spelling
    (`"size_t"`) or anything `numpy.dtype` takes. Raises `TypeError` for anything else, and for
    names that C and numpy use differently (`"float"`, `"int"`). It also raises for types that no
    kernel takes: complex, big endian, structured.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    from_c = from_c_spelling(value) if isinstance(value, str) else None
    from_numpy = _from_numpy(value)
    if from_c is not None and from_numpy is not None and from_c is not from_numpy:
        raise TypeError(f"{value!r} is {from_c} in C and {from_numpy} in numpy: write which")
    found = from_c or from_numpy
    if found is None:
        names = " ".join(_BY_NAME)
        raise TypeError(f"expected a dtype, one of {names} or numpy's for one, got {value!r}")
    return found


def _from_numpy(value: object) -> DType | None:
    # numpy reads None as f64, which would hide a forgotten argument.
    if value is None:
        return None
    if isinstance(value, str) and value in _BY_NUMPY_NAME:
        return _BY_NUMPY_NAME[value]
    try:
        dtype: np.dtype[Any] = np.dtype(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, KeyError, SyntaxError):
        return None
    return _BY_NUMPY_NAME.get(dtype.name) if dtype.isnative else None


def from_c_spelling(spelling: str) -> DType | None:
    """Return the type for its spelling in kernels (`unsigned int`, `f32`), `None` for no type.

    Words may come in any order, as in C: `long unsigned int` is u64.
    """
    words = spelling.split()
    return _BY_C_WORDS.get(tuple(sorted(words))) or _BY_NAME.get(" ".join(words))


if not TYPE_CHECKING:  # a type checker would take every name for an attribute

    def __getattr__(name: str) -> NoReturn:
        """Refuse a missing name; for another library's name of a dtype, name ours."""
        message = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_"):
            try:
                message = f"{message}. Write {as_dtype(name)!r}."
            except TypeError as error:
                message = f"{message}: {error}"
        raise AttributeError(message, name=name)

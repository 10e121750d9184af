"""Definition of an operation: operands, shape rule, numpy reference, accuracy.

`ubridge.definitions` has the operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ubridge.core.accuracy import EXACT, Accuracy
from ubridge.core.layout import Shape
from uhal.kept import kept_property

Array = Any
"""A numpy array; the references are written for f64 and for integers."""

FLOATS = "bf16 f16 f32 f64 f8e4m3"
REALS = "bf16 f16 f32 f64"
INTEGERS = "u8 u32 i16 i32 i64"
ALL = f"{FLOATS} {INTEGERS}"
CAST_ONLY = "i8 u16 u64"
"""Integer types that operations take only after `astype`."""
ORDERED = f"{REALS} {INTEGERS}"
CONVOLVED = f"{REALS} u8 u32"


@dataclass(frozen=True, eq=False)
class Family:
    """Operations with the same operands and the same rule.

    The rule gives the result's shape; families are compared by identity.
    """

    name: str
    operands: str
    """The names of operands in memory. The first may be changed in place; brackets mark optional
    ones."""
    shape: str
    """The result's shape, in words."""
    rule: Callable[[Any], Shape] | None = None
    """Returns the shape of a `Question`'s result from the operands, or from the result if the
    operands leave the shape open.

    Raises `ArgumentValueError` or `ArgumentTypeError` for operands that do not fit. `None` for
    operations that graphs cannot hold.
    """
    kinds: str = "T"
    """Element types of operands and result, as `T f32 -> u8`: `T` is one type, `*` any."""
    packed: int = 0
    """Number of leading operands that must be contiguous."""
    settings: str = ""
    """The names of other arguments of the functions on tensors, such as an axis."""
    numbers: str = ""
    """Names of the numbers that each call passes after the operands."""
    attributes: str = ""
    """The names of a question's other attributes; brackets mark optional flags."""
    replaces: int = 0
    """Number of leading operands that a result of the same layout may overwrite.

    Kernels read everything they need from an element before they overwrite the element.
    """
    is_in_place: bool = False
    """Whether operations read the result's old contents, or leave a part of them unchanged."""
    is_recorded: bool = False
    """Whether a question holds its work, as `work`, which only this process can enqueue."""
    may_have_gaps: bool = False
    """Whether the result may be strided."""
    accuracy: Accuracy = EXACT
    """Default accuracy of its operations."""

    @kept_property
    def tensors(self) -> range:
        """Allowed numbers of operands in memory."""
        names = self.operands.split()
        optional = sum(one.startswith("[") for one in names)
        most = len(names) - self.is_in_place
        return range(most - optional, most + 1)


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. Each operation is a single object: compare with `is`."""

    name: str
    family: Family
    root: str
    """The beginning of the kernels' names."""
    dtypes: tuple[str, ...]
    """Guaranteed element types of `x` wherever Candle's kernels run."""
    summary: str
    reference: Callable[..., Array] | None
    """numpy reference, if it is one expression."""
    accuracy: Accuracy
    """Bound on the error of the results."""
    composed: Callable[[Any, Any], None] | None
    """Function that adds the steps of a `Question` to `Steps`, composed of other operations, for
    devices without a lowering of this operation.
    """
    called: str
    """The function on tensors that uses the operation."""
    settings: Mapping[str, Any]
    """Keywords of this function that select the operation."""

    @kept_property
    def is_of_floats(self) -> bool:
        """Whether it is guaranteed only for floats; for integers numpy's result is f64."""
        return bool(self.dtypes) and not self.has_integers

    @kept_property
    def has_integers(self) -> bool:
        """Whether it is guaranteed for integers."""
        return not set(self.dtypes).isdisjoint(INTEGERS.split())

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def define(
    name: str,
    family: Family,
    root: str,
    dtypes: str,
    summary: str,
    reference: Callable[..., Array] | None = None,
    *,
    accuracy: Accuracy | None = None,
    composed: Callable[[Any, Any], None] | None = None,
    called: str = "",
    **settings: Any,
) -> Op:
    """Return a new operation, by default as exact as its family.

    `settings` are the keywords of the function `called`.
    """
    promised = accuracy or family.accuracy
    kinds = tuple(dtypes.split())
    return Op(
        name, family, root, kinds, summary, reference, promised, composed, called or name, settings
    )


WORK = define(
    "work",
    Family("work", "buffers", "shape of a buffer it may write", is_in_place=True, is_recorded=True),
    "",
    "",
    "a program's own work",
)
"""Non-operations in a trace: launches of users' kernels, copies and fills."""

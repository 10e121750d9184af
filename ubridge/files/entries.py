"""Descriptions of the tensors in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ubridge.core.block_formats import BlockFormat
from ubridge.files.mapped import MappedFile
from uhal import DType

ElementType: TypeAlias = DType | BlockFormat | str
"""An element type, a format of blocks, or the name of an unsupported type."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file: its type, shape and position."""

    name: str
    kind: ElementType
    shape: tuple[int, ...]
    """Outermost axis first, as in numpy."""
    file: MappedFile
    start: int
    """Offset in the file, in bytes."""
    nbytes: int

    @property
    def kind_name(self) -> str:
        """The name of its element type or format."""
        return self.kind if isinstance(self.kind, str) else self.kind.name

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)


def bytes_of(kind: DType | BlockFormat, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor; `ArgumentValueError` for rows with a part of a block."""
    if isinstance(kind, DType):
        return prod(shape) * kind.itemsize
    return prod(shape[:-1]) * kind.row_bytes(shape[-1] if shape else 1)


Bounds: TypeAlias = dict[str, tuple[int, str]]
"""Largest integer for each name in a file, and the reason: `bounds` of `Settings`."""


def bounds_of(
    entries: Collection[TensorEntry], counts: Iterable[str], lengths: Iterable[str] = ()
) -> Bounds:
    """Return upper bounds of a configuration's numbers, from the files' tensors.

    Values named in `counts` count things with a tensor each; values named in `lengths` are axes of
    tensors.
    """
    longest = max((length for entry in entries for length in entry.shape), default=0)
    axes = f"for no tensor has an axis longer than {longest}"
    return {
        **dict.fromkeys(counts, (len(entries), f"for there are {len(entries)} tensors")),
        **dict.fromkeys(lengths, (longest, axes)),
    }

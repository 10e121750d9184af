"""Accesses of 16 bytes per thread, for the other kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from uhal.ptx import Pointer, Value, f32, loop, pack, select, u32, unpack


def spans(length: Any, first: Any, step: Any, *pointers: Pointer) -> Iterator[tuple[Value, int]]:
    """Loop over elements: 16 bytes per thread if all pointers are aligned, then single elements.

    Yields an index and the number of elements from this index on. Thread `first` of `step` threads
    takes every `step`-th span.
    """
    count = 16 // pointers[0].of.bytes
    address = pointers[0].base
    for one in pointers[1:]:
        address = address | one.base
    whole = select((address & 15) == 0, length & -count % 2**32, u32(0))
    for i in loop(first * count, whole, step * count):
        yield i, count
    for i in loop(whole + first, length, step):
        yield i, 1


def load(pointer: Pointer, index: Any, count: int) -> list[Value]:
    """Load `count` adjacent elements, as f32."""
    if count == 1:
        return [f32(pointer[index])]
    if pointer.of is f32:
        return list(pointer.load(index, 4))
    words = replace(pointer.at(index), of=u32).load(0, 4)
    return [f32(half) for word in words for half in unpack(word, pointer.of)]


def store(pointer: Pointer, index: Any, values: Sequence[Value]) -> None:
    """Store f32 values as adjacent elements of the pointer's type."""
    made = [pointer.of(one) for one in values]
    if len(made) <= 4:
        pointer.store(index, made)
    else:
        words = [pack(*made[i : i + 2]) for i in range(0, len(made), 2)]
        replace(pointer.at(index), of=u32).store(0, words)

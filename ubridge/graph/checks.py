"""What a graph file may say of a call: arguments of the right kinds, inside the memory they name.

Lowerings trust their callers, and a file is not one of them. Each argument is compared with the
type that the lowering's method declares, and `rules` says how much of its memory a call
touches: a file cannot make a kernel touch what it was not given.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

from ubridge.device.lowering import Lowering
from ubridge.graph.calls import Call, Place, ScalarSlot, argument_names
from ubridge.graph.rules import RULES
from ubridge.graph.storage import Storages
from ubridge.graph.uses import require_counts, require_kind
from uhal.errors import ArgumentValueError


def require_place(place: object, storages: Storages) -> None:
    """Refuse what is no place within one of the storages."""
    if not isinstance(place, Place):
        raise ArgumentValueError(f"expected a place in memory, got {place!r}")
    number, offset, size, dtype = place
    require_counts("a place in memory", number, offset, size)
    if number >= len(storages):
        raise ArgumentValueError(f"expected one of {len(storages)} storages, got {number}")
    room = storages[number].nbytes
    if offset % dtype.itemsize or offset + size * dtype.itemsize > room:
        raise ArgumentValueError(
            f"{size} elements of {dtype} at byte {offset} do not lie in storage {number} of "
            f"{room} bytes"
        )


def require_sound(call: Call, storages: Storages) -> None:
    """Refuse a call whose arguments no operation has, or that reaches out of its memory.

    Raises `ArgumentValueError`. What a kernel is told of windows is read from the device.
    """
    names = argument_names(call.method)
    if len(call.arguments) != len(names):
        raise ArgumentValueError(
            f"{call.method}: expected {len(names)} arguments, got {len(call.arguments)}"
        )
    kinds = _kinds(call.method)
    for name, one in zip(names, call.arguments, strict=True):
        require_kind(f"{call.method}, {name!r}", kinds[name], one)
    for place in call.places:
        require_place(place, storages)
    uses = list(RULES[call.method](storages, *call.arguments))
    written = call.written
    for use in uses:
        if use.place is None:
            continue
        if use.elements > use.place.size:
            raise ArgumentValueError(
                f"{call.method}, {use.name!r}: reaches {use.elements} elements, and its place has "
                f"{use.place.size}"
            )
        if use.steers and use.place is not written and use.place.overlaps(written):
            raise ArgumentValueError(
                f"{call.method}, {use.name!r}: lies in the memory that the result goes to"
            )


def require_slot(slot: ScalarSlot, call: Call, storages: Storages) -> None:
    """Refuse a slot that is not all of its memory: its range is trusted for what is read there."""
    written = call.written
    storage = storages[written.storage]
    numbers = (slot.value, slot.low, slot.high)
    if not isinstance(slot.name, str) or any(type(one) not in (int, float) for one in numbers):
        raise ArgumentValueError(f"expected a slot's name and numbers, got {slot}")
    if call.method != "fill" or written.dtype is not slot.dtype or written.offset:
        raise ArgumentValueError(
            f"slot {slot.name!r}: expected memory of {slot.dtype} filled by it"
        )
    if storage.buffer is not None or written.size != 1 or storage.nbytes != written.nbytes:
        raise ArgumentValueError(f"slot {slot.name!r}: expected one number in memory of its own")
    slot.checked(slot.value)


@cache
def _kinds(method: str) -> dict[str, Any]:
    """The types of a method's arguments."""
    return get_type_hints(getattr(Lowering, method))


__all__ = ["require_place", "require_slot", "require_sound"]

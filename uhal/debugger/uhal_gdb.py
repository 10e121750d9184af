"""For gdb: prints values of kernels and uhal's objects, and the running work-item.

    gdb -x $(python -m uhal gdb) --args python program.py

gdb runs this file with its own Python; nothing of uhal is imported. Objects of the lane are printed
if the lane has debug information (`make debug` in a checkout).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import gdb

MOST = 8
"""Values of a register or vector that are printed."""


class Printer:
    """Prints a value by a function of it."""

    def __init__(self, value: Any, text: Callable[[Any], str]) -> None:
        self._value = value
        self._text = text

    def to_string(self) -> str:
        """Return the text for gdb."""
        return self._text(self._value)


def _extent(value: Any) -> str:
    return f"({int(value['x'])}, {int(value['y'])}, {int(value['z'])})"


def _half(value: Any) -> str:
    return str(struct.unpack("<e", struct.pack("<H", int(value["bits"])))[0])


def _brain(value: Any) -> str:
    return str(struct.unpack("<f", struct.pack("<I", int(value["bits"]) << 16))[0])


def _several(values: Any) -> str:
    first, last = values.type.range()
    shown = [values[index] for index in range(first, min(last, first + MOST - 1) + 1)]
    more = ", …" if last - first + 1 > MOST else ""
    return f"{{{', '.join(map(str, shown))}{more}}}"


def _buffer(value: Any) -> str:
    state = " closed" if int(value["is_closed"]) else ""
    return (
        f"DeviceBuffer of {int(value['size'])} elements, {int(value['nbytes'])} bytes at "
        f"{int(value['address']):#x}{state}"
    )


def _stream(value: Any) -> str:
    core = value["core"]
    name = gdb.lookup_type("struct __pyx_obj_4uhal_5_lane_StreamCore").pointer()
    core = core.cast(name).dereference()
    return (
        f"Stream {int(core['id'])}: {int(core['ticket'])} tickets given out, "
        f"{int(core['completed'])} known to be complete{' closed' if int(core['closed']) else ''}"
    )


PRINTERS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    (r"uhal_dim3", _extent),
    (r"f16", _half),
    (r"bf16", _brain),
    (r"vec<.*>", lambda value: _several(value["at"])),
    (r"uhal::Register<.*>", lambda value: _several(value["values_"])),
    (r"__pyx_obj_4uhal_5_lane_DeviceBuffer", _buffer),
    (r"__pyx_obj_4uhal_5_lane_Stream", _stream),
)


def find_printer(value: Any) -> Printer | None:
    """Return the printer of a value, for gdb."""
    plain = value.type.strip_typedefs().unqualified()
    if plain.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return find_printer(value.referenced_value())
    for pattern, text in PRINTERS:
        if re.fullmatch(pattern, plain.name or plain.tag or ""):
            return Printer(value, text)
    return None


class WorkItem(gdb.Command):  # type: ignore[misc]
    """uhal-where: the kernel, block and work-item that the selected thread runs."""

    def __init__(self) -> None:
        super().__init__("uhal-where", gdb.COMMAND_STACK)

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Print the work-item, or that no kernel runs."""
        try:
            frame = gdb.selected_frame()
        except gdb.error:
            frame = None  # nothing runs
        while frame is not None:
            found = re.search(r"uhal_kernel_(\w+)::body", frame.name() or "")
            if found is not None:
                this = frame.read_var("this").dereference()
                text = f"kernel {found[1]}, block {_extent(this['blockIdx'])}"
                text += f" of {_extent(this['gridDim'])}, block shape {_extent(this['blockDim'])}"
                for name, value in _loops(frame):
                    text += f", {name} = {value}"
                print(text)
                return
            frame = frame.older()
        print("no kernel runs in this thread")


def _loops(frame: Any) -> Iterator[tuple[str, int]]:
    """The variables of THREADS and GRID_STRIDE regions; each has a variable for its end."""
    block = frame.block()
    while block is not None and block.function is None:
        names = {symbol.name for symbol in block}
        for symbol in block:
            if f"{symbol.name}_end" in names:
                yield symbol.name, int(symbol.value(frame))
        block = block.superblock


gdb.pretty_printers.append(find_printer)
WorkItem()

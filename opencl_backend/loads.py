"""Writes a kernel with barriers for PoCL, which repeats a load behind a barrier.

PoCL 7.1 loops over a block's work-items between two barriers. If a value is loaded before a barrier
and used after it, PoCL may load the value again after the barrier, when other work-items have
written the memory. This happens in OpenCL C as well, with shared and global memory
(tests/opencl/repeated_load.py). The other loop method, `POCL_WORK_GROUP_METHOD=cbs`, computes wrong
products of quantized weights instead. A volatile load runs once, in its place.
"""

from __future__ import annotations

from array import array

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    HEADER_WORDS,
    OP_TYPE_POINTER,
    OP_VARIABLE,
    STORAGE_CROSS_WORKGROUP,
    STORAGE_WORKGROUP,
    Function,
    pack_words,
)

_OP_LOAD, _OP_CONTROL_BARRIER = 61, 224
_STORAGE_GENERIC = 8
_VOLATILE = 1
"""The bit for volatile in an OpLoad's memory operands."""
_SHARED = frozenset((STORAGE_WORKGROUP, STORAGE_CROSS_WORKGROUP, _STORAGE_GENERIC))
"""Memory that other threads write."""


def done_once(image: bytes, what: str) -> bytes:
    """Return the module with volatile loads, if it has a barrier; may raise `InvalidImageError`."""
    module = SpirvModule(image, what)
    functions = list(module.functions.values())
    if not any(
        module.words[start] & 0xFFFF == _OP_CONTROL_BARRIER
        for function in functions
        for start, _ in _instructions(module, function)
    ):
        return image
    pointers = {
        identifier
        for identifier, one in module.globals.items()
        if one.opcode == OP_TYPE_POINTER and module.words[one.start + 2] in _SHARED
    }
    values = {
        identifier
        for identifier, one in module.globals.items()
        if one.opcode == OP_VARIABLE and module.words[one.start + 1] in pointers
    }
    written = module.words[: functions[0].start if functions else HEADER_WORDS]
    for function in functions:
        written.extend(_with_volatile(module, function, pointers, values))
    return pack_words(written)


def _instructions(module: SpirvModule, function: Function) -> list[tuple[int, int]]:
    found = []
    position = function.start
    while position < function.end:
        end = position + (module.words[position] >> 16)
        found.append((position, end))
        position = end
    return found


def _with_volatile(
    module: SpirvModule, function: Function, pointers: set[int], values: set[int]
) -> array[int]:
    written = array("I")
    known = set(values)
    for start, end in _instructions(module, function):
        one = module.words[start:end]
        # In a function, a type appears only as the type of a result.
        if len(one) > 2 and one[1] in pointers:
            known.add(one[2])
        if one[0] & 0xFFFF == _OP_LOAD and len(one) > 3 and one[3] in known:
            if len(one) > 4:
                one[4] |= _VOLATILE
            else:
                one = array("I", (5 << 16 | _OP_LOAD, *one[1:], _VOLATILE))
        written.extend(one)
    return written

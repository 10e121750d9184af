"""Bounded reader of SPIR-V modules for kernels: instructions, names, types and sizes.

The file is not trusted: every count is checked against the words at hand, the words are walked
once, types refer to earlier types, and every fault is an `InvalidImageError`. Numbers come from
Khronos's "SPIR-V Specification".
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from uhal.errors import InvalidImageError
from uhal.kept import kept_property

MAGIC = 0x07230203
HEADER_WORDS = 5
MAX_BOUND = 1 << 22
"""The specification's universal limit on identifiers, 2²²."""
MAX_TYPE_BYTES = 1 << 40

OP_NAME = 5
OP_EXT_INST = 12
OP_MEMORY_MODEL = 14
OP_ENTRY_POINT = 15
OP_EXECUTION_MODE = 16
OP_CAPABILITY = 17
OP_TYPE_BOOL = 20
OP_TYPE_INT = 21
OP_TYPE_FLOAT = 22
OP_TYPE_VECTOR = 23
OP_TYPE_ARRAY = 28
OP_TYPE_STRUCT = 30
OP_TYPE_POINTER = 32
OP_TYPE_FUNCTION = 33
OP_CONSTANT = 43
OP_CONSTANT_COMPOSITE = 44
OP_CONSTANT_NULL = 46
OP_FUNCTION = 54
OP_FUNCTION_PARAMETER = 55
OP_FUNCTION_END = 56
OP_VARIABLE = 59
OP_DECORATE = 71
OP_TYPES = range(19, 40)

ADDRESSING_PHYSICAL_64 = 2
MEMORY_OPENCL = 2
EXECUTION_KERNEL = 6
MODE_LOCAL_SIZE_HINT = 18
CAPABILITY_SHADER = 1

STORAGE_WORKGROUP = 4
STORAGE_CROSS_WORKGROUP = 5
STORAGE_FUNCTION = 7

DECORATION_CPACKED = 10
DECORATION_CONSTANT = 22
DECORATION_FUNC_PARAM_ATTR = 38
DECORATION_LINKAGE = 41
ATTRIBUTE_NO_WRITE = 6

COMPILED_AS_HIP = "__hip_cuid_"
"""Name of a variable in every module of clang's HIP front end. In such modules the hint at the
block's size is the largest size, from `kernel.h`."""


def is_spirv(image: bytes) -> bool:
    """Say whether the bytes begin like a SPIR-V module of either byte order."""
    return image[:4] in (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big"))


@dataclass(frozen=True)
class Instruction:
    """An instruction outside of functions: its number and all of its words."""

    opcode: int
    start: int
    end: int


@dataclass
class Function:
    """A function: the range of its words and the identifiers of its parameters."""

    id: int
    type: int
    start: int
    end: int = 0
    parameters: list[int] = field(default_factory=list)
    parameters_end: int = 0
    """Index of the first word after its parameters."""


@dataclass(frozen=True)
class Entry:
    """A kernel."""

    name: str
    function: int
    start: int
    """Identifiers in its OpEntryPoint."""
    interface: tuple[int, ...]


class SpirvWords:
    """Contents of a module. Immutable. Any method may raise `InvalidImageError`."""

    def __init__(self, image: bytes, what: str = "the image") -> None:
        """Read a module; messages call it `what`."""
        self._what = what
        if len(image) < 4 * HEADER_WORDS or len(image) % 4:
            self._refuse(f"has {len(image)} bytes, which is no SPIR-V module")
        if image[:4] == MAGIC.to_bytes(4, "big"):
            self._refuse("is a SPIR-V module in big-endian order")
        if not is_spirv(image):
            self._refuse(f"is no SPIR-V module: it begins with {image[:8]!r}")
        self.words = array("I")
        self.words.frombytes(image)
        if sys.byteorder == "big":
            self.words.byteswap()
        _, version, _, self.bound, _ = self.words[:HEADER_WORDS]
        self.version: tuple[int, int] = (version >> 16 & 0xFF, version >> 8 & 0xFF)
        if self.version[0] != 1:
            self._refuse(f"has SPIR-V's version {version:#x}")
        if not 0 < self.bound <= MAX_BOUND:
            self._refuse(f"has a bound of {self.bound} identifiers")
        self.capabilities: list[int] = []
        self.entries: dict[str, Entry] = {}
        self.globals: dict[int, Instruction] = {}
        """Types, constants and variables by their identifier, in the module's order."""
        self.preamble: list[Instruction] = []
        """All words before the types: declarations, names and decorations."""
        self.functions: dict[int, Function] = {}
        self._names: dict[int, int] = {}
        self._modes: dict[int, list[Instruction]] = {}
        self._decorations: dict[int, list[Instruction]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._walk()
        if not self._has_memory_model:
            self._refuse("says nothing of its memory model")

    # -- the walk ----------------------------------------------------------------------------------

    def _walk(self) -> None:
        words = self.words
        total = len(words)
        position = HEADER_WORDS
        self._has_memory_model = False
        current: Function | None = None
        while position < total:
            opcode = words[position] & 0xFFFF
            end = position + (words[position] >> 16)
            if end == position or end > total:
                self._refuse(f"breaks off in word {position}")
            if current is None:
                if opcode == OP_FUNCTION:
                    current = self._begin_function(position, end)
                else:
                    self._outside(opcode, position, end)
            elif opcode == OP_FUNCTION_PARAMETER:
                if end - position != 3:
                    self._refuse(f"has a parameter of {end - position} words")
                current.parameters.append(words[position + 2])
                current.parameters_end = end
            elif opcode == OP_FUNCTION_END:
                current.end = end
                current = None
            elif opcode == OP_FUNCTION:
                self._refuse(f"has a function in a function, in word {position}")
            position = end
        if current is not None:
            self._refuse("ends in a function")

    def _begin_function(self, start: int, end: int) -> Function:
        if end - start != 5:
            self._refuse(f"has a function of {end - start} words")
        _, _, name, _, kind = self.words[start:end]
        if name in self.functions or name in self.globals:
            self._refuse(f"defines identifier {name} twice")
        made = Function(name, kind, start, parameters_end=end)
        self.functions[name] = made
        return made

    def _outside(self, opcode: int, start: int, end: int) -> None:
        """Note an instruction that is in no function."""
        words = self.words
        if opcode in OP_TYPES or opcode in _RESULT_AT_2:
            position = start + (1 if opcode in OP_TYPES else 2)
            if end <= position:
                self._refuse(f"breaks off in word {start}")
            if words[position] in self.globals:
                self._refuse(f"defines identifier {words[position]} twice")
            self.globals[words[position]] = Instruction(opcode, start, end)
            return
        self.preamble.append(Instruction(opcode, start, end))
        if opcode == OP_CAPABILITY:
            self._need(start, end, 2)
            self.capabilities.append(words[start + 1])
        elif opcode == OP_MEMORY_MODEL:
            self._need(start, end, 3)
            self._has_memory_model = True
            self.addressing, self.memory = words[start + 1], words[start + 2]
        elif opcode == OP_ENTRY_POINT:
            self._entry_point(start, end)
        elif opcode == OP_EXECUTION_MODE:
            self._need(start, end, 3)
            self._modes.setdefault(words[start + 1], []).append(self.preamble[-1])
        elif opcode == OP_NAME:
            self._need(start, end, 3)
            self._names[words[start + 1]] = start
        elif opcode == OP_DECORATE:
            self._need(start, end, 3)
            self._decorations.setdefault(words[start + 1], []).append(self.preamble[-1])

    def _entry_point(self, start: int, end: int) -> None:
        self._need(start, end, 4)
        if self.words[start + 1] != EXECUTION_KERNEL:
            return
        name, after = self._string(start + 3, end)
        if name in self.entries:
            self._refuse(f"has two kernels of the name {name!r}")
        interface = tuple(self.words[after:end])
        self.entries[name] = Entry(name, self.words[start + 2], start, interface)

    def _need(self, start: int, end: int, words: int) -> None:
        if end - start < words:
            self._refuse(f"breaks off in word {start}")

    def _string(self, start: int, end: int) -> tuple[str, int]:
        """A string, and the position of the word after it."""
        text = self.words[start:end].tobytes()
        length = text.find(b"\0")
        if length < 0:
            self._refuse(f"has a text without an end in word {start}")
        return text[:length].decode("utf-8", "replace"), start + length // 4 + 1

    # -- facts of identifiers ----------------------------------------------------------------------

    def name(self, identifier: int) -> str:
        """Return the debug name of an identifier, or ""."""
        start = self._names.get(identifier)
        if start is None:
            return ""
        return self._string(start + 2, start + (self.words[start] >> 16))[0]

    def decorations(self, identifier: int) -> Iterator[tuple[int, array[int]]]:
        """Yield (decoration, its words) of an identifier."""
        for found in self._decorations.get(identifier, ()):
            yield self.words[found.start + 2], self.words[found.start + 3 : found.end]

    def linkage_name(self, identifier: int) -> str | None:
        """Return the linkage name of an identifier, or `None`."""
        for found in self._decorations.get(identifier, ()):
            if self.words[found.start + 2] == DECORATION_LINKAGE:
                return self._string(found.start + 3, found.end)[0]
        return None

    @kept_property
    def is_compiled_as_hip(self) -> bool:
        """Whether clang's HIP front end made the module."""
        return any(
            self.linkage_name(identifier) == COMPILED_AS_HIP
            for identifier, one in self.globals.items()
            if one.opcode == OP_VARIABLE
        )

    def operands(self, identifier: int) -> array[int]:
        """Return the words of a type, constant or variable, the first included."""
        found = self.globals.get(identifier)
        if found is None:
            self._refuse(f"uses identifier {identifier}, which is no type, constant or variable")
        return self.words[found.start : found.end]

    def opcode(self, identifier: int) -> int:
        """Return the kind of instruction that defines a type, constant or variable."""
        return self.operands(identifier)[0] & 0xFFFF

    def size_and_alignment(self, identifier: int, depth: int = 0) -> tuple[int, int]:
        """Return a type's size and alignment in bytes, by OpenCL C's layout."""
        found = self._sizes.get(identifier)
        if found is None:
            if depth > 64:
                self._refuse("has types in types beyond measure")
            found = self._sizes[identifier] = self._measure(identifier, depth + 1)
            if found[0] > MAX_TYPE_BYTES:
                self._refuse(f"has a type of {found[0]} bytes")
            if found[1] == 0:
                self._refuse("has a number of 0 bits, or a vector of 0 numbers")
        return found

    def _measure(self, identifier: int, depth: int) -> tuple[int, int]:
        words = self.operands(identifier)
        opcode = words[0] & 0xFFFF
        if opcode in (OP_TYPE_INT, OP_TYPE_FLOAT) and len(words) >= 3:
            size = -(-words[2] // 8)
            return size, size
        if opcode == OP_TYPE_BOOL:
            return 1, 1
        if opcode == OP_TYPE_POINTER:
            return 8, 8
        if opcode == OP_TYPE_VECTOR and len(words) >= 4:
            size, _ = self.size_and_alignment(words[2], depth)
            count = 4 if words[3] == 3 else words[3]
            return size * count, size * count
        if opcode == OP_TYPE_ARRAY and len(words) >= 4:
            size, alignment = self.size_and_alignment(words[2], depth)
            return size * self._constant(words[3]), alignment
        if opcode == OP_TYPE_STRUCT:
            packed = any(kind == DECORATION_CPACKED for kind, _ in self.decorations(identifier))
            end, largest = 0, 1
            for member in words[2:]:
                size, alignment = self.size_and_alignment(member, depth)
                alignment = 1 if packed else alignment
                end = -(-end // alignment) * alignment + size
                largest = max(largest, alignment)
            return -(-end // largest) * largest, largest
        self._refuse(f"uses identifier {identifier} as a type of values, which it is not")

    def _constant(self, identifier: int) -> int:
        words = self.operands(identifier)
        if words[0] & 0xFFFF != OP_CONSTANT or not 4 <= len(words) <= 5:
            self._refuse(f"uses identifier {identifier} as a number, which it is not")
        return int(sum(word << 32 * index for index, word in enumerate(words[3:])))

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidImageError(f"{self._what} {reason}")


_RESULT_AT_2 = frozenset((1, 12, *range(41, 53), OP_VARIABLE))
"""Instructions outside functions with a type and a result: undefined values, constants, variables,
and instructions of extended sets, such as debug information."""


def pack_words(words: array[int] | list[int]) -> bytes:
    """Return the bytes of a module."""
    return struct.pack(f"<{len(words)}I", *words)

"""Kernels of SPIR-V modules: their parameters, and the largest block they allow."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from uhal.images import header_signature
from uhal.images.spirv_words import (
    ATTRIBUTE_NO_WRITE,
    DECORATION_FUNC_PARAM_ATTR,
    MODE_LOCAL_SIZE_HINT,
    OP_CONSTANT_COMPOSITE,
    OP_CONSTANT_NULL,
    OP_TYPE_ARRAY,
    OP_TYPE_BOOL,
    OP_TYPE_FLOAT,
    OP_TYPE_FUNCTION,
    OP_TYPE_INT,
    OP_TYPE_POINTER,
    OP_TYPE_STRUCT,
    OP_TYPE_VECTOR,
    OP_VARIABLE,
    STORAGE_FUNCTION,
    STORAGE_WORKGROUP,
    Entry,
    Function,
    SpirvWords,
)
from uhal.kept import kept_property
from uhal.signature import LazySignatures, Parameter, ParameterKind, Signature

_FLOATS = {2: "f16", 4: "f32", 8: "f64"}
_ONES = array("I", [1, 1])


class SpirvModule(SpirvWords):
    """A module and its kernels. Immutable. Any method may raise `InvalidImageError`."""

    @kept_property
    def signatures(self) -> Mapping[str, Signature]:
        """Description of each kernel, computed on first access."""
        return LazySignatures(self.entries, lambda name: self.signature(self.entries[name]))

    def function_of(self, entry: Entry) -> Function:
        """Return the function of a kernel."""
        found = self.functions.get(entry.function)
        if found is None:
            self._refuse(f"has no function for the kernel {entry.name!r}")
        return found

    def parameter_types(self, function: Function) -> array[int]:
        """Return the types of a function's parameters."""
        words = self.operands(function.type)
        if words[0] & 0xFFFF != OP_TYPE_FUNCTION or len(words) != 3 + len(function.parameters):
            self._refuse(f"has function {function.id}, whose type does not match its parameters")
        return words[3:]

    def is_local(self, type_: int) -> bool:
        """Whether a type is a pointer into the memory that a block shares."""
        words = self.operands(type_)
        return words[0] & 0xFFFF == OP_TYPE_POINTER and words[2] == STORAGE_WORKGROUP

    def signature(self, entry: Entry) -> Signature:
        """Return the parameters that a caller gives, without pointers to shared memory."""
        function = self.function_of(entry)
        parameters: list[Parameter] = []
        end = 0
        shares = False
        for identifier, type_ in zip(
            function.parameters, self.parameter_types(function), strict=True
        ):
            if self.is_local(type_):
                shares = True
                continue
            reported = self._parameter(identifier, type_, len(parameters), end)
            parameters.append(reported)
            end = (reported.offset or 0) + (reported.size or 0)
        image = Signature(parameters, entry.name)
        # The header's constant counts all parameters, and does not mark pointers to shared memory.
        constants = {} if shares else self._header_constants
        return header_signature.with_header(image, constants)

    @kept_property
    def _header_constants(self) -> dict[str, bytes]:
        """Each kernel's parameters, from the constants of `<uhal/kernel.h>`."""
        found: dict[str, bytes] = {}
        budget = len(self.words)
        for identifier, one in self.globals.items():
            if one.opcode != OP_VARIABLE or one.end - one.start != 5:
                continue
            name = self.linkage_name(identifier) or ""
            if not name.startswith(header_signature.PREFIX):
                continue
            words = self.operands(self.words[one.start + 4])
            # A structure around an array of characters.
            if words[0] & 0xFFFF == OP_CONSTANT_COMPOSITE and len(words) == 4:
                words = self.operands(words[3])
            # Constants may share parts in a hostile file, but only within a limit.
            budget -= len(words)
            if words[0] & 0xFFFF != OP_CONSTANT_COMPOSITE or budget < 0:
                continue
            found[name.removeprefix(header_signature.PREFIX)] = bytes(
                self._character(part) for part in words[3:]
            )
        return found

    def _character(self, identifier: int) -> int:
        null = self.opcode(identifier) == OP_CONSTANT_NULL
        return 0 if null else self._constant(identifier) & 0xFF

    def _parameter(self, identifier: int, type_: int, index: int, end: int) -> Parameter:
        kind, size, dtype = self._facts(identifier, type_)
        alignment = size if size in (1, 2, 4, 8) else 8
        is_const = None
        if kind == "pointer" and any(
            decoration == DECORATION_FUNC_PARAM_ATTR and ATTRIBUTE_NO_WRITE in words
            for decoration, words in self.decorations(identifier)
        ):
            is_const = True
        name = self.name(identifier).removesuffix(".coerce")
        return Parameter(
            index,
            name=name if name.isidentifier() else None,
            kind=kind,
            size=size,
            # The argument's offset in the caller's block; the driver gets each argument separately.
            offset=-(-end // alignment) * alignment,
            dtype=None if dtype is None else Signature.parse(dtype)[0].dtype,
            is_const=is_const,
            is_integer=True if kind == "scalar" and dtype is None else None,
            source="SPIR-V",
        )

    def _facts(self, identifier: int, type_: int) -> tuple[ParameterKind, int | None, str | None]:
        """Kind, bytes and dtype of a parameter, as far as the module has them."""
        words = self.operands(type_)
        opcode = words[0] & 0xFFFF
        if opcode == OP_TYPE_POINTER:
            if words[2] == STORAGE_FUNCTION:
                size, _ = self.size_and_alignment(words[3])
                # A class around one number is a scalar in the kernel's source.
                return ("unknown" if self._is_wrapper(words[3]) else "aggregate"), size, None
            return "pointer", 8, None
        if opcode == OP_TYPE_FLOAT:
            size, _ = self.size_and_alignment(type_)
            return "scalar", size, _FLOATS.get(size)
        if opcode == OP_TYPE_INT:
            return "scalar", self.size_and_alignment(type_)[0], None
        if opcode == OP_TYPE_BOOL:
            return "scalar", 1, "bool"
        if opcode in (OP_TYPE_VECTOR, OP_TYPE_ARRAY, OP_TYPE_STRUCT):
            return "aggregate", self.size_and_alignment(type_)[0], None
        return "unknown", None, None

    def _is_wrapper(self, type_: int) -> bool:
        words = self.operands(type_)
        if words[0] & 0xFFFF != OP_TYPE_STRUCT or len(words) != 3:
            return False
        return self.opcode(words[2]) in (OP_TYPE_INT, OP_TYPE_FLOAT)

    def largest_block(self, entry: Entry) -> int | None:
        """Return the largest block that the kernel's source allows, `None` without a limit."""
        if not self.is_compiled_as_hip:
            return None
        for mode in self._modes.get(entry.function, ()):
            words = self.words[mode.start : mode.end]
            if words[2] == MODE_LOCAL_SIZE_HINT and len(words) == 6 and words[4:] == _ONES:
                return words[3]
        return None

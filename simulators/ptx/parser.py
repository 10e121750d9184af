"""The level of the module: version, variables and the heads of functions (ISA manual §5, §11)."""

from __future__ import annotations

import re
import struct
from dataclasses import replace

from .body import read_body
from .errors import PtxSyntaxError, UnsupportedPtxError
from .program import (
    Function,
    FunctionText,
    ParameterSlot,
    Program,
    Prototype,
    Reference,
    Variable,
)
from .source import Lines, block_end, clean, pieces
from .types import TYPES

MAX_VARIABLE_BYTES = 1 << 30
MAX_PARAMETERS = 4096

_HEADER = re.compile(
    r"\s*\.version\s+(\d{1,3})\.(\d{1,3})\s+\.target\s+(\w+)\s*(?:,\s*\w+\s*)*"
    r"(?:\.address_size\s+(\d{1,3})\b)?"
)
_LINKAGE = r"(?:\.(?:visible|extern|weak|common)\s+)*"
_FUNCTION = re.compile(
    _LINKAGE + r"\.(entry|func)\s+(?:\(([^()]*)\)\s*)?([\w$%]+)\s*(?:\(([^()]*)\))?([^()]*)$"
)
_PROTOTYPE = re.compile(r"\.callprototype\s+(?:\(([^()]*)\)\s*)?[\w$%]+\s*(?:\(([^()]*)\))?[^()]*$")
_VARIABLE = re.compile(
    _LINKAGE + r"\.(global|const|shared|local|param)\s+"
    r"(?:\.attribute\s*\([^)]*\)\s*)?(?:\.align\s+(\d{1,4})\s+)?(?:\.v([248])\s+)?\.(\w+)\s+"
    r"([\w$%]+)\s*((?:\[\s*\d*\s*\]\s*)*)(?:=\s*(.*))?$",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"\s*\.(param|reg)\s+(?:\.align\s+(\d{1,3})\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s*(?:\.\w+\s*)*?(?:\.align\s+\d{1,4}\s*)?)?"
    r"([\w$%]+)\s*(?:\[\s*(\d{0,6})\s*\])?\s*$"
)
_INITIAL = re.compile(
    r"(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})|(?P<integer>-?\s*(?:0[xX][0-9a-fA-F]+|\d+)U?)"
    r"|(?:generic\s*\(\s*(?P<generic>[\w$%]+)\s*\)|(?P<symbol>[A-Za-z_$%][\w$]*))"
    r"(?:\s*\+\s*(?P<addend>\d+))?"
)
_IGNORED = (".section", ".pragma", ".alias", ".address_size", ".callprototype")


def parse(text: str) -> Program:
    """Read a module; `read_function` reads a body later.

    Raises `PtxSyntaxError` for any other text.
    """
    code = clean(text.partition("\0")[0])
    lines = Lines(code)
    header = _HEADER.match(code)
    if header is None:
        raise PtxSyntaxError("the text does not begin with .version and .target", 1)
    if header[4] == "32":
        raise UnsupportedPtxError("32-bit addresses (.address_size 32)", lines.at(header.end()))
    version = (int(header[1]), int(header[2]))
    program = Program(version, header[3], lines.at(header.start(3)), {}, {})
    functions: dict[str, FunctionText] = {}
    variables: dict[str, Variable] = {}
    position = header.end()
    while True:
        piece = next(pieces(code, lines, position), None)
        if piece is None:
            break
        position = piece.end
        if piece.ended_by == "{":
            close = block_end(code, piece.end, piece.line)
            if not piece.text.startswith(_IGNORED):
                found = function_head(piece.text, piece.line)
                found.body = code[piece.end : close]
                found.body_line = lines.at(piece.end)
                if found.name in functions and functions[found.name].body is not None:
                    raise PtxSyntaxError(f"{found.name} is defined twice", piece.line)
                functions[found.name] = found
            position = close + 1
        elif piece.ended_by != ";":
            raise PtxSyntaxError(f"{piece.ended_by!r} does not belong here", piece.line)
        elif _FUNCTION.match(piece.text):
            found = function_head(piece.text, piece.line)
            functions.setdefault(found.name, found)
        elif piece.text and not piece.text.startswith(_IGNORED):
            variable = read_variable(piece.text, piece.line)
            if variable.name not in variables or variable.data:
                variables[variable.name] = variable
    program.functions = functions
    program.variables = {
        name: _with_addresses(variable, program.function_addresses)
        for name, variable in variables.items()
    }
    return program


def _with_addresses(variable: Variable, addresses: dict[str, int]) -> Variable:
    """Return the variable with addresses in the words that name functions."""
    named = [one for one in variable.references if one.symbol in addresses]
    if not named:
        return variable
    data = bytearray(variable.data)
    for one in named:
        data[one.offset : one.offset + 8] = addresses[one.symbol].to_bytes(8, "little")
    return replace(
        variable,
        data=bytes(data),
        references=tuple(one for one in variable.references if one.symbol not in addresses),
        functions=tuple(one.symbol for one in named),
    )


def read_function(program: Program, name: str) -> Function:
    """Read a function with its body.

    Raises `PtxSyntaxError` for a body that is no PTX, `UnsupportedPtxError` for a function that
    is only declared.
    """
    found = program.functions.get(name)
    if found is None:
        raise PtxSyntaxError(f"there is no function {name}")
    if found.body is None:
        raise UnsupportedPtxError(f"{name} is declared and not defined", found.head.line)
    return read_body(found, read_variable, read_prototype)


def function_head(text: str, line: int) -> FunctionText:
    """Read the text before a function's body."""
    found = _FUNCTION.match(text)
    if found is None:
        raise PtxSyntaxError(f"expected a function, got {text[:60]!r}", line)
    head = Function(
        found[3],
        found[1] == "entry",
        _slots(found[2] or "", line),
        _slots(found[4] or "", line),
        line,
    )
    return FunctionText(head.name, head.is_entry, head, None, line)


def read_prototype(text: str, line: int) -> Prototype:
    """Read the text behind the label of a `.callprototype`."""
    found = _PROTOTYPE.match(text)
    if found is None:
        raise PtxSyntaxError(f"a prototype cannot be read: {text[:60]!r}", line)
    results, parameters = (_slots(one or "", line) for one in found.groups())
    return Prototype(tuple(one.size for one in results), tuple(one.size for one in parameters))


def _slots(text: str, line: int) -> tuple[ParameterSlot, ...]:
    parts = text.split(",") if text.strip() else []
    if len(parts) > MAX_PARAMETERS:
        raise PtxSyntaxError(f"a function has {len(parts)} parameters", line)
    slots = []
    end = 0
    for part in parts:
        found = _PARAMETER.match(part)
        if found is None or found[3] not in TYPES | _OPAQUE:
            raise PtxSyntaxError(f"a parameter cannot be read: {part.strip()[:60]!r}", line)
        if found[1] == "reg":
            raise UnsupportedPtxError("parameters in registers (.reg)", line)
        width = _element_bytes(found[3])
        size = width if found[5] is None else width * int(found[5] or 0)
        alignment = _alignment(found[2], width, line)
        offset = -(-end // alignment) * alignment
        end = offset + size
        slots.append(ParameterSlot(found[4], offset, size, alignment))
    return tuple(slots)


_OPAQUE = {"texref": 8, "samplerref": 8, "surfref": 8}


def _element_bytes(name: str) -> int:
    return _OPAQUE[name] if name in _OPAQUE else TYPES[name].bytes


def _alignment(text: str | None, natural: int, line: int) -> int:
    alignment = int(text) if text else natural
    if alignment <= 0 or alignment & (alignment - 1):
        raise PtxSyntaxError(f"an alignment of {alignment}", line)
    return alignment


# -- variables -------------------------------------------------------------------------------------


def read_variable(text: str, line: int) -> Variable:
    """Read the declaration of a variable in any space."""
    found = _VARIABLE.match(text)
    if found is None or (found[4] not in TYPES and found[4] not in _OPAQUE):
        raise PtxSyntaxError(f"a declaration cannot be read: {text[:60]!r}", line)
    width = _element_bytes(found[4])
    alignment = _alignment(found[2], width * int(found[3] or 1), line)
    size = width * int(found[3] or 1)
    for extent in re.findall(r"\[\s*(\d*)\s*\]", found[6]):
        size *= int(extent or 0)
    if size > MAX_VARIABLE_BYTES:
        raise PtxSyntaxError(f"{found[5]} has {size} bytes", line)
    data, references = _initial(found[7] or "", width, line)
    return Variable(
        found[5], found[1], alignment, max(size, len(data)), line, data, tuple(references)
    )


def _initial(text: str, width: int, line: int) -> tuple[bytes, list[Reference]]:
    data = bytearray()
    references: list[Reference] = []
    for found in _INITIAL.finditer(text):
        if found["float"]:
            data += _float_bytes(found["float"], width)
        elif found["integer"]:
            value = int(found["integer"].replace(" ", "").rstrip("U"), 0)
            data += (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        else:
            if width != 8:
                raise UnsupportedPtxError("an address in a variable narrower than 64 bits", line)
            symbol = found["generic"] or found["symbol"]
            references.append(Reference(len(data), symbol, int(found["addend"] or 0)))
            data += bytes(width)
    return bytes(data), references


def _float_bytes(text: str, width: int) -> bytes:
    bits = int(text[2:], 16)
    if text[1] in "fF":
        return bits.to_bytes(4, "little") if width == 4 else _double(bits)
    value = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return bits.to_bytes(8, "little") if width == 8 else struct.pack("<f", value)


def _double(bits: int) -> bytes:
    return struct.pack("<d", struct.unpack("<f", bits.to_bytes(4, "little"))[0])

"""Turns an ABI header into the table that `uhal.abi.Header` loads.

    python -m uhal.abi_table abi.h

writes `abi.json` beside the header. The C compiler preprocesses and `pycparser` parses; loading a
table needs neither. A header may hold integer constants (macros and enums), typedefs, structs,
unions and prototypes. Variables, bit-fields, function bodies, variable arguments and macros that
are no integer are refused with their line. Includes are not followed: the integer types of
`<stdint.h>` and `<stddef.h>` are known.

Types are encoded as lists and words:

* scalar: `"i32"`, `"f64"`, `"bool"`, `"char"`; no value: `"void"`.
* `"address"`: a pointer to an undefined type; `"text"`: `const char *`.
* `["*", target]`, `["[]", element, length]`, `["record", key]`.
* `["()", result, parameters]`: a function.
"""

from __future__ import annotations

import json
import operator
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycparser import c_ast

Type = Any
"""A type as the table encodes it."""

_SCALARS = {
    "char": "char",
    "signed char": "i8",
    "unsigned char": "u8",
    "short": "i16",
    "unsigned short": "u16",
    "int": "i32",
    "unsigned": "u32",
    "long": "i64",
    "unsigned long": "u64",
    "float": "f32",
    "double": "f64",
    "_Bool": "bool",
}
"""C's types where `long` has 64 bits: on every system that uhal supports."""
_STANDARD = {
    **{f"int{bits}_t": kind for bits, kind in ((8, "signed char"), (16, "short"), (32, "int"))},
    **{f"uint{bits}_t": f"unsigned {kind}" for bits, kind in ((8, "char"), (16, "short"))},
    "uint32_t": "unsigned",
    **dict.fromkeys(("int64_t", "intptr_t", "ptrdiff_t", "ssize_t"), "long"),
    **dict.fromkeys(("uint64_t", "uintptr_t", "size_t"), "unsigned long"),
    "bool": "_Bool",
}
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "&": operator.and_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_ENUMS = (
    ("i32", -(1 << 31), 1 << 31),
    ("u32", 0, 1 << 32),
    ("i64", -(1 << 63), 1 << 63),
    ("u64", 0, 1 << 64),
)
"""C compilers give an enum the first of these types that holds every value."""
_VALUE = "uhal_value_of_"
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)", re.MULTILINE)


class HeaderError(ValueError):
    """The header has a construct that a table cannot hold; the message names file and line."""


def table_of(text: str, name: str = "abi.h", compiler: Sequence[str] = ()) -> dict[str, Any]:
    """Return the table of a header's text. `HeaderError` names `name` and the line."""
    from pycparser import c_parser

    source = _preprocessed(text, name, compiler)
    try:
        tree = c_parser.CParser().parse(source, name)
    except c_parser.ParseError as error:
        end = f"{name}:{text.count(chr(10)) + 1}: the header ends within a declaration"
        raise HeaderError(end if "end of input" in str(error) else str(error)) from None
    except RecursionError:
        raise HeaderError(f"{name}:1: nested too deeply") from None
    return _Reader(name).read(tree)


def write_table(header: Path, output: Path, compiler: Sequence[str] = ()) -> None:
    """Write the table of a header. `HeaderError` for an unsupported header."""
    table = table_of(header.read_text("utf-8"), header.name, compiler)
    output.write_text(json.dumps(table, separators=(",", ":")), encoding="utf-8")


def _preprocessed(text: str, name: str, compiler: Sequence[str]) -> str:
    """The text after the preprocessor, with an enumerator for the value of each macro."""
    known = "".join(f"typedef {kind} {alias};\n" for alias, kind in _STANDARD.items())
    text = f'{known}# 1 "{name}"\n' + _INCLUDE.sub("", text)
    command = [*(compiler or shlex.split(os.environ.get("CC", "")) or ["cc"]), "-E", "-undef"]
    defined = _run([*command, "-dM"], text, name)
    values = {match[1] for match in re.finditer(r"^#define (\w+) \S", defined, re.MULTILINE)}
    asked = []
    for macro in _MACRO.finditer(text):
        if macro[2]:
            line = text.count("\n", 0, macro.start()) - known.count("\n")
            raise HeaderError(f"{name}:{line}: {macro[1]}(…) is a macro with parameters")
        if macro[1] in values:
            values.discard(macro[1])
            line = text.count("\n", 0, macro.start()) - known.count("\n")
            asked.append(f'# {line} "{name}"\nenum {{ {_VALUE}{macro[1]} = ({macro[1]}) }};\n')
    return _run(command, f"{text}\n{''.join(asked)}", name)


def _run(command: Sequence[str], text: str, name: str) -> str:
    # the system's own macros would be constants of the header
    done = subprocess.run(
        [*command, "-x", "c", "-"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HeaderError(done.stderr.strip().replace("<stdin>", name))
    return done.stdout


def _spelled(words: Sequence[str]) -> str:
    """The shortest spelling of specifiers: their order is free, and some are implied."""
    base = [word for word in words if word not in ("signed", "unsigned", "int")]
    if base == ["long", "long"]:
        base = ["long"]
    if "unsigned" in words:
        base = ["unsigned", *base]
    elif base == ["char"] and "signed" in words:
        base = ["signed", *base]
    return " ".join(base) or "int"


class _Reader:
    """Encodes the declarations of one parsed header."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._constants: dict[str, int] = {}
        self._types: dict[str, c_ast.Node] = {}
        self._records: dict[str, list[c_ast.Decl] | None] = {}
        self._functions: dict[str, c_ast.Decl] = {}
        self._anonymous: dict[int, str] = {}
        self._enums: dict[str, str] = {}

    def read(self, tree: c_ast.FileAST) -> dict[str, Any]:
        """Return the table."""
        for one in tree.ext:
            self._declare(one)
        macros = {name: value for name, value in self._constants.items() if name.startswith(_VALUE)}
        constants = {name: value for name, value in self._constants.items() if name not in macros}
        return {
            "constants": constants | {name[len(_VALUE) :]: macros[name] for name in macros},
            "types": {
                name: self._type(one) for name, one in self._types.items() if name not in _STANDARD
            },
            "records": {
                key: [[one.name or "", self._type(one.type)] for one in members]
                for key, members in self._records.items()
                if members is not None
            },
            "functions": {name: self._function(one) for name, one in self._functions.items()},
        }

    def _error(self, node: c_ast.Node, words: str) -> HeaderError:
        return HeaderError(f"{self._name}:{node.coord.line if node.coord else 1}: {words}")

    # -- declarations ------------------------------------------------------------------------------

    def _declare(self, one: c_ast.Node) -> None:
        kind = type(one).__name__
        if kind == "Typedef":
            self._note(one.type)
            self._types[one.name] = one.type
        elif kind == "Decl" and one.name is None:
            self._note(one.type)
        elif kind == "Decl" and type(one.type).__name__ == "FuncDecl":
            self._note(one.type)
            self._functions[one.name] = one
        elif kind == "Decl":
            raise self._error(one, f"{one.name} is a variable: a table holds none")
        else:
            raise self._error(one, f"{kind} is no declaration")

    def _note(self, node: c_ast.Node) -> None:
        """Enter the enums and records that a type defines, innermost first."""
        for _, child in node.children():
            self._note(child)
        kind = type(node).__name__
        if kind == "Enum" and node.values is not None:
            self._enter_enum(node)
        elif kind in ("Struct", "Union"):
            self._enter_record(node)

    def _enter_enum(self, node: c_ast.Enum) -> None:
        following = 0
        numbers = []
        for one in node.values.enumerators:
            following = self._value(one.value) if one.value is not None else following
            self._constants[one.name] = following
            numbers.append(following)
            following += 1
        kind = next(
            kind
            for kind, least, most in _ENUMS
            if all(least <= number < most for number in numbers)
        )
        self._enums[node.name or f"#{id(node)}"] = kind

    def _enter_record(self, node: c_ast.Struct | c_ast.Union) -> None:
        key = self._key(node)
        if node.decls is None:
            self._records.setdefault(key, None)
            return
        if self._records.get(key) is not None:
            raise self._error(node, f"{key} is defined twice")
        for one in node.decls:
            if getattr(one, "bitsize", None) is not None:
                raise self._error(one, f"{one.name}: bit-fields differ from compiler to compiler")
        self._records[key] = list(node.decls)

    def _key(self, node: c_ast.Struct | c_ast.Union) -> str:
        keyword = type(node).__name__.lower()
        if node.name:
            return f"{keyword} {node.name}"
        return self._anonymous.setdefault(id(node), f"{keyword} #{len(self._anonymous)}")

    def _function(self, one: c_ast.Decl) -> dict[str, Any]:
        result = one.type.type
        returns = self._named(result)
        return {
            "result": self._type(result),
            "status": returns if returns in self._types else "",
            "parameters": [[name, kind] for name, kind in self._parameters(one.type)],
            "line": one.coord.line,
        }

    def _named(self, node: c_ast.Node) -> str:
        names = getattr(getattr(node, "type", None), "names", ())
        return " ".join(names)

    # -- types -------------------------------------------------------------------------------------

    def _type(self, node: c_ast.Node) -> Type:
        kind = type(node).__name__
        if kind in ("TypeDecl", "Typename"):
            return self._type(node.type)
        if kind == "IdentifierType":
            return self._identified(node)
        if kind == "Enum":
            if node.values is None and node.name not in self._enums:
                raise self._error(node, f"enum {node.name} is not declared")
            return self._enums[node.name or f"#{id(node)}"]
        if kind in ("Struct", "Union"):
            return ["record", self._key(node)]
        if kind == "PtrDecl":
            return self._pointer(node.type)
        if kind == "ArrayDecl":
            length = self._value(node.dim) if node.dim is not None else 0
            if length <= 0:
                raise self._error(node, f"an array of {length} elements")
            return ["[]", self._type(node.type), length]
        if kind == "FuncDecl":
            return ["()", self._type(node.type), [kind for _, kind in self._parameters(node)]]
        raise self._error(node, f"{kind} is no type")

    def _identified(self, node: c_ast.IdentifierType) -> Type:
        words = list(node.names)
        if len(words) == 1 and words[0] in self._types:
            return self._type(self._types[words[0]])
        if words == ["void"]:
            return "void"
        found = _SCALARS.get(_spelled(words))
        if found is None:
            raise self._error(node, f"{' '.join(words)} is no type declared so far")
        return found

    def _pointer(self, target: c_ast.Node) -> Type:
        encoded = self._type(target)
        if encoded == "void":
            return "address"
        if encoded == "char" and self._is_const(target):
            return "text"
        if (
            isinstance(encoded, list)
            and encoded[0] == "record"
            and self._records.get(encoded[1]) is None
        ):
            return "address"
        if isinstance(encoded, list) and encoded[0] == "()":
            return encoded
        return ["*", encoded]

    def _is_const(self, node: c_ast.Node) -> bool:
        if "const" in (getattr(node, "quals", None) or ()):
            return True
        name = self._named(node)
        return name in self._types and self._is_const(self._types[name])

    def _parameters(self, function: c_ast.FuncDecl) -> Iterator[tuple[str, Type]]:
        given = function.args.params if function.args is not None else []
        for one in given:
            kind = type(one).__name__
            if kind == "EllipsisParam":
                raise self._error(function, "variable arguments have no prototype")
            if kind == "ID":
                raise self._error(one, f"{one.name} is no type declared so far")
            if type(one.type).__name__ == "ArrayDecl":
                yield one.name or "", self._pointer(one.type.type)
                continue
            encoded = self._type(one.type)
            if encoded == "void":
                if len(given) > 1 or one.name:
                    raise self._error(one, "a parameter cannot be void")
                return
            yield one.name or "", encoded

    # -- constants ---------------------------------------------------------------------------------

    def _value(self, node: c_ast.Node) -> int:
        kind = type(node).__name__
        if kind == "Constant" and node.type.endswith(("int", "long")):
            digits = node.value.rstrip("uUlL")
            octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
            return int(digits, 8 if octal else 0)
        if kind == "ID" and node.name in self._constants:
            return self._constants[node.name]
        if kind == "Cast":
            return self._value(node.expr)
        if kind == "UnaryOp" and node.op in ("-", "+", "~"):
            value = self._value(node.expr)
            return {"-": -value, "+": value, "~": ~value}[node.op]
        if kind == "BinaryOp" and node.op in _OPERATORS:
            left, right = self._value(node.left), self._value(node.right)
            if node.op in ("<<", ">>") and not 0 <= right < 64:
                raise self._error(node, f"a shift by {right}")
            return _OPERATORS[node.op](left, right)
        raise self._error(node, "expected an integer constant")


def main(arguments: Sequence[str]) -> int:
    """Write a header's table, by default beside it; further arguments name the compiler."""
    if not arguments:
        print("usage: python -m uhal.abi_table HEADER [TABLE [COMPILER…]]", file=sys.stderr)
        return 2
    header = Path(arguments[0])
    table = Path(arguments[1]) if len(arguments) > 1 else header.with_suffix(".json")
    try:
        write_table(header, table, arguments[2:])
    except HeaderError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

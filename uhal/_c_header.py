"""Reads an ABI header: a strict subset of C, so that one file serves C and ctypes.

The subset: `#define` of integer constants, `#ifdef`/`#ifndef`/`#else`/`#endif`, includes (ignored),
enums, typedefs, structs and unions (nested and anonymous ones too, no bit-fields), pointers,
constant arrays, function pointers, prototypes. `__cplusplus` counts as undefined. Anything else is
a `HeaderError` that names the line. What the types mean is `uhal/_c_types.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uhal._c_types import (
    VOID,
    Array,
    Const,
    CType,
    Enum,
    Function,
    Member,
    Named,
    Parameter,
    Pointer,
    Prototype,
    Record,
    scalar_of,
)

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>\.\.\.|<<|>>|[{}()\[\];,*=|&~+\-:])"
    r"|(?P<end>$)"
    r"|(?P<other>.))",
    re.DOTALL,
)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_MAX_DEPTH = 64


class HeaderError(ValueError):
    """The header leaves the subset; the message says where."""


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


@dataclass
class Declarations:
    """What a header declares."""

    constants: dict[str, int] = field(default_factory=dict)
    typedefs: dict[str, CType] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    """Structs and unions by `struct tag`; an incomplete one has no members."""
    enums: dict[str, Enum] = field(default_factory=dict)
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    defines: dict[str, list[_Token]] = field(default_factory=dict)
    """Macros not evaluated yet: as in C, they may use what is declared later."""


def parse_declarations(text: str, name: str) -> Declarations:
    """Parse a whole header. `name` stands for it in messages."""
    declared = Declarations()
    pending: list[_Token] = []
    for line, content in _active_lines(text, name, declared):
        pending.extend(_tokens(content, line, name))
    parser = _Parser(pending, declared, name)
    while not parser.at_end():
        parser.declaration()
    while declared.defines:
        parser.define(next(iter(declared.defines)))
    return declared


def parse_parameter_list(text: str, declared: Declarations, name: str) -> tuple[Parameter, ...]:
    """Parse `(int a, void *b)` with the types of a header already read."""
    parser = _Parser(list(_tokens(text, 1, name)), declared, name)
    parameters = parser.parameters()
    if not parser.at_end():
        raise parser.error("nothing may follow the parameter list")
    return parameters


def _active_lines(text: str, name: str, declared: Declarations) -> list[tuple[int, str]]:
    """Lines the preprocessor leaves, after `#define`s went into the constants."""
    blank = _COMMENT.sub(lambda comment: " " + "\n" * comment.group().count("\n"), text)
    lines = blank.replace("\\\n", "  ").split("\n")
    kept: list[tuple[int, str]] = []
    taken: list[bool] = []
    defined: set[str] = set()
    for line, content in enumerate(lines, 1):
        stripped = content.strip()
        if not stripped.startswith("#"):
            if all(taken):
                kept.append((line, content))
            continue
        word, _, rest = stripped[1:].strip().partition(" ")
        rest = rest.strip()
        if word in ("ifdef", "ifndef"):
            taken.append((rest in defined) == (word == "ifdef"))
        elif word == "else" and taken:
            taken[-1] = not taken[-1]
        elif word == "endif" and taken:
            taken.pop()
        elif not all(taken) or word in ("include", "pragma"):
            continue
        elif word == "define":
            defined.add(_define(rest, line, name, declared))
        else:
            raise HeaderError(f"{name}:{line}: #{word} is outside the subset")
    if taken:
        raise HeaderError(f"{name}:{len(lines)}: #endif is missing")
    return kept


def _define(text: str, line: int, name: str, declared: Declarations) -> str:
    match = re.match(r"([A-Za-z_]\w*)(\()?", text)
    if match is None or match.group(2):
        raise HeaderError(f"{name}:{line}: only constants may be defined, got {text!r}")
    macro = match.group(1)
    value = _tokens(text[match.end() :], line, name)
    if value:
        declared.defines[macro] = value
    return macro


def _tokens(text: str, line: int, name: str) -> list[_Token]:
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "other":
            raise HeaderError(f"{name}:{line}: unexpected {match['other']!r}")
        if kind != "end":
            found.append(_Token(str(kind), match[str(kind)], line))
    return found


_Wrap = Callable[[CType], CType]


class _Parser:
    """Recursive descent over the tokens of one header."""

    def __init__(
        self, tokens: Sequence[_Token], declared: Declarations, name: str, depth: int = 0
    ) -> None:
        self._tokens = tokens
        # What is asked for most. The end is no text.
        self._texts = [*(token.text for token in tokens), ""]
        self._declared = declared
        self._name = name
        self._at = 0
        self._depth = depth

    # -- tokens ------------------------------------------------------------------------------------

    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def error(self, words: str) -> HeaderError:
        where = min(self._at, len(self._tokens) - 1)
        line = self._tokens[where].line if self._tokens else 1
        return HeaderError(f"{self._name}:{line}: {words}")

    def _peek(self) -> str:
        return self._texts[self._at]

    def _accept(self, text: str) -> bool:
        if self._texts[self._at] != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self.error(f"expected {text!r}, got {self._peek() or 'the end'!r}")

    def _identifier(self) -> str:
        if self.at_end() or self._tokens[self._at].kind != "name":
            raise self.error(f"expected a name, got {self._peek() or 'the end'!r}")
        self._at += 1
        return self._tokens[self._at - 1].text

    # -- declarations ------------------------------------------------------------------------------

    def declaration(self) -> None:
        """Read one typedef, type or prototype up to its semicolon."""
        if self._accept(";"):
            return
        is_typedef = self._accept("typedef")
        if not is_typedef:
            self._accept("extern")
        base = self._base_type()
        if self._accept(";"):
            if is_typedef:
                raise self.error("a typedef needs a name")
            return
        while True:
            line = self._tokens[min(self._at, len(self._tokens) - 1)].line
            name, ctype = self._declarator(base, named=True)
            if is_typedef:
                self._declared.typedefs[name] = ctype
            elif isinstance(ctype, Function):
                self._declared.prototypes[name] = Prototype(
                    name, ctype.result, ctype.parameters, line
                )
            else:
                raise self.error(f"{name} is a variable, which is outside the subset")
            if not self._accept(","):
                break
        self._expect(";")

    def _base_type(self) -> CType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error("nested too deeply")
        try:
            return self._base_type_within_depth()
        finally:
            self._depth -= 1

    def _base_type_within_depth(self) -> CType:
        is_const = self._accept("const")
        word = self._peek()
        ctype: CType
        if word in ("struct", "union"):
            ctype = self._record()
        elif word == "enum":
            ctype = self._enum()
        else:
            words = [self._identifier()]
            while scalar_of([*words, self._peek()]) is not None:
                words.append(self._identifier())
            scalar = scalar_of(words)
            if words == ["void"]:
                ctype = VOID
            elif scalar is not None:
                ctype = scalar
            elif words[0] in self._declared.typedefs:
                ctype = Named(words[0], self._declared.typedefs[words[0]])
            else:
                raise self.error(f"{words[0]} is no type declared so far")
        is_const = self._accept("const") or is_const
        return Const(ctype) if is_const else ctype

    def _record(self) -> Record:
        keyword = self._identifier()
        tag = "" if self._peek() == "{" else self._identifier()
        key = f"{keyword} {tag}"
        record = self._declared.records.get(key) if tag else None
        if record is None:
            record = Record(keyword, tag)
            if tag:
                self._declared.records[key] = record
        if not self._accept("{"):
            return record
        if record.members is not None:
            raise self.error(f"{key} is defined twice")
        members: list[Member] = []
        while not self._accept("}"):
            self._members(members)
        record.members = tuple(members)
        return record

    def _members(self, members: list[Member]) -> None:
        base = self._base_type()
        if self._accept(";"):
            if not isinstance(base, Record) or base.tag:
                raise self.error("a member needs a name")
            members.append(Member("", base))
            return
        while True:
            name, ctype = self._declarator(base, named=True)
            if self._peek() == ":":
                raise self.error("bit-fields are outside the subset")
            members.append(Member(name, ctype))
            if not self._accept(","):
                break
        self._expect(";")

    def _enum(self) -> Enum:
        self._expect("enum")
        tag = "" if self._peek() == "{" else self._identifier()
        if not self._accept("{"):
            if tag not in self._declared.enums:
                raise self.error(f"enum {tag} is not declared")
            return self._declared.enums[tag]
        values: dict[str, int] = {}
        following = 0
        while not self._accept("}"):
            name = self._identifier()
            if self._accept("="):
                following = self.expression()
            values[name] = following
            self._declared.constants[name] = following
            following += 1
            if not self._accept(","):
                self._expect("}")
                break
        enum = Enum(tag, tuple(values.items()))
        if tag:
            self._declared.enums[tag] = enum
        return enum

    # -- declarators -------------------------------------------------------------------------------

    def _declarator(self, base: CType, *, named: bool) -> tuple[str, CType]:
        """Read what follows the base type; the name is empty where it may be left out."""
        name, wrap = self._declarator_parts(named=named)
        return name, wrap(base)

    def _declarator_parts(self, *, named: bool) -> tuple[str, _Wrap]:
        pointers: list[bool] = []
        while self._accept("*"):
            pointers.append(self._accept("const"))
        name = ""
        inner: _Wrap | None = None
        if self._peek() == "(" and self._at + 1 < len(self._tokens):
            if self._tokens[self._at + 1].text == "*":
                self._expect("(")
                name, inner = self._declarator_parts(named=named)
                self._expect(")")
        elif named or (not self.at_end() and self._tokens[self._at].kind == "name"):
            name = self._identifier()
        suffixes: list[_Wrap] = []
        while True:
            if self._accept("["):
                if not named and self._accept("]"):
                    suffixes.append(Pointer)
                    continue
                length = self.expression()
                self._expect("]")
                if length <= 0:
                    raise self.error(f"an array of {length} elements")
                suffixes.append(functools.partial(Array, length=length))
            elif self._peek() == "(":
                suffixes.append(functools.partial(Function, parameters=self.parameters()))
            else:
                break

        def wrap(base: CType) -> CType:
            ctype = base
            for is_const in pointers:
                ctype = Pointer(ctype)
                if is_const:
                    ctype = Const(ctype)
            for suffix in reversed(suffixes):
                ctype = suffix(ctype)
            return inner(ctype) if inner is not None else ctype

        return name, wrap

    def parameters(self) -> tuple[Parameter, ...]:
        """Read a parenthesised parameter list; arrays and functions decay to pointers."""
        self._expect("(")
        found: list[Parameter] = []
        if self._accept(")"):
            return ()
        while True:
            if self._peek() == "...":
                raise self.error("variable arguments are outside the subset")
            name, ctype = self._declarator(self._base_type(), named=False)
            is_void = ctype.resolved() == VOID
            if is_void and not name and not found and self._peek() == ")":
                break
            if is_void:
                raise self.error("a parameter cannot be void")
            if isinstance(ctype, Array):
                ctype = Pointer(ctype.target)
            elif isinstance(ctype.resolved(), Function):
                ctype = Pointer(ctype)
            found.append(Parameter(name, ctype))
            if not self._accept(","):
                break
        self._expect(")")
        return tuple(found)

    def define(self, macro: str) -> None:
        """Evaluate a macro; while that lasts it is unknown, so none can use itself."""
        tokens = self._declared.defines.pop(macro)
        parser = _Parser(tokens, self._declared, self._name, self._depth)
        value = parser.expression()
        if not parser.at_end():
            raise parser.error(f"the value of {macro} is not one integer expression")
        self._declared.constants[macro] = value

    # -- constants ---------------------------------------------------------------------------------

    def expression(self, level: int = 0) -> int:
        """Evaluate an integer constant: `|`, `&`, shifts, sums, products, in C's order."""
        operators = (("|",), ("&",), ("<<", ">>"), ("+", "-"), ("*",))
        if level == len(operators):
            return self._operand()
        value = self.expression(level + 1)
        while self._peek() in operators[level]:
            operator = self._peek()
            self._at += 1
            right = self.expression(level + 1)
            if operator in ("<<", ">>") and not 0 <= right < 64:
                raise self.error(f"shift by {right}")
            value = _OPERATIONS[operator](value, right)
        return value

    def _operand(self) -> int:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error("nested too deeply")
        try:
            return self._operand_within_depth()
        finally:
            self._depth -= 1

    def _operand_within_depth(self) -> int:
        if self._accept("-"):
            return -self._operand()
        if self._accept("+"):
            return self._operand()
        if self._accept("~"):
            return ~self._operand()
        if self._accept("("):
            if self._peek() in self._declared.typedefs or scalar_of([self._peek()]) is not None:
                self._declarator(self._base_type(), named=False)
                self._expect(")")
                return self._operand()  # a cast does not change a constant that fits
            value = self.expression()
            self._expect(")")
            return value
        if self.at_end():
            raise self.error("expected a constant, got the end")
        token = self._tokens[self._at]
        self._at += 1
        if token.kind == "number":
            digits = token.text.rstrip("uUlL")
            is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
            try:
                return int(digits, 8 if is_octal else 0)
            except ValueError:
                raise self.error(f"{token.text} is no number") from None
        if token.text in self._declared.defines:
            self.define(token.text)
        if token.text in self._declared.constants:
            return self._declared.constants[token.text]
        self._at -= 1
        raise self.error(f"{token.text!r} is no constant declared so far")


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "|": lambda left, right: left | right,
    "&": lambda left, right: left & right,
    "<<": lambda left, right: left << right,
    ">>": lambda left, right: left >> right,
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
}

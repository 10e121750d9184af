"""Parser of the signature grammar, as kernel sources and users write it.

```
parameters = [ "(" ] [ parameter { "," parameter } ] [ ")" ]
parameter  = { qualifier } type { qualifier | "*" } [ name ]
type       = our name | C's name | "ptr" | "void" | sized "[" bytes "]"
sized      = "bytes" | "scalar" | "integer" | "unknown"
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from uhal._parameter import POINTER_BYTES, Parameter, ParameterKind
from uhal.dtypes import ALL, C_SPECIFIERS, DType, from_c_spelling
from uhal.errors import ArgumentTypeError, ArgumentValueError

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_$][\w$]*(?:::\w+)*)|(?P<number>\d+)|(?P<mark>[][*,()]))"
)
_CONST = ("const", "__const")
_IGNORED = ("volatile", "restrict", "__restrict__", "__restrict", "register")
_SIZED: dict[str, ParameterKind] = {
    "bytes": "aggregate",
    "scalar": "scalar",
    "integer": "scalar",
    "unknown": "unknown",
}
_KEYWORDS = C_SPECIFIERS - {"complex"}
"""`complex` is a macro of C's: in C++ a parameter may have that name."""
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class _Token:
    text: str
    column: int
    is_word: bool


def parse_parameters(text: str, entry: str | None, source: str) -> list[Parameter]:
    """Return the parameters `text` declares, without offsets."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"signature: expected a str, got {type(text).__name__}")
    return _Parser(text, entry, source).parse()


class _Parser:
    def __init__(self, text: str, entry: str | None, source: str) -> None:
        # Comments become blanks, so that columns in errors match the user's text.
        self._text = re.sub(r"#[^\n]*", lambda match: " " * len(match.group()), text)
        self._entry = entry
        self._source = source
        self._index = 0

    def parse(self) -> list[Parameter]:
        tokens = self._strip_parentheses(self._tokens())
        if not tokens or [token.text for token in tokens] == ["void"]:
            return []
        parameters: list[Parameter] = []
        names: set[str] = set()
        for index, (part, column) in enumerate(self._split(tokens)):
            self._index = index
            if not part:
                self._fail(column, "expected a parameter")
            parameter = self._parameter(part)
            if parameter.name in names:
                self._fail(part[-1].column, f"the name {parameter.name!r} is used twice")
            if parameter.name is not None:
                names.add(parameter.name)
            parameters.append(parameter)
        return parameters

    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                rest = self._text[position:].lstrip()
                column = len(self._text) - len(rest)
                self._index = sum(token.text == "," for token in tokens)
                self._fail(column, f"cannot read {rest[:1]!r}")
            kind = match.lastgroup or "mark"
            tokens.append(_Token(match.group(kind), match.start(kind), kind == "word"))
            position = match.end()
        return tokens

    def _strip_parentheses(self, tokens: list[_Token]) -> list[_Token]:
        if tokens and tokens[0].text == "(":
            if tokens[-1].text != ")":
                self._fail(tokens[0].column, "'(' is never closed")
            tokens = tokens[1:-1]
        for token in tokens:
            if token.text in "()":
                self._fail(token.column, f"unexpected {token.text!r}")
        return tokens

    def _split(self, tokens: list[_Token]) -> list[tuple[list[_Token], int]]:
        """Split at commas; return each part with the column where it begins."""
        parts: list[tuple[list[_Token], int]] = [([], 0)]
        for token in tokens:
            if token.text == ",":
                parts.append(([], token.column + 1))
            else:
                parts[-1][0].append(token)
        return parts

    def _parameter(self, tokens: list[_Token]) -> Parameter:
        is_const = False
        stars: list[int] = []
        kept: list[_Token] = []
        for token in tokens:
            if token.text in _CONST:
                # `T *const name` makes the pointer itself const, which does not matter to a caller.
                is_const = is_const or not stars
            elif token.text == "*":
                stars.append(len(kept))
            elif token.text not in _IGNORED:
                kept.append(token)
        if not kept:
            self._fail(tokens[0].column, "expected a type")
        if stars:
            if stars[0] == 0 or stars[-1] != stars[0]:
                self._fail(tokens[0].column, "a '*' follows the type: 'f32 *x'")
            return self._pointer(kept[: stars[0]], kept[stars[0] :], len(stars), is_const)
        if kept[0].text == "ptr":
            return self._pointer(kept[:1], kept[1:], 1, is_const)
        if len(kept) > 1 and kept[1].text == "[" and kept[0].text in _SIZED:
            return self._sized(kept)
        if kept[0].text == "unknown" and from_c_spelling(kept[0].text) is None:
            return Parameter(self._index, self._name(kept[1:]), source=self._source)
        return self._scalar(kept)

    def _pointer(
        self, words: list[_Token], rest: list[_Token], depth: int, is_const: bool
    ) -> Parameter:
        spelling = " ".join(token.text for token in words)
        element: DType | None = None
        if spelling not in ("ptr", "void") and depth == 1:
            element = from_c_spelling(spelling)
            if element is None:
                self._unknown_type(words[0], spelling, "ptr for a pointer to anything else")
        return Parameter(
            self._index,
            self._name(rest),
            "pointer",
            POINTER_BYTES,
            None,
            element,
            is_const=is_const,
            source=self._source,
        )

    def _sized(self, tokens: list[_Token]) -> Parameter:
        shape = [token.text for token in tokens[1:4]]
        if len(shape) != 3 or shape[0] != "[" or not shape[1].isdigit() or shape[2] != "]":
            self._fail(tokens[0].column, f"expected {tokens[0].text}[SIZE], such as bytes[12]")
        size = int(shape[1])
        if not 0 < size <= _MAX_BYTES:
            self._fail(tokens[2].column, f"expected a size in 1…{_MAX_BYTES}, got {size}")
        kind = _SIZED[tokens[0].text]
        is_integer = True if tokens[0].text == "integer" else None
        if is_integer and size not in (1, 2, 4, 8):
            self._fail(tokens[2].column, f"expected integer[1], [2], [4] or [8], got [{size}]")
        name = self._name(tokens[4:])
        return Parameter(self._index, name, kind, size, is_integer=is_integer, source=self._source)

    def _scalar(self, tokens: list[_Token]) -> Parameter:
        words = self._type_words(tokens)
        spelling = " ".join(token.text for token in words)
        dtype = from_c_spelling(spelling)
        if dtype is None:
            self._unknown_type(words[0], spelling, "bytes[SIZE] for a structure")
        name = self._name(tokens[len(words) :])
        return Parameter(
            self._index, name, "scalar", dtype.itemsize, None, dtype, source=self._source
        )

    @staticmethod
    def _type_words(tokens: list[_Token]) -> list[_Token]:
        """The words of the type: all adjacent C type words, else the first word."""
        count = 0
        while count < len(tokens) and tokens[count].text in C_SPECIFIERS:
            count += 1
        return tokens[: max(count, 1)]

    def _name(self, tokens: list[_Token]) -> str | None:
        if not tokens:
            return None
        if tokens[0].text in _KEYWORDS:
            word = tokens[0].text
            self._fail(tokens[0].column, f"expected a name after the type, got C's word {word!r}")
        if len(tokens) == 1 and tokens[0].is_word:
            return tokens[0].text
        extra = tokens[1] if tokens[0].is_word else tokens[0]
        self._fail(extra.column, f"expected ',' or the end after the parameter, got {extra.text!r}")

    def _unknown_type(self, token: _Token, spelling: str, advice: str) -> NoReturn:
        known = " ".join(dtype.name for dtype in ALL)
        self._fail(
            token.column, f"unknown type {spelling!r}; known are {known}, C's names, and {advice}"
        )

    def _fail(self, column: int, problem: str) -> NoReturn:
        of = "" if self._entry is None else f" of {self._entry}"
        raise ArgumentValueError(
            f"signature{of}, parameter {self._index}, column {column + 1}: {problem}"
        )

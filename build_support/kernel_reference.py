"""Write docs/reference/kernels.md from the headers: `python -m build_support.kernel_reference`.

A comment `/** … */` at the top of a header describes the header, and such a comment before a name
describes the name. The first comment of `<uhal/kernel.h>` describes that header alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "uhal" / "include" / "uhal"
PAGE = ROOT / "docs" / "reference" / "kernels.md"
HEADERS = ("atomics", "warp", "vector", "fast_math", "table", "messages")

_COMMENT = re.compile(r"/\*\*(.*?)\*/\n", re.DOTALL)
_SHORTER = (
    ("DEVICE_FUNCTION ", ""),
    ("typename uhal_same<Type>::type", "Type"),
    ("UHAL_VALUE_OF(Register)", "Value"),
    ("uhal_scope scope", "scope"),
    (" = SCOPE_DEVICE", ""),
)
_MADE = re.compile(r"(UHAL_BITWISE|UHAL_OPERATION)\((\w+)")
_NAME = re.compile(r"(\w+)\s*\(|struct (?:alignas\(.*?\) )?(\w+)|enum (\w+)|#define (\w+)")


@dataclass(frozen=True)
class Entry:
    """A name of a header, its declaration, and its description."""

    name: str
    declaration: str
    text: str


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    parts = [
        "# The kernel language\n\n"
        "Written by `python -m build_support.kernel_reference` from the comments of the headers\n"
        "in `uhal/include/uhal`. [Your own kernels](../guide/your-own-kernels.md) shows how they "
        "are used.\n",
        f"## `<uhal/kernel.h>`\n\n```text\n{_core()}\n```\n",
    ]
    for header in HEADERS:
        intro, entries = read_header(header)
        parts.append(f"## `<uhal/{header}.h>`\n\n{intro}\n")
        parts += [
            f"### {entry.name}\n\n```c++\n{entry.declaration}\n```\n\n{entry.text}\n"
            for entry in entries
        ]
    return "\n".join(parts)


def read_header(header: str) -> tuple[str, list[Entry]]:
    """Return a header's description, and its names."""
    text = (INCLUDE / f"{header}.h").read_text(encoding="utf-8")
    comments = list(_COMMENT.finditer(text))
    entries = [entry for found in comments[1:] for entry in _entries(found, text)]
    return _plain(comments[0][1]), entries


def _core() -> str:
    text = (INCLUDE / "kernel.h").read_text(encoding="utf-8")
    return _plain(text[text.index("/*") + 2 : text.index("*/")])


def _plain(comment: str) -> str:
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.strip().splitlines()]
    return "\n".join(line.rstrip() for line in lines)


def _entries(found: re.Match[str], text: str) -> Iterator[Entry]:
    said = _plain(found[1])
    rest = text[found.end() :]
    made = _MADE.match(rest)
    if made is not None and made[1] == "UHAL_BITWISE":
        declaration = (
            f"template <scope, class Type> Type atomic_{made[2]}(Type *address, Type value)"
        )
        yield Entry(f"atomic_{made[2]}", declaration, said)
    elif made is not None:
        yield Entry(made[2], f"struct {made[2]}", said)
    elif rest.startswith("typedef"):
        types = re.findall(r"typedef [^;\n]* (\w+);", rest.partition("\n\n")[0])
        yield Entry(f"{types[0]} … {types[-1]}", " ".join(types), said)
    elif rest.startswith(("#define", "#if")):
        define = re.search(r"#define (\w+(?:\([^)]*\))?)", rest)
        assert define is not None
        yield Entry(define[1].partition("(")[0], define[1], said)
    else:
        declaration = " ".join(re.split(r"[{;]", rest, maxsplit=1)[0].split())
        if declaration.startswith("enum"):
            declaration = " ".join(rest.partition(";")[0].split())
        for long, short in _SHORTER:
            declaration = declaration.replace(long, short)
        name = _NAME.search(re.sub(r"^template <.*?> (?=\w)", "", declaration))
        assert name is not None, declaration
        reported = next(part for part in name.groups() if part)
        yield Entry("scopes" if reported == "uhal_scope" else reported, declaration, said)


if __name__ == "__main__":
    main()

"""Code and commands on the pages, for their tests and for `build_support.follow`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SESSIONS = [
    *sorted((DOCS / "tutorial").glob("*.md")),
    DOCS / "guide" / "performance-without-a-gpu.md",
]
"""Pages whose sessions show the output of commands."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SESSION = re.compile(
    r"(?:^<!-- needs (?P<needs>[^\n]*) -->\n)?^```console\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", re.MULTILINE)
NEEDS = re.compile(r"# needs ([\w.]+)\n")
"""The first line of a block of Python that needs a library."""
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINES = re.compile(r"(?:^.*\\\n)*^.*\n", re.MULTILINE)
_INDENTED = re.compile(r"\n\n((?: {4}\S.*\n)+)")


class Command(NamedTuple):
    """A command of a page, for a shell."""

    line: str
    shown: str | None = None
    """The output on the page, with `…` for any text; `None` if the page shows none."""
    needs: tuple[str, ...] = ()
    """Programs and libraries that the page names as required."""
    is_indented: bool = False
    """Whether the line is indented, and may be output instead of a command."""


def page_name(page: Path) -> str:
    """Return a page's name, such as `guide/launching`."""
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def blocks_of(page: Path) -> list[str]:
    """Return a page's blocks of Python."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the lines of a page's `sh`, `console` and indented blocks, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[int, Command]] = []
    for session in SESSION.finditer(text):
        needs = tuple(one for one in (session["needs"] or "").split(" and ") if one)
        for command, shown in COMMAND.findall(session["text"]):
            found.append((session.start(), Command(command.strip(), shown, needs)))
    for block in SHELL.finditer(text):
        if not COMMAND.search(block[1]):
            found += [(block.start(), Command(one.strip())) for one in _LINES.findall(block[1])]
    # Fenced blocks become as many blanks, so that offsets stay.
    plain = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for block in _INDENTED.finditer(plain):
        lines = [one.strip().removeprefix("$ ") for one in _LINES.findall(block[1])]
        found += [(block.start(), Command(one, is_indented=True)) for one in lines]
    yield from (command for _, command in sorted(found, key=lambda one: one[0]))


def matches(shown: str, printed: str) -> bool:
    """Return whether the output equals the page's output, where `…` stands for any text."""
    return bool(re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed, re.DOTALL))

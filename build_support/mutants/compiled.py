"""Mistakes in compiled sources: one build has all of them, and a process enables one.

Each mistake replaces an expression that occurs once in its file. A missing text is an error of the
table. `VARIABLE` names the variable with the number of the active mistake.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "PLANTED_MISTAKE"
"""Tests start programs without the variables whose names have UHAL in them."""


class StaleTextError(Exception):
    """A text of the table is missing from its file, or not unique there."""


@dataclass(frozen=True)
class Compiled:
    """A mistake in a compiled source, and the tests nearest to it, nearest first."""

    path: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    behind: str = ""
    """Text in front, needed if the text alone occurs more than once."""


_SWITCH = f"""
#ifndef UHAL_MUTANT
#define UHAL_MUTANT
#include <stdlib.h>
__attribute__((unused)) static int uhal_mutant_chosen(void) {{
    static int chosen = -1;
    if (chosen < 0) {{
        const char *text = getenv("{VARIABLE}");
        chosen = text != NULL ? atoi(text) : 0;
    }}
    return chosen;
}}
#ifdef __cplusplus
constexpr /* the compiler evaluates some sources */
#endif
__attribute__((unused)) static int uhal_mutant(int number) {{
#ifdef __cplusplus
    if (__builtin_is_constant_evaluated()) return 0;
#endif
    return uhal_mutant_chosen() == number;
}}
#endif
"""
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_LANE = "cython_src/lane.pyx"
_LANE_SWITCH = f'''
cdef extern from *:
    """{_SWITCH.replace(chr(10), chr(10) + "    ")}"""
    bint uhal_mutant(int number) noexcept nogil
'''


def with_switches(root: Path, mistakes: Iterable[Compiled]) -> Mapping[str, str]:
    """Return the sources, by path, with a switch at each mistake; the first has the number 1.

    Raises `StaleTextError` for a text that does not occur exactly once in its file.
    """
    found: dict[str, str] = {}
    by_path: dict[str, list[tuple[int, Compiled]]] = defaultdict(list)
    for number, one in enumerate(mistakes, 1):
        by_path[one.path].append((number, one))
    for path, planted in by_path.items():
        source = (root / path).read_text("utf-8")
        is_cython = path.endswith((".pyx", ".pxi"))
        for number, one in planted:
            sought = one.behind + one.text
            count = source.count(sought)
            if count != 1:
                raise StaleTextError(
                    f"{path}: expected {sought!r} once, found it {count} times. Correct its row "
                    f"in build_support/mutants/mistakes."
                )
            switched = (
                f"(({one.replacement}) if uhal_mutant({number}) else ({one.text}))"
                if is_cython
                else f"(uhal_mutant({number}) ? ({one.replacement}) : ({one.text}))"
            )
            source = source.replace(sought, one.behind + switched)
        found[path] = source if is_cython else _behind_includes(source)
    if any(path.startswith("cython_src/") for path in found):
        lane = found.get(_LANE) or (root / _LANE).read_text("utf-8")
        head, line, rest = lane.partition("\nimport atexit")
        found[_LANE] = head + _LANE_SWITCH + line + rest
    return found


def _behind_includes(source: str) -> str:
    """Add the switch after the last include, because macros for headers must precede them."""
    place = max((found.end() for found in _INCLUDE.finditer(source)), default=0)
    return source[:place] + _SWITCH + source[place:]

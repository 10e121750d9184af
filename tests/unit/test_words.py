"""One word, one meaning: words that once had several are no names in the product's Python.

What was called a place is an axis, an index, a position, an output, an offset or a line.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterator

import pytest

from build_support.imports import PRODUCT, ROOT, product_files

SWEPT = (*PRODUCT, "examples", "simulators")

TOO_VAGUE = {"place", "places"}
"""Not as a whole name, nor as a part of one between underscores."""
ENGLISH = {"in_place", "is_in_place", "inplace"}
"""Names that mean what the phrase means."""
PERSONS = {"he", "him", "his", "she", "her", "hers"}
"""Callers are no persons: sentences about them say `callers`."""


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every name that has a vague word in it."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = token.string.lower().strip("_")
        is_name = token.type == tokenize.NAME and name not in ENGLISH
        if is_name and TOO_VAGUE.intersection(name.split("_")):
            yield token.start[0], token.string


def persons(source: str) -> Iterator[tuple[int, str]]:
    """Line and word of every pronoun of a person, in code, comments and texts."""
    for number, line in enumerate(source.splitlines(), 1):
        letters = "".join(one if one.isalpha() else " " for one in line.lower())
        yield from ((number, word) for word in PERSONS.intersection(letters.split()))


@pytest.mark.parametrize("find", [vague_names, persons])
def test_words_of_the_product(find: Callable[[str], Iterator[tuple[int, str]]]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in product_files(SWEPT).values()
        for line, word in find(path.read_text("utf-8"))
    ]
    advice = "call it an axis, index, position, output, offset or line; a caller is no person"
    assert not found, "\n".join([*found, advice])


def test_a_vague_name_is_seen() -> None:
    source = "def put(place):\n    _PLACES[place_of(x)] = in_place  # his\n"
    assert [name for _, name in vague_names(source)] == ["place", "_PLACES", "place_of"]
    assert list(persons(source)) == [(2, "his")]

"""Words: no vague names in the product's Python, short sentences and cells on its pages."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from build_support.imports import PRODUCT, ROOT, product_files

SWEPT = (*PRODUCT, "examples", "simulators")

TOO_VAGUE = {"place", "places"}
"""Not allowed as a name, or as a part of a name between underscores."""
ENGLISH = {"in_place", "is_in_place", "inplace"}
"""Names in their usual English meaning."""
PERSONS = {"he", "him", "his", "she", "her", "hers"}
"""Pronouns for persons: sentences about callers say `callers`."""

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("*_backend/README.md")),
    ROOT / "simulators" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for folder in ("guide", "tutorial", "porting", "explanation", "reference")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
)
TABLES_OF_DATA = {"measured", "operations", "performance", "performance_ops"}
"""Pages rendered from data; the texts of their rows come from records."""
LONGEST_SENTENCE = 25
LONGEST_CELL = 80
CODE_BLOCK = re.compile(r"^```.*?^```$|^    .*?$|^<!--.*?-->$", re.DOTALL | re.MULTILINE)
LINK_TARGET = re.compile(r"\]\([^)]*\)")
END = re.compile(r"(?<=[.;:!?]) |(?<=[.!?]\*) ")


def paragraphs(page: str) -> Iterator[str]:
    """Yield the paragraphs and list entries of a page, without code, tables and headings."""
    text = re.sub(r"^\s*(?:[*-]|\d+\.) ", "\n", CODE_BLOCK.sub("\n", page), flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", re.sub(r"^[|#].*$", "\n", text, flags=re.MULTILINE)):
        yield " ".join(block.split())


def long_sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page that exceed the limit of words."""
    for text in paragraphs(page):
        for sentence in END.split(LINK_TARGET.sub("]", text)):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield sentence


def long_cells(page: str) -> Iterator[str]:
    """Yield the cells of a page's tables that exceed the limit of characters."""
    for line in CODE_BLOCK.sub("", page).splitlines():
        if line.startswith("|"):
            for cell in line.strip("|").split("|"):
                if len(LINK_TARGET.sub("]", cell.strip())) > LONGEST_CELL:
                    yield cell.strip()


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every name that has a vague word in it."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = token.string.lower().strip("_")
        is_name = token.type == tokenize.NAME and name not in ENGLISH and token.string != "Place"
        if is_name and TOO_VAGUE.intersection(name.split("_")):
            yield token.start[0], token.string


def persons(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and word of every pronoun of a person, in code, comments and texts."""
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


@pytest.mark.parametrize(
    "page",
    PAGES,
    ids=lambda page: f"{page.parent.name}/{page.stem}",
)
def test_sentences_and_cells_of_a_page_are_short(page: Path) -> None:
    text = page.read_text("utf-8")
    found = [*long_sentences(text), *(() if page.stem in TABLES_OF_DATA else long_cells(text))]
    assert not found, f"{len(found)} to shorten:\n" + "\n".join(found)


def test_a_long_sentence_and_a_long_cell_are_seen() -> None:
    words = ("word " * LONGEST_SENTENCE).strip()
    page = (
        f"# {words} more\n\n{words}.\n\n* {words} more\n\n```\n{words} more\n```\n| {'x' * 80} |\n"
    )
    assert list(long_sentences(page)) == [f"{words} more"]
    assert list(long_cells(page)) == []
    assert list(long_cells(f"| a | {'x' * 81} |")) == ["x" * 81]


def test_the_formatter_lays_out_every_line() -> None:
    escape = "fmt: " + "skip"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in (*SWEPT, "tests", "benchmarks", "build_support")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in enumerate(path.read_text("utf-8").splitlines(), 1)
        if escape in text
    ]
    assert not found

"""`build_support.words_only`: only words may differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_support.kernel_manifest import source_digest
from build_support.words_only import differences

PYTHON = '''"""A module."""
import warnings

# A comment.
def f(x: int) -> str:
    """A function."""
    if x < 0:
        raise ValueError(f"f: expected x >= 0, got {x}. Give {-x}.")
    assert x != 3, "not three, please"
    warnings.warn(f"{x} is odd", stacklevel=2)
    return "two words"
'''
CYTHON = '''cdef int f(int x) except -1:
    """A function."""
    if x < 0:  # negative
        raise ValueError(
            f"f: expected x >= 0, got {x}."
        )
    return <int> x  + 1
'''
C_SOURCE = """/* A file. */
#define TWICE(x) ((x) * 2)  // a macro
int f(int x) {
    // A comment with a "quote.
    return x ? TWICE(x) : 1'000; /* 'x' */
}
const char *text = "http://x /* not a comment */";
const char *raw = R"(// nor this)";
"""
PAGE = "# Title\n\nText.\n\n```\nuhal.launch(f)\n```\n"

WORDS = [
    ("a.c", C_SOURCE, "return x ? TWICE", "return  x /* yes */ ? TWICE"),
    ("a.py", PYTHON, "A module.", "Another module, described."),
    ("a.py", PYTHON, "# A comment.", "# Its reason.\n# In two lines."),
    ("a.py", PYTHON, '    """A function."""\n', ""),
    ("a.py", PYTHON, "expected x >= 0, got {x}. Give {-x}.", "give {-x}, not {x}."),
    ("a.py", PYTHON, "not three, please", "x must not be 3"),
    ("a.py", PYTHON, "{x} is odd", "odd: {x}"),
    ("a.pyx", CYTHON, "A function.", "Successor."),
    ("a.pyx", CYTHON, "  # negative", ""),
    ("a.pyx", CYTHON, '\n            f"f: expected x >= 0, got {x}."\n        )', 'f"not {x}")'),
    ("a.c", C_SOURCE, "/* A file. */", "// Doubles."),
    ("a.c", C_SOURCE, "  // a macro", ""),
    ("a.c", C_SOURCE, 'A comment with a "quote.', "Why."),
    ("a.cu", C_SOURCE, " /* 'x' */", ""),
    ("a.def", C_SOURCE, "/* A file. */", "// A list."),
    ("a.md", PAGE, "Text.", "Other text."),
]
CODE = [
    ("a.py", PYTHON, "x < 0", "x <= 0"),
    ("a.py", PYTHON, ", got {x}", ""),
    ("a.py", PYTHON, "x != 3", "x != 4"),
    ("a.py", PYTHON, "two words", "three other words"),
    ("a.py", PYTHON, "ValueError", "TypeError"),
    ("a.py", PYTHON, "stacklevel=2", "stacklevel=1"),
    ("a.pyx", CYTHON, "x < 0", "x <= 0"),
    ("a.pyx", CYTHON, "got {x}", "got {-x}"),
    ("a.pyx", CYTHON, "    return", "return"),
    ("a.pyx", CYTHON, "ValueError", "TypeError"),
    ("a.c", C_SOURCE, "((x) * 2)  //", "\n((x) * 2)  //"),
    ("a.c", C_SOURCE, "TWICE(x) ((", "TWICE (x) (("),
    ("a.c", C_SOURCE, "? TWICE", "+ +TWICE"),
    ("a.c", C_SOURCE, "/* not a comment */", "/* another text */"),
    ("a.c", C_SOURCE, "// nor this", "// nor that"),
    ("a.c", C_SOURCE, "1'000", "1'001"),
    ("a.h", C_SOURCE, "int f(int x)", "long f(int x)"),
    ("a.md", PAGE, "launch(f)", "launch(g)"),
    ("a.json", '{"a": "text"}', "text", "words"),
]


@pytest.mark.parametrize(("name", "source", "old", "new"), WORDS)
def test_words_are_no_difference(name: str, source: str, old: str, new: str) -> None:
    assert source.count(old) == 1
    assert not list(differences(name, source, source.replace(old, new)))


@pytest.mark.parametrize(("name", "source", "old", "new"), CODE)
def test_code_is_a_difference(name: str, source: str, old: str, new: str) -> None:
    assert source.count(old) == 1
    assert list(differences(name, source, source.replace(old, new)))


def test_other_comments_need_no_other_image(tmp_path: Path) -> None:
    def digest_of(source: str) -> str:
        path = tmp_path / "k.cu"
        path.write_text(source, "utf-8")
        return source_digest(path)

    assert digest_of(C_SOURCE) == digest_of("// New.\n" + C_SOURCE.replace("a macro", "it"))
    assert digest_of(C_SOURCE) != digest_of(C_SOURCE.replace("1'000", "1'001"))
    asserts = C_SOURCE.replace("{", "{ ASSERT(x);")  # its image holds the line
    assert digest_of(asserts) != digest_of("// New.\n" + asserts)

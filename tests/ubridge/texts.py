"""Texts for tokenizers: prose, code, many scripts, and random characters."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = (
    "The quick brown fox isn't what we've seen; they'LL jump over 12 lazy dogs in 2026.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich — für 3,50 €!",
    "В чащах юга жил бы цитрус? Да, но фальшивый экземпляр! 1234567890",
    "いろはにほへと ちりぬるを。我能吞下玻璃而不伤身体、한국어 텍스트도 있습니다",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "def f(x):\n\treturn  {x: [1, 2]}   # comment\r\n\n\n    if x != 10000 and y <= .5e-3:\n",
    "🦙 👩‍👩‍👧 🚀✨ e\u0301 \u200b\ufeff \u3000\u2028 \x85 \u00a0x ½²³ ①Ⅷ",
    "''''''```````\"\"\"\"......!!!!!!?????? I'm you're we'D 'S ' s' 'll",
)
"""Texts with characters of each kind that tokenizers' patterns distinguish."""


def corpus() -> list[str]:
    """Return lines to train on: this project's own pages, and the scripts."""
    pages = sorted((ROOT / "docs" / "guide").glob("*.md"))
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines(keepends=True)]
    return lines[:1500] + [one for one in SCRIPTS for _ in range(20)]


def random_text(rng: np.random.Generator, pieces: int = 12) -> str:
    """Return a random mixture of parts of the scripts and random characters."""
    made = []
    for _ in range(pieces):
        kind = rng.integers(0, 5)
        if kind < 3:
            script = SCRIPTS[rng.integers(0, len(SCRIPTS))]
            start = int(rng.integers(0, len(script)))
            made.append(script[start : start + int(rng.integers(1, 25))])
        elif kind == 3:
            made.append(str(rng.choice([" ", "  ", "\n", "\r\n", "\t", "   \n ", "1", "23", "'s"])))
        else:
            made.append("".join(_character(rng) for _ in range(rng.integers(1, 4))))
    return "".join(made)


def _character(rng: np.random.Generator) -> str:
    """Return a random character that this Python's version of Unicode names."""
    while True:
        most = int(rng.choice([0x250, 0x3000, 0x20000]))
        one = chr(int(rng.integers(1, most)))
        if unicodedata.category(one) not in ("Cn", "Cs", "Co"):
            return one

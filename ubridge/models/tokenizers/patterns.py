"""Patterns that split texts before byte pair encoding, by their names in GGUF files.

Each pattern is the pattern in the model's own `tokenizer.json`. llama.cpp writes the names as
`tokenizer.ggml.pre`. A pattern takes the pieces of earlier patterns and splits off its matches.
Character classes come from Python's module `unicodedata`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ubridge.core.fits import require

_WORDS_OF_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
_LINES_AND_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str, letters: str = r"\p{L}", others: str = r"[\r\n]*") -> str:
    """The pattern of GPT-4's tokenizer, for runs of at most `digits` digits."""
    marks = r"\s\p{L}\p{N}" if letters == r"\p{L}" else r"\s\p{L}\p{M}\p{N}"
    return (
        rf"{_SHORT_FORMS}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|\p{{N}}{digits}| ?[^{marks}]+{others}"
        rf"|{_LINES_AND_BLANKS}"
    )


def _cased(digits: str, tail: str) -> str:
    """Words that begin with capitals and continue with small letters, as in GPT-4o."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{before}{upper}*{lower}+{tail}|{before}{upper}+{lower}*{tail}|\p{{N}}{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_BLANKS}"
    )


_LETTERS_OF_DEEPSEEK = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-"
    "\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-"
    "\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-"
    "\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f"
    "\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-"
    "\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True)
class Splitting:
    """Text preparation for one kind of tokenizer."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """A piece that is itself a token is never split, even if merges do not produce the token."""
    begins: bool = False
    """Default for putting the begin token before a text."""


_GPT2 = Splitting((_WORDS_OF_GPT2,))
_DIGITS_FIRST = Splitting((r"\p{N}", _WORDS_OF_GPT2))
_QWEN2 = Splitting((_words(""),))
_LLAMA3 = Splitting((_words("{1,3}"),), whole_words=True, begins=True)
_GPT4O = Splitting((_cased("{1,3}", rf"(?:{_SHORT_FORMS})?"),))
_BLOOM = Splitting((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",))

SPLITTINGS: Mapping[str, Splitting] = {
    "default": Splitting(
        (r"[\p{P}$+<=>^~|]+", _WORDS_OF_GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    ),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "modern-bert", "exaone4"), _GPT2),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell"), _DIGITS_FIRST),
    **dict.fromkeys(("exaone", "minerva-7b"), _DIGITS_FIRST),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1"), _LLAMA3),
    **dict.fromkeys(("pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), _QWEN2),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Splitting(_LLAMA3.patterns)),
    **dict.fromkeys(("glm4", "glm5"), Splitting(_LLAMA3.patterns, whole_words=True)),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), _BLOOM),
    "viking": Splitting((*_BLOOM.patterns, r"\p{N}")),
    "qwen35": Splitting((_words("", r"\p{L}\p{M}"),)),
    "tekken": Splitting((_cased("", ""),), whole_words=True, begins=True),
    "seed-coder": Splitting(
        (
            rf"{_SHORT_FORMS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+"
            rf"|{_LINES_AND_BLANKS}",
        )
    ),
    "falcon": Splitting((r"[\p{P}$+<=>^~|`]+", _WORDS_OF_GPT2, "[0-9][0-9][0-9]")),
    "deepseek-llm": Splitting(
        (
            "[\r\n]",
            rf"\s?[{_LETTERS_OF_DEEPSEEK}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            # Matches only at the first blank of a run, to avoid quadratic time.
            r"(?<!\s)\s+$",
            _EAST_ASIAN,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Splitting(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense"),
        Splitting(
            (
                r"\p{N}{1,3}",
                "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
                r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
                + _LINES_AND_BLANKS,
            )
        ),
    ),
}
"""The supported names of `tokenizer.ggml.pre`."""

_CLASS = re.compile(r"\\(?:p\{(?P<category>\w+)\}|(?P<blank>[sS]))")
_WHITE_SPACE = "\\t-\\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space; Python's own class has the separators U+001C to U+001F, too."""
_PLANES = (range(0x40000), range(0xE0000, 0xE0200))
"""Ranges that contain all assigned characters except private ones."""


def splitting_of(name: str, where: object) -> Splitting:
    """Return the splitting rules of a name. Raises `ArgumentValueError` for an unknown name.

    The error names the file, `where`.
    """
    known = ", ".join(sorted(SPLITTINGS))
    require(
        name in SPLITTINGS,
        f"{where}: tokenizer.ggml.pre: {name!r} names a way of splitting texts that is not "
        f"known here, and another one would give other tokens. Known are {known}. "
        "A tokenizer.json beside the model is read by the tokenizers library instead",
    )
    return SPLITTINGS[name]


def split(text: str, patterns: tuple[str, ...]) -> list[str]:
    """Return the pieces of a text; joined, they are the text."""
    pieces = [text]
    for pattern in patterns:
        found = _compiled(pattern)
        pieces = [part for piece in pieces for part in _parts(found, piece)]
    return pieces


def _parts(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """The matches and the texts between them, in order."""
    end = 0
    for match in pattern.finditer(text):
        start, stop = match.span()
        if start > end:
            yield text[end:start]
        if stop > start:
            yield text[start:stop]
        end = stop
    if end < len(text):
        yield text[end:]


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, with classes in it that Python's `re` does not have."""
    made, depth, end = [], False, 0
    for match in _CLASS.finditer(pattern):
        between = pattern[end : match.start()]
        depth = _is_within(between, depth)
        made.append(between)
        category, blank = match["category"], match["blank"]
        inner = _ranges(category) if category else _WHITE_SPACE
        made.append(inner if depth else f"[{'^' if blank == 'S' else ''}{inner}]")
        end = match.end()
    return re.compile("".join([*made, pattern[end:]]))


def _is_within(text: str, within: bool) -> bool:
    """Return whether the end of a text is within brackets, given the state at its beginning."""
    for sign in re.sub(r"\\.", "", text, flags=re.DOTALL):
        if sign in "[]":
            within = sign == "["
    return within


@lru_cache(maxsize=16)
def _ranges(category: str) -> str:
    """The characters of a category, or of all categories of one letter, in bracket syntax."""
    return "".join(
        f"{re.escape(chr(first))}-{re.escape(chr(last))}"
        for name, first, last in _runs()
        if name.startswith(category)
    )


@lru_cache(maxsize=1)
def _runs() -> list[tuple[str, int, int]]:
    """Runs of characters of one category: its name, the first, the last."""
    found = []
    for plane in _PLANES:
        start = plane.start
        for name, run in groupby(map(unicodedata.category, map(chr, plane))):
            count = sum(1 for _ in run)
            found.append((name, start, start + count - 1))
            start += count
    return found

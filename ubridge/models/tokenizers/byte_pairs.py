"""Byte pair encoding as in GPT-2: bytes, written as printable characters, merged by rank.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). Each of the 256 bytes
is written as one character: its Latin-1 character if printable, else a character from U+0100 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ubridge.models.tokenizers.merging import merged
from ubridge.models.tokenizers.patterns import Splitting, split
from ubridge.models.tokenizers.vocabulary import Kind, Vocabulary
from ubridge.models.tokenizers.words import WordsTokenizer

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_MOST_REMEMBERED = 1 << 14


def _alphabet() -> dict[int, str]:
    others = (byte for byte in range(256) if byte not in _PRINTABLE)
    written = {byte: chr(byte) for byte in _PRINTABLE}
    return written | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


WRITTEN: Mapping[int, str] = _alphabet()
"""Spelling of each byte."""
_BYTE_OF = {sign: byte for byte, sign in WRITTEN.items()}


class BytePairTokenizer(WordsTokenizer):
    """Splits texts by a pattern, and merges the bytes of each piece."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], splitting: Splitting) -> None:
        """Take a vocabulary and merges, each "left right", lowest rank first."""
        super().__init__(vocabulary)
        self._ranks = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))
        self._splitting = splitting
        self._tokens_of_piece = lru_cache(_MOST_REMEMBERED)(self._merged)

    def _between(self, text: str, begins: bool) -> Iterable[int]:
        for piece in split(text, self._splitting.patterns):
            yield from self._tokens_of_piece(piece)

    def _merged(self, piece: str) -> tuple[int, ...]:
        raw = piece.encode("utf-8")
        written = "".join([WRITTEN[byte] for byte in raw])
        tokens, ranks = self._words.tokens, self._ranks
        if self._splitting.whole_words and written in tokens:
            return (tokens[written],)
        found: list[int] = []
        for one in merged(written, lambda left, right: ranks.get(f"{left} {right}")):
            if one in tokens:
                found.append(tokens[one])
            else:
                # A merge may make an unknown token; its bytes become tokens, if these
                # exist.
                found += [tokens[sign] for sign in one if sign in tokens]
        return tuple(found)

    def _bytes_of(self, token: int) -> bytes:
        text = self._words.texts[token]
        if self._words.kinds[token] == Kind.NORMAL:
            return written_bytes(text)
        return text.encode("utf-8", "surrogateescape")


def written_bytes(text: str) -> bytes:
    """Return the bytes that a token's text spells, else its UTF-8."""
    try:
        return bytes([_BYTE_OF[sign] for sign in text])
    except KeyError:
        return text.encode("utf-8", "surrogateescape")

"""Byte pair encoding as GPT-2 has it: bytes, written as printable characters, merged by rank.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). Each of the 256 bytes
is written as one character: itself where it is printable in Latin-1, else one from U+0100 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from ubridge.models.text.merging import merged
from ubridge.models.text.patterns import Splitting, split
from ubridge.models.text.tokenizer import ByteStream, SpecialTexts, Stream, Tokenizer
from ubridge.models.text.vocabulary import Kind, Vocabulary

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_MOST_REMEMBERED = 1 << 14


def _alphabet() -> dict[int, str]:
    others = (byte for byte in range(256) if byte not in _PRINTABLE)
    written = {byte: chr(byte) for byte in _PRINTABLE}
    return written | {byte: chr(0x100 + place) for place, byte in enumerate(others)}


WRITTEN: Mapping[int, str] = _alphabet()
"""How each byte is written."""
_BYTE_OF = {sign: byte for byte, sign in WRITTEN.items()}


class BytePairTokenizer(Tokenizer):
    """Splits texts by a pattern, and merges the bytes of each piece."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], splitting: Splitting) -> None:
        """Of a vocabulary and merges, each "left right", the first of the lowest rank."""
        self._words = vocabulary
        self.vocabulary = len(vocabulary.texts)
        self.begin, self.end = vocabulary.begin, vocabulary.end
        self._ranks = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))
        self._splitting = splitting
        self._tokens_of_piece = lru_cache(_MOST_REMEMBERED)(self._merged)

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        found: list[int] = []
        for part in (self._all_special if parse_special else self._own_special).split(text):
            if isinstance(part, int):
                found.append(part)
                continue
            for piece in split(part, self._splitting.patterns):
                found += self._tokens_of_piece(piece)
        return self._words.around(found) if add_special else found

    def _merged(self, piece: str) -> tuple[int, ...]:
        raw = piece.encode("utf-8", "surrogatepass")
        written = "".join([WRITTEN[byte] for byte in raw])
        tokens, ranks = self._words.tokens, self._ranks
        if self._splitting.whole_words and written in tokens:
            return (tokens[written],)
        found: list[int] = []
        for one in merged(written, lambda left, right: ranks.get(f"{left} {right}")):
            if one in tokens:
                found.append(tokens[one])
            else:
                # A merge may make what is no token: then its bytes are, as far as there are any.
                found += [tokens[sign] for sign in one if sign in tokens]
        return tuple(found)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, map(self.require_token, tokens))) + stream.finish()

    def stream(self, after: Sequence[int] = (), *, skip_special: bool = True) -> Stream:
        return ByteStream(self._bytes, self._words.silent if skip_special else frozenset(), False)

    def token_of(self, text: str) -> int | None:
        return self._words.tokens.get(text)

    def spelling_of(self, token: int) -> str:
        return self._words.texts[self.require_token(token)]

    @property
    def special(self) -> Mapping[str, int]:
        return self._words.of_kinds(Kind.CONTROL)

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return tuple(sorted(self._words.ends.union(super().end_tokens)))

    @cached_property
    def _bytes(self) -> list[bytes]:
        return [
            _read(text) if kind == Kind.NORMAL else text.encode("utf-8", "surrogateescape")
            for text, kind in zip(self._words.texts, self._words.kinds, strict=True)
        ]

    @cached_property
    def _all_special(self) -> SpecialTexts:
        kinds = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        return SpecialTexts(self._words.of_kinds(*kinds), self._words.eats_blanks)

    @cached_property
    def _own_special(self) -> SpecialTexts:
        return SpecialTexts(self._words.of_kinds(Kind.USER_DEFINED), self._words.eats_blanks)


def _read(text: str) -> bytes:
    """The bytes that a token's text is written for; a text that is not written so is its own."""
    try:
        return bytes([_BYTE_OF[sign] for sign in text])
    except KeyError:
        return text.encode("utf-8", "surrogateescape")

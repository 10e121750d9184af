"""Tokenizers over a vocabulary: special tokens first, then the text between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from ubridge.models.tokenizers.special import ByteStream, SpecialTexts
from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer
from ubridge.models.tokenizers.vocabulary import Kind, Vocabulary
from uhal.kept import kept_property


class WordsTokenizer(Tokenizer):
    """Base of tokenizers that merge pieces by score or byte pairs by rank."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Take a vocabulary."""
        self._words = vocabulary
        self.vocabulary = len(vocabulary.texts)
        self.begin, self.end = vocabulary.begin, vocabulary.end

    @property
    def words(self) -> Vocabulary:
        """All tokens, with their kinds and roles."""
        return self._words

    @abstractmethod
    def _between(self, text: str, begins: bool) -> Iterable[int]:
        """Tokens of a part without special tokens; `begins`: the part starts the text."""

    @abstractmethod
    def _bytes_of(self, token: int) -> bytes:
        """Bytes of a token."""

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        found: list[int] = []
        begins = True
        for part in (self._parsed if parse_special else self._always_parsed).split(text):
            if isinstance(part, int):
                found.append(part)
            else:
                found += self._between(part, begins)
            begins = isinstance(part, int)
        return self._words.around(found) if add_special else found

    def _stream(self, after: Sequence[int], skip_special: bool) -> Stream:
        words = self._words
        # The unknown token stands for a character within a text.
        begins = not after or after[-1] in words.silent - {words.unknown}
        skipped = words.silent if skip_special else frozenset()
        return ByteStream(self._bytes, skipped, begins and words.adds_blank, after)

    def token_of(self, text: str) -> int | None:
        """Return the token of this text."""
        return self._words.tokens.get(text)

    def _spelling_of(self, token: int) -> str:
        return self._words.texts[token]

    def _special(self) -> Mapping[str, int]:
        return self._words.of_kinds(Kind.CONTROL)

    def _ends(self) -> frozenset[int]:
        return self._words.ends

    @kept_property
    def _bytes(self) -> list[bytes]:
        return [self._bytes_of(token) for token in range(self.vocabulary)]

    @kept_property
    def _parsed(self) -> SpecialTexts:
        kinds = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        return SpecialTexts(self._words.of_kinds(*kinds), self._words.eats_blanks)

    @kept_property
    def _always_parsed(self) -> SpecialTexts:
        return SpecialTexts(self._words.of_kinds(Kind.USER_DEFINED), self._words.eats_blanks)

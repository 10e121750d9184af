"""SentencePiece's tokenizer as LLaMA has it: pieces of a vocabulary, the highest score merged first.

Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer and
detokenizer for Neural Text Processing" (2018). A blank is written as U+2581. What is no piece
becomes its bytes where the vocabulary has tokens for them, else the unknown token, one for a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ubridge.models.text.merging import merged
from ubridge.models.text.tokenizer import ByteStream, SpecialTexts, Stream, Tokenizer
from ubridge.models.text.vocabulary import Kind, Vocabulary

BLANK = "\u2581"


class PieceTokenizer(Tokenizer):
    """Merges pieces by their scores."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Of a vocabulary with scores."""
        self._words = vocabulary
        self.vocabulary = len(vocabulary.texts)
        self.begin, self.end = vocabulary.begin, vocabulary.end
        self._scores = {
            text: score
            for text, score, kind in zip(
                vocabulary.texts, vocabulary.scores, vocabulary.kinds, strict=True
            )
            if kind not in (Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE)
        }

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        found: list[int] = []
        begins = True
        for part in (self._all_special if parse_special else self._own_special).split(text):
            if isinstance(part, int):
                found.append(part)
                begins = True
                continue
            found += self._pieces_of(self.prepared(part, begins))
            begins = False
        return self._words.around(found) if add_special else found

    def prepared(self, text: str, begins: bool) -> str:
        """Return a text as its pieces spell it; it `begins` behind nothing or a special token."""
        if begins and self._words.adds_blank:
            text = " " + text
        return text.replace(" ", BLANK)

    def _pieces_of(self, text: str) -> Iterable[int]:
        scores, tokens, own = self._scores, self._words.tokens, self._words.bytes

        def rank(left: str, right: str) -> float | None:
            score = scores.get(left + right)
            return None if score is None else -score

        unknown = False
        for piece in merged(text, rank):
            token = tokens.get(piece)
            if token is not None:
                yield token
            elif own:
                for byte in piece.encode("utf-8", "surrogatepass"):
                    yield own[byte]
            elif not unknown and self._words.unknown is not None:
                yield self._words.unknown
            unknown = token is None

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, map(self.require_token, tokens))) + stream.finish()

    def stream(self, after: Sequence[int] = (), *, skip_special: bool = True) -> Stream:
        words = self._words
        begins = not after or after[-1] in words.silent
        skipped = words.silent if skip_special else frozenset()
        return ByteStream(self._bytes, skipped, begins and words.adds_blank)

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
        own = {token: bytes([byte]) for byte, token in self._words.bytes.items()}
        return [
            own.get(token) or text.replace(BLANK, " ").encode("utf-8", "surrogateescape")
            for token, text in enumerate(self._words.texts)
        ]

    @cached_property
    def _all_special(self) -> SpecialTexts:
        kinds = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        return SpecialTexts(self._words.of_kinds(*kinds), self._words.eats_blanks)

    @cached_property
    def _own_special(self) -> SpecialTexts:
        return SpecialTexts(self._words.of_kinds(Kind.USER_DEFINED), self._words.eats_blanks)

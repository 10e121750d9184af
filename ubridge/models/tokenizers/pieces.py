"""SentencePiece's tokenizer as in LLaMA: pieces of a vocabulary, the best score merged first.

Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer and
detokenizer for Neural Text Processing" (2018). A blank is written as U+2581. Text outside all
pieces becomes tokens of its bytes. Without such tokens a run becomes one unknown token.
"""

from __future__ import annotations

from collections.abc import Iterable

from ubridge.models.tokenizers.merging import merged
from ubridge.models.tokenizers.vocabulary import Kind, Vocabulary
from ubridge.models.tokenizers.words import WordsTokenizer
from uhal.kept import kept_property

BLANK = "\u2581"


class PieceTokenizer(WordsTokenizer):
    """Merges pieces by their scores."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Take a vocabulary with scores."""
        super().__init__(vocabulary)
        self._scores = {
            text: score
            for text, score, kind in zip(
                vocabulary.texts, vocabulary.scores, vocabulary.kinds, strict=True
            )
            if kind not in (Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE)
        }

    def _between(self, text: str, begins: bool) -> Iterable[int]:
        if begins and self._words.adds_blank:
            text = " " + text
        return self._pieces_of(text.replace(" ", BLANK))

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
            elif own and all(byte in own for byte in piece.encode("utf-8")):
                yield from map(own.__getitem__, piece.encode("utf-8"))
            elif not unknown and self._words.unknown is not None:
                yield self._words.unknown
            unknown = token is None

    @kept_property
    def _byte_of(self) -> dict[int, int]:
        return {token: byte for byte, token in self._words.bytes.items()}

    def _bytes_of(self, token: int) -> bytes:
        if token in self._byte_of:
            return bytes([self._byte_of[token]])
        return self._words.texts[token].replace(BLANK, " ").encode("utf-8", "surrogateescape")

"""Special tokens, which are found by their text, and tokens of bytes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence

from ubridge.models.tokenizers.tokenizer import Stream


class SpecialTexts:
    """Finds the texts of special tokens in a text: the leftmost, and the longest on a tie."""

    def __init__(self, tokens: Mapping[str, int], eats_blanks: Iterable[str] = ()) -> None:
        """Take tokens by their texts; some include the white space behind them."""
        self._tokens = tokens
        self._eats_blanks = frozenset(eats_blanks)
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if tokens else None

    def split(self, text: str) -> list[str | int]:
        """Return the special tokens of a text and the texts between them, in order."""
        if self._pattern is None:
            return [text] if text else []
        found: list[str | int] = []
        end = 0
        for match in self._pattern.finditer(text):
            if match.start() < end:
                continue
            if match.start() > end:
                found.append(text[end : match.start()])
            found.append(self._tokens[match[0]])
            end = match.end()
            if match[0] in self._eats_blanks:
                end = len(text) - len(text[end:].lstrip())
        if end < len(text):
            found.append(text[end:])
        return found


_LONGEST_CHARACTER = 4
"""Maximum bytes of a character in UTF-8, and so the maximum byte tokens of a character."""


class ByteStream(Stream):
    """Converts byte tokens to text."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        skipped: frozenset[int] = frozenset(),
        strips: bool = False,
        after: Sequence[int] = (),
    ) -> None:
        """Take each token's bytes, and earlier tokens; `strips` drops a leading blank."""
        self._pieces = pieces
        self._skipped = skipped
        self._strips = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # The last of these tokens may have begun a character.
        for token in after[-_LONGEST_CHARACTER:]:
            self.push(token)
        self._strips = strips

    def push(self, token: int) -> str:
        """Return the text that a token completes."""
        # A model has more tokens than its tokenizer if rows were added to fill up a matrix.
        if token in self._skipped or token >= len(self._pieces):
            return ""
        piece = self._pieces[token]
        if self._strips and piece:
            self._strips = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """Return U+FFFD for incomplete characters at the end."""
        return self._decoder.decode(b"", final=True)

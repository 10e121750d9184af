"""CLIP's tokenizer: small letters, split by a pattern; byte pairs, with a mark after each word.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021). It
reads `vocab.json` and `merges.txt`, or the same in a `tokenizer.json`.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ubridge.files.errors import require_valid
from ubridge.files.settings import Settings, text_of_file
from ubridge.models.tokenizers.beside import read_beside
from ubridge.models.tokenizers.byte_pairs import WRITTEN, BytePairTokenizer
from ubridge.models.tokenizers.merging import merged
from ubridge.models.tokenizers.patterns import Splitting, split
from ubridge.models.tokenizers.vocabulary import Kind, Vocabulary
from uhal.errors import NotFoundError

_BEGIN, _END, _WORD_END = "<|startoftext|>", "<|endoftext|>", "</w>"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"

_PATTERNS = (rf"<\|startoftext\|>|<\|endoftext\|>|{_WORDS}", _WORDS)
"""The second pattern splits spellings of special tokens that only the normalization made."""


class ClipTokenizer(BytePairTokenizer):
    """Converts prompts to tokens, between the tokens that begin and end a text."""

    def __init__(self, vocabulary: Vocabulary, merges: list[str], pad: int) -> None:
        """Take a vocabulary and merges, each "left right", lowest rank first."""
        super().__init__(vocabulary, merges, Splitting(_PATTERNS))
        self.pad = pad
        """The token behind short prompts."""

    @classmethod
    def read(cls, path: Path, pad: str | None = None) -> ClipTokenizer:
        """Read a folder, or a `tokenizer.json`; `pad` replaces the folder's token.

        Raises `NotFoundError` for a folder without the files, and `InvalidFileError`.
        """
        folder = path if path.is_dir() else path.parent
        names, merges = folder / "vocab.json", folder / "merges.txt"
        whole = folder / "tokenizer.json" if path.is_dir() else path
        if path.is_dir() and names.is_file() and merges.is_file():
            numbers: Any = Settings.read(names)
            tokens = {text: numbers.integer(text) for text in numbers}
            lines = text_of_file(merges).split("\n")
            pairs = [line for line in lines if line.strip() and not line.startswith("#version")]
            where: Path = names
        elif whole.is_file():
            model = Settings.read(whole).section("model")
            inside = model.section("vocab")
            tokens = {text: inside.integer(text) for text in inside}
            told = model.value("merges")
            require_valid(isinstance(told, list), whole, "model.merges: expected a list")
            pairs = [one if isinstance(one, str) else " ".join(map(str, one)) for one in told]
            where = whole
        else:
            raise NotFoundError(
                f"{path}: expected a tokenizer of CLIP: vocab.json and merges.txt, or a "
                "tokenizer.json"
            )
        return _made(tokens, pairs, where, pad or read_beside(folder).text_of("pad_token"))

    def padded(self, prompt: str, count: int) -> list[int]:
        """Return exactly `count` tokens; a `UserWarning` says how many tokens were cut."""
        tokens = self.encode(prompt)
        if len(tokens) > count:
            warnings.warn(
                f"prompt: {len(tokens) - count} of {len(tokens)} tokens are behind the last of "
                f"{count} positions and have no effect",
                stacklevel=4,
            )
            tokens = [*tokens[: count - 1], tokens[-1]]
        return tokens + [self.pad] * (count - len(tokens))

    def _between(self, text: str, begins: bool) -> Iterable[int]:
        # Each character by itself: a Greek word's last letter gets no other form.
        small = "".join([one.lower() for one in unicodedata.normalize("NFC", text)])
        for piece in split(small, self._splitting.patterns):
            if not _is_blank(piece[0]):
                yield from self._tokens_of_piece(piece)

    def _merged(self, piece: str) -> tuple[int, ...]:
        symbols = [WRITTEN[byte] for byte in piece.encode("utf-8")]
        symbols[-1] += _WORD_END
        ranks, tokens, unknown = self._ranks, self._words.tokens, self._words.unknown
        parts = merged(symbols, lambda left, right: ranks.get(f"{left} {right}"))
        found = [tokens.get(one, unknown) for one in parts]
        return tuple([one for one in found if one is not None])

    def _bytes_of(self, token: int) -> bytes:
        text = self._words.texts[token]
        raw = super()._bytes_of(token)
        return raw.removesuffix(_WORD_END.encode()) + b" " if text.endswith(_WORD_END) else raw

    def _decode(self, tokens: list[int], skip_special: bool) -> str:
        return super()._decode(tokens, skip_special).strip()


def _is_blank(sign: str) -> bool:
    """Return whether a character is white space by Unicode; Python counts four more."""
    return sign in "\t\n\v\f\r\x85" or unicodedata.category(sign) in ("Zs", "Zl", "Zp")


def _made(tokens: dict[str, int], merges: list[str], where: Path, pad: str | None) -> ClipTokenizer:
    count = len(tokens)
    texts = {number: text for text, number in tokens.items()}
    require_valid(
        count and sorted(texts) == list(range(count)),
        where,
        f"expected tokens numbered 0…{count - 1}, each once",
    )
    for text in (_BEGIN, _END, *([] if pad is None else [pad])):
        require_valid(text in tokens, where, f"expected a token {text!r}, there is none")
    control = {tokens[_BEGIN], tokens[_END]}
    vocabulary = Vocabulary(
        texts=[texts[number] for number in range(count)],
        kinds=[Kind.CONTROL if number in control else Kind.NORMAL for number in range(count)],
        begin=tokens[_BEGIN],
        end=tokens[_END],
        unknown=tokens[_END],
        adds_begin=True,
        adds_end=True,
    )
    return ClipTokenizer(vocabulary, merges, tokens[_END if pad is None else pad])

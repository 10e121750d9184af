"""Vocabularies as GGUF files and SentencePiece models hold them: texts, scores, kinds of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.models.tokenizers.tokenizer import CONTROL_LOOKING
from uhal.kept import kept_property

BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
"""Pattern of a byte's token in vocabularies."""
_CONTROL = re.compile("<\\|.*\\|>|<\uff5c.*\uff5c>", re.DOTALL)


class Kind(IntEnum):
    """Kinds of tokens; both formats use the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """All tokens of a model, and the special roles of some tokens."""

    texts: Sequence[str]
    kinds: Sequence[int]
    scores: Sequence[float] = ()
    begin: int | None = None
    end: int | None = None
    ends: frozenset[int] = frozenset()
    """Further tokens that end a text."""
    unknown: int | None = None
    adds_begin: bool = False
    adds_end: bool = False
    adds_blank: bool = False
    """Whether a blank is put before each text."""
    eats_blanks: tuple[str, ...] = field(default=(), compare=False)
    """Special tokens that include the white space behind them."""

    @kept_property
    def tokens(self) -> dict[str, int]:
        """Tokens by their texts; the last token wins where texts are equal."""
        return {text: token for token, text in enumerate(self.texts)}

    def of_kinds(self, *kinds: Kind) -> dict[str, int]:
        """Return the tokens of some kinds, by their texts."""
        wanted = {int(kind) for kind in kinds}
        texts = self.texts
        return {texts[token]: token for token, kind in enumerate(self.kinds) if kind in wanted}

    @kept_property
    def bytes(self) -> Mapping[int, int]:
        """Token of each byte that has one."""
        found = {}
        for text, token in self.of_kinds(Kind.BYTE).items():
            match = BYTE.fullmatch(text)
            if match is not None:
                found[int(match[1], 16)] = token
        return found

    @kept_property
    def silent(self) -> frozenset[int]:
        """Tokens without text."""
        return frozenset(
            token
            for token, kind in enumerate(self.kinds)
            if kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED)
        )

    def around(self, tokens: Iterable[int]) -> list[int]:
        """Return tokens between the tokens that begin and end a text."""
        begin = [self.begin] if self.adds_begin and self.begin is not None else []
        end = [self.end] if self.adds_end and self.end is not None else []
        return [*begin, *tokens, *end]


def looks_control(text: str) -> bool:
    """Return whether a token is spelled like a control token: `<|im_start|>`."""
    return text.startswith("<") and (text in CONTROL_LOOKING or bool(_CONTROL.fullmatch(text)))


def require_in(where: object, vocabulary: Vocabulary) -> Vocabulary:
    """Refuse a vocabulary with inconsistent parts."""
    count = len(vocabulary.texts)
    for what, values in (("kinds", vocabulary.kinds), ("scores", vocabulary.scores)):
        require_valid(
            len(values) == count or (what == "scores" and not values),
            where,
            f"expected {what} of {count} tokens, got {len(values)}",
        )
    try:
        "".join(vocabulary.texts).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidFileError(
            f"{where}: expected tokens of UTF-8, got the surrogate "
            f"U+{ord(error.object[error.start]):04X}"
        ) from None
    for what in ("begin", "end", "unknown"):
        token = getattr(vocabulary, what)
        if token is not None and not 0 <= token < count:
            raise InvalidFileError(
                f"{where}: the token for {what}: expected 0…{count - 1}, got {token}"
            )
    return vocabulary

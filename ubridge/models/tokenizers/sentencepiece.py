"""SentencePiece's `tokenizer.model`: a message of protocol buffers, read without their library.

The fields are described in sentencepiece_model.proto, the encoding in "Protocol Buffers
Documentation, Encoding". Only byte pair encoding is supported: LLaMA, Mistral, Yi, Gemma and
ChatGLM3 use it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ubridge.core.fits import require
from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.settings import bytes_of_file
from ubridge.models.tokenizers.beside import Beside, read_beside
from ubridge.models.tokenizers.pieces import BLANK, PieceTokenizer
from ubridge.models.tokenizers.special import SpecialTexts
from ubridge.models.tokenizers.tokenizer import Tokenizer
from ubridge.models.tokenizers.vocabulary import Kind, Vocabulary, require_in

_PIECES, _TRAINING, _NORMALIZING = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_MODEL_TYPE, _BLANK_BEHIND, _UNKNOWN_ID, _BEGIN_ID, _END_ID = 3, 24, 40, 41, 42
_CHARACTER_MAP, _DUMMY_PREFIX, _REMOVES_BLANKS, _ESCAPES = 2, 3, 4, 5
_BYTE_PAIRS = 2
_MODEL_TYPES = {1: "unigram", 2: "byte pair encoding", 3: "words", 4: "characters"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BYTES = 1 << 28
"""Upper limit of a file's size; Gemma's file, among the largest, has 4 MB."""
_F32 = struct.Struct("<f")

Fields = dict[int, "int | bytes"]
"""Field numbers to values; the last value of a repeated field."""


def read(path: Path) -> Tokenizer:
    """Read a `tokenizer.model`. Raises `InvalidFileError`, `ArgumentValueError` for other kinds."""
    texts: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    training: Fields = {}
    normalizing: Fields = {}
    for number, value in _fields(bytes_of_file(path, _MOST_BYTES), path):
        if not isinstance(value, bytes):
            continue
        if number == _PIECES:
            piece = dict(_fields(value, path))
            texts.append(_bytes(piece, _PIECE_TEXT, path).decode("utf-8", "surrogateescape"))
            scores.append(_float(piece, _PIECE_SCORE, path))
            kinds.append(_int(piece, _PIECE_KIND, path, Kind.NORMAL))
        elif number == _TRAINING:
            training = dict(_fields(value, path))
        elif number == _NORMALIZING:
            normalizing = dict(_fields(value, path))
    require_valid(
        texts,
        path,
        "there are no pieces, so it is no model of SentencePiece",
    )
    _require_known(path, training, normalizing)
    beside = read_beside(path.parent)
    _add(path, beside, texts, scores, kinds)
    begin = _named(beside, "bos_token", texts, _int(training, _BEGIN_ID, path, 1))
    words = Vocabulary(
        texts=texts,
        kinds=kinds,
        scores=scores,
        begin=begin,
        end=_named(beside, "eos_token", texts, _int(training, _END_ID, path, 2)),
        unknown=_int(training, _UNKNOWN_ID, path, 0),
        adds_begin=beside.adds("bos", begin is not None),
        adds_end=beside.adds("eos", False),
        adds_blank=bool(_int(normalizing, _DUMMY_PREFIX, path, 1)),
    )
    removes = bool(_int(normalizing, _REMOVES_BLANKS, path, 1))
    made = SentencePieceTokenizer(require_in(path, words), removes)
    made.chat_templates = beside.templates
    made.chat_template = beside.templates.get("default")
    made.template_names = beside.names
    return made


class SentencePieceTokenizer(PieceTokenizer):
    """Same as SentencePiece: user-defined tokens are found in the normalized text."""

    def __init__(self, vocabulary: Vocabulary, removes_blanks: bool) -> None:
        """Take a vocabulary; blanks at both ends and beside other blanks may be removed."""
        super().__init__(vocabulary)
        self._removes_blanks = removes_blanks
        self._always_parsed = SpecialTexts({})
        self._parsed = SpecialTexts(vocabulary.of_kinds(Kind.CONTROL))
        self._defined = SpecialTexts(vocabulary.of_kinds(Kind.USER_DEFINED))

    def _between(self, text: str, begins: bool) -> Iterable[int]:
        if self._removes_blanks:
            text = re.sub(" +", " ", text.strip(" "))
        return super()._between(text, begins) if text else ()

    def _pieces_of(self, text: str) -> Iterable[int]:
        for part in self._defined.split(text):
            if isinstance(part, int):
                yield part
            else:
                yield from super()._pieces_of(part)


def _add(
    path: Path, beside: Beside, texts: list[str], scores: list[float], kinds: list[int]
) -> None:
    """Append the tokens of files beside the model."""
    known = {text: token for token, text in enumerate(texts)}
    for one in beside.added:
        token = known.get(one.text)
        if token is None:
            one.require(len(texts), path)
            texts.append(one.text)
            scores.append(0.0)
            kinds.append(Kind.CONTROL if one.is_special else Kind.USER_DEFINED)
        elif one.is_special and kinds[token] in (Kind.NORMAL, Kind.USER_DEFINED):
            kinds[token] = Kind.CONTROL


def _named(beside: Beside, name: str, texts: list[str], otherwise: int) -> int | None:
    """A token by its name in the configuration, else by the model's own number."""
    text = beside.text_of(name)
    if text is not None:
        return texts.index(text)
    return otherwise if otherwise >= 0 else None


def _require_known(path: Path, training: Fields, normalizing: Fields) -> None:
    kind = _int(training, _MODEL_TYPE, path, 1)
    wanted = "; a tokenizer.json beside it is read by the tokenizers library instead"
    require(
        kind == _BYTE_PAIRS,
        f"{path}: expected a model of byte pair encoding, got one of "
        f"{_MODEL_TYPES.get(kind, kind)}{wanted}",
    )
    unknown = {
        "a map of characters": bool(_bytes(normalizing, _CHARACTER_MAP, path, b"")),
        "blanks behind words": bool(_int(training, _BLANK_BEHIND, path, 0)),
        f"blanks that are not {BLANK}": not _int(normalizing, _ESCAPES, path, 1),
    }
    for what, there in unknown.items():
        require(
            not there,
            f"{path}: its texts are prepared with {what}{wanted}",
        )


@dataclass
class _Cursor:
    data: bytes
    path: Path
    offset: int = 0

    def varint(self) -> int:
        value = shift = 0
        while shift < 64:
            if self.offset >= len(self.data):
                break
            byte = self.data[self.offset]
            self.offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise InvalidFileError(f"{self.path}: expected a number at byte {self.offset} of a message")

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.offset:
            raise InvalidFileError(
                f"{self.path}: expected {count} bytes at {self.offset} of a message, there are "
                f"{len(self.data) - self.offset}"
            )
        self.offset += count
        return self.data[self.offset - count : self.offset]


def _fields(data: bytes, path: Path) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message."""
    cursor = _Cursor(data, path)
    while cursor.offset < len(data):
        key = cursor.varint()
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            yield number, cursor.varint()
        elif kind == _BYTES:
            yield number, cursor.take(cursor.varint())
        elif kind in (_FIXED32, _FIXED64):
            yield number, cursor.take(4 if kind == _FIXED32 else 8)
        else:
            raise InvalidFileError(
                f"{path}: expected a field of protocol buffers, got one of kind {kind}; it is no "
                "model of SentencePiece"
            )


def _bytes(fields: Fields, number: int, path: Path, default: bytes | None = None) -> bytes:
    value = fields.get(number, default)
    if not isinstance(value, bytes):
        raise InvalidFileError(f"{path}: expected bytes in field {number} of a message")
    return value


def _float(fields: Fields, number: int, path: Path) -> float:
    raw = _bytes(fields, number, path, bytes(_F32.size))
    if len(raw) != _F32.size:
        raise InvalidFileError(f"{path}: expected a float in field {number} of a message")
    return float(_F32.unpack(raw)[0])


def _int(fields: Fields, number: int, path: Path, default: int) -> int:
    """A signed number, written as 64 bits."""
    value = fields.get(number, default)
    if not isinstance(value, int):
        raise InvalidFileError(f"{path}: expected a number in field {number} of a message")
    return value - (1 << 64) if value >> 63 else value

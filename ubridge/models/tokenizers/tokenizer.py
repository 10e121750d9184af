"""Interface of all tokenizers, and the choice of a tokenizer for a path."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ubridge.core.fits import require
from ubridge.files.folders import expanded
from ubridge.files.gguf_reading import begins_as_gguf
from ubridge.habits import OF_TOKENIZER
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.habits import refuse_names
from uhal.images.regular_file import path_of
from uhal.kept import kept_property

CONTROL_LOOKING = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<end_of_turn>", "<end_of_utterance>", "<EOT>", "_<EOT>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)
"""Tokens that end a text, as in llama.cpp, even if the file marks them as ordinary text."""
ENDS = (*CONTROL_LOOKING, "<eos>", "</s>", "<|user|>", "<|observation|>")
"""Special tokens after which models stop, in addition to the end token in their files."""
_READERS = {
    "tokenizer.json": "ubridge.models.tokenizers.huggingface",
    "tokenizer.model": "ubridge.models.tokenizers.sentencepiece",
    ".gguf": "ubridge.models.tokenizers.gguf",
    "rwkv_vocab_v20230424.txt": "ubridge.models.tokenizers.rwkv",
}
"""Files that hold a tokenizer, the best first, and the modules whose `read` loads them."""
FILES = tuple(name for name in _READERS if name != ".gguf")
"""Files of a folder that hold nothing but a tokenizer."""


class Stream(ABC):
    """Converts tokens to text one by one; a character is returned with its last byte."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Return the text that a token completes, which may be none."""

    @abstractmethod
    def finish(self) -> str:
        """Return the remaining text, with U+FFFD for bytes of incomplete characters."""


class Tokenizer(ABC):
    """Converts texts to tokens and back. It keeps no state; any thread may use it."""

    vocabulary: int
    """Number of tokens: ids are 0…vocabulary-1."""
    begin: int | None = None
    """The token that texts begin with, where the model has one."""
    end: int | None = None
    """The token that ends a text."""
    chat_template: str | None = None
    """Jinja template that turns messages into a prompt."""
    chat_templates: Mapping[str, str] = {}
    """Templates for other purposes, such as tools, by their names."""
    template_names: Mapping[str, Any] = {}
    """Texts of special tokens by their names in templates, such as `pad_token`."""

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer from a model's folder, a GGUF file, or a tokenizer file.

        Tokenizer files are `tokenizer.json` (read by the `tokenizers` library, of the extra `llm`),
        SentencePiece's `tokenizer.model` and RWKV's `rwkv_vocab_v20230424.txt`. In a folder, the
        first existing file in this order counts. `~` is replaced. Raises `FileNotFoundError`,
        `NotFoundError` for `~` of an unknown user, `InvalidFileError` for a damaged file, and
        `ArgumentValueError` for an unknown kind of tokenizer.
        """
        found = _file_of(expanded(path_of("Tokenizer.load, path", path)))
        is_gguf = found.suffix == ".gguf" or begins_as_gguf(found)
        name = ".gguf" if is_gguf else _kind_of(found)
        made = import_module(_READERS[name]).read(found)
        assert isinstance(made, Tokenizer)
        return made

    def __call__(self, *given: object, **settings: object) -> NoReturn:
        """Raise a `TypeError` that names `encode`, for callers of transformers' tokenizers."""
        raise TypeError("a tokenizer is no function. Write tokenizer.encode(text).")

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Return a text's tokens.

        `add_special` adds the tokens that begin and end the model's texts. With `parse_special` the
        text of a special token, such as `<|im_end|>`, becomes that token. Pass users' input without
        `parse_special`: such texts are then ordinary text.

        Raises `ArgumentValueError` for a text with a lone surrogate, which UTF-8 cannot encode.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(f"encode: expected a text, got {type(text).__name__}")
        require_utf8("encode", text)
        return self._encode(text, add_special, parse_special)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of tokens; special tokens give no text unless `skip_special` is False.

        Invalid bytes become U+FFFD. Raises `ArgumentValueError` for an id outside the vocabulary.
        """
        return self._decode(self._known(tokens), skip_special)

    def stream(self, after: Sequence[int] = (), *, skip_special: bool = True) -> Stream:
        """Return a converter of single tokens to text; the tokens `after` come first."""
        return self._stream(self._known(after), skip_special)

    def spelling_of(self, token: int) -> str:
        """Return how the vocabulary spells a token."""
        return self._spelling_of(self.require_token(token))

    @kept_property
    def special(self) -> Mapping[str, int]:
        """Tokens without text: begin, end, roles in a chat."""
        return self._special()

    @kept_property
    def end_tokens(self) -> tuple[int, ...]:
        """Tokens after which a model stops: its own and other models' known end tokens."""
        found = {self.special[text] for text in ENDS if text in self.special}
        found |= {token for text in CONTROL_LOOKING if (token := self.token_of(text)) is not None}
        found |= self._ends()
        return tuple(sorted(found if self.end is None else found | {self.end}))

    def require_token(self, token: int) -> int:
        """Return a token. Raises `ArgumentValueError` if the vocabulary lacks it."""
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise ArgumentTypeError(f"token: expected an int, got {type(token).__name__}")
        number = token.__index__()
        require(
            0 <= number < self.vocabulary,
            f"token: expected 0…{self.vocabulary - 1}, got {number}",
        )
        return number

    def _known(self, tokens: Iterable[int]) -> list[int]:
        """Return the tokens of one text. Raises `ArgumentTypeError` for anything else."""
        return [self.require_token(token) for token in require_one_text("tokens", tokens)]

    # -- for each kind of tokenizer --------------------------------------------------------------

    @abstractmethod
    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """As `encode`."""

    @abstractmethod
    def _stream(self, after: Sequence[int], skip_special: bool) -> Stream:
        """As `stream`."""

    @abstractmethod
    def token_of(self, text: str) -> int | None:
        """Return the token of exactly this text, as the vocabulary spells it."""

    @abstractmethod
    def _spelling_of(self, token: int) -> str:
        """As `spelling_of`."""

    @abstractmethod
    def _special(self) -> Mapping[str, int]:
        """As `special`."""

    def _ends(self) -> frozenset[int]:
        """Further tokens, besides `end`, that end a text according to the file."""
        return frozenset()

    def _decode(self, tokens: list[int], skip_special: bool) -> str:
        stream = self._stream((), skip_special)
        return "".join(map(stream.push, tokens)) + stream.finish()


refuse_names(Tokenizer, OF_TOKENIZER)


def require_utf8(what: str, text: str) -> str:
    """Return a text. Raises `ArgumentValueError` where UTF-8 cannot hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        wrong = ord(text[error.start])
        # Python's form of an undecodable byte in a command line or file.
        is_byte = 0xDC80 <= wrong <= 0xDCFF
        got = f"the byte 0x{wrong - 0xDC00:02X}" if is_byte else f"the surrogate U+{wrong:04X}"
        raise ArgumentValueError(
            f"{what}: expected UTF-8, got {got} behind {error.start} characters"
        ) from None
    return text


def require_one_text(what: str, tokens: Iterable[Any]) -> list[Any]:
    """Return the tokens of one text. Raises `ArgumentTypeError` for several texts, and for bytes.

    The caller checks that each token is in the vocabulary.
    """
    if isinstance(tokens, (str, bytes, Mapping)) or not isinstance(tokens, Iterable):
        advice = ". Write tokenizer.encode(text)" if isinstance(tokens, str) else ""
        raise ArgumentTypeError(
            f"{what}: expected the tokens of a text, got {type(tokens).__name__}{advice}"
        )
    found = list(tokens)
    for one in found:
        if isinstance(one, (str, bytes, list, tuple)) or getattr(one, "ndim", None):
            raise ArgumentTypeError(
                f"{what}: expected one text or the tokens of one, got {len(found)} of type "
                f"{type(one).__name__}. Batches are not read: give one text after the other."
            )
    return found


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file or folder")
        return path
    for name in _READERS:
        # A FIFO or a folder of this name is refused when it is read.
        if (path / name).exists():
            return path / name
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1 or (ggufs and "-00001-of-" in ggufs[0].name):
        return ggufs[0]
    several = f"; of its {len(ggufs)} GGUF files name one" if ggufs else ""
    raise FileNotFoundError(
        f"{path}: expected a tokenizer: {', '.join(_READERS)}; there is none{several}"
    )


def _kind_of(path: Path) -> str:
    """Kind of a file, by its name or else by its suffix."""
    if path.name in _READERS:
        return path.name
    for name in _READERS:
        if path.suffix == Path(name).suffix:
            return name
    raise ArgumentValueError(
        f"{path}: expected a tokenizer, a file that ends in .json, .model, .gguf or .txt"
    )

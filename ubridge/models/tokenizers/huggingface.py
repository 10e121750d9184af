"""Tokenizers of Hugging Face's `tokenizer.json`, which their own library reads.

`tokenizer_config.json`, `special_tokens_map.json` and `chat_template.jinja` beside it say which
tokens begin and end a text, and how messages become a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ubridge.files.errors import InvalidFileError
from ubridge.models.tokenizers.beside import Beside, read_beside
from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer

_CONTEXT = 8
"""Tokens before a text that decide whether it begins with a blank."""
_UNFINISHED = "\ufffd"


def read(path: Path) -> Tokenizer:
    """Read a `tokenizer.json` and what lies beside it.

    Raises `ImportError` without the `tokenizers` library, and `InvalidFileError`.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            f"{path} is read by the tokenizers library: pip install 'uhal-py[llm]'"
        ) from error
    text = path.read_text("utf-8")
    try:
        return JsonTokenizer(
            tokenizers.Tokenizer.from_str(text),
            tokenizers.Tokenizer.from_str(text),
            read_beside(path.parent),
        )
    # What the library raises has no class of its own.
    except Exception as error:
        if isinstance(error, InvalidFileError):
            raise
        raise InvalidFileError(f"{path}: the tokenizers library says: {error}") from error


class JsonTokenizer(Tokenizer):
    """What the `tokenizers` library made of a file."""

    def __init__(self, parsing: Any, plain: Any, beside: Beside) -> None:
        """Of two equal ones, the second to take texts of special tokens as text."""
        plain.encode_special_tokens = True
        self._parsing, self._plain = parsing, plain
        numbers = parsing.get_vocab(with_added_tokens=True).values()
        self.vocabulary = max(numbers, default=-1) + 1
        self.begin = self._token_of(beside.text_of("bos_token") or "")
        self.end = self._token_of(beside.text_of("eos_token") or "")
        self.chat_templates = beside.templates
        self.chat_template = beside.templates.get("default")

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        tokenizer = self._parsing if parse_special else self._plain
        found: list[int] = tokenizer.encode(text, add_special_tokens=add_special).ids
        return found

    def _decode(self, tokens: list[int], skip_special: bool) -> str:
        return self.text(tokens, skip_special)

    def text(self, tokens: list[int], skip_special: bool) -> str:
        """Return the text of tokens that are known to be some."""
        text: str = self._parsing.decode(tokens, skip_special_tokens=skip_special)
        return text

    def _stream(self, after: Sequence[int], skip_special: bool) -> Stream:
        return _Growing(self, list(after[-_CONTEXT:]), skip_special)

    def _token_of(self, text: str) -> int | None:
        token: int | None = self._parsing.token_to_id(text)
        return token

    def _spelling_of(self, token: int) -> str:
        return str(self._parsing.id_to_token(token) or "")

    def _special(self) -> Mapping[str, int]:
        added = self._parsing.get_added_tokens_decoder()
        return {one.content: token for token, one in added.items() if one.special}


class _Growing(Stream):
    """What the text of all tokens is longer by than what was told of it.

    How a token reads depends on those before it, so some of them are kept. Bytes that begin a
    character and do not end it are one U+FFFD, the last of the text: that one is held back.
    """

    def __init__(self, tokenizer: JsonTokenizer, after: list[int], skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._tokens = after
        self._told = len(self._text())

    def push(self, token: int) -> str:
        """Return the text that a token completes."""
        self._tokens.append(token)
        text = self._text()
        if text.endswith(_UNFINISHED):
            return self._tell(text[:-1])
        made = self._tell(text)
        if len(self._tokens) > 2 * _CONTEXT:
            del self._tokens[:-_CONTEXT]
            self._told = len(self._text())
        return made

    def finish(self) -> str:
        """Return what is left."""
        return self._tell(self._text())

    def _text(self) -> str:
        return self._tokenizer.text(self._tokens, self._skip_special)

    def _tell(self, text: str) -> str:
        made, self._told = text[self._told :], max(self._told, len(text))
        return made

"""Tokenizers of Hugging Face's `tokenizer.json`, which their own library reads.

`tokenizer_config.json`, `special_tokens_map.json` and `chat_template.jinja` beside it say which
tokens begin and end a text, and how messages become a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ubridge.files.errors import InvalidFileError
from ubridge.files.settings import text_of_file
from ubridge.models.tokenizers.beside import Added, Beside, read_beside
from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer
from ubridge.models.tokenizers.vocabulary import BYTE

_CONTEXT = 8
"""Number of tokens before a text that decide whether it begins with a blank."""
_UNFINISHED = "\ufffd"
_MOST_BYTES = 1 << 28
"""A larger file is refused; the largest published files have about 30 MB."""


def read(path: Path) -> Tokenizer:
    """Read a `tokenizer.json` and the files beside it.

    Raises `ImportError` without the `tokenizers` library, and `InvalidFileError`.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            f"{path} is read by the tokenizers library: pip install 'uhal-py[llm]'"
        ) from error
    text = text_of_file(path, _MOST_BYTES)
    beside = read_beside(path.parent)
    try:
        made = [tokenizers.Tokenizer.from_str(text) for _ in range(2)]
        for one in made:
            # The file's settings for batches: a prompt is neither truncated nor padded.
            one.no_truncation()
            one.no_padding()
            known = {token.content for token in one.get_added_tokens_decoder().values()}
            for more in beside.added:
                if more.text not in known:
                    _add(one, more, path)
        return JsonTokenizer(made[0], made[1], beside, path)
    except BaseException as error:
        _require_of_library(error, path)
        raise


def _require_of_library(error: BaseException, where: object) -> None:
    """Raise `InvalidFileError` for an error of the tokenizers library.

    The library raises plain exceptions, without its own class. When Rust code panics, it raises a
    `PanicException`, which is no `Exception` and cannot be imported.
    """
    is_panic = type(error).__module__ == "pyo3_runtime"
    is_plain = isinstance(error, Exception) and not isinstance(
        error, (InvalidFileError, MemoryError)
    )
    if is_panic or is_plain:
        raise InvalidFileError(f"{where}: the tokenizers library says: {error}") from error


def _add(tokenizer: Any, more: Added, path: Path) -> None:
    """Add a token that its own file lacks."""
    from tokenizers import AddedToken

    # A normalizer that prepends a blank would hide the token.
    options = {"normalized": False, **more.options}
    tokenizer.add_tokens([AddedToken(more.text, special=more.is_special, **options)])
    more.require(tokenizer.token_to_id(more.text), path)


class JsonTokenizer(Tokenizer):
    """Tokenizer of the `tokenizers` library, read from a file."""

    def __init__(self, parsing: Any, plain: Any, beside: Beside, where: object) -> None:
        """Take two equal tokenizers; `plain` is set to treat special tokens as text.

        Errors name the file, `where`.
        """
        self._where = where
        plain.encode_special_tokens = True
        self._parsing, self._plain = parsing, plain
        numbers = parsing.get_vocab(with_added_tokens=True).values()
        self.vocabulary = max(numbers, default=-1) + 1
        self.begin = self.token_of(beside.text_of("bos_token") or "")
        self.end = self.token_of(beside.text_of("eos_token") or "")
        self.chat_templates = beside.templates
        self.chat_template = beside.templates.get("default")
        self.template_names = beside.names
        self._falls_back = parsing.decoder is not None and parsing.decoder.decode(["<0x41>"]) == "A"
        self._around = self._adding(beside)

    @property
    def library(self) -> Any:
        """The tokenizer of the library."""
        return self._parsing

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        tokenizer = self._parsing if parse_special else self._plain
        around = self._around if add_special else None
        try:
            found: list[int] = tokenizer.encode(
                text, add_special_tokens=add_special and around is None
            ).ids
        except BaseException as error:
            _require_of_library(error, self._where)
            raise
        return found if around is None else [*around[0], *found, *around[1]]

    def _adding(self, beside: Beside) -> tuple[list[int], list[int]] | None:
        """First and last tokens of texts, if the configuration overrides the post-processor."""
        usual = before, behind = _around(self._parsing)
        if self.begin is not None:
            begins = before[:1] == [self.begin]
            if beside.adds("bos", begins) != begins:
                before = before[1:] if begins else [self.begin, *before]
        if self.end is not None:
            ends = behind[-1:] == [self.end]
            if beside.adds("eos", ends) != ends:
                behind = behind[:-1] if ends else [*behind, self.end]
        return None if (before, behind) == usual else (before, behind)

    def _decode(self, tokens: list[int], skip_special: bool) -> str:
        try:
            text: str = self._parsing.decode(tokens, skip_special_tokens=skip_special)
            is_broken = self._falls_back and _UNFINISHED in text
            return self._mended(tokens, skip_special) if is_broken else text
        except BaseException as error:
            _require_of_library(error, self._where)
            raise

    def _mended(self, tokens: list[int], skip_special: bool) -> str:
        """Return the text of tokens with a run of bytes that is not UTF-8.

        The library then drops all characters of the run. Here valid characters stay, and only
        invalid bytes become U+FFFD, as in other tokenizers.
        """
        skipped = set(self.special.values()) if skip_special else set()
        spellings = [self._parsing.id_to_token(token) for token in tokens if token not in skipped]
        found: list[str] = []
        for is_run, group in groupby(spellings, lambda one: bool(one and BYTE.fullmatch(one))):
            if not is_run:
                found += [one for one in group if one is not None]
                continue
            raw = bytes(int(one[3:5], 16) for one in group)
            for sign in raw.decode("utf-8", "replace"):
                of_bytes = [f"<0x{byte:02X}>" for byte in sign.encode("utf-8")]
                found += [_UNFINISHED] if sign == _UNFINISHED else of_bytes
        return str(self._parsing.decoder.decode(found))

    def _stream(self, after: Sequence[int], skip_special: bool) -> Stream:
        return _Growing(self, list(after[-_CONTEXT:]), skip_special)

    def token_of(self, text: str) -> int | None:
        """Return the token of this text."""
        token: int | None = self._parsing.token_to_id(text)
        return token

    def _spelling_of(self, token: int) -> str:
        return str(self._parsing.id_to_token(token) or "")

    def _special(self) -> Mapping[str, int]:
        added = self._parsing.get_added_tokens_decoder()
        return {one.content: token for token, one in added.items() if one.special}


class _Growing(Stream):
    """The new text of each token, by the growth of the whole text.

    A token's text depends on earlier tokens, so some are kept. The bytes of an incomplete character
    appear as one U+FFFD at the end; that end is held back.
    """

    def __init__(self, tokenizer: JsonTokenizer, after: list[int], skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._tokens = after
        self._told = len(self._settled())

    def push(self, token: int) -> str:
        """Return the text that a token completes."""
        self._tokens.append(token)
        made = self._tell(self._settled())
        if len(self._tokens) > 2 * _CONTEXT:
            del self._tokens[:-_CONTEXT]
            self._told = len(self._settled())
        return made

    def finish(self) -> str:
        """Return the remaining text."""
        return self._tell(self._text())

    def _text(self) -> str:
        return self._tokenizer._decode(self._tokens, self._skip_special)

    def _settled(self) -> str:
        """The prefix of the text that no further token changes."""
        return self._text().removesuffix(_UNFINISHED)

    def _tell(self, text: str) -> str:
        made, self._told = text[self._told :], max(self._told, len(text))
        return made


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens that the post-processor of a file puts before and behind every text."""
    text = "a"
    whole, alone = (tokenizer.encode(text, add_special_tokens=one).ids for one in (True, False))
    for before in range(len(whole) - len(alone) + 1):
        if whole[before : before + len(alone)] == alone:
            return whole[:before], whole[before + len(alone) :]
    return [], []

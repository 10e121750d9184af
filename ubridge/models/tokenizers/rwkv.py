"""RWKV's "world" tokenizer: always the longest token that matches the next bytes.

Its vocabulary is a text file with a line for each token: number, a Python literal, length.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.settings import text_of_file
from ubridge.models.tokenizers.special import ByteStream
from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer

_ESCAPED = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def read(path: Path) -> Tokenizer:
    """Read `rwkv_vocab_v20230424.txt` or one like it. Raises `InvalidFileError`."""
    tokens: dict[int, bytes] = {}
    text = text_of_file(path)
    for number, line in enumerate(text.splitlines(), 1):
        head, _, rest = line.partition(" ")
        literal, _, length = rest.rpartition(" ")
        try:
            value = ast.literal_eval(literal)
            # `bytes(value)` would turn a number n into n zero bytes.
            raw = value.encode("utf-8") if isinstance(value, str) else b"".join([value])
            token, count = int(head), int(length)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise InvalidFileError(
                f"{path}:{number}: expected a number, a Python literal and a length, got {line!r}"
            ) from error
        if len(raw) != count:
            raise InvalidFileError(f"{path}:{number}: expected {count} bytes, got {len(raw)}")
        # This bounds the list of tokens by the number of characters in the file.
        if not 0 <= token <= len(text):
            raise InvalidFileError(
                f"{path}:{number}: expected a number of 0 to {len(text)}, got {token}"
            )
        tokens[token] = raw
    require_valid(
        tokens,
        path,
        "expected a line for each token, got none",
    )
    return WorldTokenizer(tokens)


def unescaped(text: str) -> bytes:
    """Return the bytes that a GGUF file writes with backslashes."""

    def one(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 16)])
        return _LETTERS.get(match[2], match[2])

    return _ESCAPED.sub(one, text.encode("utf-8", "surrogateescape"))


class WorldTokenizer(Tokenizer):
    """Takes the longest matching token at each place of the text. Token 0 ends a text."""

    begin = None
    end = 0

    def __init__(self, tokens: Mapping[int, bytes]) -> None:
        """Take the bytes of each token; token 0 has none."""
        self.vocabulary = max(tokens, default=0) + 1
        self._bytes = [
            b"" if token == 0 else tokens.get(token, b"") for token in range(self.vocabulary)
        ]
        self._tokens = {raw: token for token, raw in enumerate(self._bytes) if raw}
        self._longest: dict[bytes, int] = {}
        for raw in self._tokens:
            self._longest[raw[:2]] = max(self._longest.get(raw[:2], 0), len(raw))

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        raw = text.encode("utf-8")
        found, offset = [], 0
        while offset < len(raw):
            most = self._longest.get(raw[offset : offset + 2], 1)
            for length in range(most, 0, -1):
                token = self._tokens.get(raw[offset : offset + length])
                if token is not None:
                    found.append(token)
                    break
            offset += length
        return found

    def _stream(self, after: Sequence[int], skip_special: bool) -> Stream:
        return ByteStream(self._bytes, after=after)

    def token_of(self, text: str) -> int | None:
        """Return the token of this text."""
        return self._tokens.get(text.encode("utf-8", "surrogatepass"))

    def _spelling_of(self, token: int) -> str:
        return self._bytes[token].decode("utf-8", "backslashreplace")

    def _special(self) -> Mapping[str, int]:
        return {}

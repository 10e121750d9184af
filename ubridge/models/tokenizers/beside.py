"""Files beside a tokenizer in a Hugging Face folder: templates, names, added tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.settings import bytes_of_file, object_of, text_of_file
from ubridge.models.tokenizers.vocabulary import looks_control

_CONFIG = "tokenizer_config.json"
_CHATGLM = "ChatGLMTokenizer"
_TOKENS_OF_CHATGLM = (
    *("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
"""Tokens that ChatGLM3's own tokenizer program adds to SentencePiece's."""
_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized")


@dataclass(frozen=True)
class Added:
    """A token that is added to a tokenizer's vocabulary."""

    text: str
    token: int | None
    """Its number; None for the next free number."""
    is_special: bool
    """Whether it represents no text."""
    options: Mapping[str, bool]
    """Rules for finding the token in a text, by their names in the tokenizers library."""

    def require(self, given: int | None, path: Path) -> None:
        """Raise `InvalidFileError` if the tokenizer's number differs from the file's."""
        require_valid(
            self.token in (None, given),
            path,
            f"the token {self.text!r} was added as {self.token}, expected {given}, the next",
        )


@dataclass(frozen=True)
class Beside:
    """The configuration of a tokenizer; empty without files."""

    fields: Mapping[str, Any]
    """The fields of its files."""
    templates: Mapping[str, str]
    """Chat templates by name; the usual template is `default`."""
    names: Mapping[str, Any]
    """Special tokens by their names in templates; a list of texts for several tokens."""
    added: tuple[Added, ...]
    """Tokens in the order in which they are added."""

    def text_of(self, name: str) -> str | None:
        """Return the text of a named token, such as `eos_token`."""
        text = self.names.get(name)
        return text if isinstance(text, str) else None

    def adds(self, name: str, otherwise: bool) -> bool:
        """Return whether texts get the token `bos` or `eos`, by the files or a default."""
        value = self.fields.get(f"add_{name}_token")
        return value if isinstance(value, bool) else otherwise


def read_beside(folder: Path) -> Beside:
    """Read `tokenizer_config.json`, `special_tokens_map.json` and others, if they exist.

    Raises `InvalidFileError`.
    """
    fields: dict[str, Any] = {}
    for name in ("special_tokens_map.json", _CONFIG):
        fields |= _object(folder / name)
    names = _names(fields)
    templates = _templates(folder, fields.get("chat_template"))
    added = {one.text: one for one in _added(folder, fields, names)}
    return Beside(fields, templates, names, tuple(added.values()))


def _names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Special tokens as transformers passes them to templates."""
    found: dict[str, Any] = {}
    more = fields.get("extra_special_tokens")
    for name, value in {**fields, **(more if isinstance(more, dict) else {})}.items():
        text = _text(value)
        if name.endswith("_token") and text is not None:
            found[name] = text
    several = [fields.get("additional_special_tokens"), more]
    texts = [_text(one) for group in several if isinstance(group, list) for one in group]
    if any(texts):
        found["additional_special_tokens"] = [one for one in texts if one is not None]
    return found


def _added(folder: Path, fields: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[Added]:
    if fields.get("tokenizer_class") == _CHATGLM:
        for text in _TOKENS_OF_CHATGLM:
            yield Added(text, None, True, {})
    named = [
        text for value in names.values() for text in (value if isinstance(value, list) else [value])
    ]
    numbered: dict[int, Added] = {}
    for text, token in _object(folder / "added_tokens.json").items():
        number = _number(folder / "added_tokens.json", text, token)
        is_special = text in named or looks_control(text)
        numbered[number] = Added(text, number, is_special, {})
    described = fields.get("added_tokens_decoder") or {}
    if not isinstance(described, dict):
        raise _misshapen(folder, "added_tokens_decoder", "an object", described)
    for token, one in described.items():
        content = _text(one)
        if content is None or not isinstance(one, dict):
            raise _misshapen(folder, f"added_tokens_decoder, {token}", "a content", one)
        number = _number(folder / _CONFIG, content, token)
        options = {key: bool(one[key]) for key in _OPTIONS if key in one}
        numbered[number] = Added(content, number, bool(one.get("special", False)), options)
    for _, found in sorted(numbered.items()):
        yield found
    there = {one.text for one in numbered.values()}
    for text in named:
        if text not in there:
            yield Added(text, None, True, {})


def _text(value: Any) -> str | None:
    """The text of a token: a plain text, or the `content` of an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def _number(path: Path, text: str, token: Any) -> int:
    try:
        return int(token)
    except (TypeError, ValueError):
        raise InvalidFileError(
            f"{path}: the token {text!r}: expected its number, got {token!r}"
        ) from None


def _misshapen(folder: Path, what: str, expected: str, got: Any) -> InvalidFileError:
    return InvalidFileError(f"{folder / _CONFIG}: {what}: expected {expected}, got {got!r:.80}")


def _templates(folder: Path, given: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    if isinstance(given, str):
        found["default"] = given
    elif isinstance(given, list):
        for one in given:
            told = one if isinstance(one, dict) else {}
            name, form = told.get("name"), told.get("template")
            if not (isinstance(name, str) and isinstance(form, str)):
                raise _misshapen(folder, "chat_template", "a name and a template", one)
            found[name] = form
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = text_of_file(path)
    if (folder / "chat_template.jinja").is_file():
        found["default"] = text_of_file(folder / "chat_template.jinja")
    return found


def _object(path: Path) -> dict[str, Any]:
    return object_of(path, bytes_of_file(path)) if path.exists() else {}

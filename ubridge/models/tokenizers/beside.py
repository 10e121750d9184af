"""What lies beside a tokenizer in a Hugging Face folder: templates, names, tokens added later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ubridge.files.errors import InvalidFileError

_CHATGLM = "ChatGLMTokenizer"
_TOKENS_OF_CHATGLM = (
    *("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
"""What the tokenizer of ChatGLM3, a program of its own, puts behind SentencePiece's."""


@dataclass(frozen=True)
class Beside:
    """The configuration of a tokenizer; empty where there is none."""

    named: Mapping[str, Any]
    """The fields of its files."""
    templates: Mapping[str, str]
    """Chat templates; the usual one is `default`."""
    added: Mapping[str, tuple[int | None, bool]]
    """Tokens by their texts: number, or none for the next, and whether they stand for no text."""

    def text_of(self, key: str) -> str | None:
        """Return the text of a token that has a name, such as `eos_token`."""
        value = self.named.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        return text if isinstance(text, str) else None


def read_beside(folder: Path) -> Beside:
    """Read what there is of `tokenizer_config.json`, `special_tokens_map.json` and others.

    Raises `InvalidFileError`.
    """
    named: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        named |= _object(folder / name)
    added: dict[str, tuple[int | None, bool]] = {}
    if named.get("tokenizer_class") == _CHATGLM:
        added |= {text: (None, True) for text in _TOKENS_OF_CHATGLM}
    added |= {text: (token, True) for text, token in _object(folder / "added_tokens.json").items()}
    for token, one in named.get("added_tokens_decoder", {}).items():
        added[str(one.get("content"))] = (int(token), bool(one.get("special", False)))
    return Beside(named, _templates(folder, named.get("chat_template")), added)


def _templates(folder: Path, given: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    if isinstance(given, str):
        found["default"] = given
    elif isinstance(given, list):
        found = {one["name"]: one["template"] for one in given if isinstance(one, dict)}
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text("utf-8")
    if (folder / "chat_template.jinja").is_file():
        found["default"] = (folder / "chat_template.jinja").read_text("utf-8")
    return found


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path}: this is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidFileError(f"{path}: expected an object, got {type(value).__name__}")
    return value

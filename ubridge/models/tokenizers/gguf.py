"""The tokenizer that a GGUF file holds in its metadata, read and written.

ggml's docs/gguf.md describes the keys; defaults follow llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubridge.core.fits import require
from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.gguf_reading import parts_of, read_gguf
from ubridge.files.mapped import MappedFile
from ubridge.models.tokenizers.byte_pairs import BytePairTokenizer
from ubridge.models.tokenizers.patterns import splitting_of
from ubridge.models.tokenizers.pieces import PieceTokenizer
from ubridge.models.tokenizers.rwkv import WorldTokenizer, unescaped
from ubridge.models.tokenizers.tokenizer import CONTROL_LOOKING, Tokenizer
from ubridge.models.tokenizers.vocabulary import (
    BYTE,
    Kind,
    Vocabulary,
    looks_control,
    require_in,
)

_KEYS = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
_NAMES = {
    "bos": "bos_token",
    "eos": "eos_token",
    "eot": "eot_token",
    "eom": "eom_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",
    "mask": "mask_token",
    "cls": "cls_token",
}
"""Special tokens: keys in metadata, and names in templates."""
_ENDS = ("eos", "eot", "eom")
"""Names of tokens that end a text, a turn, a message."""
_FLAGS = {
    "add_bos_token": "adds_begin",
    "add_eos_token": "adds_end",
    "add_space_prefix": "adds_blank",
}
"""Keys of flags, and their fields of `Vocabulary`."""
_KEEPS_BLANKS = ("<unk>", "<s>", "<|endoftext|>")
"""Special tokens of Phi-3 that do not take the white space behind them."""


def read(path: Path) -> Tokenizer:
    """Read the tokenizer of a GGUF file, or of a split model's first part.

    Raises `InvalidFileError`, and `ArgumentValueError` for an unknown kind.
    """
    return tokenizer_of(read_gguf(MappedFile(parts_of(path)[0])).metadata, path)


def tokenizer_of(metadata: Mapping[str, Any], where: object) -> Tokenizer:
    """Make the tokenizer that metadata describes; errors name its file, `where`."""
    model = _of(metadata, f"{_KEYS}model", str, where)
    require(
        model in _MAKERS,
        f"{where}: tokenizer.ggml.model: expected one of {', '.join(_MAKERS)}, got {model!r}",
    )
    tokenizer = _MAKERS[model](metadata, where)
    template = metadata.get(_TEMPLATE)
    tokenizer.chat_template = template if isinstance(template, str) else None
    tokenizer.chat_templates = {
        key[len(_TEMPLATE) + 1 :]: str(metadata[key])
        for key in metadata
        if key.startswith(f"{_TEMPLATE}.")
    }
    tokenizer.template_names = {
        _NAMES[name]: tokenizer.spelling_of(token)
        for name, token in _named(metadata)
        if 0 <= token < tokenizer.vocabulary
    }
    return tokenizer


def _pieces(metadata: Mapping[str, Any], where: object) -> Tokenizer:
    words = _vocabulary(metadata, where, adds_begin=True, adds_blank=True)
    require_valid(
        len(words.scores) == len(words.texts),
        where,
        "expected tokenizer.ggml.scores, as its model is `llama`",
    )
    return PieceTokenizer(words)


def _byte_pairs(metadata: Mapping[str, Any], where: object) -> Tokenizer:
    merges = _of(metadata, f"{_KEYS}merges", list, where)
    splitting = splitting_of(str(metadata.get(f"{_KEYS}pre", "default")), where)
    words = _vocabulary(metadata, where, adds_begin=splitting.begins, adds_blank=False)
    return BytePairTokenizer(words, merges, splitting)


def _world(metadata: Mapping[str, Any], where: object) -> Tokenizer:
    texts = _of(metadata, f"{_KEYS}tokens", list, where)
    return WorldTokenizer({token: unescaped(text) for token, text in enumerate(texts)})


_MAKERS: Mapping[str, Callable[[Mapping[str, Any], object], Tokenizer]] = {
    "llama": _pieces,
    "gpt2": _byte_pairs,
    "rwkv": _world,
}
"""Constructor for each kind in `tokenizer.ggml.model`."""


def _vocabulary(
    metadata: Mapping[str, Any], where: object, *, adds_begin: bool, adds_blank: bool
) -> Vocabulary:
    """Read the vocabulary; both defaults are for files without the value."""
    texts = _of(metadata, f"{_KEYS}tokens", list, where)
    kinds = _kinds(metadata, texts)
    ends = (_token(metadata, name, where) for name in _ENDS[1:])
    usual = {"adds_begin": adds_begin, "adds_end": False, "adds_blank": adds_blank}
    begin = _token(metadata, "bos", where)
    return require_in(
        where,
        Vocabulary(
            texts=texts,
            kinds=kinds,
            scores=_numbers(metadata, "scores"),
            begin=begin,
            end=_token(metadata, "eos", where),
            ends=frozenset(token for token in ends if token is not None),
            unknown=_token(metadata, "unknown", where),
            **{field: _flag(metadata, key, usual[field]) for key, field in _FLAGS.items()},
            eats_blanks=_eating_blanks(metadata, texts, kinds),
        ),
    )


def _kinds(metadata: Mapping[str, Any], texts: list[str]) -> list[int]:
    """Type of each token: from the file, except for tokens spelled as control tokens."""
    told = _numbers(metadata, "token_type")
    kinds = told or [int(Kind.BYTE if BYTE.fullmatch(one) else Kind.NORMAL) for one in texts]
    if not told:
        for name, token in _named(metadata):
            if 0 <= token < len(texts):
                kinds[token] = int(Kind.UNKNOWN if name == "unknown" else Kind.CONTROL)
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=False)):
        is_end = text in CONTROL_LOOKING
        if is_end or (kind in (Kind.NORMAL, Kind.UNUSED) and looks_control(text)):
            kinds[token] = int(Kind.CONTROL)
    return kinds


def _named(metadata: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Tokens with a role in texts, by the names of their keys."""
    for name in _NAMES:
        token = metadata.get(f"{_KEYS}{name}_token_id")
        if type(token) is int:
            yield name, token


def _eating_blanks(
    metadata: Mapping[str, Any], texts: list[str], kinds: list[int]
) -> tuple[str, ...]:
    """Phi-3's special tokens: GGUF files lack these facts of its tokenizer.json."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return ()
    special = (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
    return tuple(
        text
        for text, kind in zip(texts, kinds, strict=True)
        if kind in special and text not in _KEEPS_BLANKS
    )


def _of(metadata: Mapping[str, Any], key: str, kind: type, where: object) -> Any:
    require_valid(
        key in metadata,
        where,
        f"the file has no {key}, so it holds no tokenizer",
    )
    value = metadata[key]
    texts = kind is not list or all(isinstance(one, str) for one in value)
    if not isinstance(value, kind) or not texts:
        wanted = "texts" if kind is list else "a text"
        raise InvalidFileError(f"{where}: {key}: expected {wanted}, got {value!r:.80}")
    return value


def _numbers(metadata: Mapping[str, Any], name: str) -> list[Any]:
    found: list[Any] = np.asarray(metadata.get(f"{_KEYS}{name}", ())).tolist()
    return found


def _token(metadata: Mapping[str, Any], name: str, where: object) -> int | None:
    value = metadata.get(f"{_KEYS}{name}_token_id")
    if value is not None and type(value) is not int:
        raise InvalidFileError(f"{where}: {_KEYS}{name}_token_id: expected an int, got {value!r}")
    # All bits set means none, in files of some converters.
    return None if value in (None, -1, 0xFFFFFFFF) else value


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    return bool(metadata.get(f"{_KEYS}{name}", default))


# -- writing -------------------------------------------------------------------------------------


def described(
    model: str,
    words: Vocabulary,
    *,
    ends: Sequence[int],
    merges: Sequence[str] = (),
    splitting: str = "",
    templates: Mapping[str, str] | None = None,
    names: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a tokenizer, from which `tokenizer_of` makes an equal tokenizer.

    `model` is a kind such as `gpt2`, or `none`. `ends` are the tokens that end texts, the usual
    token first; files hold three. `splitting` is a name of `SPLITTINGS`; `names` are special tokens
    by their names in templates.
    """
    told: dict[str, Any] = {"model": model}
    roles: dict[str, int | None] = {}
    roles |= {_role_of(name): token for name, token in (names or {}).items()}
    if words.texts:
        told |= {
            "pre": splitting or "default",
            "tokens": list(words.texts),
            "token_type": np.asarray(words.kinds, np.int32),
            **{key: getattr(words, field) for key, field in _FLAGS.items()},
        }
        roles |= {"bos": words.begin, "unknown": words.unknown}
    if words.scores:
        told["scores"] = np.asarray(words.scores, np.float32)
    if model == "gpt2":
        told["merges"] = list(merges)
    roles |= dict.fromkeys(_ENDS) | dict(zip(_ENDS, ends, strict=False))
    told |= {f"{role}_token_id": token for role, token in roles.items() if role}
    found = {f"{_KEYS}{key}": value for key, value in told.items() if value is not None}
    for name, template in (templates or {}).items():
        found[_TEMPLATE if name == "default" else f"{_TEMPLATE}.{name}"] = template
    return found


def _role_of(name: str) -> str:
    """The key of a special token's name in templates; empty for a name without a key."""
    return next((role for role, other in _NAMES.items() if other == name), "")

"""A folder's tokenizer as metadata of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ubridge.files.errors import require_valid
from ubridge.models.architecture import Architecture
from ubridge.models.tokenizers.byte_pairs import written_bytes
from ubridge.models.tokenizers.gguf import described, tokenizer_of
from ubridge.models.tokenizers.huggingface import JsonTokenizer
from ubridge.models.tokenizers.patterns import SPLITTINGS, split
from ubridge.models.tokenizers.pieces import BLANK
from ubridge.models.tokenizers.tokenizer import FILES, Tokenizer
from ubridge.models.tokenizers.vocabulary import BYTE, Kind, Vocabulary
from ubridge.models.tokenizers.words import WordsTokenizer
from uhal.errors import ArgumentValueError, NotSupportedError

SAMPLE = (
    "Hello, World! It's  they'LL 'tis\tI'd\n\n  don\u2019t 1234567 3.14 x=1234;\r\n"
    "caf\xe9 na\xefve HTTPServer camelCase $100 (a+b)*c == ~d^e `f` <g>|h| ... !?\n"
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca "
    "\ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0e44\u0e17\u0e22 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
    "\u0967\u0968\u0969 e\u0301 \U0001f600 a/b//c ;x \u2026y _z   \n  end \n"
)
"""A text that each way of splitting cuts differently."""


def tokenizer_metadata(
    folder: Path, design: Architecture
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the keys of a folder's tokenizer and templates, and notes for the user.

    A folder without a tokenizer gives keys that say so. Raises `NotSupportedError` for a tokenizer
    that GGUF files cannot describe, and the errors of `Tokenizer.load`.
    """
    files = [folder / name for name in FILES if (folder / name).is_file()]
    if not files:
        told = described("none", Vocabulary((), ()), ends=design.end_tokens)
        return told, (f"{folder}: there is no tokenizer, so the GGUF file has none",)
    tokenizer = Tokenizer.load(files[0])
    model, words, merges, splitting = _vocabulary_of(folder, tokenizer)
    require_valid(
        len(words.texts) <= design.vocabulary,
        folder,
        f"expected at most {design.vocabulary} tokens, one for each row of the "
        f"embedding, got {len(words.texts)}",
    )
    ends = [tokenizer.end, *design.end_tokens]
    metadata = described(
        model,
        _padded(words, design.vocabulary),
        ends=tuple(dict.fromkeys(one for one in ends if one is not None)),
        merges=merges,
        splitting=splitting,
        templates=tokenizer.chat_templates,
        names={
            name: token
            for name, text in tokenizer.template_names.items()
            if isinstance(text, str) and (token := tokenizer.token_of(text)) is not None
        },
    )
    _require_equal(folder, tokenizer, tokenizer_of(metadata, folder))
    return metadata, ()


def _require_equal(folder: Path, one: Tokenizer, other: Tokenizer) -> None:
    """Raise `NotSupportedError` if the file's tokenizer gives other tokens of the sample."""
    for line in SAMPLE.splitlines(keepends=True):
        wanted, got = (each.encode(line, parse_special=False) for each in (one, other))
        if wanted != got:
            raise NotSupportedError(
                f"{folder}: convert: expected a tokenizer that GGUF files can describe, got other "
                f"tokens for {line!r:.40}: {got[:8]}, expected {wanted[:8]}. Remove the tokenizer "
                "from the folder to write a file without one."
            )


def _padded(words: Vocabulary, rows: int) -> Vocabulary:
    """The vocabulary with a name for each further row of the embedding."""
    missing = range(len(words.texts), rows)
    return replace(
        words,
        texts=(*words.texts, *(f"[PAD{token}]" for token in missing)),
        kinds=(*words.kinds, *(Kind.UNUSED for _ in missing)),
        scores=(*words.scores, *(0.0 for _ in missing)) if words.scores else (),
    )


def _vocabulary_of(
    folder: Path, tokenizer: Tokenizer
) -> tuple[str, Vocabulary, Sequence[str], str]:
    """The kind of a tokenizer, its tokens, its merges and the name of its way of splitting."""
    pieces = folder / "tokenizer.model"
    if isinstance(tokenizer, JsonTokenizer):
        try:
            # SentencePiece's own file has the scores.
            found = Tokenizer.load(pieces) if pieces.is_file() else None
        except ArgumentValueError:
            found = None
        if found is None or found.vocabulary < tokenizer.vocabulary:
            return _of_json(folder, tokenizer)
        tokenizer = found
    if not isinstance(tokenizer, WordsTokenizer):
        raise NotSupportedError(
            f"{folder}: convert: expected byte pair encoding or SentencePiece, got "
            f"{type(tokenizer).__name__}"
        )
    return "llama", tokenizer.words, (), ""


def _of_json(folder: Path, tokenizer: JsonTokenizer) -> tuple[str, Vocabulary, Sequence[str], str]:
    library = tokenizer.library
    told = json.loads(library.to_str())
    model = told["model"]
    if model.get("type") != "BPE":
        raise NotSupportedError(
            f"{folder}: convert: expected byte pair encoding, got {model.get('type')}"
        )
    pairs = [one.split(" ", 1) if isinstance(one, str) else one for one in model["merges"]]
    words = _words_of(tokenizer, model.get("unk_token"))
    if model.get("byte_fallback"):
        ranks: dict[str, int] = {}
        for rank, (left, right) in enumerate(pairs):
            ranks.setdefault(left + right, rank)
        scores = [-float(ranks.get(text, len(pairs))) for text in words.texts]
        first = library.encode("a", add_special_tokens=False).tokens[:1]
        has_blank = bool(first) and first[0].startswith(BLANK)
        return "llama", replace(words, scores=scores, adds_blank=has_blank), (), ""
    splitting = splitting_name(library.pre_tokenizer, bool(model.get("ignore_merges")))
    if splitting is None:
        raise NotSupportedError(
            f"{folder}: convert: expected a tokenizer that splits texts in one of the ways "
            f"{', '.join(sorted(SPLITTINGS))}, got another one. Remove the tokenizer from the "
            "folder to write a file without one."
        )
    return "gpt2", words, [" ".join(pair) for pair in pairs], splitting


def _words_of(tokenizer: JsonTokenizer, unknown: str | None) -> Vocabulary:
    library = tokenizer.library
    added: Mapping[int, Any] = library.get_added_tokens_decoder()
    spelled = {token: text for text, token in library.get_vocab(with_added_tokens=True).items()}
    texts = [spelled.get(token, f"[PAD{token}]") for token in range(tokenizer.vocabulary)]
    kinds = []
    for token, text in enumerate(texts):
        kind = Kind.NORMAL if token in spelled else Kind.UNUSED
        if token in added:
            kind = Kind.CONTROL if added[token].special else Kind.USER_DEFINED
        elif BYTE.fullmatch(text):
            kind = Kind.BYTE
        if text == unknown:
            kind = Kind.UNKNOWN
        kinds.append(kind)
    plain, whole = (tokenizer.encode("a", add_special=one) for one in (False, True))
    return Vocabulary(
        texts=texts,
        kinds=kinds,
        begin=tokenizer.begin,
        end=tokenizer.end,
        unknown=texts.index(unknown) if unknown in texts else None,
        adds_begin=whole[:1] == [tokenizer.begin] and plain[:1] != whole[:1],
        adds_end=whole[-1:] == [tokenizer.end] and plain[-1:] != whole[-1:],
    )


def splitting_name(splitter: Any, whole_words: bool) -> str | None:
    """Return the name of a way of splitting that cuts a sample as the library's splitter does."""
    cut = [written_bytes(piece) for piece, _ in splitter.pre_tokenize_str(SAMPLE)]
    # llama.cpp warns of a file whose way is `default`.
    for name, one in sorted(SPLITTINGS.items(), key=lambda item: item[0] == "default"):
        parts = [part.encode() for part in split(SAMPLE, one.patterns)]
        if one.whole_words == whole_words and parts == cut:
            return name
    return None

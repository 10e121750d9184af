"""Tokenizers of folders in GGUF files: the same tokens, texts, roles and templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ubridge.texts import random_text
from tests.ubridge.tokenizer_makers import NAMED, TEXTS, of_kind, splitter, tokenizers
from ubridge.files.errors import InvalidFileError
from ubridge.models.architecture import Architecture
from ubridge.models.tokenizers import Tokenizer
from ubridge.models.tokenizers.exporting import SAMPLE, splitting_name, tokenizer_metadata
from ubridge.models.tokenizers.gguf import tokenizer_of
from ubridge.models.tokenizers.patterns import SPLITTINGS, split
from uhal.errors import NotSupportedError

PADDING = 5
TEMPLATES = {"default": "{{ messages[0].content }}", "tool_use": "{{ tools }}"}


def design_of(vocabulary: int, *ends: int) -> Architecture:
    return Architecture("llama", 64, 96, 2, 4, 2, 16, vocabulary, 128, end_tokens=ends)


def exported(folder: Path, vocabulary: int, *ends: int) -> Tokenizer:
    metadata, notes = tokenizer_metadata(folder, design_of(vocabulary, *ends))
    assert not notes
    return tokenizer_of(metadata, folder)


@pytest.mark.parametrize("kind", ["json", "json of bytes", "pieces", "pieces without bytes"])
def test_the_file_has_the_tokenizer_of_the_folder(
    tmp_path: Path, rng: np.random.Generator, kind: str
) -> None:
    of_kind(kind, tmp_path)
    fields = {
        "bos_token": "<|begin|>" if kind == "json" else "<s>",
        "eos_token": "<|im_end|>" if kind == "json" else "</s>",
        "add_bos_token": True,
        "chat_template": [{"name": k, "template": v} for k, v in TEMPLATES.items()],
        "additional_special_tokens": ["<|user|>"],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(fields), "utf-8")
    theirs = Tokenizer.load(tmp_path)
    ends = [theirs.token_of("<|user|>"), 5]
    ours = exported(tmp_path, theirs.vocabulary + PADDING, *(one for one in ends if one))
    assert ours.vocabulary == theirs.vocabulary + PADDING
    assert (ours.begin, ours.end) == (theirs.begin, theirs.end)
    assert ours.chat_templates == {"tool_use": TEMPLATES["tool_use"]}
    assert ours.chat_template == theirs.chat_template == TEMPLATES["default"]
    assert set(ours.end_tokens) == {*theirs.end_tokens, *filter(None, ends)}
    for name in ("bos_token", "eos_token"):
        assert ours.template_names[name] == theirs.template_names[name]
    for _ in range(TEXTS):
        text = random_text(rng)
        tokens = theirs.encode(text, parse_special=False)
        assert ours.encode(text, parse_special=False) == tokens
        assert ours.decode(tokens) == theirs.decode(tokens)


@pytest.mark.parametrize("name", NAMED.values())
def test_a_way_of_splitting_is_found(name: str) -> None:
    splitting = SPLITTINGS[name]
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs = tokenizers.pre_tokenizers.Sequence([splitter(splitting), byte_level])
    found = splitting_name(theirs, splitting.whole_words)
    assert found is not None
    assert SPLITTINGS[found].patterns == splitting.patterns
    assert SPLITTINGS[found].whole_words == splitting.whole_words


def test_each_way_cuts_the_sample_differently() -> None:
    ways = {one.patterns for one in SPLITTINGS.values()}
    assert len({tuple(split(SAMPLE, one)) for one in ways}) == len(ways)


def _lower(theirs: Any) -> None:
    theirs.normalizer = tokenizers.normalizers.Lowercase()


def _spaced(theirs: Any) -> None:
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.WhitespaceSplit(),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _words(theirs: Any) -> None:
    theirs.model = tokenizers.models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")


@pytest.mark.parametrize(
    ("change", "told"),
    [(_lower, "got other tokens for"), (_spaced, "splits texts in one of"), (_words, "WordLevel")],
)
def test_a_tokenizer_with_other_tokens_is_refused(
    tmp_path: Path, change: Callable[[Any], None], told: str
) -> None:
    of_kind("json", tmp_path)
    path = str(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(path)
    change(theirs)
    theirs.save(path)
    with pytest.raises(NotSupportedError, match=f"{tmp_path}: convert: expected .*{told}"):
        tokenizer_metadata(tmp_path, design_of(1000))


def test_more_tokens_than_rows_are_refused(tmp_path: Path) -> None:
    theirs = of_kind("json", tmp_path)
    with pytest.raises(InvalidFileError, match="one for each row of the embedding, got"):
        tokenizer_metadata(tmp_path, design_of(theirs.vocabulary - 1))

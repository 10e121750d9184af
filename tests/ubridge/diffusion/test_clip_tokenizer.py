"""CLIP's tokenizer: tokens equal to transformers' on 400 texts, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.ubridge.diffusion.judging import DATA
from tests.ubridge.diffusion.prompts import TOKENIZER, digest, texts
from ubridge.files.errors import InvalidFileError
from ubridge.models.tokenizers.clip import ClipTokenizer
from uhal.errors import NotFoundError


def test_tokens_are_those_of_transformers() -> None:
    tokenizer = ClipTokenizer.read(TOKENIZER)
    told = json.loads((DATA / "prompts.json").read_text("utf-8"))
    found = [tokenizer.encode(text) for text in texts()]
    wrong = [
        (text, tokens)
        for text, tokens, expected in zip(texts(), found, told["digests"], strict=True)
        if digest(tokens) != expected
    ]
    assert not wrong, wrong[:5]
    assert sum(map(len, found)) == told["tokens"]


def test_words_of_small_letters_come_back(rng: np.random.Generator) -> None:
    tokenizer = ClipTokenizer.read(TOKENIZER)
    words = [
        "".join(map(chr, rng.integers(ord("a"), ord("z") + 1, rng.integers(1, 9))))
        for _ in range(9)
    ]
    text = " ".join(words)
    tokens = tokenizer.encode(text.upper())
    assert tokens[0] == tokenizer.begin and tokens[-1] == tokenizer.end == tokenizer.pad
    assert tokenizer.decode(tokens) == text


def test_a_tokenizer_json_gives_the_same_tokens(tmp_path: Path) -> None:
    vocabulary = json.loads((TOKENIZER / "vocab.json").read_text("utf-8"))
    merges = (TOKENIZER / "merges.txt").read_text("utf-8").splitlines()[1:]
    for written in (merges, [one.split(" ") for one in merges]):
        model = {"type": "BPE", "vocab": vocabulary, "merges": written}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}), "utf-8")
        tokenizer, usual = ClipTokenizer.read(tmp_path), ClipTokenizer.read(TOKENIZER)
        for text in texts()[:20]:
            assert tokenizer.encode(text) == usual.encode(text)


def test_the_pad_token_is_the_configurations(tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((TOKENIZER / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "!"}))
    tokenizer = ClipTokenizer.read(tmp_path)
    assert tokenizer.pad == tokenizer.token_of("!") == 0


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"expected a tokenizer of CLIP: vocab.json and merges"):
        ClipTokenizer.read(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    for vocabulary, message in (
        ({"a": 0, "b": 2}, "expected tokens numbered 0…1, each once"),
        ({"a": 0, "b": 0}, "expected tokens numbered 0…1, each once"),
        ({}, "expected tokens numbered"),
        ({"a": 0, "<|startoftext|>": 1}, "expected a token '<|endoftext|>', there is none"),
        ({"a": "0"}, "a: expected an integer"),
    ):
        (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
        with pytest.raises(InvalidFileError) as caught:
            ClipTokenizer.read(tmp_path)
        assert message in str(caught.value)

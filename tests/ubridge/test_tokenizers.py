"""What all tokenizers have in common, vocabularies of RWKV, llama.cpp's own files, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.simulated import third_party
from tests.ubridge.texts import random_text
from tests.ubridge.tokenizer_makers import TEXTS, of_kind, sentencepiece_model, world, write_gguf
from ubridge import InvalidFileError
from ubridge.models.tokenizers import Tokenizer
from uhal.errors import ArgumentTypeError, ArgumentValueError


@pytest.mark.parametrize("kind", ["json", "byte pairs", "pieces", "world"])
def test_streams_never_cut_a_character(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    tokenizer = of_kind(kind, tmp_path)
    for _ in range(TEXTS):
        text = random_text(rng)
        tokens = tokenizer.encode(text, add_special=False, parse_special=False)
        stream = tokenizer.stream()
        pieces = [stream.push(token) for token in tokens]
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
        assert "".join(pieces) + stream.finish() == tokenizer.decode(tokens)
        # Tokens that are no text: nothing is lost, and nothing waits for ever.
        tokens = rng.integers(0, tokenizer.vocabulary, 60).tolist()
        stream, told = tokenizer.stream(), ""
        for token in tokens:
            told += stream.push(token)
        assert told + stream.finish() == tokenizer.decode(tokens)


def test_world_takes_the_longest(tmp_path: Path, rng: np.random.Generator) -> None:
    ours, tokens = world(tmp_path, rng)
    escaped = ["<s>", *("".join(f"\\x{byte:02x}" for byte in raw) for raw in tokens)]
    path = write_gguf(
        tmp_path / "m.gguf", tokenizer__ggml__model="rwkv", tokenizer__ggml__tokens=escaped
    )
    from_gguf = Tokenizer.load(path)
    for _ in range(TEXTS):
        text = random_text(rng)
        raw, expected = text.encode(), []
        while raw:
            best = max((one for one in tokens if raw.startswith(one)), key=len)
            expected.append(tokens[best])
            raw = raw[len(best) :]
        assert ours.encode(text) == from_gguf.encode(text) == expected
        assert ours.decode(expected) == text


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="one of llama, gpt2, rwkv, got 'bert'"):
        Tokenizer.load(write_gguf(tmp_path / "a.gguf", tokenizer__ggml__model="bert"))
    with pytest.raises(InvalidFileError, match=r"no tokenizer\.ggml\.model"):
        Tokenizer.load(write_gguf(tmp_path / "b.gguf"))
    with pytest.raises(FileNotFoundError, match=r"expected a tokenizer: tokenizer\.json.*2 GGUF"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Tokenizer.load(tmp_path / "none")
    with pytest.raises(InvalidFileError, match="tokenizers library says"):
        (tmp_path / "tokenizer.json").write_text("{}")
        Tokenizer.load(tmp_path)
    sentencepiece_model(tmp_path / "unigram.model", model_type="unigram")
    with pytest.raises(ArgumentValueError, match="byte pair encoding, got one of unigram"):
        Tokenizer.load(tmp_path / "unigram.model")
    sentencepiece_model(tmp_path / "nfkc.model", normalization_rule_name="nmt_nfkc")
    with pytest.raises(ArgumentValueError, match="prepared with a map of characters"):
        Tokenizer.load(tmp_path / "nfkc.model")


def test_wrong_tokens_and_texts_are_refused(tmp_path: Path) -> None:
    tokenizer = of_kind("pieces", tmp_path)
    with pytest.raises(ArgumentValueError, match=r"expected 0…699, got 700"):
        tokenizer.decode([700])
    with pytest.raises(ArgumentTypeError, match="expected an int, got float"):
        tokenizer.decode([1.0])  # type: ignore[list-item]
    with pytest.raises(ArgumentTypeError, match="expected a text, got bytes"):
        tokenizer.encode(b"x")  # type: ignore[arg-type]


@pytest.mark.skipif(not SOAK, reason="llama.cpp's sources are 77 MB: make soak")
def test_vocabularies_of_llama_cpp(request: pytest.FixtureRequest) -> None:
    """Its own files of tokens, with texts and what they become."""
    folder = third_party.unpack_vocabularies_of_llama_cpp(third_party.cache_of(request.config))
    found = 0
    for expected in sorted(folder.glob("*.out")):
        path = expected.with_suffix("")
        try:
            tokenizer = Tokenizer.load(path)
        except ArgumentValueError as error:
            assert path.stem in ("ggml-vocab-bert-bge", "ggml-vocab-gemma-4"), error
            continue
        texts = path.with_name(f"{path.name}.inp").read_text("utf-8")
        rows = expected.read_text("utf-8").split("\n")
        for text, row in zip(texts.split("\n__ggml_vocab_test__\n"), rows, strict=True):
            tokens = [int(one) for one in row.split()]
            given = tokenizer.encode(text, add_special=False, parse_special=False)
            assert given == tokens, (path.name, text)
            assert tokenizer.decode(tokens) == text
            found += 1
    assert found > 600

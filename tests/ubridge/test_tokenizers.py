"""All tokenizers: shared rules, vocabularies of RWKV, llama.cpp's own files, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.sampling import SOAK, rounds
from tests.simulated import third_party
from tests.ubridge.texts import random_text
from tests.ubridge.tokenizer_makers import (
    BYTE,
    CONTROL,
    KINDS,
    NORMAL,
    TEXTS,
    UNKNOWN,
    of_kind,
    sentencepiece_model,
    tokenizers,
    world,
    write_gguf,
)
from ubridge import InvalidFileError
from ubridge.models.tokenizers import Tokenizer
from uhal.errors import ArgumentTypeError, ArgumentValueError


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_never_cut_a_character(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    tokenizer = of_kind(kind, tmp_path)
    for _ in range(TEXTS):
        text = random_text(rng).replace("\u2581", "_")  # SentencePiece's sign for a blank
        tokens = tokenizer.encode(text, add_special=False, parse_special=False)
        stream = tokenizer.stream()
        pieces = [stream.push(token) for token in tokens]
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
        if kind != "pieces without bytes":
            assert "".join(pieces) == text
        assert "".join(pieces) + stream.finish() == tokenizer.decode(tokens)
        # A stream of tokens that form no text loses no bytes and holds none back forever.
        tokens = rng.integers(0, tokenizer.vocabulary, 60).tolist()
        stream, told = tokenizer.stream(), ""
        for token in tokens:
            told += stream.push(token)
        assert told + stream.finish() == tokenizer.decode(tokens)


CHARACTERS = {1: (0x21, 0x7F), 2: (0x80, 0x800), 3: (0x800, 0xD800), 4: (0x10000, 0x110000)}
"""Ranges of characters by their number of bytes in UTF-8."""


@pytest.mark.parametrize("kind", KINDS)
def test_streams_give_what_decode_gives_at_every_cut(
    kind: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """A cut may be within a character; another stream then continues from the cut."""
    tokenizer = of_kind(kind, tmp_path)
    for length, bounds in CHARACTERS.items():
        signs = [chr(int(one)) for one in rng.integers(*bounds, rounds(4, 40))]
        # The characters stand alone, after each other, and between letters.
        text = f"a{signs[0]}b{''.join(signs[1:])}{signs[0]} c"
        text = text.replace("\u2581", "\u2582")  # SentencePiece's sign for a blank
        tokens = tokenizer.encode(text, add_special=False, parse_special=False)
        whole = tokenizer.decode(tokens)
        if kind != "pieces without bytes":
            assert whole == text, length
        for cut in range(len(tokens) + 1):
            stream = tokenizer.stream()
            told = "".join(map(stream.push, tokens[:cut]))
            assert told + stream.finish() == tokenizer.decode(tokens[:cut]), (length, cut)
            rest = tokenizer.stream(after=tokens[:cut])
            told += "".join(map(rest.push, tokens[cut:]))
            # Each character is returned as soon as its last byte is known.
            assert (told, rest.finish()) == (whole, ""), (length, cut)


def test_files_of_one_model_give_the_same_text(tmp_path: Path, rng: np.random.Generator) -> None:
    """Invalid bytes give the same text, too, but the library drops valid characters beside
    them."""
    ours = of_kind("json of bytes", tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    broken = theirs.encode("漢😀").ids
    assert theirs.decode(broken[:-1]) == "\ufffd" * 6
    assert ours.decode(broken[:-1]) == "漢\ufffd"
    texts = [theirs.id_to_token(token) for token in range(ours.vocabulary)]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (ours.vocabulary - 259)]
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__ggml__model="llama",
        tokenizer__ggml__tokens=texts,
        tokenizer__ggml__scores=np.zeros(len(texts), "f4"),
        tokenizer__ggml__token_type=np.array(kinds, "i4"),
    )
    other = Tokenizer.load(path)
    for _ in range(TEXTS):
        tokens = rng.integers(3, rng.choice([259, 280, ours.vocabulary]), 30).tolist()
        assert ours.decode(tokens) == other.decode(tokens)


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        tokenizer = of_kind(kind, tmp_path / kind)
        with pytest.raises(ArgumentValueError, match=r"got the byte 0xFF behind 2 characters"):
            tokenizer.encode("ab\udcff")
        with pytest.raises(ArgumentValueError, match=r"got the surrogate U\+D800 behind 0"):
            tokenizer.encode("\ud800")


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


FILES = ("tokenizer.json", "tokenizer.model", "rwkv_vocab_v20230424.txt", "a.gguf")
BESIDE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    "chat_template.jinja",
)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_other_bytes_is_named(name: str, tmp_path: Path) -> None:
    for raw in (b"\xff", b"", b"{", b"[" * 100_000, b"1 'a' 1\n\xff"):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(InvalidFileError) as told:
            Tokenizer.load(tmp_path / name)
        assert str(told.value).startswith(str(tmp_path / name)), raw
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidFileError, match=f"{name}: expected a file, got a FIFO"):
        Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_beside_it_of_other_bytes_is_named(name: str, tmp_path: Path) -> None:
    of_kind("json", tmp_path)
    Tokenizer.load(tmp_path)
    for raw in (b"\xff", b"{", b"[]") if name.endswith(".json") else (b"\xff",):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(InvalidFileError, match=f"{name}: expected "):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        *("2147483648 'a' 1", "-1 'a' 1", "1 'a' 2", "1 99999999999 1", "1 ['a'] 1", "x 'a' 1"),
        *("1 'a' x", f"1 {'(' * 5000} 1", "1 '\\ud800' 3", "1"),
    ],
)
def test_a_wrong_line_of_a_world_vocabulary_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "rwkv_vocab_v20230424.txt"
    path.write_text(f"1 'a' 1\n{line}\n")
    with pytest.raises(InvalidFileError, match=r"rwkv_vocab_v20230424\.txt:2: expected "):
        Tokenizer.load(path)


def test_a_gguf_file_of_any_name_has_its_tokenizer(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", tokenizer__ggml__model="rwkv", tokenizer__ggml__tokens=["<s>", "a"]
    )
    for name in ("sha256-0123", "m.bin", "m.txt"):
        path = path.rename(tmp_path / name)
        assert Tokenizer.load(path).encode("aa") == [1, 1]


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
    """Compare with llama.cpp's own vocabulary files, texts and tokens."""
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

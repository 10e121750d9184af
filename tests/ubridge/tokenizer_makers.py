"""Trains small tokenizers by other libraries, and writes their files."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.texts import corpus, random_text
from ubridge.models.tokenizers import Tokenizer
from ubridge.models.tokenizers.patterns import SPLITTINGS, Splitting

tokenizers = pytest.importorskip("tokenizers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = rounds(40, 400)
NAMED = {splitting: name for name, splitting in reversed(SPLITTINGS.items())}
"""A name for each way of splitting."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def splitter(splitting: Splitting) -> Any:
    """Return the library's splitter with the same patterns."""
    parts = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        for pattern in splitting.patterns
    ]
    return tokenizers.pre_tokenizers.Sequence(parts)


def trained(splitting: Splitting, **options: Any) -> Any:
    """Train a byte-pair tokenizer of the library."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=splitting.whole_words))
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([splitter(splitting), byte_level])
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|im_end|>"],
        show_progress=False,
        **options,
    )
    made.train_from_iterator(corpus(), trainer)
    return made


def falling_back() -> Any:
    """Train byte pairs like LLaMA 2's: a character without a token becomes tokens of its bytes."""
    special, byte_tokens = ["<unk>", "<s>", "</s>"], [f"<0x{byte:02X}>" for byte in range(256)]
    blank = "\u2581"
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(blank), normalizers.Replace(" ", blank)]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace(blank, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700,
        limit_alphabet=60,
        special_tokens=special + byte_tokens,
        show_progress=False,
    )
    made.train_from_iterator((line for line in corpus() if len(line) < 400), trainer)
    # The trainer marks bytes as special tokens, but published files do not.
    told = json.loads(made.to_str())
    told["added_tokens"] = [one for one in told["added_tokens"] if one["content"] in special]
    return tokenizers.Tokenizer.from_str(json.dumps(told))


def write_gguf(path: Path, **metadata: Any) -> Path:
    """A GGUF file of metadata and one small tensor."""
    named = {key.replace("__", "."): value for key, value in metadata.items()}
    ub.save(path, {"x": np.zeros(1, np.float32)}, metadata=named)
    return path


def write_byte_pairs(path: Path, theirs: Any, name: str, **more: Any) -> Path:
    """Write the GGUF file that a converter makes of the library's tokenizer."""
    model = json.loads(theirs.to_str())["model"]
    order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    special = {one.content for one in theirs.get_added_tokens_decoder().values()}
    return write_gguf(
        path,
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__pre=name,
        tokenizer__ggml__tokens=order,
        tokenizer__ggml__token_type=np.array(
            [CONTROL if one in special else NORMAL for one in order], np.int32
        ),
        tokenizer__ggml__merges=[" ".join(pair) for pair in model["merges"]],
        **more,
    )


def sentencepiece_model(path: Path, **options: Any) -> Any:
    """Train a SentencePiece model; return its processor."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=written,
        **{
            "model_type": "bpe",
            "vocab_size": 700,
            "normalization_rule_name": "identity",
            "character_coverage": 0.98,
            "minloglevel": 2,
            **options,
        },
    )
    path.write_bytes(written.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def write_pieces(path: Path, theirs: Any, **more: Any) -> Path:
    """Write the GGUF file that a converter makes of a SentencePiece model."""
    count = theirs.get_piece_size()
    kinds = [
        CONTROL
        if theirs.is_control(one)
        else UNKNOWN
        if theirs.is_unknown(one)
        else BYTE
        if theirs.is_byte(one)
        else NORMAL
        for one in range(count)
    ]
    return write_gguf(
        path,
        tokenizer__ggml__model="llama",
        tokenizer__ggml__tokens=[theirs.id_to_piece(one) for one in range(count)],
        tokenizer__ggml__scores=np.array([theirs.get_score(one) for one in range(count)], "f4"),
        tokenizer__ggml__token_type=np.array(kinds, np.int32),
        **{
            "tokenizer__ggml__bos_token_id": np.uint32(1),
            "tokenizer__ggml__eos_token_id": np.uint32(2),
            "tokenizer__ggml__unknown_token_id": np.uint32(0),
            **more,
        },
    )


KINDS = (
    *("json", "json of bytes", "byte pairs", "world"),
    *("pieces", "pieces of a gguf", "pieces without bytes"),
)


@cache
def files_of(kind: str) -> dict[str, bytes]:
    """Return a tokenizer's files by name, made once: training takes half a second."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "json":
            trained(SPLITTINGS["qwen2"]).save(str(folder / "tokenizer.json"))
        elif kind == "json of bytes":
            falling_back().save(str(folder / "tokenizer.json"))
        elif kind == "byte pairs":
            write_byte_pairs(folder / "m.gguf", trained(SPLITTINGS["qwen2"]), "qwen2")
        elif kind == "world":
            world(folder, np.random.default_rng(7))
        else:
            theirs = sentencepiece_model(
                folder / "tokenizer.model",
                byte_fallback=kind != "pieces without bytes",
                remove_extra_whitespaces=False,
            )
            if kind == "pieces of a gguf":
                write_pieces(folder / "m.gguf", theirs)
                (folder / "tokenizer.model").unlink()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def of_kind(kind: str, folder: Path) -> Tokenizer:
    for name, raw in files_of(kind).items():
        (folder / name).write_bytes(raw)
    return Tokenizer.load(folder)


def world(folder: Path, rng: np.random.Generator) -> tuple[Tokenizer, dict[bytes, int]]:
    """Return a vocabulary like RWKV's: all bytes, and parts of texts of up to nine bytes."""
    found = {bytes([byte]) for byte in range(256)}
    for _ in range(500):
        raw = random_text(rng).encode()
        start = int(rng.integers(0, len(raw)))
        found.add(raw[start : start + int(rng.integers(2, 10))])
    tokens = {
        raw: token for token, raw in enumerate(sorted(found, key=lambda one: (len(one), one)), 1)
    }
    lines = []
    for raw, token in tokens.items():
        try:
            literal = repr(raw.decode())
        except UnicodeDecodeError:
            literal = repr(raw)
        lines.append(f"{token} {literal} {len(raw)}\n")
    path = folder / "rwkv_vocab_v20230424.txt"
    path.write_text("".join(lines), "utf-8")
    return Tokenizer.load(folder), tokens

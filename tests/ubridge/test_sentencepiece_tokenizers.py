"""Tokenizers of SentencePiece models, compared with SentencePiece."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.texts import SCRIPTS, random_text
from tests.ubridge.tokenizer_makers import TEXTS, sentencepiece_model, write_pieces
from ubridge import InvalidFileError
from ubridge.models.tokenizers import Tokenizer, sentencepiece
from uhal.errors import ArgumentValueError

trained = pytest.importorskip("sentencepiece")


@pytest.mark.parametrize(
    "options",
    [
        {"byte_fallback": True, "remove_extra_whitespaces": False},
        {"byte_fallback": False, "remove_extra_whitespaces": True},
        {
            "byte_fallback": True,
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "split_digits": True,
            "user_defined_symbols": ["<|user|>", "\u2581\u2581", "fox", "foxes"],
        },
    ],
    ids=["llama", "no-bytes", "gemma"],
)
def test_pieces_equal_sentencepiece(
    options: dict[str, Any], tmp_path: Path, rng: np.random.Generator
) -> None:
    theirs = sentencepiece_model(tmp_path / "tokenizer.model", **options)
    ours = Tokenizer.load(tmp_path)
    assert (ours.vocabulary, ours.begin, ours.end) == (700, 1, 2)
    assert ours.encode("fox") == [1, *theirs.encode("fox")]
    for text in (*SCRIPTS, *(random_text(rng) for _ in range(TEXTS))):
        if "\u2581" in text:
            continue
        tokens = theirs.encode(text)
        assert ours.encode(text, add_special=False, parse_special=False) == tokens, text
        if options["byte_fallback"]:
            assert ours.decode(tokens) == theirs.decode(tokens), text


def message(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Write a message of protocol buffers."""
    raw = bytearray()

    def put(number: int) -> None:
        while number > 127:
            raw.append(number & 127 | 128)
            number >>= 7
        raw.append(number)

    for number, value in fields:
        if isinstance(value, int):
            put(number << 3)
            put(value)
        elif len(value) == 4 and number == sentencepiece._PIECE_SCORE:
            put(number << 3 | 5)
            raw.extend(value)
        else:
            put(number << 3 | 2)
            put(len(value))
            raw.extend(value)
    return bytes(raw)


@pytest.mark.parametrize("told", [None, False, True])
def test_blanks_are_removed_unless_the_model_says_no(
    told: bool | None, tmp_path: Path, rng: np.random.Generator
) -> None:
    """A field that a model leaves out has the format's default: true."""
    path = tmp_path / "tokenizer.model"
    sentencepiece_model(path, byte_fallback=True, remove_extra_whitespaces=bool(told))
    whole = list(sentencepiece._fields(path.read_bytes(), path))
    if told is None:
        for index, (number, value) in enumerate(whole):
            if number == sentencepiece._NORMALIZING:
                assert isinstance(value, bytes)
                kept = (
                    field
                    for field in sentencepiece._fields(value, path)
                    if field[0] != sentencepiece._REMOVES_BLANKS
                )
                whole[index] = number, message(kept)
        path.write_bytes(message(whole))
    theirs = trained.SentencePieceProcessor(model_file=str(path))
    ours = Tokenizer.load(tmp_path)
    gaps = ("  a   b ", "a  ", "  ", *(random_text(rng) for _ in range(20)))
    for text in gaps:
        if "\u2581" not in text:
            assert ours.encode(text, add_special=False) == theirs.encode(text), text
    assert (ours.encode("a  b") == ours.encode(" a b ")) == (told is not False)


def test_tokens_added_beside_a_model_of_sentencepiece(tmp_path: Path) -> None:
    theirs = sentencepiece_model(tmp_path / "tokenizer.model", byte_fallback=True)
    glm = {"tokenizer_class": "ChatGLMTokenizer", "chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(glm))
    ours = Tokenizer.load(tmp_path)
    # In the published model of 64789 pieces, prompts begin with 64790 and 64792.
    assert ours.encode("[gMASK]sop<|user|>", add_special=False) == [701, 703, 706]
    assert (ours.vocabulary, ours.chat_template) == (709, "{{ messages }}")
    assert ours.end_tokens == (2, 706, 708)
    more = {"added_tokens_decoder": {"700": {"content": "<fim>", "special": False}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(more))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 701}))
    ours = Tokenizer.load(tmp_path)
    tokens = ours.encode("fox<fim>fox<|im_end|>", add_special=False)
    fox = theirs.encode("fox")
    assert tokens[: len(fox) + 1] == [*fox, 700] and tokens[-1] == 701
    assert ours.decode(tokens) == "fox<fim>fox"
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 900}))
    with pytest.raises(InvalidFileError, match=r"added as 900, expected 701"):
        Tokenizer.load(tmp_path)


def test_pieces_of_a_gguf_equal_sentencepiece(tmp_path: Path, rng: np.random.Generator) -> None:
    theirs = sentencepiece_model(
        tmp_path / "t.model", byte_fallback=True, remove_extra_whitespaces=False
    )
    ours = Tokenizer.load(write_pieces(tmp_path / "m.gguf", theirs))
    assert ours.encode("") == [1]
    for text in (*SCRIPTS, *(random_text(rng) for _ in range(TEXTS))):
        assert ours.encode(text) == [1, *theirs.encode(text)], text


@pytest.mark.parametrize("none", [0xFFFFFFFF, -1])
def test_a_token_of_all_bits_set_is_none(none: int, tmp_path: Path) -> None:
    theirs = sentencepiece_model(tmp_path / "t.model", byte_fallback=True)
    names = ("bos", "eos", "unknown", "eot", "eom")
    told = {f"tokenizer__ggml__{name}_token_id": none for name in names}
    ours = Tokenizer.load(write_pieces(tmp_path / "m.gguf", theirs, **told))
    # a piece spelled </s> ends a text even without an id in the metadata
    assert (ours.begin, ours.end, ours.end_tokens) == (None, None, (2,))
    for wrong in (0xFFFFFFFE, -2, ours.vocabulary):
        told["tokenizer__ggml__eos_token_id"] = wrong
        with pytest.raises((InvalidFileError, ArgumentValueError), match=str(wrong)):
            Tokenizer.load(write_pieces(tmp_path / "w.gguf", theirs, **told))


def test_what_is_said_behind_a_special_token_begins_anew(tmp_path: Path) -> None:
    theirs = sentencepiece_model(tmp_path / "t.model", byte_fallback=True)
    named = {"general__name": "Phi-3 mini"}
    plain = Tokenizer.load(write_pieces(tmp_path / "a.gguf", theirs))
    phi = Tokenizer.load(write_pieces(tmp_path / "b.gguf", theirs, **named))
    fox = theirs.encode("fox")
    assert plain.encode("</s>fox") == [1, 2, *fox]
    assert plain.encode("</s>\nfox") != phi.encode("</s>\nfox") == [1, 2, *fox]
    assert plain.decode([1, 2, *fox]) == "fox"
    assert plain.stream(after=fox).push(fox[0]) == plain.spelling_of(fox[0]).replace("\u2581", " ")


def test_damaged_models_of_sentencepiece_are_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "tokenizer.model"
    sentencepiece_model(path)
    whole = path.read_bytes()
    for _ in range(rounds(60, 2000)):
        raw = bytearray(whole)
        if rng.integers(0, 2):
            del raw[int(rng.integers(0, len(raw))) :]
        else:
            for _ in range(rng.integers(1, 8)):
                raw[rng.integers(0, len(raw))] = rng.integers(0, 256)
        path.write_bytes(bytes(raw))
        try:
            Tokenizer.load(path).encode("Hello world")
        except (InvalidFileError, ArgumentValueError):
            pass

"""Byte-pair tokenizers, compared with the library `tokenizers`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.children import check_child
from tests.sampling import SOAK, rounds
from tests.ubridge.texts import SCRIPTS, random_text
from tests.ubridge.tokenizer_makers import (
    NAMED,
    TEXTS,
    of_kind,
    splitter,
    trained,
    write_byte_pairs,
    write_gguf,
)
from ubridge.models.tokenizers import Tokenizer
from ubridge.models.tokenizers.byte_pairs import WRITTEN
from ubridge.models.tokenizers.patterns import SPLITTINGS, split
from uhal.errors import ArgumentValueError

tokenizers = pytest.importorskip("tokenizers")


@pytest.mark.parametrize("name", sorted(NAMED.values()))
def test_texts_are_split_as_the_library_splits_them(name: str, rng: np.random.Generator) -> None:
    splitting = SPLITTINGS[name]
    theirs = splitter(splitting)
    for text in (*SCRIPTS, *(random_text(rng) for _ in range(TEXTS))):
        expected = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert split(text, splitting.patterns) == expected, text


@pytest.mark.parametrize(
    "name", ["llama-bpe", "qwen2", "gpt-2", *(rounds([], sorted(NAMED.values())))]
)
def test_byte_pairs_equal_the_library(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    theirs = trained(SPLITTINGS[name])
    ours = Tokenizer.load(write_byte_pairs(tmp_path / "m.gguf", theirs, name))
    assert ours.vocabulary == theirs.get_vocab_size()
    for text in (*SCRIPTS, *(random_text(rng) for _ in range(TEXTS))):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special=False) == expected, text
        assert ours.decode(expected) == text


def split_long_runs(name: str, count: int) -> None:
    """Tokenize long runs of one character; the system ends a process that takes too long."""
    signal.setitimer(signal.ITIMER_PROF, 20)
    for one in " \t\u3000":
        for end in ("", "x", "\u20ac"):
            text = one * count + end
            assert "".join(split(text, SPLITTINGS[name].patterns)) == text


@pytest.mark.parametrize("name", SPLITTINGS if SOAK else ["deepseek-llm"])
def test_long_runs_are_split_in_time_that_grows_with_them(name: str) -> None:
    check_child(split_long_runs, name, 150_000)


def test_a_word_that_is_a_token_is_taken_whole(tmp_path: Path) -> None:
    """Some kinds of tokenizer take a whole word as a token, although its merges differ."""
    for name, expected in (("llama-bpe", [256]), ("gpt-2", [ord(one) for one in "fox"])):
        path = write_gguf(
            tmp_path / f"{name}.gguf",
            tokenizer__ggml__model="gpt2",
            tokenizer__ggml__pre=name,
            tokenizer__ggml__tokens=[*(WRITTEN[byte] for byte in range(256)), "fox"],
            tokenizer__ggml__merges=["a b"],
        )
        tokenizer = Tokenizer.load(path)
        assert tokenizer.encode("fox", add_special=False) == expected
        assert tokenizer.decode(expected) == "fox"


def test_special_tokens_within_a_character(tmp_path: Path) -> None:
    """An omitted token does not split a character whose bytes surround it, as in `decode`."""
    tokenizer = of_kind("json", tmp_path)
    first, second = (tokenizer.token_of(WRITTEN[byte]) for byte in "é".encode())
    end = tokenizer.token_of("<|im_end|>")
    assert first is not None and second is not None and end is not None
    # The last id is no token of the vocabulary, but a padding row of the model's matrix.
    tokens = [first, end, tokenizer.vocabulary + 5, second]
    stream = tokenizer.stream()
    assert [stream.push(token) for token in tokens] == ["", "", "", "é"]
    assert tokenizer.decode([first, end, second]) == "é"


def test_a_tokenizer_json_and_its_gguf_say_the_same(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    theirs = trained(SPLITTINGS["llama-bpe"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ messages }}"})
    )
    one = Tokenizer.load(tmp_path)
    metadata = {
        "tokenizer__ggml__eos_token_id": theirs.token_to_id("<|im_end|>"),
        "tokenizer__chat_template": "{{ messages }}",
        "tokenizer__chat_template__tool_use": "{{ tools }}",
        "tokenizer__ggml__add_bos_token": False,
    }
    two = Tokenizer.load(write_byte_pairs(tmp_path / "m.gguf", theirs, "llama-bpe", **metadata))
    assert one.end == two.end == theirs.token_to_id("<|im_end|>")
    assert one.end_tokens == two.end_tokens == (one.end,)
    assert one.special == two.special
    assert one.chat_template == two.chat_template == "{{ messages }}"
    assert two.chat_templates == {"tool_use": "{{ tools }}"}
    for text in ("<|begin|>Hello<|im_end|> you", *(random_text(rng) for _ in range(TEXTS))):
        for parse_special in (True, False):
            tokens = one.encode(text, parse_special=parse_special)
            assert two.encode(text, parse_special=parse_special) == tokens
            for skip_special in (True, False):
                expected = one.decode(tokens, skip_special=skip_special)
                assert two.decode(tokens, skip_special=skip_special) == expected


def test_special_tokens_are_parsed_only_where_they_should(tmp_path: Path) -> None:
    theirs = trained(SPLITTINGS["gpt-2"])
    more = {"tokenizer__ggml__bos_token_id": theirs.token_to_id("<|begin|>")}
    more["tokenizer__ggml__add_bos_token"] = True
    ours = Tokenizer.load(write_byte_pairs(tmp_path / "m.gguf", theirs, "gpt-2", **more))
    end, begin = ours.token_of("<|im_end|>"), ours.begin
    assert ours.encode("<|im_end|>") == [begin, end]
    assert ours.encode("<|im_end|>", add_special=False) == [end]
    typed = ours.encode("<|im_end|>", add_special=False, parse_special=False)
    assert end not in typed
    assert ours.decode(typed) == "<|im_end|>"
    assert ours.decode([begin, end]) == ""
    assert ours.decode([begin, end], skip_special=False) == "<|begin|><|im_end|>"


def test_an_unknown_way_of_splitting_is_refused_by_name(tmp_path: Path) -> None:
    theirs = trained(SPLITTINGS["gpt-2"])
    with pytest.raises(
        ArgumentValueError, match=r"m\.gguf: .*'klingon-bpe'.*Known are .*llama-bpe"
    ):
        Tokenizer.load(write_byte_pairs(tmp_path / "m.gguf", theirs, "klingon-bpe"))


def test_every_byte_is_written_as_a_character_of_its_own() -> None:
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert len(set(WRITTEN.values())) == 256 and set(WRITTEN.values()) == alphabet

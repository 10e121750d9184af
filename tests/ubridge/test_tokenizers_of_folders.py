"""Files beside a tokenizer, and tokens whose spelling marks them as control tokens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ubridge.tokenizer_makers import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    of_kind,
    sentencepiece_model,
    tokenizers,
    write_gguf,
    write_pieces,
)
from ubridge import InvalidFileError
from ubridge.files.gguf_reading import read_gguf
from ubridge.files.mapped import MappedFile
from ubridge.models.text import Session
from ubridge.models.tokenizers import Tokenizer

KINDS = ("json of bytes", "pieces")
CONFIG = "tokenizer_config.json"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tokenizer of either file, with <unk>, <s> and </s> as its first tokens."""
    of_kind(request.param, tmp_path)
    return tmp_path


def loaded(folder: Path, name: str = CONFIG, **fields: Any) -> Tokenizer:
    """Write a file with these fields into a folder; load the folder's tokenizer."""
    (folder / name).write_text(json.dumps(fields), "utf-8")
    return Tokenizer.load(folder)


def test_truncation_and_padding_are_no_part_of_a_prompt(tmp_path: Path) -> None:
    of_kind("json of bytes", tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    expected = theirs.encode("one two three").ids
    theirs.enable_truncation(2)
    theirs.enable_padding(length=40)
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    for parse_special in (True, False):
        assert tokenizer.encode("one two three", parse_special=parse_special) == expected


@pytest.mark.parametrize("begins", [None, True, False])
@pytest.mark.parametrize("ends", [None, True, False])
def test_a_folder_says_what_texts_begin_and_end_with(
    folder: Path, begins: bool | None, ends: bool | None
) -> None:
    names = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    plain = loaded(folder, **names)
    usual, alone = plain.encode("fox"), plain.encode("fox", add_special=False)
    told = {"add_bos_token": begins, "add_eos_token": ends}
    ours = loaded(folder, **names, **told)
    expected = [
        *([1] if (usual[0] == 1 if begins is None else begins) else []),
        *alone,
        *([2] if ends else []),
    ]
    assert ours.encode("fox") == expected
    assert ours.encode("fox", add_special=False) == alone


@pytest.mark.parametrize("begins", [True, False])
def test_a_post_processor_yields_to_the_configuration(tmp_path: Path, begins: bool) -> None:
    of_kind("json of bytes", tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    theirs.save(str(tmp_path / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    alone = loaded(tmp_path, **names).encode("fox", add_special=False)
    assert loaded(tmp_path, **names).encode("fox") == [1, *alone, 2]
    ours = loaded(tmp_path, **names, add_bos_token=begins)
    assert ours.encode("fox") == [*([1] if begins else []), *alone, 2]
    # If the text contains the token's name, the token occurs twice.
    assert ours.encode("<s>") == [*([1] if begins else []), 1, 2]


def test_templates_get_every_special_token(folder: Path) -> None:
    named = {
        **{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>"},
        **{"unk_token": "<unk>", "additional_special_tokens": ["<a>", {"content": "<b>"}]},
        **{"extra_special_tokens": {"image_token": "<image>"}, "mask_token": None},
    }
    tokenizer = loaded(folder, **named)
    template = (
        "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}{{ image_token }}"
        "{{ additional_special_tokens | join }}{{ mask_token is defined }}"
    )
    session = Session(None, tokenizer)  # type: ignore[arg-type]  # it only writes a prompt
    expected = "<s></s><pad><unk><image><a><b>False"
    assert session.prompt_of(HELLO, template) == expected
    assert session.prompt_of(HELLO, "{{ pad_token }}", pad_token="x") == "x"


def test_templates_get_the_special_tokens_of_a_gguf(tmp_path: Path) -> None:
    theirs = sentencepiece_model(tmp_path / "t.model", byte_fallback=True)
    path = write_pieces(
        tmp_path / "m.gguf",
        theirs,
        tokenizer__ggml__padding_token_id=np.uint32(5),
        tokenizer__ggml__seperator_token_id=np.uint32(0xFFFFFFFF),
    )
    session = Session(None, Tokenizer.load(path))  # type: ignore[arg-type]  # as above
    template = "{{ bos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token is defined }}"
    assert session.prompt_of(HELLO, template) == f"<s><unk>{theirs.id_to_piece(5)}False"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (CONFIG, {"added_tokens_decoder": {"700": {"content": "<|new|>", "special": True}}}),
        ("added_tokens.json", {"<|new|>": 700}),
        (CONFIG, {"additional_special_tokens": ["<|new|>"]}),
        ("special_tokens_map.json", {"eos_token": {"content": "<|new|>", "lstrip": False}}),
        (CONFIG, {"extra_special_tokens": ["<|new|>"]}),
    ],
)
def test_tokens_that_only_a_file_beside_it_has(
    folder: Path, name: str, fields: dict[str, Any]
) -> None:
    fox = Tokenizer.load(folder).encode("fox", add_special=False)
    tokenizer = loaded(folder, name, **fields)
    tokens = tokenizer.encode("fox<|new|>", add_special=False)
    assert (tokens, tokenizer.vocabulary) == ([*fox, 700], 701)
    assert tokenizer.decode(tokens) == "fox"
    assert tokenizer.special["<|new|>"] == 700
    # The same characters typed by a user are not this token.
    typed = tokenizer.encode("fox<|new|>", add_special=False, parse_special=False)
    assert 700 not in typed and tokenizer.decode(typed) == "fox<|new|>"
    assert (700 in tokenizer.end_tokens) == ("eos_token" in fields)


def test_tokens_added_as_text_are_text(folder: Path) -> None:
    described = {"701": {"content": "\t\t", "special": False}}
    (folder / "added_tokens.json").write_text(json.dumps({"<fim>": 700}))
    tokenizer = loaded(folder, added_tokens_decoder=described)
    tokens = tokenizer.encode("a<fim>\t\t", add_special=False)
    assert tokens[-2:] == [700, 701]
    assert tokenizer.decode(tokens) == "a<fim>\t\t"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"added_tokens_decoder": {"900": {"content": "<x>"}}}, r"added as 900, expected 700"),
        ({"added_tokens_decoder": {"x": {"content": "<x>"}}}, r"expected its number, got 'x'"),
        ({"added_tokens_decoder": {"700": "<x>"}}, r"added_tokens_decoder, 700: expected a con"),
        ({"added_tokens_decoder": ["<x>"]}, r"added_tokens_decoder: expected an object"),
        ({"chat_template": ["x"]}, r"chat_template: expected a name and a template, got 'x'"),
    ],
)
def test_a_damaged_configuration_is_refused(
    folder: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidFileError, match=says):
        loaded(folder, **fields)


def test_a_fifo_is_no_tokenizer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(InvalidFileError, match=r"tokenizer\.json: expected a file, got a FIFO"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", ["byte pairs", "pieces of a gguf"])
def test_control_looking_tokens_of_a_gguf_end_a_text(kind: str, tmp_path: Path) -> None:
    """The file gives the token each kind that converters write, or no kind."""
    if kind == "byte pairs":
        of_kind(kind, tmp_path)
    else:
        theirs = sentencepiece_model(
            tmp_path / "t.model", byte_fallback=True, control_symbols=["<|im_end|>"]
        )
        write_pieces(tmp_path / "m.gguf", theirs)
    path = tmp_path / "m.gguf"
    told = {
        key: np.array(value, "f4" if key.endswith("scores") else "i4")
        if isinstance(value, np.ndarray)
        else value
        for key, value in read_gguf(MappedFile(path)).metadata.items()
    }
    expected = Tokenizer.load(path)
    end = expected.special["<|im_end|>"]
    assert end in expected.end_tokens
    for given in (1, 2, 4, 5, None):
        changed = dict(told)
        kinds = changed.pop("tokenizer.ggml.token_type").copy()
        if given is not None:
            kinds[end] = given
            changed["tokenizer.ggml.token_type"] = kinds
        ours = Tokenizer.load(write_gguf(tmp_path / "b.gguf", **changed))
        assert ours.end_tokens == expected.end_tokens, given
        for text in ("fox<|im_end|>", "a😀b漢<|im_end|>\n"):
            tokens = expected.encode(text)
            assert ours.encode(text) == tokens and end in tokens, given
            assert ours.decode(tokens) == expected.decode(tokens), given
            typed = expected.encode(text, parse_special=False)
            assert ours.encode(text, parse_special=False) == typed and end not in typed, given


def test_a_control_looking_token_of_a_folder_ends_a_text(folder: Path) -> None:
    """The token ends a text even if its file marks it as normal text."""
    described = {"700": {"content": "<|im_end|>", "special": False}}
    tokenizer = loaded(folder, added_tokens_decoder=described, eos_token="</s>")
    assert tokenizer.end_tokens == (2, 700)


def test_an_html_tag_is_no_end(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__tokens=["</s>", "<eos>", "<|user|>", "<|x|>"],
        tokenizer__ggml__token_type=np.array([NORMAL, USER_DEFINED, USER_DEFINED, CONTROL], "i4"),
        tokenizer__ggml__merges=["a b"],
    )
    assert Tokenizer.load(path).end_tokens == ()


def test_a_panic_of_the_library_is_an_error_of_the_file(tmp_path: Path) -> None:
    """The library's regular expressions give up after seconds; the error is not a subclass of
    `Exception`."""
    of_kind("json of bytes", tmp_path)
    path = tmp_path / "tokenizer.json"
    told = json.loads(path.read_text())
    slow = {"Regex": "(a+)+$"}
    told["pre_tokenizer"] = {
        "type": "Split",
        "pattern": slow,
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(told))
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(InvalidFileError, match=f"^{path}: the tokenizers library says: .*retry"):
        tokenizer.encode("a" * 40 + "b")
    assert tokenizer.encode("aaa")
    # Loading encodes a text to detect added tokens, so the load raises the error.
    told["normalizer"] = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 40 + "b"}
    path.write_text(json.dumps(told))
    with pytest.raises(InvalidFileError, match=f"^{path}: the tokenizers library says: .*retry"):
        Tokenizer.load(tmp_path)

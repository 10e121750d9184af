"""Tokenizers beside the programs of others: `tokenizers`, SentencePiece, llama.cpp's own files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import SOAK, rounds
from tests.simulated import third_party
from tests.ubridge.texts import SCRIPTS, corpus, random_text
from ubridge import InvalidFileError
from ubridge.models.tokenizers import Tokenizer
from ubridge.models.tokenizers.byte_pairs import WRITTEN
from ubridge.models.tokenizers.patterns import SPLITTINGS, Splitting, split
from uhal.errors import ArgumentTypeError, ArgumentValueError

tokenizers = pytest.importorskip("tokenizers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = rounds(40, 400)
NAMED = {splitting: name for name, splitting in reversed(SPLITTINGS.items())}
"""A name of each way of splitting."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def splitter(splitting: Splitting) -> Any:
    """The same patterns in the library."""
    parts = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        for pattern in splitting.patterns
    ]
    return tokenizers.pre_tokenizers.Sequence(parts)


@pytest.mark.parametrize("name", sorted(NAMED.values()))
def test_texts_are_split_as_the_library_splits_them(name: str, rng: np.random.Generator) -> None:
    splitting = SPLITTINGS[name]
    theirs = splitter(splitting)
    for text in (*SCRIPTS, *(random_text(rng) for _ in range(TEXTS))):
        expected = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert split(text, splitting.patterns) == expected, text


def trained(splitting: Splitting, **options: Any) -> Any:
    """Byte pairs of the library, trained on the spot."""
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


def write_gguf(path: Path, **metadata: Any) -> Path:
    """A GGUF file of metadata and one small tensor."""
    named = {key.replace("__", "."): value for key, value in metadata.items()}
    ub.save(path, {"x": np.zeros(1, np.float32)}, metadata=named)
    return path


def write_byte_pairs(path: Path, theirs: Any, name: str, **more: Any) -> Path:
    """The file that a converter makes of a tokenizer of the library."""
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


def test_a_word_that_is_a_token_is_taken_whole(tmp_path: Path) -> None:
    """Though its merges would make other tokens of it, where its kind of tokenizer says so."""
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
    """What is not told leaves the bytes around it one character, as `decode` has it."""
    tokenizer = of_kind("json", tmp_path)
    first, second = (tokenizer.token_of(WRITTEN[byte]) for byte in "é".encode())
    end = tokenizer.token_of("<|im_end|>")
    assert first is not None and second is not None and end is not None
    # The last of these is no token of it, but one of a model whose matrix was filled up.
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


def sentencepiece_model(path: Path, **options: Any) -> Any:
    """A model of SentencePiece, trained on the spot, with its processor."""
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


def test_tokens_added_beside_a_model_of_sentencepiece(tmp_path: Path) -> None:
    theirs = sentencepiece_model(tmp_path / "tokenizer.model", byte_fallback=True)
    glm = {"tokenizer_class": "ChatGLMTokenizer", "chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(glm))
    ours = Tokenizer.load(tmp_path)
    # Of 64789 pieces in the published one, its prompts begin with 64790 and 64792.
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


def write_pieces(path: Path, theirs: Any, **more: Any) -> Path:
    """The file that a converter makes of a model of SentencePiece."""
    count = theirs.get_piece_size()
    kinds = [
        CONTROL if theirs.is_control(one) else UNKNOWN if theirs.is_unknown(one)
        else BYTE if theirs.is_byte(one) else NORMAL
        for one in range(count)
    ]  # fmt: skip
    return write_gguf(
        path,
        tokenizer__ggml__model="llama",
        tokenizer__ggml__tokens=[theirs.id_to_piece(one) for one in range(count)],
        tokenizer__ggml__scores=np.array([theirs.get_score(one) for one in range(count)], "f4"),
        tokenizer__ggml__token_type=np.array(kinds, np.int32),
        tokenizer__ggml__bos_token_id=np.uint32(1),
        tokenizer__ggml__eos_token_id=np.uint32(2),
        tokenizer__ggml__unknown_token_id=np.uint32(0),
        **more,
    )


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


def of_kind(kind: str, folder: Path) -> Tokenizer:
    if kind == "json":
        trained(SPLITTINGS["qwen2"]).save(str(folder / "tokenizer.json"))
        return Tokenizer.load(folder)
    if kind == "byte pairs":
        theirs = trained(SPLITTINGS["qwen2"])
        return Tokenizer.load(write_byte_pairs(folder / "m.gguf", theirs, "qwen2"))
    if kind == "pieces":
        sentencepiece_model(
            folder / "tokenizer.model", byte_fallback=True, remove_extra_whitespaces=False
        )
        return Tokenizer.load(folder)
    return world(folder, np.random.default_rng(7))[0]


def world(folder: Path, rng: np.random.Generator) -> tuple[Tokenizer, dict[bytes, int]]:
    """A vocabulary of RWKV's kind: all bytes, and parts of texts of up to nine."""
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


def test_an_unknown_way_of_splitting_is_refused_by_name(tmp_path: Path) -> None:
    theirs = trained(SPLITTINGS["gpt-2"])
    with pytest.raises(ArgumentValueError, match=r"'klingon-bpe'.*Known are .*llama-bpe"):
        Tokenizer.load(write_byte_pairs(tmp_path / "m.gguf", theirs, "klingon-bpe"))


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


def test_every_byte_is_written_as_a_character_of_its_own() -> None:
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert len(set(WRITTEN.values())) == 256 and set(WRITTEN.values()) == alphabet


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

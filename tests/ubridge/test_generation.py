"""Text from a model: pieces, ends, reuse of a cache, chats, caches in files."""

from __future__ import annotations

import gc
import inspect
import itertools
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.bigram import Bigram, BigramCache
from tests.ubridge.texts import random_text
from ubridge import InvalidFileError
from ubridge.models import Model
from ubridge.models.text import GenerateOptions, Generation, Sampling, Session
from ubridge.models.text.assembling import Limits
from ubridge.models.text.stopping import StopStrings
from ubridge.models.tokenizers.rwkv import WorldTokenizer
from uhal import Device, Stream
from uhal.errors import ArgumentTypeError, ArgumentValueError

pytest.importorskip("jinja2")

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
Make = Callable[..., Session]


class Bytes(WorldTokenizer):
    """A tokenizer with a token for each byte (the byte + 1), and 0 for the end."""

    def __init__(self) -> None:
        super().__init__({byte + 1: bytes([byte]) for byte in range(256)})
        self.chat_template = TEMPLATE


@pytest.fixture
def make(host: Device, rng: np.random.Generator) -> Make:
    """A session of a random model."""

    def made(capacity: int = 64, table: Any = None) -> Session:
        tokenizer = Bytes()
        size = tokenizer.vocabulary
        if table is None:
            table = rng.normal(0, 2, (size, size))
            table[:, 0] = -100  # the model rarely ends a text by itself
        return Session(Bigram(table, capacity), tokenizer)

    return made


def following(session: Session, text: str) -> None:
    """Make the model continue the text's first byte with the rest of the text, and then end."""
    session.model.follow([*session.tokenizer.encode(text), 0])


def test_a_text_is_what_the_model_says(make: Make) -> None:
    session = make()
    table = session.model.table.to_numpy()
    generation = session.generate("ab", max_tokens=20)
    assert session.model.read == []  # the model runs only when text is read
    text = generation.read()
    tokens, last = [], ord("b") + 1
    for _ in range(20):
        last = int(table[last].argmax())
        tokens.append(last)
    assert generation.tokens == tokens
    assert text == session.tokenizer.decode(tokens)
    assert (generation.finish, generation.prompt_tokens) == ("length", 2)
    assert 0 < generation.prompt_seconds <= generation.seconds
    # The last token was returned and not read.
    assert session.model.read == [[98, 99], *([one] for one in tokens[:-1])]


def test_the_end_is_no_text(make: Make) -> None:
    session = make()
    following(session, "xyz")
    generation = session.generate("x")
    assert "".join(generation) == "yz"
    assert (generation.finish, generation.tokens[-1]) == ("end", 0)
    longer = session.generate("x", ignore_end=True, max_tokens=5)
    longer.read()
    assert (longer.finish, longer.tokens[2], len(longer.tokens)) == ("length", 0, 5)


def test_a_model_may_name_other_ends(make: Make) -> None:
    session = make()
    following(session, "xyz")
    session.model.end_tokens = (ord("z") + 1,)
    assert session.generate("x").read() == "y"


def test_pieces_hold_whole_characters(make: Make) -> None:
    session = make()
    following(session, "x€🦙é")
    pieces = list(session.generate("x"))
    assert pieces == ["€", "🦙", "é"]


def test_tokens_that_the_tokenizer_does_not_know_are_no_text(
    make: Make, rng: np.random.Generator
) -> None:
    session = make(table=rng.normal(0, 1, (300, 300)))
    session.model.follow([ord("x") + 1, 290, ord("y") + 1, 0])
    generation = session.generate("x", repetition_penalty=1.1)
    assert (generation.read(), generation.tokens) == ("y", [290, ord("y") + 1, 0])


def test_bytes_that_never_become_a_character_are_told_at_the_end(make: Make) -> None:
    session = make()
    session.model.follow([ord("x") + 1, 0xF0 + 1, 0x9F + 1, 0])
    assert session.generate("x").read() == "\ufffd"


@pytest.mark.parametrize(
    ("stop", "expected", "finish"),
    [
        ("cde", "b", "stop"),
        (["xx", "de"], "bc", "stop"),
        (["defgh", "ef"], "bcd", "stop"),
        (["cd", "cde", "c"], "b", "stop"),
        ("b", "", "stop"),
        ("fX", "bcdef", "end"),
        ((), "bcdef", "end"),
    ],
)
def test_texts_that_end_it(make: Make, stop: Any, expected: str, finish: str) -> None:
    session = make()
    following(session, "abcdef")
    generation = session.generate("a", stop=stop)
    assert (generation.read(), generation.finish) == (expected, finish)


def test_stop_strings_across_any_borders(rng: np.random.Generator) -> None:
    for _ in range(rounds(300, 5000)):
        text = "".join(rng.choice(list("abc"), 30))
        strings = ["".join(rng.choice(list("abc"), rng.integers(2, 6))) for _ in range(2)]
        stops, told, place = StopStrings(strings), "", 0
        while place < len(text):
            count = int(rng.integers(1, 5))
            told += stops.push(text[place : place + count])
            place += count
            whole = text[:place]
            if any(one in whole for one in strings):
                break
        told += stops.finish()
        # The text ends with the first piece that completes a string, cut at the leftmost string.
        found = [whole.find(one) for one in strings if one in whole]
        assert told == (whole[: min(found)] if found else text)
        assert (stops.found is not None) == bool(found)


def test_of_stop_strings_that_begin_together_the_longest_is_found() -> None:
    for strings in (["b", "bc", "bcd", "c"], ["bc", "bcd", "b"]):
        stops = StopStrings(strings)
        assert (stops.push("abcde"), stops.found, stops.push("f")) == ("a", "bcd", "")


def test_a_full_context_ends_it(make: Make) -> None:
    session = make(capacity=8)
    generation = session.generate("abc")
    generation.read()
    # The last token needs no place in the cache, because no token follows it.
    assert (generation.finish, len(generation.tokens)) == ("context", 6)
    assert session.cache.length == 8
    with pytest.raises(ArgumentValueError, match=r"at most 8 tokens.*got 9; Model\.load"):
        session.generate("abcdefghi")
    exact = session.generate("abcdefgh")
    exact.read()
    assert (exact.finish, len(exact.tokens)) == ("context", 1)


def test_what_was_read_is_not_read_again(make: Make) -> None:
    session = make()
    first = session.generate("hello", max_tokens=3)
    first.read()
    session.model.read.clear()
    second = session.generate("help", max_tokens=1)
    second.read()
    assert second.reused_tokens == 3
    assert session.model.read == [session.tokenizer.encode("p")]
    # The last token is always read again, because its logits are not stored.
    again = session.generate("help", max_tokens=1)
    again.read()
    assert (again.reused_tokens, again.tokens) == (3, second.tokens)


def test_two_at_once_do_not_mix(make: Make) -> None:
    session = make()
    alone = [session.generate(prompt, max_tokens=10).read() for prompt in ("one", "two")]
    one, two = (session.generate(prompt, max_tokens=10) for prompt in ("one", "two"))
    mixed = ["", ""]
    for first, second in itertools.zip_longest(one, two, fillvalue=""):
        mixed[0] += first
        mixed[1] += second
    assert mixed == alone
    # The second text took over the cache, and the first text has not used it since.
    assert session.cache.tokens == [*session.tokenizer.encode("two"), *two.tokens[:-1]]


@pytest.mark.parametrize("ended", ["read", "closed", "failed"])
def test_a_cache_of_its_own_goes_with_the_text(
    make: Make, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make()
    made, closed = [], []
    shared = session._shared
    another = shared.another

    def noted() -> Any:
        cache = another()
        close = cache.close
        monkeypatch.setattr(cache, "close", lambda: (closed.append(cache), close()))
        made.append(cache)
        return cache

    monkeypatch.setattr(shared, "another", noted)
    first = session.generate("one", max_tokens=9)
    next(first)
    session.generate("two", max_tokens=2).read()
    next(first)
    own = made[-1]
    assert own is not session.cache and closed == []
    if ended == "read":
        first.read()
    elif ended == "closed":
        first.close()
    else:
        monkeypatch.setattr(session.model, "logits", lambda *given: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            first.read()
    assert closed == [own]


def test_one_that_is_left_is_in_nobodys_way(make: Make) -> None:
    session = make()
    generation = session.generate("hello")
    next(generation)
    generation.close()
    assert (generation.finish, list(generation)) == ("closed", [])
    left = session.generate("hello")
    next(left)
    session.model.read.clear()
    other = session.generate("hello", max_tokens=1)
    other.read()
    # The text reuses the cache of the two texts before it.
    assert other.reused_tokens == 4


def test_a_session_that_was_closed_begins_anew(make: Make) -> None:
    session = make()
    text = session.generate("hello", max_tokens=3).read()
    cache = session.cache
    session.close()
    assert cache.tensors == {}
    again = session.generate("hello", max_tokens=3)
    assert (again.read(), again.reused_tokens) == (text, 0)
    assert session.cache is not cache


def test_log_probabilities(make: Make) -> None:
    session = make()
    generation = session.generate("a", max_tokens=5, temperature=1.0, log_probabilities=3)
    generation.read()
    table = session.model.table.to_numpy().astype(np.float64)
    last = ord("a") + 1
    assert [one.token for one in generation.choices] == generation.tokens
    for choice in generation.choices:
        row = table[last] - np.log(np.exp(table[last]).sum())
        assert choice.log_probability == pytest.approx(row[choice.token], abs=1e-9)
        best = np.argsort(-row)[:3]
        assert [token for token, _ in choice.best] == best.tolist()
        assert [value for _, value in choice.best] == pytest.approx(row[best].tolist(), abs=1e-9)
        last = choice.token


def test_a_seed_repeats_a_text(make: Make) -> None:
    session = make()
    first = session.generate("a", max_tokens=30, temperature=1.5)
    text = first.read()
    options = {"max_tokens": 30, "temperature": 1.5}
    assert session.generate("a", seed=first.seed, **options).read() == text
    sampling = Sampling(temperature=1.5, seed=first.seed)
    assert session.generate("a", max_tokens=30, sampling=sampling).read() == text
    assert session.generate("a", seed=first.seed + 1, **options).read() != text


def test_a_hook_decides(make: Make) -> None:
    session = make()
    wanted = session.tokenizer.encode("yes")

    def hook(logits: ub.DeviceTensor, tokens: Any) -> ub.DeviceTensor:
        mask = np.full(logits.shape, -np.inf, np.float32)
        mask[wanted[len(tokens) - 1]] = 0
        return ub.asarray(mask)

    assert session.generate("a", max_tokens=3, hook=hook).read() == "yes"


@pytest.mark.parametrize(
    ("prompt", "options", "says"),
    [
        ("", {}, "at least one token"),
        (b"ab", {}, "a text or tokens, got bytes"),
        ([300], {}, r"expected 0…256, got 300"),
        ("a", {"max_tokens": 0}, "max_tokens: expected at least 1"),
        ("a", {"max_tokens": "9"}, "max_tokens: expected an int, got str"),
        ("a", {"stop": [""]}, "stop: expected texts that are not empty"),
        ("a", {"stop": [3]}, "stop: expected texts, got int"),
        ("a", {"temprature": 1}, "expected an option of max_tokens, .*, seed, got temprature"),
        ("a", {"sampling": Sampling(), "seed": 1}, "either sampling= or seed"),
        ("a", {"temperature": -1}, "temperature: expected at least 0"),
        ("a", {"log_probabilities": -1}, "log_probabilities: expected at least 0"),
    ],
)
def test_what_cannot_be_asked_for(make: Make, prompt: Any, options: Any, says: str) -> None:
    session = make()
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=says):
        session.generate(prompt, **options)
    assert session.model.read == []


def test_every_option_is_in_the_signatures() -> None:
    """The options have the types and defaults of the two dataclasses, for type checkers, too."""
    hints = get_type_hints(Limits) | get_type_hints(Sampling)
    defaults = {one.name: one.default for kind in (Limits, Sampling) for one in fields(kind)}
    options = get_type_hints(GenerateOptions)
    assert {name: options[name] for name in hints} == hints
    assert options.keys() - hints.keys() == {"hook", "sampling"}
    for generate, chat in ((Model.generate, Model.chat), (Session.generate, Session.chat)):
        named = {
            name: one
            for name, one in inspect.signature(generate).parameters.items()
            if one.kind is one.KEYWORD_ONLY
        }
        assert named.keys() == options.keys()
        for name, one in named.items():
            assert (one.annotation, one.default) == (options[name], defaults.get(name))
        more = [one.name for one in inspect.signature(chat).parameters.values()]
        assert more == ["self", "messages", *named, "template", "names"]
        assert get_type_hints(generate).keys() == {"prompt", *options, "return"}


HELLO = [{"role": "user", "content": "Hello"}]


def test_a_chat_goes_on_where_it_ended(make: Make) -> None:
    session = make(capacity=256)
    following(session, "]!")
    messages = list(HELLO)
    answer = session.chat(messages)
    assert (answer.read(), answer.finish) == ("!", "end")
    messages += [{"role": "assistant", "content": "!"}, {"role": "user", "content": "Why?"}]
    session.model.read.clear()
    again = session.chat(messages)
    assert again.read() == "!"
    assert again.reused_tokens == len("[user]Hello\n[assistant]!")
    assert session.model.read[0] == session.tokenizer.encode("\n[user]Why?\n[assistant]")


def test_a_long_chat_forgets_its_oldest_questions(make: Make) -> None:
    session = make(capacity=100)
    following(session, "]!")
    turns = [{"role": "system", "content": "S"}]
    for turn in range(9):
        turns += [
            {"role": "user", "content": f"question {turn}"},
            {"role": "assistant", "content": "!"},
        ]
    answer = session.chat(turns[:-1], max_tokens=10)
    expected = [turns[0], *turns[1 + answer.left_out : -1]]
    assert answer.left_out and answer.left_out % 2 == 0
    assert answer.read() == "!"
    told = "".join(session.tokenizer.decode(session.cache.tokens))
    assert told.startswith(session.prompt_of(expected))
    assert answer.prompt_tokens + 10 <= 100
    fewer = [turns[0], *turns[1 + answer.left_out - 2 : -1]]
    assert len(session.prompt_of(fewer)) + 10 > 100


@pytest.mark.parametrize("max_tokens", [None, 10, 100])
def test_a_chat_that_fits_exactly_is_left_whole(make: Make, max_tokens: int | None) -> None:
    turns = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "!"},
        {"role": "user", "content": "x" * 20},
    ]
    for capacity in range(80, 140):
        session = make(capacity=capacity, table=np.zeros((257, 257)))
        room = capacity // 4 if max_tokens is None else min(max_tokens, capacity // 2)
        length = len(session.tokenizer.encode(session.prompt_of(turns), add_special=False))
        options = {} if max_tokens is None else {"max_tokens": max_tokens}
        answer = session.chat(turns, **options)
        fits = length + room <= capacity
        assert (answer.left_out, answer.prompt_tokens == length) == (0 if fits else 2, fits)


def test_a_question_that_does_not_fit_is_refused(make: Make) -> None:
    session = make(capacity=40)
    with pytest.raises(ArgumentValueError, match="at most 40 tokens"):
        session.chat([{"role": "user", "content": "x" * 50}])


def test_an_unknown_option_of_a_chat_is_refused(make: Make) -> None:
    with pytest.raises(ArgumentTypeError, match=r"chat: expected .* template, names, got tools"):
        make().chat(HELLO, tools=[])


def test_a_text_that_is_over_or_dropped_holds_no_cache(make: Make) -> None:
    """The cache is freed at once, without the garbage collector."""
    session = make()
    made: list[weakref.ref[BigramCache]] = []
    cache = session.model.cache

    def watched(capacity: int | None = None) -> BigramCache:
        made.append(weakref.ref(found := cache(capacity)))
        return found

    def begun() -> Generation:
        alone = Session(session.model, session.tokenizer)
        generation = alone.generate("ab", max_tokens=3, ignore_end=True)
        next(generation)
        return generation

    session.model.cache = watched
    gc.disable()
    try:
        over, closed, dropped, failed = begun(), begun(), begun(), begun()
        over.read()
        closed.close()
        del dropped
        session.model.logits = None
        with pytest.raises(TypeError):
            failed.read()
        assert [one() for one in made] == [None] * 4
    finally:
        gc.enable()
    assert len(over.tokens) == 3 and (over.finish, closed.finish) == ("length", "closed")


def test_an_answer_of_no_length_is_refused(make: Make) -> None:
    with pytest.raises(ArgumentTypeError, match="max_tokens: expected an int, got str"):
        make().chat(HELLO, max_tokens="9")


def test_a_model_without_a_template_cannot_chat(make: Make) -> None:
    session = make()
    session.tokenizer.chat_template = None
    with pytest.raises(ArgumentValueError, match=r"\(bigram\) comes without a chat template"):
        session.chat(HELLO)
    assert session.chat(HELLO, template="x{{ messages[0].content }}", max_tokens=1).read()


def test_what_somebody_typed_is_told_to_the_template(make: Make) -> None:
    session = make(capacity=200)
    answer = session.chat(HELLO, names={"tools": ["t"]}, template="{{ tools }}{{ bos_token }}")
    assert answer.prompt_tokens == len("['t']")


def test_a_cache_in_a_file(make: Make, tmp_path: Path, rng: np.random.Generator) -> None:
    session = make()
    table = session.model.table.to_numpy()
    text = session.generate("hello", max_tokens=9).read()
    session.save(tmp_path / "c.safetensors")
    other = make(table=table)
    other.restore(tmp_path / "c.safetensors")
    assert other.cache.tokens == session.cache.tokens
    assert other.cache.kept == session.cache.kept
    for name, tensor in session.cache.tensors.items():
        assert np.array_equal(other.cache.tensors[name].to_numpy(), tensor.to_numpy())
    generation = other.generate("hello", max_tokens=9)
    assert generation.read() == text
    assert generation.reused_tokens == 4 and other.model.read[0] == [ord("o") + 1]


def test_a_file_may_change_once_its_cache_is_restored(make: Make, tmp_path: Path) -> None:
    session = make(capacity=1 << 23)
    session.generate("hello", max_tokens=2).read()
    session.save(tmp_path / "c.safetensors")
    session.restore(tmp_path / "c.safetensors")
    assert Stream.default().query(), "the file is still read"


def test_a_cache_of_another_model_is_refused(make: Make, tmp_path: Path) -> None:
    make(capacity=32).save(tmp_path / "c.safetensors")
    session = make()
    session.generate("ab", max_tokens=1).read()
    with pytest.raises(ArgumentValueError, match=r"expected a cache of .*\['f32', 64\].* got one"):
        session.restore(tmp_path / "c.safetensors")
    ub.save(tmp_path / "w.safetensors", {"x": np.zeros(3, np.float32)})
    with pytest.raises(InvalidFileError, match=r"that Session\.save wrote"):
        session.restore(tmp_path / "w.safetensors")
    assert session.cache.tokens == session.tokenizer.encode("ab")


def test_a_damaged_cache_is_named_and_changes_nothing(make: Make, tmp_path: Path) -> None:
    session = make()
    session.generate("hello", max_tokens=9).read()
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    session.save(good)
    stored = ub.load(good)
    told, held = dict(stored.metadata), {name: stored[name].to_numpy() for name in stored}
    session.generate("ab", max_tokens=1).read()
    before = {name: one.to_numpy() for name, one in session.cache.tensors.items()}
    last = list(before)[-1]
    wrong: list[tuple[str, Any]] = [
        *(
            (key, value)
            for key in ("room", "kept", "of")
            for value in (None, "x", "-5", "0.5", "[]", "null", str(1 << 70), "[" * 100_000)
        ),
        *(
            ("tokens", value)
            for value in (
                None,
                np.zeros(3),
                np.zeros((2, 2), np.int64),
                np.full(3, -1),
                np.full(3, 1 << 40),
                np.zeros(10_000, np.int64),
            )
        ),
        *((last, value) for value in (None, np.zeros((1, 2), np.float32), held[last] > 0)),
    ]
    for key, value in wrong:
        metadata, tensors = dict(told), dict(held)
        whole = metadata if key in metadata else tensors
        whole.pop(key)
        if value is not None:
            whole[key] = value
        ub.save(bad, tensors, metadata=metadata)
        with pytest.raises((InvalidFileError, ArgumentValueError), match=f"^{bad}: ") as error:
            session.restore(bad)
        assert key in str(error.value) or key == "of", (key, value)
        assert session.cache.tokens[:2] == session.tokenizer.encode("ab")
        for name, tensor in session.cache.tensors.items():
            assert np.array_equal(tensor.to_numpy(), before[name])
    session.restore(good)
    assert session.cache.kept == int(told["kept"])


def test_any_text_comes_out_as_it_went_in(make: Make, rng: np.random.Generator) -> None:
    """A text of distinct bytes comes back exactly, for any limits."""
    for _ in range(rounds(20, 300)):
        session = make(capacity=400)
        raw = list(dict.fromkeys(random_text(rng, 3).encode()))
        session.model.follow([1, *(byte + 1 for byte in raw), 0])
        generation: Generation = session.generate([1])
        assert generation.read() == bytes(raw).decode("utf-8", "replace")

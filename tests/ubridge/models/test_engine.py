"""`Engine`: a text gets the same bits as alone, whatever else runs and however often it waits."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.models.cases import CASES, VOCABULARY
from tests.ubridge.models.files import known, written
from tests.ubridge.models.test_published_model import FOLDER, TEXT, tokens
from tests.ubridge.op_rows import row_of
from ubridge.models import Engine, Model, Request
from ubridge.models.making import make_model
from ubridge.models.serving import ModelDrafter, NgramLookup
from ubridge.models.tokenizers.rwkv import WorldTokenizer
from uhal import Device
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotSupportedError,
    OutOfMemoryError,
)

DEVICES = ("cuda-sim", "rocm-sim", "opencl")
Answer = tuple[list[int], list[float], str, str | None]


def a_model(folder: Path, case: str, device: Device, **options: Any) -> Model:
    config, weights, _ = known(case)
    model = Model.load(written(folder, config, weights), device=device, **options)
    words = {token: bytes([token % 255 + 1]) for token in range(1, VOCABULARY)}
    model.tokenizer = WorldTokenizer(words)
    return model


def told(request: Request) -> Answer:
    """Return a request's tokens, log-probabilities to the bit, text and finish."""
    text = request.read()
    return request.tokens, [one.log_probability for one in request.choices], text, request.finish


def jobs(draw: random.Random, count: int, most: int = 40) -> list[dict[str, Any]]:
    """Return arguments of `submit`: prompts that share beginnings, and all kinds of sampling."""
    stem = [draw.randrange(1, VOCABULARY) for _ in range(most)]
    made = []
    for _ in range(count):
        shared = draw.randrange(most) if draw.random() < 0.5 else 0
        own = [draw.randrange(1, VOCABULARY) for _ in range(draw.randint(1, most - shared))]
        job: dict[str, Any] = {"prompt": [*stem[:shared], *own]}
        job["max_tokens"] = draw.randint(1, 12)
        job["ignore_end"] = True
        job["priority"] = draw.randint(0, 2)
        if draw.random() < 0.6:
            job["log_probabilities"] = 0
        if draw.random() < 0.4:
            job |= {"temperature": 1.0, "top_k": 20, "seed": draw.randrange(1000)}
        if draw.random() < 0.3:
            job |= {"repetition_penalty": 1.3}
        made.append(job)
    return made


def lone(model: Model, job: dict[str, Any], **options: Any) -> Answer:
    with Engine(model, sequences=1, context=64, **options) as engine:
        return told(engine.submit(**job))


@pytest.mark.drawn(8, each=())
@pytest.mark.parametrize("case", [one for one in CASES if one != "rwkv5"])
def test_every_architecture_gives_a_text_the_same_bits_in_a_batch(
    case: str, host: Device, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    model = a_model(tmp_path, case, host)
    given = jobs(draw, 5, 20)
    alone = [lone(model, job) for job in given]
    with Engine(
        model,
        sequences=draw.randint(2, 5),
        page_size=draw.randint(1, 9),
        step_tokens=draw.randint(5, 40),
        context=64,
    ) as engine:
        requests = [engine.submit(**job) for job in given]
        assert [told(one) for one in requests] == alone
        assert engine.stats().pages.live == 0
    # The first chosen token is the most probable of the model's own logits.
    tokens_of = given[0]["prompt"]
    with Engine(model, context=64) as engine:
        first = engine.submit(tokens_of, max_tokens=1, ignore_end=True, log_probabilities=0)
        first.read()
    logits = model(tokens_of).to_numpy()[-1].astype(np.float64)
    logits -= logits.max() + np.log(np.exp(logits - logits.max()).sum())
    assert abs(first.choices[0].log_probability - logits[first.tokens[0]]) < 2e-3
    assert logits[first.tokens[0]] >= logits.max() - 2e-3


@pytest.mark.parametrize("form", ["q8_0", "q4_K", "bf16"])
def test_quantized_and_short_weights_give_the_same_bits(
    form: str, host: Device, tmp_path: Path, seed: int
) -> None:
    folder = make_model(tmp_path / "made", seed=seed % 2**32).folder
    options: dict[str, Any] = {"dtype": form} if form == "bf16" else {"quantize": form}
    with pytest.warns() if form == "q4_K" else pytest.MonkeyPatch.context():
        model = Model.load(folder, device=host, context=64, **options)
    given = jobs(random.Random(seed), 6)
    for job in given:
        job["prompt"] = [token % model.vocabulary for token in job["prompt"]]
    alone = [lone(model, job) for job in given]
    with Engine(model, sequences=6, context=64, page_size=4, step_tokens=30) as engine:
        assert [told(one) for one in [engine.submit(**job) for job in given]] == alone


@pytest.mark.parametrize("pages", ["i8", "f8e4m3"])
def test_pages_of_8_bits_give_the_same_bits_in_a_quarter_of_the_memory(
    pages: str, host: Device, tmp_path: Path, seed: int
) -> None:
    model = a_model(tmp_path, "llama", host)
    given = jobs(random.Random(seed), 4, 20)
    alone = [lone(model, job, cache_dtype=pages) for job in given]
    with (
        Engine(model, context=64) as plain,
        Engine(
            model, sequences=4, context=64, page_size=4, step_tokens=9, cache_dtype=pages
        ) as engine,
    ):
        requests = [engine.submit(**job) for job in given]
        engine.step()
        fork = engine.fork(requests[0], max_tokens=2, ignore_end=True)
        assert [told(one) for one in requests] == alone
        fork.read()
        assert engine.stats().pages.live == 0
        width = model.design.width
        for made, row, itemsize in ((plain, width, 4), (engine, width + 4, 1)):
            pool = made._paged.pools["0.keys"]
            assert (pool.shape[-1], pool.dtype.itemsize) == (row, itemsize)
        with pytest.raises(ArgumentValueError, match="cache_dtype: expected f32, the dtype of act"):
            Engine(model, cache_dtype="f16")


def test_other_devices_give_the_same_bits(device: Device, tmp_path: Path, seed: int) -> None:
    row_of(device.backend).require_images()
    model = a_model(tmp_path, "llama", device)
    given = jobs(random.Random(seed), 3, 8)
    for job in given:
        job["max_tokens"] = 3
    alone = [lone(model, job) for job in given]
    with Engine(model, sequences=3, context=64, page_size=3, step_tokens=8) as engine:
        assert [told(one) for one in [engine.submit(**job) for job in given]] == alone


def test_a_storm_of_requests(
    host: Device, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few pages, cancellations and failing steps change no answer and lose no page."""
    draw = random.Random(seed)
    model = a_model(tmp_path, "llama", host)
    given = jobs(draw, rounds(30, 200), 30)
    alone = [lone(model, job) for job in given]
    engine = Engine(
        model,
        sequences=6,
        pages=20,
        page_size=4,
        step_tokens=16,
        context=64,
        speculate=2,
        branches=3,
        drafter=lambda: (
            lambda tokens, most: [
                [draw.randrange(VOCABULARY) for _ in range(most)] for _ in range(draw.randint(0, 3))
            ]
        ),
    )
    usual = engine._paged.logits
    # One of each ten steps fails. Three failures in a row would end a request.
    tens = (draw.randrange(10) for _ in itertools.count())
    fails = (step == wrong for wrong in tens for step in range(10))

    def failing(*given: Any) -> ub.DeviceTensor:
        if next(fails):
            raise OutOfMemoryError("a step without memory")
        return usual(*given)

    monkeypatch.setattr(engine._paged, "logits", failing)
    requests = [engine.submit(**job) for job in given]
    closed = draw.sample(range(len(given)), len(given) // 5)
    for one in closed:
        for _ in range(draw.randint(0, 5)):
            engine.step()
        requests[one].close()
    while engine.step():
        stats = engine.stats()
        assert sum(stats.pages) == 20 and stats.running <= 6
    for index, (one, expected) in enumerate(zip(requests, alone, strict=True)):
        got = told(one)
        if index in closed and got[3] == "closed":
            assert got[0] == expected[0][: len(got[0])]
        else:
            assert got == expected
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.finished) == (0, 0, len(given))
    assert stats.preemptions > 0 and stats.failures > 0 and stats.pages.live == 0
    engine.close()


def test_an_error_that_stays_ends_the_requests_with_it(
    host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(a_model(tmp_path, "llama", host), context=64)

    def failing(*given: Any) -> ub.DeviceTensor:
        raise OutOfMemoryError("no step has memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine._paged, "logits", failing)
        request = engine.submit([1, 2, 3])
        with pytest.raises(OutOfMemoryError, match="no step has memory"):
            request.read()
    assert (request.finish, request.read()) == ("error", "")
    assert engine.stats().pages.live == 0

    # A hook's error ends only its own request.
    def hook(logits: ub.DeviceTensor, tokens: Sequence[int]) -> None:
        raise KeyError("a mistake in a hook")

    wrong, right = engine.submit([1, 2], hook=hook), engine.submit([1, 2], max_tokens=2)
    with pytest.raises(KeyError, match="a mistake in a hook"):
        wrong.read()
    right.read()
    assert right.finish is not None and right.finish != "error"


class Guess:
    """Proposes the tokens that will be chosen, with some mistakes."""

    def __init__(self, answer: list[int], draw: random.Random) -> None:
        self.answer, self.draw = answer, draw

    def __call__(self, tokens: Sequence[int], most: int) -> list[int]:
        done = next((n for n in range(12, -1, -1) if self._ends_with(tokens, n)), 0)
        right = self.answer[done : done + most]
        return [
            one if self.draw.random() < 0.7 else self.draw.randrange(VOCABULARY) for one in right
        ]

    def _ends_with(self, tokens: Sequence[int], count: int) -> bool:
        return list(tokens[len(tokens) - count :]) == self.answer[:count]


class Bush:
    """Proposes several continuations of a text, which share beginnings, in any order."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]], draw: random.Random) -> None:
        self.answers, self.draw = answers, draw
        self.guess: Guess | None = None

    def __call__(self, tokens: Sequence[int], most: int) -> list[list[int]]:
        if self.guess is None:
            self.guess = Guess(self.answers[tuple(tokens)], self.draw)
        guess, draw = self.guess, self.draw
        found = [guess(tokens, most) for _ in range(draw.randint(0, 3))]
        found += [[*one[: draw.randint(0, most)], 1, 2] for one in found[:1]]
        draw.shuffle(found)
        return found


def test_a_tree_of_drafts_gives_the_tokens_of_plain_decoding(
    host: Device, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    model = a_model(tmp_path, "llama", host)
    given = jobs(draw, rounds(8, 100))
    for job in given:
        job["max_tokens"] = 12
    alone = [lone(model, job) for job in given]
    answers = {tuple(job["prompt"]): one[0] for job, one in zip(given, alone, strict=True)}

    with Engine(
        model,
        sequences=3,
        context=64,
        speculate=4,
        branches=3,
        drafter=lambda: Bush(answers, draw),
        page_size=draw.randint(1, 5),
    ) as engine:
        assert [told(one) for one in [engine.submit(**job) for job in given]] == alone
        stats = engine.stats()
        assert stats.chosen_tokens == 12 * len(given)
        assert stats.drafted_tokens > stats.accepted_tokens > 0
        assert stats.pages.live == 0


def test_speculation_gives_the_tokens_of_plain_decoding(
    host: Device, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    model = a_model(tmp_path, "llama", host)
    for job in jobs(draw, rounds(8, 100)):
        job["max_tokens"] = 12
        alone = lone(model, job)
        for drafter in (NgramLookup, lambda alone=alone: Guess(alone[0], draw)):
            with Engine(model, context=64, speculate=4, drafter=drafter, page_size=3) as engine:
                assert told(engine.submit(**job)) == alone
                stats = engine.stats()
                if drafter is not NgramLookup:
                    assert stats.accepted_tokens > 0 and stats.steps < 12
                assert stats.chosen_tokens == 12


def test_a_model_drafts_for_another(host: Device, tmp_path: Path, seed: int) -> None:
    """Drafts of the same model are accepted; drafts of another model do not change the text."""
    draw = random.Random(seed)
    folders = [tmp_path / one for one in ("large", "small")]
    for one in folders:
        one.mkdir()
    model = a_model(folders[0], "llama", host)
    small = a_model(folders[1], "qwen2", host, context=40)
    given = jobs(draw, 3, 20)
    given[0] |= {"max_tokens": 12, "temperature": 0.0, "repetition_penalty": 1.0}
    alone = [lone(model, job) for job in given]
    for drafter in (model, small):
        with Engine(
            model,
            context=64,
            speculate=4,
            drafter=lambda drafter=drafter: ModelDrafter(drafter),
            page_size=3,
        ) as engine:
            requests = [engine.submit(**job) for job in given]
            assert [told(one) for one in requests] == alone
            assert engine.stats().drafted_tokens > 0
            if drafter is model:
                assert engine.stats().accepted_tokens > 0
    # Drafting ends if the text exceeds the cache, or has tokens of a larger vocabulary.
    short = ModelDrafter(small)
    assert list(short([VOCABULARY], 4)) == []
    assert list(short([1] * (small.context + 1), 4)) == []
    assert len(short([1] * small.context, 4)) == 1
    assert len(short([1] * (small.context - 1), 4)) == 2


def test_wrong_drafts_and_failing_drafters_reach_no_other_text(
    host: Device, tmp_path: Path, seed: int
) -> None:
    model = a_model(tmp_path, "llama", host)
    job: dict[str, Any] = {"max_tokens": 6, "ignore_end": True}
    alone = lone(model, {"prompt": [5, 6], **job})
    beyond = [
        lambda tokens, most, wrong=wrong: [wrong] * most for wrong in (VOCABULARY, -1, 1 << 70)
    ]

    def failing(tokens: Sequence[int], most: int) -> list[int]:
        if tokens[0] == 5:
            return []
        if tokens[0] == 7:
            return ["a token"]  # type: ignore[list-item]
        raise KeyError("a mistake in a drafter")

    for one in beyond:
        with Engine(model, context=64, speculate=3, drafter=lambda one=one: one) as engine:
            assert told(engine.submit([5, 6], **job)) == alone
            assert engine.stats().drafted_tokens == 0
    with Engine(model, context=64, speculate=3, drafter=lambda: failing) as engine:
        right, wrong, other = (engine.submit([first, 6], **job) for first in (5, 6, 7))
        assert told(right) == alone
        with pytest.raises(KeyError, match="a mistake in a drafter"):
            wrong.read()
        with pytest.raises(TypeError, match="interpreted as an integer"):
            other.read()
        assert engine.stats().pages.live == 0 and engine.stats().finished == 3


def test_the_lookup_proposes_what_followed_the_earliest_occurrence() -> None:
    lookup = NgramLookup()
    assert lookup([1, 2, 3], 4) == ()
    assert lookup([1, 2, 3, 1, 2], 4) == [3, 1, 2]
    assert lookup([1, 2, 3, 1, 2, 9, 2], 2) == [3, 1]
    assert lookup([1, 2, 3, 1, 2, 9, 2, 9], 1) == [2]


def test_forks_share_pages_and_give_the_bits_of_their_own_prompts(
    host: Device, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    model = a_model(tmp_path, "llama", host)
    prompt = [draw.randrange(1, VOCABULARY) for _ in range(30)]
    with Engine(model, sequences=4, context=64, page_size=8) as engine:
        source = engine.submit(prompt, max_tokens=12, ignore_end=True, log_probabilities=0)
        while len(source.tokens) < 3:
            engine.step()
        before = engine.stats().pages.live
        options: dict[str, Any] = {"max_tokens": 6, "ignore_end": True, "log_probabilities": 0}
        forks = [
            engine.fork(source, temperature=1.0, seed=number, **options) for number in range(3)
        ]
        engine.step()
        # Each fork has one page of its own and shares the other pages.
        assert engine.stats().pages.live <= before + 4
        begun = [*prompt, *source.tokens[:3]]
        expected = [
            lone(model, {"prompt": begun, "temperature": 1.0, "seed": number, **options})
            for number in range(3)
        ]
        assert [told(one) for one in forks] == expected
        assert told(source) == lone(
            model,
            {"prompt": prompt, "max_tokens": 12, "ignore_end": True, "log_probabilities": 0},
        )


def test_equal_beginnings_are_read_once(host: Device, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    model = a_model(tmp_path, "llama", host, context=256)
    shared = [draw.randrange(1, VOCABULARY) for _ in range(160)]
    with Engine(model, sequences=8, page_size=8, step_tokens=32) as engine:
        requests = [engine.submit([*shared, one + 1], max_tokens=4) for one in range(8)]
        most = 0
        while engine.step():
            most = max(most, engine.stats().pages.live)
        assert [one.reused_tokens for one in requests] == [0] + [160] * 7
        # Separate caches would take 8 * 21 pages.
        assert most <= 0.25 * 8 * 21
        assert engine.stats().read_tokens < 2 * len(shared)


def test_higher_priorities_go_first(host: Device, tmp_path: Path) -> None:
    model = a_model(tmp_path, "llama", host)
    with Engine(model, sequences=1, context=64) as engine:
        ended: list[int] = []
        for number, priority in enumerate((0, 2, 1, 2)):
            request = engine.submit([1, 2], priority=priority, max_tokens=2, ignore_end=True)
            request.listen(
                lambda request=request, number=number: (
                    ended.append(number) if request.finish and number not in ended else None
                )
            )
        while engine.step():
            pass
        assert ended == [1, 3, 2, 0]


def test_requests_are_awaitable_and_cancelled_tasks_close_them(
    host: Device, tmp_path: Path
) -> None:
    model = a_model(tmp_path, "llama", host)
    job: dict[str, Any] = {"max_tokens": 5, "ignore_end": True}
    alone = [lone(model, {"prompt": [one, 2], **job})[2] for one in (1, 2, 3)]

    async def main() -> None:
        with Engine(model, context=64) as engine:
            requests = [engine.submit([one, 2], **job) for one in (1, 2, 3)]
            assert await asyncio.gather(*requests) == alone
            pieces = [piece async for piece in engine.submit([1, 2], **job)]
            assert "".join(pieces) == alone[0]
            endless = engine.submit([1], ignore_end=True, max_tokens=60)

            async def some() -> None:
                async for _ in endless:
                    raise asyncio.CancelledError

            with pytest.raises(asyncio.CancelledError):
                await some()
            while endless.finish is None:
                await asyncio.sleep(0.01)
            assert engine.stats().pages.live == 0

    asyncio.run(main())


def test_threads_read_their_requests_at_once(host: Device, tmp_path: Path) -> None:
    model = a_model(tmp_path, "llama", host)
    job: dict[str, Any] = {"max_tokens": 8, "ignore_end": True}
    alone = [lone(model, {"prompt": [one + 1], **job})[2] for one in range(6)]
    found: dict[int, str] = {}
    with Engine(model, sequences=3, context=64) as engine:

        def read(one: int) -> None:
            found[one] = engine.submit([one + 1], **job).read()

        threads = [threading.Thread(target=read, args=(one,)) for one in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[one] for one in range(6)] == alone


def test_mistakes_are_refused(host: Device, tmp_path: Path) -> None:
    model = a_model(tmp_path, "llama", host)
    with pytest.raises(ArgumentValueError, match="Engine, sequences: expected 1 to"):
        Engine(model, sequences=0)
    with pytest.raises(ArgumentValueError, match="Engine, branches: expected 1 to"):
        Engine(model, speculate=2, branches=0)
    with pytest.raises(ArgumentValueError, match="step_tokens: expected at least 4, one for each"):
        Engine(model, sequences=4, step_tokens=3)
    engine = Engine(model, pages=4, page_size=4)
    assert engine.capacity == 16
    with pytest.raises(ArgumentValueError, match="at most 16 tokens, the capacity of the engine"):
        engine.submit([1] * 17)
    with pytest.raises(ArgumentValueError, match="expected at least one token"):
        engine.submit([])
    with pytest.raises(ArgumentTypeError, match="submit, priority: expected an int, got str"):
        engine.submit([1], priority="high")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="submit: expected an option of max_tokens"):
        engine.submit([1], heat=1)  # type: ignore[call-arg]
    # A text that fills all pages ends there.
    full = engine.submit([1] * 10, ignore_end=True)
    full.read()
    assert (full.finish, len(full.tokens)) == ("context", 7)
    waiting = engine.submit([1])
    engine.close()
    engine.close()
    assert (waiting.finish, waiting.read()) == ("closed", "")
    with pytest.raises(InvalidHandleError, match=r"Engine.submit: expected an open engine"):
        engine.submit([1])


def test_recurrent_models_and_gcus_are_refused(
    host: Device, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recurrent = Model.load(make_model(tmp_path / "rwkv5", "rwkv5").folder, device=host)
    with pytest.raises(NotSupportedError, match="which is recurrent"):
        Engine(recurrent)
    request.getfixturevalue("simulated")("tops-sim")
    with Device(0, backend="tops") as device:
        model = Model.load(make_model(tmp_path / "llama").folder, device=device)
        with pytest.raises(NotSupportedError, match="a device with attention over pages"):
            Engine(model)


def test_a_model_generates_several_texts(host: Device, tmp_path: Path) -> None:
    model = a_model(tmp_path, "llama", host, context=64)
    job: dict[str, Any] = {"max_tokens": 5, "ignore_end": True}
    found = model.generate([[1, 2], [3], [4, 5, 6]], **job)
    assert [one.read() for one in found] == [
        lone(model, {"prompt": prompt, **job})[2] for prompt in ([1, 2], [3], [4, 5, 6])
    ]
    one, other = model.generate(["AB", "C"], **job)
    assert (one.prompt_tokens, other.prompt_tokens) == (2, 1)
    other.close()
    assert one.read() and other.finish == "closed"


@pytest.mark.usefixtures("host")
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the published model is not there: {FOLDER}")
def test_the_published_model_says_the_same_in_every_way() -> None:
    model = Model.load(FOLDER)
    count = len(tokens()) - 1
    with Engine(model, sequences=4, page_size=8, speculate=4, step_tokens=64) as engine:
        alone = engine.submit([1], max_tokens=count)
        assert alone.read() == TEXT
        assert engine.stats().accepted_tokens > 0
        begun = engine.submit(tokens()[:100], max_tokens=count - 99)
        others = [engine.submit("Lily and Tom", max_tokens=40) for _ in range(2)]
        engine.step()
        fork = engine.fork(begun, max_tokens=count - 99 - len(begun.tokens))
        assert begun.read() and begun.reused_tokens == 96
        fork.read()
        assert tokens()[:100] + begun.tokens == tokens()
        assert fork.tokens == tokens()[-len(fork.tokens) :]
        assert others[0].read() == others[1].read()
    assert [one.read() for one in model.generate([[1], [1]], max_tokens=count)] == [TEXT, TEXT]

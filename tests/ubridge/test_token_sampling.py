"""The choice of the next token, against its definition and transformers' processors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge import sampling_in_numpy as by_numpy
from tests.ubridge.kernel_bench import Output, run
from ubridge.models.text import Sampler, Sampling
from uhal import Device, DeviceBuffer
from uhal.errors import ArgumentTypeError, ArgumentValueError

DEVICES = ("host", "cuda-sim", "rocm-sim", "tops-sim", "opencl")
VOCABULARY = 200
Array = npt.NDArray[Any]


def random_sampling(rng: np.random.Generator, **fixed: Any) -> Sampling:
    """Return a random combination of rules; each rule is off in half of the cases."""

    def maybe(value: Any, off: Any) -> Any:
        return value if rng.integers(0, 2) else off

    values = {
        "temperature": maybe(float(rng.uniform(0.3, 2)), 1.0),
        "top_k": maybe(int(rng.integers(1, VOCABULARY + 9)), None),
        "top_p": maybe(float(rng.uniform(0.05, 1)), 1.0),
        "min_p": maybe(float(rng.uniform(0, 0.5)), 0.0),
        "repetition_penalty": maybe(float(rng.uniform(0.7, 1.6)), 1.0),
        "repetition_window": maybe(int(rng.integers(0, 60)), None),
        "presence_penalty": maybe(float(rng.uniform(-1, 2)), 0.0),
        "frequency_penalty": maybe(float(rng.uniform(-0.5, 1)), 0.0),
        "seed": int(rng.integers(0, 2**40)),
    }
    return Sampling(**{**values, **fixed})


def reference(
    logits: Array, sampling: Sampling, prompt: list[int], made: list[int], even: float
) -> int:
    """Choose a token by the definition, one token at a time."""
    x = [float(one) for one in logits]
    everything = prompt + made
    window = len(everything) if sampling.repetition_window is None else sampling.repetition_window
    for token in set(everything[len(everything) - min(window, len(everything)) :]):
        penalty = sampling.repetition_penalty
        x[token] = x[token] / penalty if x[token] >= 0 else x[token] * penalty
    for token in made:
        x[token] -= sampling.frequency_penalty
    for token in set(made):
        x[token] -= sampling.presence_penalty
    if sampling.temperature == 0:
        return x.index(max(x))
    x = [one / sampling.temperature for one in x]
    kept = sorted(range(len(x)), key=lambda token: (-x[token], token))
    if sampling.top_k is not None:
        last = x[kept[min(sampling.top_k, len(kept)) - 1]]
        kept = [token for token in kept if x[token] >= last]
    weight = {token: math.exp(x[token] - x[kept[0]]) for token in kept}
    if sampling.top_p < 1:
        total, above, reached = math.fsum(weight.values()), 0.0, []
        for token in kept:
            # Equal logits are kept or dropped together.
            if above >= sampling.top_p * total and x[token] < x[reached[-1]]:
                break
            reached.append(token)
            above += weight[token]
        kept = reached
    kept = [token for token in kept if weight[token] >= sampling.min_p]
    goal, total = even * math.fsum(weight[token] for token in kept), 0.0
    for token in sorted(kept):
        total += weight[token]
        if total > goal:
            return token
    return max(kept)


def nearly(
    logits: Array, sampling: Sampling, prompt: list[int], made: list[int], even: float
) -> set[int]:
    """Return the tokens that the definition allows within an f32 rounding, mostly one token."""
    found = set()
    for error in (0.0, 1e-5, -1e-5):
        near = {"top_p": sampling.top_p, "min_p": sampling.min_p}
        if sampling.top_p < 1:
            near["top_p"] *= 1 + error
        near["min_p"] *= 1 + error
        for other in (0.0, 1e-5, -1e-5):
            at = min(max(even + other, 0.0), 1.0)
            found.add(reference(logits, replace(sampling, **near), prompt, made, at))
    return found


def random_logits(rng: np.random.Generator, size: int = VOCABULARY) -> Array:
    logits = rng.normal(0, 2, size).astype(np.float32)
    if rng.integers(0, 3) == 0:
        logits = np.round(logits)  # many logits are equal
    if rng.integers(0, 4) == 0:
        logits[rng.integers(0, size, size // 4)] = -np.inf
    return logits


def test_tokens_are_those_of_the_definition(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(15, 150) if device.backend == "host" else 4):
        sampling = random_sampling(rng)
        prompt = rng.integers(0, VOCABULARY, rng.integers(0, 40)).tolist()
        sampler, numbers = Sampler(sampling, prompt), ub.Generator(sampling.seed)
        made: list[int] = []
        # The kernel sorts 3000 in several parts, and adds them in several runs.
        size = int(rng.choice([VOCABULARY, 3000]))
        for _ in range(4):
            logits = random_logits(rng, size)
            even = float(ub.rand((), "f64", seed=numbers, device="host").to_numpy())
            given = sampler.choose(ub.asarray(logits))
            assert given in nearly(logits, sampling, prompt, made, even), sampling
            made.append(given)
        assert sampler.tokens == prompt + made
        assert sampler.seed == sampling.seed


def extreme_sampling(rng: np.random.Generator) -> Sampling:
    """Return rules whose values are at the ends of their ranges."""
    return random_sampling(
        rng,
        temperature=float(rng.choice([0.0, 2e-7, 0.7, 1.0, 1e6, math.inf])),
        top_k=None if rng.integers(0, 2) else int(rng.choice([1, 2, VOCABULARY, 2**30])),
        top_p=float(rng.choice([1e-300, 2.0**-53, 0.5, 1 - 2.0**-53, 1.0])),
        min_p=float(rng.choice([0.0, 1e-300, 0.5, 1.0])),
        repetition_penalty=float(rng.choice([1.0, 1e-30, 1e9])),
        seed=(0, 2**32, 2**64 - 1)[rng.integers(0, 3)],
    )


def extreme_logits(rng: np.random.Generator, size: int) -> Array:
    logits = random_logits(rng, size)
    others = (0.0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-42, -1e-42)
    count = int(rng.integers(0, 5))
    logits[rng.integers(0, size, count)] = rng.choice(others, count)
    with np.errstate(over="ignore"):
        return logits * np.float32(rng.choice([1e-30, 1e-3, 1.0, 30.0]))


def test_the_token_is_that_of_whole_numbers(device: Device, rng: np.random.Generator) -> None:
    """Every device chooses the same token for any logits: ties, infinities, extreme values."""
    is_host = device.backend in ("host", "tops")
    for index in range(rounds(60, 600) if is_host else 6):
        sampling = (random_sampling, extreme_sampling)[index % 2](rng)
        prompt = rng.integers(0, VOCABULARY, rng.integers(0, 40)).tolist()
        sampler = Sampler(sampling, prompt)
        size = int(rng.choice([VOCABULARY, VOCABULARY + 1, 3000]))
        for position in range(3):
            logits = (random_logits, extreme_logits)[index % 2](rng, size)
            made = sampler.tokens[len(prompt) :]
            values = by_numpy.scores(logits, sampling, sampler.tokens, made)
            expected = by_numpy.chosen(values, sampling, sampler.seed, position)
            try:
                found = sampler.choose(ub.asarray(logits))
            except ArgumentValueError:
                found = -1
            assert found == expected, (sampling, position)


def test_weights_of_the_kernel_are_those_whole_numbers(
    device: Device, rng: np.random.Generator
) -> None:
    if device.backend == "tops":
        pytest.skip("GCUs have no such kernel")
    size = 1000
    logits = np.append(extreme_logits(rng, 100), rng.uniform(-40, 0, size - 100)).astype(np.float32)
    logits[logits == np.inf] = 0
    keys, weights, chosen = Output("u32", size), Output("u64", size), Output("i64", 1)
    run(
        device,
        "sampling",
        "sample_f32",
        size,
        DeviceBuffer.from_numpy(logits),
        keys.buffer,
        weights.buffer,
        1.0,
        1.0,
        1.0,
        0.0,
        0.0,
        None,
        None,
        1,
        0,
        0,
        0,
        -math.inf,
        True,
        int(rng.integers(0, 2**63)),
        0,
        chosen.buffer,
        grid=1,
        block=128,
    )
    np.testing.assert_array_equal(weights.to_numpy(), by_numpy.weights(logits))
    assert 0 <= chosen.to_numpy()[0] < size and keys.to_numpy().size == size


def test_weights_are_powers_of_e(rng: np.random.Generator) -> None:
    below = np.append(0, rng.uniform(0, 27, 100_000)).astype(np.float32)
    found = by_numpy.weights(-below).astype(np.float64)
    exact = 2.0**40 * np.exp(-below.astype(np.float64))
    # Errors come from the polynomial (2^-28), the exponent (2^-26) and the final rounding down.
    assert np.all(np.abs(found - exact) <= exact * 2.0**-25 + 1)
    assert np.all(by_numpy.weights(np.float32([0, -28, -31.9, -32, -1e30, -np.inf]))[1:] == 0)


def test_at_no_temperature_the_first_of_the_largest(
    device: Device, rng: np.random.Generator
) -> None:
    for penalty in (1.0, 1.3):
        sampling = Sampling(repetition_penalty=penalty, frequency_penalty=penalty - 1)
        prompt = rng.integers(0, VOCABULARY, 20).tolist()
        sampler = Sampler(sampling, prompt)
        made: list[int] = []
        for _ in range(4):
            logits = np.round(random_logits(rng))
            made.append(reference(logits, sampling, prompt, made, 0.0))
            assert sampler.choose(ub.asarray(logits)) == made[-1]


@pytest.mark.usefixtures("host")
def test_a_seed_gives_the_same_and_none_does_not(rng: np.random.Generator) -> None:
    logits = ub.asarray(rng.normal(0, 0.1, VOCABULARY).astype(np.float32))

    def drawn(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        return [sampler.choose(logits) for _ in range(30)]

    assert drawn(5) == drawn(5) != drawn(6)
    assert drawn(None) != drawn(None)


@pytest.mark.usefixtures("host")
def test_the_least_probable_is_left_out_by_one_below_the_vocabulary(
    host: Device, rng: np.random.Generator
) -> None:
    logits = rng.permutation(np.array([0.0, 0.01, 0.02], np.float32))
    least = int(logits.argmin())
    for top_k in (1, 2, 3, 4, None):
        sampler = Sampler(Sampling(temperature=1.0, top_k=top_k, seed=int(rng.integers(1 << 30))))
        drawn = {sampler.choose(ub.asarray(logits, device=host)) for _ in range(60)}
        # each of three tokens has a third: 60 draws miss a token once in 10^10 times
        assert len(drawn) == min(top_k or 3, 3) and (least in drawn) == (top_k not in (1, 2))


@pytest.mark.usefixtures("host")
def test_draws_follow_the_probabilities(rng: np.random.Generator) -> None:
    logits = rng.normal(0, 1, 8).astype(np.float32)
    sampler = Sampler(Sampling(temperature=0.7, seed=int(rng.integers(0, 2**60))))
    count = rounds(2000, 20000)
    tensor = ub.asarray(logits)
    found = np.bincount([sampler.choose(tensor) for _ in range(count)], minlength=8) / count
    expected = np.exp(logits / 0.7)
    expected /= expected.sum()
    # Allow 5 deviations of a binomial count, and 4 more counts, since rare counts are not normal.
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected / count) + 4 / count)


@pytest.mark.usefixtures("host")
def test_a_hook_sees_tokens_and_changes_logits(rng: np.random.Generator) -> None:
    seen: list[list[int]] = []
    mask = np.full(VOCABULARY, -np.inf, np.float32)
    mask[[3, 9]] = 0

    def hook(logits: ub.DeviceTensor, tokens: Any) -> ub.DeviceTensor:
        seen.append(list(tokens))
        return logits + ub.asarray(mask)

    sampler = Sampler(Sampling(temperature=1.0), [1, 2], hook)
    logits = rng.normal(0, 1, (20, VOCABULARY)).astype(np.float32)
    made = [sampler.choose(ub.asarray(row)) for row in logits]
    assert set(made) <= {3, 9}
    assert seen[0] == [1, 2] and seen[2] == [1, 2, *made[:2]]


@pytest.mark.parametrize("penalty", [1.0, 1.2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_say_nothing_are_refused(
    device: Device, rng: np.random.Generator, temperature: float, penalty: float
) -> None:
    """The sampler refuses a NaN anywhere and logits that are all -infinity, even without a draw."""
    sampling = Sampling(temperature=temperature, repetition_penalty=penalty)
    sampler = Sampler(sampling, [1])
    broken = [np.full(VOCABULARY, -np.inf, np.float32), random_logits(rng)]
    broken[1][rng.integers(0, VOCABULARY)] = np.nan
    for logits in broken:
        with pytest.raises(ArgumentValueError, match="expected logits with a number among them"):
            sampler.choose(ub.asarray(logits))
    assert sampler.tokens == [1]
    logits = broken[0]
    logits[7] = -1e30
    assert sampler.choose(ub.asarray(logits)) == 7
    # In a view the largest logit has another place in the buffer.
    wide = np.full((VOCABULARY, 3), -np.inf, np.float32)
    wide[:, 1] = logits
    if device.backend != "tops":
        assert sampler.choose(ub.asarray(wide)[:, 1]) == 7


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_hook_returns_as_many_logits(rng: np.random.Generator, temperature: float) -> None:
    given = ub.asarray(random_logits(rng))
    for count in (0, 1, VOCABULARY - 1, VOCABULARY + 1):
        wrong = ub.zeros(count)
        sampler = Sampler(Sampling(temperature=temperature), [1], lambda *_, wrong=wrong: wrong)
        with pytest.raises(ArgumentValueError, match=f"hook: expected .*, 200, got {count}"):
            sampler.choose(given)
    as_numpy: Any = lambda *_: random_logits(rng)  # noqa: E731
    with pytest.raises(ArgumentTypeError, match="expected logits as a DeviceTensor, or None"):
        Sampler(Sampling(temperature=temperature), [1], as_numpy).choose(given)
    assert sampler.tokens == [1]
    column = Sampler(Sampling(temperature=temperature), [1], lambda x, _: x.reshape(-1, 1))
    assert 0 <= column.choose(given) < VOCABULARY


def test_logits_may_come_from_anywhere(device: Device, rng: np.random.Generator) -> None:
    """A hook may return a view, halves or another device's tensor; its values decide the token."""
    sampling = Sampling(temperature=0.8, repetition_penalty=1.2, seed=int(rng.integers(0, 2**60)))
    logits = random_logits(rng).astype(np.float16)
    wide = np.stack([random_logits(rng).astype(np.float16), logits])
    forms = [
        ub.asarray(logits.astype(np.float32)),
        ub.asarray(wide)[1],
        ub.asarray(logits.astype(np.float32), device="host"),
    ]
    found = set()
    for form in forms:
        sampler = Sampler(sampling, [3, 1], lambda given, tokens, form=form: form)
        first = ub.zeros((VOCABULARY,), device=device)
        found.add((sampler.choose(first), sampler.choose(first)))
    assert len(found) == 1
    sampler = Sampler(sampling, [1], lambda given, tokens: given[:7] if tokens[1:] else None)
    sampler.choose(first)
    with pytest.raises(ArgumentValueError, match=f"{VOCABULARY}, got 7"):
        sampler.choose(first)


@pytest.mark.usefixtures("host")
def test_logits_without_a_number_are_refused() -> None:
    for value in (-np.inf, np.nan):
        sampler = Sampler(Sampling(temperature=1.0))
        with pytest.raises(ArgumentValueError, match="all are -infinity, or one is NaN"):
            sampler.choose(ub.asarray(np.full(5, value, np.float32)))
    certain = np.array([0, np.inf, 0], np.float32)
    assert Sampler(Sampling(temperature=1.0, top_p=0.9)).choose(ub.asarray(certain)) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -0.1}, "temperature: expected at least 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature: expected at least 0"),
        ({"temperature": "1"}, "temperature: expected a number, got str"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"top_k": 1.5}, "top_k: expected an int, got float"),
        ({"top_p": 0}, "top_p: expected more than 0"),
        ({"top_p": 1.01}, "top_p: expected more than 0, at most 1, got 1.01"),
        ({"min_p": 2}, "min_p: expected 0 to 1, got 2"),
        ({"repetition_penalty": 0}, "repetition_penalty: expected more than 0"),
        ({"repetition_window": -1}, "repetition_window: expected at least 0"),
        ({"seed": True}, "seed: expected an int, got bool"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=says):
        Sampling(**options)


def test_transformers_keeps_the_same(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    for _ in range(rounds(100, 1000)):
        sampling = random_sampling(rng, repetition_window=None)
        prompt = rng.integers(0, VOCABULARY, 30).tolist()
        logits = rng.normal(0, 2, VOCABULARY).astype(np.float32)
        steps = [
            process.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty),
            process.TemperatureLogitsWarper(sampling.temperature),
        ]
        if sampling.top_k is not None:
            steps.append(process.TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            steps.append(process.TopPLogitsWarper(sampling.top_p))
        if sampling.min_p > 0:
            steps.append(process.MinPLogitsWarper(sampling.min_p))
        scores = torch.tensor(logits, dtype=torch.float64)[None]
        for step in steps:
            scores = step(torch.tensor([prompt]), scores)
        theirs = np.flatnonzero(np.isfinite(scores.numpy()[0]))
        ours = by_numpy.scores(logits, sampling, prompt, [])
        kept = np.flatnonzero(ours >= by_numpy.least_kept(ours, sampling))
        assert kept.tolist() == theirs.tolist(), sampling

"""The next token, chosen from logits: penalties, temperature, top-k, top-p, min-p, a draw.

In the order of `transformers`, each on what the one before it left:

1. The repetition penalty p (Keskar et al., "CTRL", 2019) divides the logits above 0 of tokens seen
   in the last `repetition_window` tokens, prompt included, by p, and multiplies the others.
2. OpenAI's penalties are subtracted from those of tokens generated: the presence penalty once, the
   frequency penalty as often as each occurred.
3. The temperature divides all. At 0 the largest is chosen, of equal ones the first: that is all.
4. Top-k (Fan, Lewis and Dauphin, 2018) keeps the k largest, and what equals the last of them.
5. Top-p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019) keeps a token when
   those above it have together less than p of what is left; equal ones stay or go together.
6. Min-p (Nguyen et al., "Turning Up the Heat", 2024) keeps what has at least p of the largest's
   probability.

Each rule keeps what is above some logit, so the highest of the three decides. The draw takes a
number u, 0 <= u < 1, of `ubridge.Generator`: the token at which the probabilities summed up in the
order of their ids first exceed u.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

import ubridge as ub
from uhal.errors import ArgumentTypeError, ArgumentValueError

Logits = npt.NDArray[np.float32]
Hook = Callable[[ub.DeviceTensor, Sequence[int]], "ub.DeviceTensor | None"]
"""Called with the logits and all tokens before them; returns others, or none to keep them."""
GREEDY = 1e-7
"""Temperatures below choose the largest, as Candle has it."""
_FIRST_SORTED = 256
_RUN = 1024


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; as it stands, the most probable one."""

    temperature: float = 0.0
    """0 for the most probable token; 1 draws by the model's own probabilities."""
    top_k: int | None = None
    """Only the k most probable; None for all."""
    top_p: float = 1.0
    """Only the most probable that have together this probability; 1 for all."""
    min_p: float = 0.0
    """Only what has this part of the most probable one's probability; 0 for all."""
    repetition_penalty: float = 1.0
    repetition_window: int | None = None
    """Tokens looked back for repetitions; None for all."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """The same seed gives the same text on one backend and version; None for a new one."""

    def __post_init__(self) -> None:
        """Raise `ArgumentTypeError` or `ArgumentValueError` for values that cannot be."""
        for name, least, most, what in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ArgumentTypeError(f"{name}: expected a number, got {type(value).__name__}")
            if not least <= float(value) <= most:
                raise ArgumentValueError(f"{name}: expected {what}, got {value}")
        if self.top_p == 0:
            raise ArgumentValueError("top_p: expected more than 0, at most 1, got 0")
        if self.repetition_penalty == 0:
            raise ArgumentValueError("repetition_penalty: expected more than 0, got 0")
        for name in ("top_k", "repetition_window", "seed"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ArgumentTypeError(f"{name}: expected an int, got {type(value).__name__}")
            least = 1 if name == "top_k" else 0
            if value < least:
                raise ArgumentValueError(f"{name}: expected at least {least}, got {value}")

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature < GREEDY

    @property
    def has_penalties(self) -> bool:
        """Whether it matters what came before."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


_RANGES = (
    ("temperature", 0.0, math.inf, "at least 0"),
    ("top_p", 0.0, 1.0, "more than 0, at most 1"),
    ("min_p", 0.0, 1.0, "0 to 1"),
    ("repetition_penalty", 0.0, 1e9, "more than 0"),
    ("presence_penalty", -1e9, 1e9, "a finite number"),
    ("frequency_penalty", -1e9, 1e9, "a finite number"),
)


class Sampler:
    """Chooses one token after another for one text. One thread at a time may use it."""

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int] = (), hook: Hook | None = None
    ) -> None:
        """Begin behind a prompt, which counts as seen but not as generated."""
        self._sampling = sampling
        self._generator = ub.Generator(sampling.seed)
        self._hook = hook
        self.tokens = list(prompt)
        """The prompt and what was chosen since."""
        self._generated: Counter[int] = Counter()

    @property
    def seed(self) -> int:
        """What the draws come from: `sampling.seed`, or one of its own."""
        return self._generator.seed

    def choose(self, logits: ub.DeviceTensor) -> int:
        """Return the next token: f32 logits, one for each token of the vocabulary.

        Raises `ArgumentValueError` where all are -infinity, or one is no number.
        """
        if self._hook is not None:
            changed = self._hook(logits, self.tokens)
            logits = logits if changed is None else changed
        sampling = self._sampling
        if sampling.is_greedy and not sampling.has_penalties:
            # One token crosses to the host.
            token = int(ub.argmax(logits).to_numpy())
        else:
            token = self._chosen(np.array(logits.to_numpy(), np.float32))
        self.tokens.append(token)
        self._generated[token] += 1
        return token

    def _chosen(self, logits: Logits) -> int:
        sampling = self._sampling
        if sampling.has_penalties:
            self._penalize(logits)
        if sampling.is_greedy:
            return int(np.argmax(logits))
        logits /= np.float32(sampling.temperature)
        return drawn(logits, threshold(logits, sampling), self._even())

    def _penalize(self, logits: Logits) -> None:
        """Lower the logits of tokens that occurred."""
        sampling = self._sampling
        if sampling.repetition_penalty != 1:
            window = sampling.repetition_window
            recent = (
                self.tokens if window is None else self.tokens[max(len(self.tokens) - window, 0) :]
            )
            seen = np.unique(np.array(recent, np.int64))
            found = logits[seen]
            penalty = sampling.repetition_penalty
            logits[seen] = np.where(found < 0, found * penalty, found / penalty)
        if self._generated and (sampling.presence_penalty or sampling.frequency_penalty):
            tokens = np.fromiter(self._generated, np.int64)
            counts = np.fromiter(self._generated.values(), np.float64)
            logits[tokens] -= sampling.presence_penalty + sampling.frequency_penalty * counts

    def _even(self) -> float:
        """Return the next number of 53 bits, 0 <= u < 1, as `ubridge.rand` of f64 makes it."""
        upper, lower = map(int, self._generator.words(2))
        return ((upper << 21) + (lower >> 11)) * 2.0**-53


def threshold(logits: Logits, sampling: Sampling) -> float:
    """Return the least logit that top-k, top-p and min-p keep."""
    best = float(logits.max(initial=-math.inf))
    if not best > -math.inf:
        raise ArgumentValueError(
            "sample: expected logits with a number among them; all are -infinity, or one is NaN"
        )
    least = -math.inf
    if sampling.top_k is not None and sampling.top_k < logits.size:
        least = float(np.partition(logits, -sampling.top_k)[-sampling.top_k])
    if sampling.top_p < 1:
        least = _reaching(logits[logits >= least], best, sampling.top_p)
    if sampling.min_p > 0:
        least = max(least, min(best, best + math.log(sampling.min_p)))
    return least


def _reaching(logits: Logits, best: float, share: float) -> float:
    """The least of the largest logits that have together a share of what all have."""
    wanted = share * float(_weights(logits, best).sum(dtype=np.float64))
    count = _FIRST_SORTED
    while True:
        # Most texts go on with few: not all need be put in order.
        largest = logits if count >= logits.size else np.partition(logits, -count)[-count:]
        falling = -np.sort(-largest)
        sums = np.cumsum(_weights(falling, best), dtype=np.float64)
        if sums[-1] >= wanted or count >= logits.size:
            break
        count *= 8
    # Kept is what has less than the share above it.
    above = np.concatenate(([0.0], sums[:-1]))
    return float(falling[np.flatnonzero(above < wanted)[-1]])


def drawn(logits: Logits, least: float, even: float) -> int:
    """Return the token at which probabilities of logits not below `least` first exceed `even`."""
    weights = _weights(logits, float(logits.max()))
    if least > -math.inf:
        weights *= logits >= least
    # Sums of runs first, then those within the one that is met.
    starts = np.arange(0, weights.size, _RUN)
    runs = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    goal = even * runs[-1]
    run = min(int(np.searchsorted(runs, goal, side="right")), len(runs) - 1)
    within = weights[run * _RUN : (run + 1) * _RUN]
    sums = np.cumsum(within, dtype=np.float64) + (runs[run - 1] if run else 0.0)
    offset = int(np.searchsorted(sums, goal, side="right"))
    # Roundings may leave the goal a little beyond the last that has any probability.
    last = int(np.flatnonzero(within)[-1])
    return run * _RUN + min(offset, last)


def _weights(logits: Logits, best: float) -> Logits:
    """Probabilities, of which the largest is 1."""
    if best == math.inf:
        sure: Logits = (logits == math.inf).astype(np.float32)
        return sure
    found: Logits = np.exp(logits - np.float32(best))
    return found

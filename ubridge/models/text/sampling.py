"""The next token, chosen from logits: penalties, temperature, top-k, top-p, min-p, a draw.

The steps have the order of `transformers`; each uses the previous result:

1. The repetition penalty p (Keskar et al., "CTRL", 2019) applies to tokens seen in the last
   `repetition_window` tokens, prompt included. Logits above 0 are divided by p, others
   multiplied.
2. OpenAI's penalties are subtracted from the logits of generated tokens: the presence penalty once,
   the frequency penalty once for each occurrence.
3. The temperature divides all logits. At 0 the first of the largest logits is chosen, and no later
   step runs.
4. Top-k (Fan, Lewis and Dauphin, 2018) keeps the k largest, and logits equal to the last of them.
5. Top-p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019) adds up the
   remaining probabilities, largest first, and keeps tokens until the sum reaches p. Tokens of equal
   probability are kept or dropped together.
6. Min-p (Nguyen et al., "Turning Up the Heat", 2024) keeps tokens with at least p of the largest
   probability.

Each rule keeps tokens above some logit, so the highest of the three thresholds decides. The draw
takes a number u, 0 <= u < 1, of `ubridge.Generator`. It sums up probabilities in the order of ids
and chooses the token where the sum first exceeds u. Probabilities are whole numbers, computed as in
`ubridge/kernels/sampling.cu`, so that every device draws the same token from the same logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ubridge.core.fits import require
from uhal.errors import ArgumentTypeError

GREEDY = 1e-7
"""Lower temperatures choose the largest, as in Candle."""


@dataclass(frozen=True)
class Sampling:
    """Settings for choosing the next token; the default is the most probable token."""

    temperature: float = 0.0
    """0 for the most probable token; 1 draws by the model's own probabilities."""
    top_k: int | None = None
    """Only the k most probable; None for all."""
    top_p: float = 1.0
    """Only the most probable tokens with this total probability; 1 for all."""
    min_p: float = 0.0
    """Keeps tokens with at least this fraction of the largest probability; 0 keeps all."""
    repetition_penalty: float = 1.0
    repetition_window: int | None = None
    """Number of last tokens checked for repetitions; None for all."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """The same seed gives the same text on one backend and version; None for a fresh seed."""

    def __post_init__(self) -> None:
        """Raise `ArgumentTypeError` or `ArgumentValueError` for impossible values."""
        for name, least, most, what in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ArgumentTypeError(f"{name}: expected a number, got {type(value).__name__}")
            require(
                least <= float(value) <= most,
                f"{name}: expected {what}, got {value}",
            )
        require(
            self.top_p != 0,
            "top_p: expected more than 0, at most 1, got 0",
        )
        require(
            self.repetition_penalty != 0,
            "repetition_penalty: expected more than 0, got 0",
        )
        for name in ("top_k", "repetition_window", "seed"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ArgumentTypeError(f"{name}: expected an int, got {type(value).__name__}")
            least = 1 if name == "top_k" else 0
            require(
                value >= least,
                f"{name}: expected at least {least}, got {value}",
            )

    @property
    def is_greedy(self) -> bool:
        """Whether no random number is used."""
        return self.temperature < GREEDY

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the choice."""
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

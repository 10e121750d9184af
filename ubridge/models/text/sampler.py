"""`Sampler`: chooses the tokens of a text from logits, on their device."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.device.host import HOST
from ubridge.models.text.sampling import Sampling
from uhal import Device, DeviceBuffer, DType
from uhal.device import as_device
from uhal.dtypes import f32, i64, u32, u64
from uhal.errors import ArgumentTypeError, ArgumentValueError

Hook = Callable[[ub.DeviceTensor, Sequence[int]], ub.DeviceTensor | None]
"""Called with the logits and all earlier tokens; returns new logits, or None to keep them."""
_MODULE = "sampling"
_LEAST_FACTOR, _MOST = 2.0**-126, float(np.finfo(np.float32).max)
"""Bounds of f32 factors: a product of 0 and infinity would be NaN."""
_TOKENS_OF_A_WORK_ITEM = 8


class Sampler:
    """Chooses one token after another for one text. One thread at a time may use it.

    The device samples, and only the chosen token is copied to the host.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int] = (), hook: Hook | None = None
    ) -> None:
        """Begin after a prompt, which counts as seen but not as generated."""
        self._sampling = sampling
        self._generator = ub.Generator(sampling.seed)
        self._hook = hook
        self.tokens = list(prompt)
        """The prompt and the tokens chosen after it."""
        self._generated: Counter[int] = Counter()
        self._selection: Selection | None = None

    @property
    def seed(self) -> int:
        """Seed of the draws: `sampling.seed`, or a fresh seed."""
        return self._generator.seed

    def choose(self, logits: ub.DeviceTensor) -> int:
        """Return the next token: f32 logits, one for each token of the vocabulary.

        Raises `ArgumentValueError` if all are -infinity or any is NaN, and if the hook returns
        another number of logits.
        """
        if self._hook is not None:
            changed = self._hook(logits, self.tokens)
            logits = logits if changed is None else _as_many(changed, logits)
        require(
            logits.size,
            "sample: expected at least one logit, got none",
        )
        sampling = self._sampling
        if sampling.is_greedy and not sampling.has_penalties:
            token = _largest(logits)
        else:
            token = self._selected(logits)
        self.take(token)
        return token

    @property
    def is_largest(self) -> bool:
        """Whether `choose` returns the token of the largest logit."""
        sampling = self._sampling
        return self._hook is None and sampling.is_greedy and not sampling.has_penalties

    def take(self, token: int) -> None:
        """Note a token that was chosen elsewhere."""
        self.tokens.append(token)
        self._generated[token] += 1

    def _selected(self, logits: ub.DeviceTensor) -> int:
        selection = self._selection
        if selection is None:
            selection = Selection(self._sampling, logits, self.tokens, self._generated)
            self._selection = selection
        generator = self._generator
        position = 0 if self._sampling.is_greedy else generator.skip(1)
        return selection(logits, len(self.tokens), generator.seed, position)


class Selection:
    """Arguments of `sample_f32`, kept from one token to the next. One thread may use it.

    Sampling runs on the device of the logits and copies only the chosen token to the host. On
    devices without the kernel (GCUs) the host samples, on copies.
    """

    def __init__(
        self,
        sampling: Sampling,
        logits: ub.DeviceTensor,
        tokens: Sequence[int],
        generated: Mapping[int, int],
    ) -> None:
        """Begin after `tokens`; `generated` counts the generated ones among them."""
        is_there = _has_kernel(logits.device.backend)
        self._device: Device = logits.device if is_there else as_device(HOST)
        self._sampling = sampling
        self._size = size = logits.size
        function = ub.load_module(_MODULE, device=self._device).get_function("sample_f32")
        most = min(
            self._device.limits.max_threads_per_block, function.attributes.max_threads_per_block
        )
        wanted = max(32, size // _TOKENS_OF_A_WORK_ITEM)
        self._launch = function[1, min(most, 1 << (wanted.bit_length() - 1))]
        self._scratch = (self._empty(u32), self._empty(u64))
        self._seen = (None, None) if not sampling.has_penalties else self._noted(tokens, generated)
        self._chosen = DeviceBuffer.uninitialized(1, i64, device=self._device)

    def __call__(self, logits: ub.DeviceTensor, length: int, seed: int, position: int) -> int:
        """Return the token behind a text of some length, by the draw of a position.

        Raises `ArgumentValueError` if all logits are -infinity or any is NaN.
        """
        given = self._placed(logits)
        start = given.layout.start_offset
        sampling = self._sampling
        window = sampling.repetition_window
        draws = not sampling.is_greedy
        # Without a temperature only the largest is kept.
        top_k, top_p, min_p = (
            (sampling.top_k or 0, sampling.top_p, sampling.min_p) if draws else (0, 1.0, 1.0)
        )
        self._launch(
            self._size,
            given.buffer[start : start + self._size],
            *self._scratch,
            max(1 / sampling.temperature, _LEAST_FACTOR) if draws else 1.0,
            min(1 / sampling.repetition_penalty, _MOST),
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            *self._seen,
            length + 1,
            0 if window is None else max(length - window, 0),
            top_k if top_k < self._size else 0,
            0 if top_p == 1 else max(1, min(round(top_p * 2.0**64), 2**64 - 1)),
            math.log(min_p) if min_p else -math.inf,
            draws,
            seed,
            position,
            self._chosen,
        )
        token = int(self._chosen.to_numpy()[0])
        if token < 0:
            raise _no_number()
        return token

    def _placed(self, logits: ub.DeviceTensor) -> ub.DeviceTensor:
        """The logits in the form that the kernel expects."""
        require(
            logits.size == self._size,
            f"sample: expected as many logits each time, {self._size}, got {logits.size}",
        )
        if logits.device != self._device:
            logits = ub.asarray(logits.to_numpy(), device=self._device)
        return logits.astype(f32, copy=False).contiguous()

    def _noted(
        self, tokens: Sequence[int], generated: Mapping[int, int]
    ) -> tuple[DeviceBuffer, DeviceBuffer]:
        """Per token: text length at its last use, and its number of uses."""
        lengths, counts = (np.zeros(self._size, np.uint32) for _ in range(2))
        np.maximum.at(lengths, np.array(tokens, np.int64), np.arange(1, len(tokens) + 1))
        for token, count in generated.items():
            counts[token] = count
        found = [DeviceBuffer.from_numpy(one, device=self._device) for one in (lengths, counts)]
        return found[0], found[1]

    def _empty(self, dtype: DType) -> DeviceBuffer:
        return DeviceBuffer.uninitialized(self._size, dtype, device=self._device)


def _largest(logits: ub.DeviceTensor) -> int:
    """Return the first of the largest logits. Raises `ArgumentValueError` as `Sampler.choose`."""
    flat = logits if len(logits.shape) == 1 else logits.reshape(-1)
    if _has_kernel(flat.device.backend):
        token = int(ub.argmax(flat).to_numpy())
        # Read one number of the buffer: a view as a tensor takes ten times as long.
        at = flat.layout.start_offset + token * flat.layout.strides[0]
        value = float(flat.buffer[at : at + 1].to_numpy()[0])
    else:
        # GCUs' maximum ignores NaN; numpy's is NaN.
        values = flat.to_numpy()
        token = int(values.argmax())
        value = float(values[token])
    if not value > -math.inf:
        raise _no_number()
    return token


@cache
def _has_kernel(backend: str) -> bool:
    return _MODULE in ub.modules(backend)


def _as_many(changed: object, logits: ub.DeviceTensor) -> ub.DeviceTensor:
    """Return a hook's logits after a check of their number."""
    if not isinstance(changed, ub.DeviceTensor):
        raise ArgumentTypeError(
            f"hook: expected logits as a DeviceTensor, or None to keep them, got "
            f"{type(changed).__name__}"
        )
    require(
        changed.size == logits.size,
        f"hook: expected logits of the given size, {logits.size}, got {changed.size}",
    )
    return changed


def _no_number() -> ArgumentValueError:
    return ArgumentValueError(
        "sample: expected logits with a number among them; all are -infinity, or one is NaN"
    )

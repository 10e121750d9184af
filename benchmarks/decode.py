"""Many sequences at once: `python -m benchmarks.decode [MODEL]`.

It prints the memory of prompts that share a beginning, and the scheduler's time for a step. It also
prints the tokens per second of eight texts relative to one text, and the time of a step that
verifies eight drafts relative to a step without drafts. Without a model it makes a model of 22
million weights in Q4_K; `--shape 1.1B` makes one of TinyLlama's shape. Only ratios from one run are
compared, never times of two runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.llm_models import SHAPES, made
from ubridge.models import Engine, Model
from ubridge.models.paging import PagedCache
from ubridge.models.serving.request import Request
from ubridge.models.serving.scheduler import Scheduler
from ubridge.models.text.assembling import Assembler, Limits
from ubridge.models.text.sampler import Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.tokenizers.rwkv import WorldTokenizer
from uhal import Api

SHARED, TEXTS, TOKENS = 1024, 8, 32
SEQUENCES = 64
DRAFTS = 8
MOST_MEMORY, MOST_SCHEDULER, LEAST_TOGETHER, MOST_VERIFYING = 0.25, 50e-6, 2.5, 3.2


def main() -> None:
    """Print each figure with its gate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL")
    parser.add_argument("--shape", choices=SHAPES, default="22M", help="of a model that is made")
    options = parser.parse_args()
    Api.quick_init()
    told("memory of shared pages over separate", memory(), MOST_MEMORY, is_most=True)
    told("scheduler, s a step of 64 texts", scheduler(), MOST_SCHEDULER, is_most=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.gguf")
        model = Model.load(options.model or made(path, "Q4_K_M", SHAPES[options.shape]))
        words = {token: bytes([token % 255 + 1]) for token in range(1, model.vocabulary)}
        model.tokenizer = WorldTokenizer(words)
        told("tokens/s of 8 texts over one", together(model), LEAST_TOGETHER, is_most=False)
        told("a step with 8 drafts over one step", verifying(model), MOST_VERIFYING, is_most=True)


def told(what: str, value: float, gate: float, *, is_most: bool) -> None:
    """Print a figure beside its gate."""
    passes = value <= gate if is_most else value >= gate
    sign = "≤" if is_most else "≥"
    print(f"{what}: {value:.3g} ({sign} {gate:g}: {'passes' if passes else 'fails'})", flush=True)


def memory() -> float:
    """Return the pages of texts that share a prompt over the pages of separate caches."""
    size = 16
    prompt = list(range(SHARED))
    cache = PagedCache(TEXTS * (SHARED + TOKENS) // size, size)
    for text in range(TEXTS):
        sequence = cache.allocate([*prompt, text])
        cache.append(sequence, [*prompt, text][sequence.length :])
        cache.append(sequence, [text] * (TOKENS - 1))
        cache.wrote(sequence)
    return cache.counts.live / cache.pages


class NoDriver:
    """Replaces the engine for requests that nobody reads."""

    def advance(self, request: Request) -> None:
        """Never called."""

    def cancel(self, request: Request) -> None:
        """Never called."""


def scheduler() -> float:
    """Return the seconds of a step's bookkeeping for texts that decode.

    The result is the least mean over runs of 16 steps, because a page has 16 tokens. Texts of
    different lengths fill their pages in different steps.
    """
    size = 16
    cache = PagedCache(SEQUENCES * 80, size)
    steps = Scheduler(cache, SEQUENCES, SEQUENCES * 1024, 0)
    tokenizer = WorldTokenizer({1: b"a"})
    limits = Limits(ignore_end=True)
    requests = []
    for one in range(SEQUENCES):
        prompt = [one, *[1] * (900 + one)]
        text = Assembler(tokenizer, (), [1], limits, 10**9)
        sampler = Sampler(Sampling(), prompt)
        requests.append(Request(NoDriver(), prompt, limits, sampler, text, 0, one))
        steps.add(requests[-1])

    def step() -> float:
        # The thread's own time: other processes of the machine do not count.
        begin = time.thread_time()
        batch = steps.batch()
        middle = time.thread_time()
        for request in requests:
            request.take(1)
        settling = time.thread_time()
        steps.settle(batch)
        return middle - begin + time.thread_time() - settling

    # The first step reads the prompts.
    step()
    return min(sum(step() for _ in range(size)) / size for _ in range(16))


def together(model: Model) -> float:
    """Return the tokens per second of eight texts relative to one."""

    def rate(texts: int) -> float:
        with Engine(model, sequences=TEXTS, context=256) as engine:

            def run() -> None:
                requests = [
                    engine.submit([text + 1, 2, 3], max_tokens=TOKENS, ignore_end=True)
                    for text in range(texts)
                ]
                for request in requests:
                    request.read()

            run()
            return texts * TOKENS / least(run)

    return rate(TEXTS) / rate(1)


def verifying(model: Model) -> float:
    """Return the time of a step with eight drafts relative to none."""

    def step(drafts: int) -> float:
        with Engine(
            model,
            sequences=DRAFTS + 1,
            context=256,
            speculate=drafts,
            drafter=lambda: lambda tokens, most: [0] * most,
        ) as engine:

            def run() -> None:
                engine.submit([1, 2, 3], max_tokens=TOKENS, ignore_end=True).read()

            run()
            before = engine.stats().steps
            run()
            steps = engine.stats().steps - before
            return least(run) / steps

    return step(DRAFTS) / step(0)


def least(run: Callable[[], None], times: int = 3) -> float:
    """Return the least time of some runs in seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return min(found)


if __name__ == "__main__":
    main()

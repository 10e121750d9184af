"""Many sequences at once: `python -m benchmarks.decode [MODEL] [--peers PYTHON …]`.

It prints the memory of prompts that share a beginning, and the scheduler's time for a step. It also
prints the tokens per second of eight texts relative to one text, and the time of a step that
verifies eight drafts relative to a step without drafts. Without a model it makes a model of 22
million weights in Q4_K; `--shape 1.1B` makes one of TinyLlama's shape. Only ratios from one run are
compared, never times of two runs. With llama-cpp-python in an environment of `--peers`, eight texts
are also compared with llama.cpp's. `UHAL_HOST_THREADS=1` measures one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.llm import WAYS, Worker, python_with
from benchmarks.llm_models import SHAPES, TOKENS_TOGETHER, made
from ubridge.models import Engine, Model
from ubridge.models.paging import PagedCache
from ubridge.models.serving.request import Request
from ubridge.models.serving.scheduler import Scheduler
from ubridge.models.text.assembling import Assembler, Limits
from ubridge.models.text.sampler import Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.tokenizers.rwkv import WorldTokenizer
from uhal import Api

SHARED, TEXTS = 1024, 8
SEQUENCES = 64
DRAFTS = 8
MOST_MEMORY, MOST_SCHEDULER, MOST_VERIFYING = 0.25, 50e-6, 3.2
LEAST_TOGETHER = {1: 2.0, 2: 2.5}
"""By the number of threads."""


def main() -> None:
    """Print each figure with its gate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL")
    parser.add_argument("--shape", choices=SHAPES, default="22M", help="of a model that is made")
    parser.add_argument("--peers", nargs="*", default=[], help="Pythons that have llama.cpp")
    options = parser.parse_args()
    threads = Api.quick_init().limits.processors
    told("memory of shared pages over separate", memory(), MOST_MEMORY, is_most=True)
    told("scheduler, s a step of 64 texts", scheduler(), MOST_SCHEDULER, is_most=True)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or made(Path(folder, "made.gguf"), "Q4_K_M", SHAPES[options.shape])
        model = Model.load(path)
        words = {token: bytes([token % 255 + 1]) for token in range(1, model.vocabulary)}
        model.tokenizer = WorldTokenizer(words)
        one, eight = rate(model, 1), rate(model, TEXTS)
        least = LEAST_TOGETHER[min(threads, 2)]
        told("tokens/s of 8 texts over one", eight / one, least, is_most=False)
        peer = python_with("llama_cpp", options.peers)
        if peer is not None:
            theirs = rate_of_llama_cpp(peer, path, threads)
            told("tokens/s of 8 texts over llama.cpp's", eight / theirs, 1, is_most=False)
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
    cache = PagedCache(TEXTS * (SHARED + TOKENS_TOGETHER) // size, size)
    for text in range(TEXTS):
        sequence = cache.allocate([*prompt, text])
        cache.append(sequence, [*prompt, text][sequence.length :])
        cache.append(sequence, [text] * (TOKENS_TOGETHER - 1))
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


def rate(model: Model, texts: int) -> float:
    """Return the tokens per second of some texts together."""
    with Engine(model, sequences=TEXTS, context=256) as engine:

        def run() -> None:
            requests = [
                engine.submit([text + 1, 2, 3], max_tokens=TOKENS_TOGETHER, ignore_end=True)
                for text in range(texts)
            ]
            for request in requests:
                request.read()

        run()
        return texts * TOKENS_TOGETHER / least(run)


def rate_of_llama_cpp(python: str, path: Path, threads: int) -> float:
    """Return llama.cpp's tokens per second of eight texts, by the faster of its layouts."""

    def best(way: str) -> float:
        with Worker(python, "llm_llama_cpp", path, threads, way) as worker:
            return min(worker.take("together", TEXTS) for _ in range(3))

    return TEXTS * TOKENS_TOGETHER / min(best(way) for way in WAYS["Q4_K_M"])


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
                engine.submit([1, 2, 3], max_tokens=TOKENS_TOGETHER, ignore_end=True).read()

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

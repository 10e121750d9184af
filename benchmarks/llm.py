"""A language model compared with llama.cpp, in turn: `python -m benchmarks.llm --peers PYTHON`.

The model has TinyLlama's shape and random weights, in a GGUF file that both programs read.
llama.cpp comes from llama-cpp-python with its own settings. It runs with and without interleaving
weights at loading, and the faster variant of each measurement counts. bf16 is also compared with
transformers on torch, and with this machine's memory bandwidth. A model of 22 million parameters
shows the overhead of a step outside its kernels. It also shows that a step's cost follows the
text's length, not the cache's capacity.

All processes stay alive and run in turn, so that a disturbance of the machine affects all of them.
The median of the turns' ratios counts. The exit status is 1 when a gate is missed.

    python -m benchmarks.llm --peers PYTHON … [--folder DIR] [--kinds Q4_K_M Q8_0 BF16]

Each library is searched in the environments of `--peers`, in order. `llama-cpp-python` is
to be built for this CPU, as benchmarks/quantized.py says. `--folder` keeps the files, 4 GB of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.llm_models import KINDS, SHAPES, Shape, made
from benchmarks.standing import Standing

Gate = dict[str, Any]
PROMPT, SHORT, WRITTEN, STEPS = 512, 32, 16, 30
"""Tokens of a prefill, a short prompt and a decoding turn; steps that measure a share of time."""
ROUNDS = {"first": 3, "prefill": 2, "decode": 5}
"""Turns of each kind of work."""
LEAST = {"decode": 1.0, "prefill": 0.9, "first": 1.0}
"""Least speed relative to llama.cpp's."""
OF_TRANSFORMERS, OF_BANDWIDTH = 1.5, 0.85
"""Shares of transformers' speed and of the bandwidth; bf16 must reach the lower of the two."""
MORE_MEGABYTES = 200
"""Most resident megabytes besides the file and the cache."""
OUTSIDE = {"1.1B": 0.03, "22M": 0.3}
"""The share of a step that may be spent outside of kernels."""
LONGER = 1.1
"""Most time of 128 tokens in a cache for 4096, relative to a cache for 128."""
WAYS = {"Q4_K_M": ("repacked", "plain"), "Q8_0": ("repacked",), "BF16": ("repacked",)}
"""llama.cpp's layouts of each kind's weights, where the layouts differ on x86."""
READ_BYTES = 512 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm")
    parser.add_argument("--peers", nargs="*", default=[], help="Pythons that have the others")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--folder", type=Path, help="where the files are kept; default: nowhere")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.shapes:
            for kind in options.kinds:
                path = made(folder / f"{name}-{kind}.gguf", kind, SHAPES[name])
                for gate in _gates(path, name, kind, options):
                    gates.append(gate)
                    print(_text(gate), file=sys.stderr if options.json else sys.stdout, flush=True)
                if options.folder is None:
                    path.unlink()
    if options.json:
        print(json.dumps({"gates": gates}))
    return 1 if any(_is_missed(gate) for gate in gates) else 0


def _gates(path: Path, name: str, kind: str, options: argparse.Namespace) -> Iterator[Gate]:
    for threads in options.threads:
        if name == "1.1B":
            yield from beside_others(path, kind, threads, options.peers)
        else:
            yield from alone(path, name, kind, threads)
    if name == "1.1B":
        yield memory_of(path, SHAPES[name], kind, max(options.threads))


# -- processes -------------------------------------------------------------------------------------


class Worker(Standing):
    """A process with the model in memory; it runs commands and answers with their times."""

    def __init__(self, python: str, module: str, path: Path, threads: int, way: str = "-") -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
        environment |= {
            **{"UHAL_HOST_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
            "OMP_WAIT_POLICY": "active",
        }
        command = [python, "-m", f"benchmarks.workers.{module}", str(path), str(threads), way]
        super().__init__(command, environment)

    def take(self, what: str, number: int = 0) -> float:
        """Return the answer: seconds, or another number."""
        return float(self.ask(f"{what} {number}"))


def python_with(library: str, pythons: Sequence[str]) -> str | None:
    """Return the first Python that has a library."""
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({library!r}) is None)"
    return next((p for p in pythons if subprocess.run([p, "-c", find]).returncode == 0), None)


# -- gates -----------------------------------------------------------------------------------------


def beside_others(path: Path, kind: str, threads: int, pythons: Sequence[str]) -> Iterator[Gate]:
    """Yield the gates of TinyLlama's shape for a file and a number of threads."""
    reported = f"{kind} {threads} thread{'s' * (threads > 1)}"
    with ExitStack() as stack:
        llama_cpp = python_with("llama_cpp", pythons)
        theirs = (
            {}
            if llama_cpp is None
            else {
                way: stack.enter_context(Worker(llama_cpp, "llm_llama_cpp", path, threads, way))
                for way in WAYS[kind]
            }
        )
        ours = stack.enter_context(Worker(sys.executable, "llm_ubridge", path, threads))
        every = {"ubridge": ours, **theirs}
        for worker in every.values():
            # The pages of the file are read before the measurement.
            worker.take("first", SHORT)
        first = _turns(every, "first", SHORT)
        prefill = _turns(every, "prefill", PROMPT)
        torch = python_with("transformers", pythons) if kind == "BF16" else None
        if torch is not None:
            beside = Worker(torch, "llm_transformers", path, threads, "1.1B")
            every["transformers"] = stack.enter_context(beside)
            beside.take("prefill", PROMPT)
            beside.take("decode", 1)
        if kind == "BF16":
            ours.take("bandwidth", READ_BYTES)
        decode = _turns(every, "decode", WRITTEN, reads=kind == "BF16")
        for what, found in (("decode", decode), ("prefill", prefill), ("first", first)):
            own = statistics.median(found["ubridge"])
            each = {"decode": WRITTEN, "prefill": PROMPT, "first": 0}[what]
            value = min((_ratio(found[way], found["ubridge"]) for way in theirs), default=None)
            yield {
                "what": f"{reported}: {what}{' token' * (what == 'first')} of llama.cpp's speed",
                "is": value,
                "least": LEAST[what],
                "note": f"{each / own:.1f} tokens/s" if each else f"{own:.3f} s",
            }
        if kind == "BF16":
            yield _bound_of_bf16(reported, path, decode)
        yield _outside(reported, "1.1B", ours)


def _turns(
    workers: Mapping[str, Worker], what: str, number: int, reads: bool = False
) -> dict[str, list[float]]:
    """Run the same work in each worker in turn, in several rounds; return all seconds."""
    taken: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(ROUNDS[what]):
        for name, worker in workers.items():
            taken[name].append(worker.take(what, number))
        if reads:
            rate = workers["ubridge"].take("bandwidth", READ_BYTES)
            taken.setdefault("bandwidth", []).append(rate)
    return taken


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    return statistics.median(one / own for one, own in zip(theirs, ours, strict=True))


def _bound_of_bf16(reported: str, path: Path, found: Mapping[str, Sequence[float]]) -> Gate:
    """Speed over the lesser of two bounds: shares of transformers' speed and the bandwidth."""
    shape = SHAPES["1.1B"]
    # A token reads one row of the embedding.
    read = path.stat().st_size - 2 * shape.vocabulary * shape.embedding
    pairs = zip(found["ubridge"], found["bandwidth"], strict=True)
    of_memory = statistics.median(WRITTEN * read / own / rate for own, rate in pairs)
    gate: Gate = {
        "what": f"{reported}: decode of the lesser of {OF_TRANSFORMERS} transformers and "
        f"{OF_BANDWIDTH} of the bandwidth",
        "is": None,
        "least": 1.0,
        "note": f"{of_memory:.2f} of the bandwidth",
    }
    if "transformers" in found:
        of_torch = _ratio(found["transformers"], found["ubridge"])
        gate["is"] = max(of_torch / OF_TRANSFORMERS, of_memory / OF_BANDWIDTH)
        gate["note"] += f", {of_torch:.2f} of transformers"
    return gate


def _outside(reported: str, name: str, worker: Worker) -> Gate:
    share = worker.take("outside", STEPS)
    what = f"{reported}: share of a step outside of kernels, {name}"
    return {"what": what, "is": share, "at_most": OUTSIDE[name]}


def alone(path: Path, name: str, kind: str, threads: int) -> Iterator[Gate]:
    """Yield the gates of a small model, which shows the overhead outside arithmetic."""
    reported = f"{kind} {threads} thread{'s' * (threads > 1)}"
    with Worker(sys.executable, "llm_ubridge", path, threads) as worker:
        worker.take("prefill", SHORT)
        worker.take("decode", WRITTEN)
        yield _outside(reported, name, worker)
        pairs = [[worker.take("length", room) for room in (4096, 128)] for _ in range(9)]
        value = statistics.median(long / short for long, short in pairs[1:])
        what = f"{reported}: 128 tokens in a cache for 4096 over one for 128, {name}"
        yield {"what": what, "is": value, "at_most": LONGER}


def memory_of(path: Path, shape: Shape, kind: str, threads: int) -> Gate:
    """Return the gate of the peak memory of a process that reads and writes a text."""
    with Worker(sys.executable, "llm_ubridge", path, threads) as worker:
        worker.take("prefill", PROMPT)
        worker.take("decode", WRITTEN)
        taken = worker.take("memory")
    cache = shape.cache_bytes(2 if kind == "BF16" else 4)
    return {
        "what": f"{kind}: memory besides the file and the cache, MB",
        "is": (taken - path.stat().st_size - cache) / 1e6,
        "at_most": MORE_MEGABYTES,
    }


def _is_missed(gate: Gate) -> bool:
    value = gate["is"]
    return value is not None and not (
        gate.get("least", value) <= value <= gate.get("at_most", value)
    )


def _text(gate: Gate) -> str:
    value = "-" if gate["is"] is None else f"{gate['is']:.2f}"
    wanted = f"≥ {gate['least']:.2f}" if "least" in gate else f"≤ {gate['at_most']:.2f}"
    note = f" ({gate['note']})" if "note" in gate else ""
    return f"{gate['what']:<78} {wanted:>8} {value:>7}{'  missed' * _is_missed(gate)}{note}"


if __name__ == "__main__":
    sys.exit(main())

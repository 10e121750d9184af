"""A language model beside llama.cpp, turn by turn: `python -m benchmarks.llm --peers PYTHON`.

The model has TinyLlama's shape and random weights, in one GGUF file that both read; llama.cpp is
that of llama-cpp-python, in the environment of `--peers`, with caches of f32 and without flash
attention. Both processes are alive at once and take turns, so that what disturbs the machine
disturbs both; the median of the turns' ratios counts. The exit status is 1 when a gate is missed.

    python -m benchmarks.llm --peers PYTHON [--kinds Q4_K Q8_0 BF16] [--threads 1 2] [--layers 22]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suites import ROOT

EMBEDDING, INNER, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 2048, 5632, 32, 4, 32000, 1024
PROMPT, SHORT, WRITTEN = 512, 32, 16
TURNS = 5
KINDS = {"Q4_K": ("q4_K", "q6_K"), "Q8_0": ("q8_0", "q8_0"), "BF16": (None, None)}
"""Names to the formats of matrices and of the head."""
GATES = {"decode": 1.0, "prefill": 0.9, "first token": 1.0}
"""The least that llama.cpp's time over ours may be."""
MORE_MEMORY = 200e6
"""Bytes that may be resident besides the file and the cache."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm")
    parser.add_argument("--peers", default="", help="a Python that has llama-cpp-python")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    gates: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            path = made(Path(folder) / f"{kind}.gguf", kind, options.layers)
            for threads in options.threads:
                gates += measured(path, kind, threads, options)
            path.unlink()
    if options.json:
        print(json.dumps({"gates": gates}))
    missed = [one for one in gates if one["is"] is not None and not one["least"] <= one["is"]]
    for one in missed:
        print(f"{one['what']}: {one['is']:.2f}, gate {one['least']}", file=sys.stderr)
    return 1 if missed else 0


def made(path: Path, kind: str, layers: int) -> Path:
    """Write the model. Layers have the same weights: what is read is as much, and drawn once."""
    import ubridge as ub
    from uhal import Device

    rng = np.random.default_rng(1)
    kinds = KINDS[kind]
    kept: dict[tuple[int, int, str | None], Any] = {}

    def matrix(rows: int, columns: int, format: str | None) -> Any:
        key = (rows, columns, format)
        if key not in kept:
            values = rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
            kept[key] = (
                ub.QuantizedWeight.from_numpy(values, format)
                if format
                else ub.asarray(values).astype("bf16")
            )
        return kept[key]

    with Device(0, backend="host"):
        ones = np.ones(EMBEDDING, np.float32)
        wide, of_keys = (EMBEDDING, EMBEDDING), (KV_HEADS * EMBEDDING // HEADS, EMBEDDING)
        shapes = {
            **{"attn_q": wide, "attn_k": of_keys, "attn_v": of_keys, "attn_output": wide},
            **{"ffn_gate": (INNER, EMBEDDING), "ffn_up": (INNER, EMBEDDING)},
            "ffn_down": (EMBEDDING, INNER),
        }
        tensors: dict[str, Any] = {
            "token_embd.weight": matrix(VOCABULARY, EMBEDDING, kinds[0]),
            "output.weight": matrix(VOCABULARY, EMBEDDING, kinds[1]),
            "output_norm.weight": ones,
        }
        for layer in range(layers):
            tensors |= {f"blk.{layer}.{one}_norm.weight": ones for one in ("attn", "ffn")}
            for name, shape in shapes.items():
                tensors[f"blk.{layer}.{name}.weight"] = matrix(*shape, kinds[0])
        ub.save(path, tensors, metadata=_metadata(layers))
    return path


def _metadata(layers: int) -> dict[str, Any]:
    width = EMBEDDING // HEADS
    numbers = {
        **{"block_count": layers, "context_length": CONTEXT, "embedding_length": EMBEDDING},
        **{"feed_forward_length": INNER, "attention.head_count": HEADS},
        **{"attention.head_count_kv": KV_HEADS, "rope.dimension_count": width},
        "vocab_size": VOCABULARY,
    }
    return {
        "general.architecture": "llama",
        **{f"llama.{key}": np.uint32(value) for key, value in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "tokenizer.ggml.model": "none",
    }


class Worker:
    """A process with the model in memory that does what it is told, and says how long it took."""

    def __init__(self, python: str, module: str, path: Path, threads: int) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
        environment |= {"UHAL_HOST_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.workers.{module}", str(path), str(threads), str(CONTEXT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=ROOT, env=environment,
        )  # fmt: skip

    def ask(self, what: str, tokens: int) -> float:
        """Return seconds, or bytes for `memory`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(what, tokens, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            assert self._process.stderr is not None
            raise RuntimeError(self._process.stderr.read()[-2000:])
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measured(
    path: Path, kind: str, threads: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the gates of one file with so many threads, and print its rows."""
    named = [("ubridge", Worker(sys.executable, "llm_ubridge", path, threads))]
    if options.peers:
        named.append(("llama.cpp", Worker(options.peers, "llm_llama_cpp", path, threads)))
    # Once before the pages of the file are read, which no turn is to pay for.
    first = {name: [worker.ask("first", SHORT)] for name, worker in named}
    found: dict[str, dict[str, list[float]]] = {"first token": first}
    for what, work, tokens in (
        ("first token", "first", SHORT),
        ("prefill", "prefill", PROMPT),
        ("decode", "decode", WRITTEN),
    ):
        taken: dict[str, list[float]] = {name: [] for name, _ in named}
        for _ in range(options.turns):
            for name, worker in named:
                taken[name].append(worker.ask(work, tokens) / (1 if work == "first" else tokens))
        found[what] = taken
    for _, worker in named:
        worker.close()
    # In a process that has read the file once: pages that are mapped twice count twice.
    alone = Worker(sys.executable, "llm_ubridge", path, threads)
    alone.ask("prefill", SHORT)
    memory = alone.ask("memory", 0)
    alone.close()
    gates = []
    for what, taken in found.items():
        told = f"{kind} {threads} threads, {what}"
        ours = min(taken["ubridge"])
        shown = f"{1 / ours:.2f} tokens/s" if what != "first token" else f"{ours:.3f} s"
        ratio = None
        if options.peers:
            pairs = zip(taken["llama.cpp"], taken["ubridge"], strict=True)
            ratio = statistics.median(theirs / own for theirs, own in pairs)
        beside = "" if ratio is None else f", {ratio:.2f} of llama.cpp"
        print(f"{told}: {shown}{beside}", file=sys.stderr if options.json else sys.stdout)
        gates.append({"what": f"{told} of llama.cpp", "is": ratio, "least": GATES[what]})
    allowed = path.stat().st_size + _cache_bytes(options.layers) + MORE_MEMORY
    gates.append(
        {"what": f"{kind}: memory allowed over taken", "is": allowed / memory, "least": 1.0}
    )
    return gates


def _cache_bytes(layers: int) -> float:
    return 2 * 4 * CONTEXT * KV_HEADS * EMBEDDING / HEADS * layers


if __name__ == "__main__":
    sys.exit(main())

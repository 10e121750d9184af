"""Sums over ranks, and a model split among ranks, on the CPU: `python -m benchmarks.collectives`.

Sums of f32 are compared with plain MPI on numpy's memory in the same job, and with torch's gloo in
a separate job right after. Decoding by the ranks is compared with rank 0 alone, in turns within one
job. All ranks have one thread and a core of their own. The exit status is 1 when a gate is missed.
The machine must be quiet: a sum waits for the last rank.

    python -m benchmarks.collectives [--ranks 2] [--rounds 31] [--peers PYTHON] [--layers 8]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites import ROOT

OVER_MPI = 10.0
"""Most microseconds of a replayed sum of 4 KiB beyond plain MPI."""
BEFORE_GLOO = {4 << 10: 20.0, 1 << 20: 2.0}
"""Least speed of a replayed sum relative to gloo's, by the number of bytes."""
FASTER = 1.6
"""Least number of two ranks' tokens relative to one rank's, in the same time."""
_SECONDS = 1800
_SHAPE = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
"""TinyLlama's layers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collectives")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--peers", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--layers", type=int, default=8, help="of the decoded model; 0: none")
    options = parser.parse_args()
    sums = _under_mpirun(options.ranks, "sums", str(options.rounds))
    gloo = _by_gloo(options.peers, options.ranks, options.rounds)
    misses = []
    print(f"{'bytes':>8} {'MPI, µs':>9} {'replayed':>9} {'called':>9} {'waited':>9} {'gloo':>9}")
    for size, row in sums.items():
        times = [row[name] for name in ("MPI", "replayed", "called", "waited")]
        beside = f"{gloo[size]:>9.1f}" if gloo else "        –"
        print(f"{size:>8} " + " ".join(f"{one:>9.1f}" for one in times) + f" {beside}")
        least = BEFORE_GLOO.get(int(size))
        if gloo and least is not None and gloo[size] / row["replayed"] < least:
            misses.append(f"{size} bytes: {gloo[size] / row['replayed']:.1f} of {least} times gloo")
    over = sums[str(4 << 10)]["over MPI"]
    if over > OVER_MPI:
        misses.append(f"4 KiB: {over:.1f} µs over MPI, at most {OVER_MPI:g}")
    if options.layers:
        found = _decoded(options.ranks, options.rounds, options.layers)
        print(
            f"a token, q4_0: {found['one rank'] / 1e3:.2f} ms by one rank, "
            f"{found['ranks'] / 1e3:.2f} ms by {options.ranks}: {found['faster']:.2f} times"
        )
        if options.ranks == 2 and found["faster"] < FASTER:
            misses.append(f"decoding: {found['faster']:.2f} times, at least {FASTER}")
    for miss in misses:
        print(f"missed: {miss}")
    return 1 if misses else 0


def _under_mpirun(ranks: int, *arguments: str) -> dict[str, Any]:
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun), "--bind-to", "core", "-n", str(ranks), sys.executable]
    may = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return _result([*command, "-m", "benchmarks.workers.collectives", *arguments], may)


def _by_gloo(python: str, ranks: int, rounds: int) -> dict[str, float]:
    """The times of gloo; empty without torch."""
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        print(f"{python} has no torch: gloo is left out")
        return {}
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    worker = ROOT / "benchmarks" / "workers" / "collectives.py"
    jobs = [
        subprocess.Popen(
            [python, str(worker), "gloo", str(rounds)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [job.communicate(timeout=_SECONDS)[0] for job in jobs]
    times: dict[str, float] = json.loads(said[0])
    return times


def _decoded(ranks: int, rounds: int, layers: int) -> dict[str, Any]:
    import uhal
    from ubridge.models.making import make_model

    uhal.Api.quick_init(0, "host")
    with tempfile.TemporaryDirectory(prefix="uhal-model-") as folder:
        model = Path(folder, "model")
        shape = {**_SHAPE, "num_hidden_layers": layers, "max_position_embeddings": 2048}
        make_model(model, "llama", shape, dtype="bf16", seed=1)
        return _under_mpirun(ranks, "decode", str(rounds), str(model))


def _result(command: Sequence[str], more: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "UHAL_HOST_THREADS": "1", **more},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    raise SystemExit(main())

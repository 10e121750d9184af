"""Products of block weights and vectors on the CPU beside ggml: `python -m benchmarks.quantized`.

It multiplies some hundred megabytes of matrices one after the other, so that each comes from
memory. ubridge replays a captured graph that rounds x again for each product, as ggml does. ggml
runs its own graph, with and without its buffers of interleaved weights. All forms run twice in
every round, and the second time counts. While a form runs, the others are stopped. The median of
the rounds' ratios counts. The fastest of several readers gives this machine's memory bandwidth. The
exit status is 1 when a gate is missed.

    python -m benchmarks.quantized --peers PYTHON [--threads 1 2] [--megabytes 512] [--processor]

`PYTHON` has `llama-cpp-python`, built for this CPU: `CMAKE_ARGS=-DGGML_NATIVE=ON pip install
--no-binary llama-cpp-python llama-cpp-python`. GCC 12 builds AMX wrongly; use clang or a later GCC.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.standing import Standing
from benchmarks.suites import ROOT

FORMATS = ("q4_0", "q4_K", "q5_K", "q6_K", "q8_0", "bf16")
SHAPES = ((5632, 2048), (2048, 5632), (32000, 2048), (4096, 11008))
VECTORS = (1, 128)
LEAST = 1.0
"""Least speed relative to the faster of ggml's two ways."""
SHARE = 0.85
"""Least share of the machine's read bandwidth for these formats, with two threads."""
OF_BANDWIDTH = ("q8_0", "bf16")
READERS = ("read_1", "read_4", "read_8", "read_1_ahead", "read_4_ahead")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized")
    parser.add_argument("--peers", help="a Python that has llama-cpp-python")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--shapes", type=int, nargs="+", default=range(len(SHAPES)))
    parser.add_argument("--vectors", type=int, nargs="+", default=VECTORS)
    parser.add_argument("--megabytes", type=int, default=512, help="of distinct matrices")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--processor", action="store_true", help="count processor time: on a machine in use"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options)
        return 0
    rows = []
    for threads in options.threads:
        environment = {**os.environ, "UHAL_HOST_THREADS": str(threads)}
        command = [sys.executable, "-m", "benchmarks.quantized", *sys.argv[1:]]
        command += ["--worker", str(threads)]
        with subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                row = json.loads(line)
                if "features" in row:
                    print(f"ggml: {' '.join(row['features'])}", file=sys.stderr)
                    continue
                rows.append(row)
                if not options.json:
                    print(_text(row), flush=True)
        if worker.returncode:
            return worker.returncode
    missed = [said for row in rows for said in misses(row)]
    if options.json:
        print(json.dumps({"rows": rows, "missed": missed}))
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


def misses(row: dict[str, Any]) -> list[str]:
    """The gates that a row misses, as text."""
    name = f"{row['format']} {row['rows']}x{row['columns']}, {row['vectors']} vectors, "
    name += f"{row['threads']} threads"
    found = []
    if row["over_ggml"] is not None and row["over_ggml"] < LEAST:
        found.append(f"{name}: {row['over_ggml']:.2f} of ggml's speed, gate {LEAST}")
    is_bound = row["format"] in OF_BANDWIDTH and row["threads"] == 2 and row["vectors"] == 1
    if is_bound and row["of_bandwidth"] < SHARE:
        found.append(f"{name}: {row['of_bandwidth']:.2f} of the bandwidth, gate {SHARE}")
    return found


def _text(row: dict[str, Any]) -> str:
    over = "" if row["over_ggml"] is None else f"{row['over_ggml']:5.2f} of ggml's speed"
    return (
        f"{row['format']:>5} {row['rows']:>5} x {row['columns']:<5} {row['vectors']:>3} vectors "
        f"{row['threads']} threads: {row['gigabytes']:6.2f} GB/s, {row['of_bandwidth']:4.2f} of "
        f"what can be read ({row['bandwidth']:5.1f}), {over} "
        + " ".join(f"{name} {value:.2f}" for name, value in row["ggml"].items())
    )


# -- one number of threads -------------------------------------------------------------------------


def work(options: argparse.Namespace) -> None:
    """Measure with this process's threads, and print a line of JSON for each row."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.worker :])
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        peer = None
        if options.peers:
            peer = stack.enter_context(Peer(options.peers, Path(folder)))
            print(json.dumps({"features": peer.features}), flush=True)
        for name in options.formats:
            for shape in options.shapes:
                for vectors in options.vectors:
                    row = measured(name, *SHAPES[shape], vectors, options, peer, Path(folder))
                    print(json.dumps(row), flush=True)


class Peer(Standing):
    """ggml in a process of the peers' Python: `workers/ggml_products.py`."""

    def __init__(self, python: str, folder: Path) -> None:
        self._folder = folder
        script = ROOT / "benchmarks" / "workers" / "ggml_products.py"
        super().__init__([python, str(script)], {**os.environ, "OMP_WAIT_POLICY": "active"})
        self.features: list[str] = json.loads(self.ask("features"))

    def prepare(self, reported: dict[str, Any]) -> Any:
        """Send matrices to the process; return their product with x, `None` if refused."""
        result = self._folder / "result"
        answer = self.ask(json.dumps({**reported, "result": str(result)}))
        return np.fromfile(result, np.float32) if answer == "ready" else None

    def run(self) -> tuple[float, float]:
        clock, processor = json.loads(self.ask("run"))
        return clock, processor


def measured(
    name: str,
    rows: int,
    columns: int,
    vectors: int,
    options: argparse.Namespace,
    peer: Peer | None,
    folder: Path,
) -> dict[str, Any]:
    """A row: matrices of one format and shape, by vectors."""
    import ubridge
    from ubridge.quantized import quantize
    from uhal import Device, DeviceBuffer, Stream

    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
    x = rng.standard_normal((vectors, columns), np.float32)
    with Device(0, backend="host") as device:
        given = ubridge.from_numpy(x)
        if name == "bf16":
            given = given.astype("bf16")
            blocks = ubridge.from_numpy(values).astype("bf16").buffer.view("u8").to_numpy()
        else:
            blocks = quantize(values, name)
        # With many vectors arithmetic bounds the time, so fewer distinct matrices suffice.
        megabytes = options.megabytes if vectors == 1 else options.megabytes // 16
        count = max(2, -(-megabytes * 10**6 // blocks.nbytes))
        memory = DeviceBuffer.uninitialized(count * blocks.nbytes, "u8")
        weights: list[Any] = []
        for i in range(count):
            part = memory[i * blocks.nbytes : (i + 1) * blocks.nbytes]
            part.copy_from(blocks)
            if name == "bf16":
                layout = ubridge.Layout.contiguous((rows, columns))
                weights.append(ubridge.DeviceTensor(part.view("bf16"), layout))
            else:
                weights.append(ubridge.QuantizedWeight(part, name, rows, columns))
        with ubridge.trace() as graph:
            results = [ubridge.linear(given, weight) for weight in weights]
        stream = Stream()
        plan = graph.instantiate(stream)
        readers = readers_of(device, memory, options.worker, stream)

        def ours() -> None:
            plan.replay(stream)
            stream.synchronize()

        forms: dict[str, Callable[[], tuple[float, float]]] = {"ours": _timed(ours)}
        forms.update({reader: _timed(run) for reader, run in readers.items()})
        ours()
        times: dict[str, list[float]] = {}
        if peer is not None:
            (folder / "blocks").write_bytes(blocks.tobytes())
            (folder / "x").write_bytes(x.tobytes())
            mine = results[-1].astype("f32").to_numpy().ravel()
        for way in ("in place", "repacked") if peer is not None else ("",):
            current = dict(forms)
            if peer is not None:
                reported = {
                    "format": name,
                    "rows": rows,
                    "columns": columns,
                    "vectors": vectors,
                    "count": count,
                    "threads": options.worker,
                    "repacked": way == "repacked",
                    "blocks": str(folder / "blocks"),
                    "x": str(folder / "x"),
                }
                theirs = peer.prepare(reported)
                if theirs is None:
                    continue
                # Both round x to 8 bits, and bf16's products to bf16.
                apart = float(np.abs(theirs - mine).max() / np.abs(theirs).max())
                if apart > 0.03:
                    raise SystemExit(f"{name}: ggml's results differ by {apart:.3f} of the largest")
                current[way] = peer.run
            for _ in range(options.rounds):
                for form, run in current.items():
                    run()
                    clock, processor = run()
                    spent = processor / options.worker if options.processor else clock
                    times.setdefault(form, []).append(spent)
        nbytes = count * blocks.nbytes
        of_bandwidth = min(
            statistics.median(
                read / own for read, own in zip(times[reader], times["ours"], strict=True)
            )
            for reader in readers
        )
        bandwidth = nbytes / min(statistics.median(times[reader]) for reader in readers)
        rate = nbytes / statistics.median(times["ours"])
        ggml = {}
        for index, way in enumerate(("in place", "repacked")):
            if way in times:
                beside = times["ours"][index * options.rounds : (index + 1) * options.rounds]
                ratios = [one / own for one, own in zip(times[way], beside, strict=True)]
                ggml[way] = statistics.median(ratios)
        return {
            **{"format": name, "rows": rows, "columns": columns, "vectors": vectors},
            **{"threads": options.worker, "count": count, "gigabytes": rate / 1e9},
            **{"bandwidth": bandwidth / 1e9, "of_bandwidth": of_bandwidth},
            **{"ggml": ggml, "over_ggml": min(ggml.values()) if ggml else None},
        }


def readers_of(
    device: Any, memory: Any, threads: int, stream: Any
) -> dict[str, Callable[[], None]]:
    """Functions that read a whole buffer, each by a different method."""
    from uhal import DeviceBuffer, Module
    from uhal.images import cpu_level

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "readers.so")
        source = Path(__file__).with_name("readers.cpp")
        include = f"-I{ROOT / 'uhal' / 'include'}"
        flags = cpu_level.compile_flags(cpu_level.best_level())
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, *flags, include, str(source), "-o", str(made)], check=True)
        module = Module.from_bytes(made.read_bytes(), device=device)
    pieces = 1 if threads == 1 else 16 * threads
    out = DeviceBuffer.zeros(pieces, "u64", device=device)

    def reading(entry: str) -> Callable[[], None]:
        launch = module.get_function(entry)[pieces, 1024, 0, stream]

        def run() -> None:
            launch(memory, 0, memory.size, out)
            stream.synchronize()

        return run

    return {entry: reading(entry) for entry in READERS}


def _timed(run: Callable[[], None]) -> Callable[[], tuple[float, float]]:
    def timed() -> tuple[float, float]:
        start = time.perf_counter(), time.process_time()
        run()
        return time.perf_counter() - start[0], time.process_time() - start[1]

    return timed


if __name__ == "__main__":
    sys.exit(main())

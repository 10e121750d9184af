"""Tries everything on the GPU of this machine: `make device`, offline, within nine minutes.

Each step is a program with its own time limit; unused time goes to the next step. Other steps run
even if a step fails or takes too long. The result is JSON and a page, written after each step, so
that results remain if the machine goes away.

    python -m build_support.first_device [--out build/device] [--seconds 540]

The build needs `pycparser`, and the tests need `gguf`. Without a network, bring both along in
`build/packages`:

    python -m pip install --target build/packages pycparser gguf

`--driver FILE --smoke` tests the steps themselves on a simulated driver, with small operands.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "build" / "packages"
"""Packages for a machine without a network."""
KEPT = 20_000
"""Number of characters that are kept from the end of a step's output."""


@dataclass(frozen=True)
class Step:
    """A program to run: Python's arguments, and the program's requirements on the machine."""

    name: str
    arguments: tuple[str, ...]
    seconds: int
    """Time limit of the program."""
    needs: str = ""
    """Required module; the step is skipped without it."""
    smoke: tuple[str, ...] = ()
    """Further arguments of a trial."""


MODEL = "build/device/model"
PYTEST = ("-m", "pytest", "-q", "--device", "cuda")
STEPS = (
    Step("build", ("setup.py", "-q", "build_ext", "--inplace"), 300),
    Step("doctor", ("-m", "uhal", "doctor", "-v"), 30),
    Step("network", ("-m", "uhal", "network_test", "--backend", "cuda"), 60),
    Step("layer", ("-m", "uhal", "component_test", "--backend", "cuda"), 60, smoke=("softmax",)),
    Step(
        "conformance",
        ("-m", "uhal", "conformance", "--backend", "cuda", "--report", "build/device/report.json"),
        180,
        "pytest",
        ("-k", "structures_pass_by_value"),
    ),
    Step("tests of the device", (*PYTEST, "tests/device"), 120, "pytest", ("-k", "compiles")),
    Step(
        "every operation",
        (*PYTEST, "tests/ubridge/test_every_op.py", "-k", "cuda and not cuda-sim"),
        180,
        "pytest",
        ("-k", "cuda-negative"),
    ),
    Step("a model is made", ("-m", "uhal", "make-model", MODEL), 60),
    Step(
        "the model answers",
        ("-m", "uhal", "generate", MODEL, "--prompt", "a text", "-n", "8", "--backend", "cuda"),
        60,
    ),
    Step(
        "tokens a second",
        ("-m", "uhal", "bench", MODEL, "--backend", "cuda", "--json"),
        60,
        smoke=("--lengths", "4", "--decode", "2", "--runs", "1"),
    ),
    Step("launches and copies", ("benchmarks/device.py", "--backend", "cuda"), 60),
    Step("bandwidth and products", ("-m", "benchmarks.ops_gpu"), 120, smoke=("--smoke",)),
    Step("simulated driver", ("-m", "simulators.build"), 150, "llvmlite"),
    Step("beside torch", ("-m", "benchmarks.beside_torch", "--json"), 120, smoke=("--smoke",)),
    Step("beside Nsight Compute", ("-m", "benchmarks.beside_ncu", "--json"), 120, "llvmlite"),
)


@dataclass
class Outcome:
    """Result of a step."""

    name: str
    command: str
    state: str
    """`passed`, `failed`, `late` or `left out`."""
    seconds: float
    output: str


def run(step: Step, left: float, environment: dict[str, str], smoke: bool) -> Outcome:
    """Run a step within the remaining time."""
    arguments = (*step.arguments, *(step.smoke if smoke else ()))
    command = " ".join(("python", *arguments))
    if step.needs and importlib.util.find_spec(step.needs) is None:
        return Outcome(step.name, command, "left out", 0, f"{step.needs} is not installed")
    limit = min(step.seconds, left)
    if limit <= 1:
        return Outcome(step.name, command, "left out", 0, "the time was over")
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=limit,
        )
        state, output = "passed" if done.returncode == 0 else "failed", done.stdout
    except subprocess.TimeoutExpired as late:
        state, output = "late", late.stdout or b""
    reported = output.decode("utf-8", "replace")[-KEPT:]
    return Outcome(step.name, command, state, round(time.monotonic() - began, 1), reported)


def write(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the results so far as JSON and as a page."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "steps": [asdict(one) for one in outcomes],
    }
    (folder / "device.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    (folder / "device.html").write_text(page(outcomes), "utf-8")


def page(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as one page of HTML, each with its output."""
    rows = "\n".join(
        f"<details{' open' if one.state in ('failed', 'late') else ''}><summary>"
        f"<b>{one.state}</b> {html.escape(one.name)}, {one.seconds:.1f} s</summary>"
        f"<p><code>{html.escape(one.command)}</code></p>"
        f"<pre>{html.escape(one.output)}</pre></details>"
        for one in outcomes
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>uhal on this device</title>'
        f"<h1>uhal on this device</h1>\n{rows}\n</html>\n"
    )


def main() -> int:
    """Run the steps; the exit status is 1 when one failed or was late."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "device")
    parser.add_argument("--seconds", type=int, default=540, help="for all steps together")
    parser.add_argument("--driver", type=Path, help="the CUDA driver to load, else the system's")
    parser.add_argument("--smoke", action="store_true", help="small operands and few tests")
    parser.add_argument("--steps", default="", help="names of steps, separated by commas")
    options = parser.parse_args()
    environment = {
        **os.environ,
        "UHAL_BACKEND": "cuda",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PACKAGES}",
    }
    if options.driver is not None:
        environment["UHAL_CUDA_LIBRARY"] = str(options.driver.resolve())
    wanted = [one for one in options.steps.split(",") if one]
    unknown = set(wanted) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"--steps: expected names of {', '.join(one.name for one in STEPS)}")
    shutil.rmtree(ROOT / MODEL, ignore_errors=True)
    (ROOT / MODEL).parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    outcomes: list[Outcome] = []
    for step in STEPS:
        if wanted and step.name not in wanted:
            continue
        one = run(step, end - time.monotonic(), environment, options.smoke)
        outcomes.append(one)
        write(options.out, outcomes)
        print(f"{one.state:9} {one.name:24} {one.seconds:7.1f} s", flush=True)
        if one.state in ("failed", "late"):
            print("\n".join(f"    {line}" for line in one.output.splitlines()[-15:]), flush=True)
    print(f"wrote {options.out / 'device.json'} and {options.out / 'device.html'}")
    return 0 if all(one.state in ("passed", "left out") for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Everything that has a gate, as one table: `make bench`, or `python -m benchmarks`.

Each benchmark runs in a process of its own, one after the other. The exit status is 1 when a gate
is missed or a benchmark fails. Run it on a quiet machine. Figures that need a GPU are not here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from benchmarks import figures
from benchmarks.launch_overhead import machine
from benchmarks.suites import ROOT, SUITES

BENCHMARKS: dict[str, tuple[str, ...]] = {
    **{f"launch_overhead {name}": ("launch_overhead", "--backend", name) for name in SUITES},
    "graph_replay": ("graph_replay",),
    "ptx_building": ("ptx_building",),
    "threads": ("threads",),
    "ops_host": ("ops_host",),
    "products": ("products",),
    "llm": ("llm",),
    "diffusion": ("diffusion",),
}
"""Each benchmark's module and options, by the benchmark's name."""
WITH_PEERS = ("launch_overhead", "threads", "ops_host", "llm", "diffusion")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--peers", default=sys.executable, help="the Python that has the other libraries"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the values to docs/figures and docs/measured.md",
    )
    options = parser.parse_args()
    print(f"{'benchmark':<24} {'gate':<72} {'wanted':>8} {'is':>8}", flush=True)
    good = True
    for name, command in BENCHMARKS.items():
        gates = _gates(command, options.peers)
        for gate in gates:
            good &= _report(name, gate)
        if options.record:
            spelled = f"python -m benchmarks.{' '.join(command)}"
            figures.record("gates", figures.of_gates(name, gates, machine(), spelled))
            figures.write_page()
    return 0 if good else 1


def _gates(command: tuple[str, ...], peers: str) -> list[dict[str, Any]]:
    """The gates of a benchmark; a gate without a value stands for a benchmark that failed."""
    module, *rest = command
    asked = ["--peers", peers] if module in WITH_PEERS else []
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *rest, *asked, "--json"],
        cwd=ROOT,
        # OpenBLAS reads these variables, and they can halve its speed.
        env={name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["gates"]
    except (IndexError, ValueError):
        return [{"what": f"failed with exit status {done.returncode}", "is": None}]
    return found


def _report(name: str, gate: dict[str, Any]) -> bool:
    """Print a line; return whether the gate holds. A gate without its peer holds."""
    least, most, value = gate.get("least"), gate.get("at_most"), gate["is"]
    what = f"{gate['backend']}, {gate['what']}" if "backend" in gate else gate["what"]
    wanted = "" if least is most is None else f"≥ {least:.2f}" if most is None else f"≤ {most:.2f}"
    reported = "-" if value is None else f"{value:.2f}"
    missed = value is not None and (
        (least is not None and value < least) or (most is not None and value > most)
    )
    failed = value is None and not wanted
    print(
        f"{name:<24} {what:<72} {wanted:>8} {reported:>8}{'  missed' if missed else ''}", flush=True
    )
    return not missed and not failed


if __name__ == "__main__":
    sys.exit(main())

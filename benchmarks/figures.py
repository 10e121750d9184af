"""Keeps measured figures as JSON and renders docs/measured.md: `python -m benchmarks.figures`.

`docs/figures/AREA.json` holds the records of one area, one for each figure and machine. A newer
record replaces the older one; git keeps the history.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.suites import ROOT
from benchmarks.tables import today

FOLDER = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "measured.md"
BEGIN = "<!-- `python -m benchmarks.figures` writes the rest of this page. -->"
AREAS = {
    "gates": (
        "Launch gates",
        "Processor time of the caller over the peer's. CUDA's, HSA's and TopsRuntime's drivers do "
        "nothing here; OpenCL is Intel's.",
    ),
    "launches": ("Launches and replays", "Processor time of the caller."),
    "operations": ("Operations on the CPU", "numpy 2.4 with OpenBLAS, torch 2.13."),
    "quantized": (
        "Quantized weights",
        "Weights of 5632 × 2048 and 2048 × 5632, read from memory, nothing else running. ggml is "
        "llama-cpp-python 0.3.36, built by gcc 12 for the CPU.",
    ),
    "models": (
        "Language models",
        "TinyLlama's shape (1.1 billion parameters) with random weights, nothing else running. "
        "llama-cpp-python 0.3.36; transformers 5.23 on torch 2.13.",
    ),
    "diffusion": (
        "Stable Diffusion",
        "Version 1.5's networks with random weights, f32, two threads; diffusers 0.42 on torch "
        "2.13, in turns.",
    ),
    "collectives": (
        "Several ranks",
        "Two ranks with one thread each, Open MPI 5.0; gloo is torch 2.13's. Medians of three "
        "runs.",
    ),
    "accuracy": (
        "Agreement with other programs",
        "Tiny configurations with random weights. Stories260K gives llama2.c's text to the byte.",
    ),
    "gpu": (
        "On a GPU",
        "One NVIDIA H200, driver 580.159 with CUDA 13.0, in a virtual machine; torch 2.11. Times "
        "of operations are between events of the device: 2²⁶ elements, rows of 4096, 2048 tokens.",
    ),
    "simulators": ("Simulators", "Times on the CPU; they say nothing about a GPU."),
    "opencl": ("OpenCL", "Other work ran on the machine."),
    "builds": ("Builds, tests and wheels", "Packages came from a nearby mirror."),
}
"""Title of each file's table and the conditions of its figures, in the page's order."""

Number = float | tuple[float, float]
"""A number, or the lowest and highest of several runs."""


@dataclass(frozen=True)
class Record:
    """One measured figure on one machine."""

    figure: str
    """What was measured, with its conditions."""
    machine: str
    date: str
    command: str
    value: Number | None = None
    unit: str = ""
    peer: str = ""
    """The other program, when there is a ratio or a comparison."""
    ratio: Number | None = None
    """The value divided by the peer's value."""
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Figure, peer and machine. A newer record with the same key replaces this record."""
        return self.figure, self.peer, self.machine


def read(area: str, folder: Path = FOLDER) -> list[Record]:
    """Return the records of an area; none if it has no file."""
    path = folder / f"{area}.json"
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        for name in ("value", "ratio"):
            if isinstance(row.get(name), list):
                row[name] = tuple(row[name])
    return [Record(**row) for row in rows]


def record(area: str, records: Sequence[Record], folder: Path = FOLDER) -> None:
    """Write records to an area's file; each replaces the older record of its figure and machine."""
    if area not in AREAS:
        raise ValueError(f"record: expected an area of {', '.join(AREAS)}, got {area!r}.")
    kept = {one.key: one for one in (*read(area, folder), *records)}
    rows = [
        {name: value for name, value in asdict(one).items() if value not in (None, "")}
        for one in kept.values()
    ]
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{area}.json").write_text(f"{text}\n", encoding="utf-8")


def of_gates(
    benchmark: str, gates: Sequence[dict[str, Any]], machine: str, command: str
) -> list[Record]:
    """Return a record, dated today, for each gate of a benchmark that has a value."""
    measured = [(gate["what"].partition(", over "), gate) for gate in gates]
    return [
        Record(
            f"{benchmark}: {figure}",
            machine,
            today(),
            command,
            peer=peer,
            ratio=round(gate["is"], 2),
            commit=commit(),
        )
        for (figure, _, peer), gate in measured
        if gate["is"] is not None
    ]


def commit() -> str:
    """Return the short name of the checked-out commit."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip()


def rendered(folder: Path = FOLDER) -> str:
    """Return one table for each area that has records."""
    return "\n".join(
        f"## {title}\n\n{conditions}\n\n{_table(records)}"
        for area, (title, conditions) in AREAS.items()
        if (records := read(area, folder))
    )


def _table(records: Sequence[Record]) -> str:
    """Return the records as Markdown, without a shared machine and without empty columns."""
    columns = {
        "figure": [one.figure for one in records],
        "value": [" ".join(filter(None, (_shown(one.value), one.unit))) for one in records],
        "ratio": [_shown(one.ratio) for one in records],
        "peer": [one.peer for one in records],
        "machine": [one.machine for one in records],
        "date": [one.date for one in records],
        "command": [f"`{one.command}`" for one in records],
        "commit": [one.commit for one in records],
    }
    machines = set(columns["machine"])
    if len(machines) == 1:
        del columns["machine"]
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    marks = ["---:" if name in ("value", "ratio") else "---" for name in columns]
    rows = (columns, marks, *zip(*columns.values(), strict=True))
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    above = [f"Machine: {machines.pop()}.", ""] if len(machines) == 1 else []
    return "\n".join([*above, *lines, ""])


def _shown(number: Number | None) -> str:
    if number is None:
        return ""
    if isinstance(number, tuple):
        return " to ".join(map(_shown, number))
    return f"{number:,}" if number >= 1000 else f"{number:.2g}" if number < 0.1 else f"{number:g}"


def page(text: str, folder: Path = FOLDER) -> str:
    """Return the page with its tables rendered again; the text before them stays."""
    head, _, _ = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{rendered(folder)}"


def write_page() -> None:
    """Render the tables of docs/measured.md again."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_page()

"""The benchmark's result as Markdown."""

from __future__ import annotations

import datetime
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.suites import Gate

if TYPE_CHECKING:
    from benchmarks.launch_overhead import Result

Outcomes = list[tuple[Gate, float | None]]


def document(
    backend: str,
    path: Path,
    result: Result,
    outcomes: Outcomes,
    wheel: Path | None,
) -> str:
    """A page with the tables, the machine and the command."""
    from benchmarks.launch_overhead import machine

    asked = "" if backend == "cuda" else f"--backend {backend} "
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"""# Performance

Written by `python -m benchmarks.launch_overhead {asked}--write {path}` on {today()}.

{machine()}; Python {platform.python_version()}; {versions}.

Processor time of the calling thread, median over rounds and half the distance between the
quartiles. The driver does nothing: these are the costs of the libraries alone. Ratios carry over
to other machines, nanoseconds do not.

<!-- plots -->

{tables(result, outcomes, wheel)}
"""


def today() -> str:
    """The day of a measurement, for pages and figures."""
    return datetime.date.today().isoformat()


def write_figures(page: Path, figures: dict[str, Any]) -> None:
    """Write the data of a page's tables into `figures/pages`: plots are drawn from them."""
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    target = page.parent / "figures" / "pages" / f"{page.stem}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{text}\n", encoding="utf-8")


def tables(result: Result, outcomes: Outcomes, wheel: Path | None) -> str:
    """The rows by operation, the gates, the costs of a start, and gaps of libraries."""
    parts = [_rows(result, what, args) for what, args in _kinds(result.rows)]
    parts += [_gates(outcomes), _starts(result, wheel)]
    if result.gaps:
        parts.append(_gaps(result.gaps))
    parts += [f"{name} took no part: {reason}" for name, reason in result.absent.items()]
    parts += [f"**{name} failed**: {reason}" for name, reason in result.failed.items()]
    return "\n\n".join(part for part in parts if part)


def _kinds(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Measured calls and the launches' numbers of arguments; the cost of the loops comes last."""
    whats = list(dict.fromkeys(row["what"] for row in rows if row["what"] != "control"))
    return [
        (what, args)
        for what in (*whats, "control")
        for args in sorted({row["args"] for row in rows if row["what"] == what})
    ]


def _rows(result: Result, what: str, args: int) -> str:
    found = [row for row in result.rows if (row["what"], row["args"]) == (what, args)]
    return "\n".join(
        [
            f"| {_named(what, args)} | | ns | ± |",
            "|---|---|---:|---:|",
            *(
                f"| {row['library']} | {_plain(row['form'])} | {row['median_ns']:.0f} | "
                f"{row['spread_ns']:.0f} |"
                for row in sorted(found, key=lambda row: row["median_ns"])
            ),
        ]
    )


def _plain(text: str) -> str:
    """A text escaped for Markdown, which would read `kernel[grid]()` as a link."""
    return text.replace("](", "]\\(")


def _named(what: str, args: int) -> str:
    return f"{what}, {args} arguments" if what == "launch" else what


def _gates(outcomes: Outcomes) -> str:
    if not outcomes:
        return ""
    lines = ["| ratio | of | at most | is |", "|---|---|---:|---:|"]
    for gate, ratio in outcomes:
        found = "not measured" if ratio is None else f"{ratio:.2f}"
        lines.append(f"| {_ours(gate)} | {_theirs(gate)} | {gate.limit:.2f} | {found} |")
    return "\n".join(lines)


def gate_text(gate: Gate) -> str:
    """The bounds as a line of text."""
    return f"{_ours(gate)}, over {_theirs(gate)}"


def _ours(gate: Gate) -> str:
    return f"{_named(gate.what, gate.args)}: {gate.form}"


def _theirs(gate: Gate) -> str:
    over = gate.over[0] if len(gate.over) == 1 else "the fastest other library"
    return f"{over}, {gate.over_form}" if gate.over_form else over


def _starts(result: Result, wheel: Path | None) -> str:
    lines = [
        "| a start, over numpy's | import, ms | with a first device, ms | installed, MB |",
        "|---|---:|---:|---:|",
    ]
    for name, start in result.starts.items():
        first, installed = (
            "" if figure is None else f"{figure:.0f}"
            for figure in (start.first_device_ms, start.installed_mb)
        )
        lines.append(f"| {name} | {start.import_ms:.0f} | {first} | {installed} |")
    if wheel is not None:
        lines += ["", f"The wheel {wheel.name} has {wheel.stat().st_size / 1e6:.1f} MB."]
    return "\n".join(lines)


def _gaps(gaps: list[dict[str, str]]) -> str:
    lines = ["| what a library cannot do | | |", "|---|---|---|"]
    lines += [
        f"| {gap['library']} | {gap['what']}, {gap['form']} | {gap['reason']} |" for gap in gaps
    ]
    return "\n".join(lines)

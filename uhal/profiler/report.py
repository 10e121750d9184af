"""A profile as JSON, and as a self-contained HTML page with the same data."""

from __future__ import annotations

import html
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from uhal._version import __version__
from uhal.profiler import counts
from uhal.profiler.records import KINDS, Columns
from uhal.profiler.results import Results

FORMAT = "uhal-profile"
VERSION = 1
"""Version of the JSON's format; a reader refuses a higher one."""

_SHOWN_MOST = 20_000
_POINTS_MOST = 4_000
_FOLDER = Path(__file__).parent
_COLUMNS = (
    "host_begin",
    "host_end",
    "device_begin",
    "device_end",
    "device",
    "stream",
    "thread",
    "bytes",
    "what",
    "range",
    "line",
    "parent",
    "number",
)


def as_dict(profile: Results, events_most: int | None = None) -> dict[str, Any]:
    """Return all results as plain values; only the longest events, in order."""
    records = profile.records
    rows = _longest(records.rows, events_most)
    return {
        "format": FORMAT,
        "version": VERSION,
        "uhal": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "duration": records.duration,
        "not_noted": records.dropped,
        "broken": records.broken,
        "devices": [asdict(device) for device in records.devices],
        "work": [asdict(row) for row in profile.work],
        "counted": counts.as_dict(profile.counted),
        "ranges": [asdict(row) for row in profile.ranges],
        "use": [asdict(use) for use in profile.devices],
        "memory": [
            {
                **{name: value for name, value in vars(one).items() if name not in _ARRAYS},
                **{name: _thinned(getattr(one, name), events_most) for name in _ARRAYS},
            }
            for one in profile.memory
        ],
        "threads": {str(ident): name for ident, name in records.threads.items()},
        "names": [one if isinstance(one, str) else one.name for one in records.subjects],
        "range_names": [records.range_path(at) for at in range(len(records.ranges))],
        "lines": list(records.lines),
        "kinds": list(KINDS),
        "all_events": len(records.rows),
        "events": {
            "kind": rows["kind"].tolist(),
            **{name: rows[name].tolist() for name in _COLUMNS},
        },
    }


_ARRAYS = ("times", "in_use")


def _longest(rows: Columns, most: int | None) -> Columns:
    if most is None or len(rows) <= most:
        return rows
    spent = np.maximum(
        rows["device_end"] - rows["device_begin"], rows["host_end"] - rows["host_begin"]
    )
    return rows[np.sort(np.argsort(spent)[-most:])]


def _thinned(values: Any, most: int | None) -> list[int]:
    """All values, or evenly spaced values for a plot; the plot's text names the peak."""
    if most is None or len(values) <= _POINTS_MOST:
        return values.tolist()  # type: ignore[no-any-return]
    return values[np.linspace(0, len(values) - 1, _POINTS_MOST).astype(int)].tolist()  # type: ignore[no-any-return]


def write_json(profile: Results, path: Path) -> Path:
    """Write everything, with every event."""
    path.write_text(json.dumps(as_dict(profile), separators=(",", ":")) + "\n", "utf-8")
    return path


def write_html(profile: Results, path: Path) -> Path:
    """Write a page; with very many events it has only the longest, and says so."""
    data = json.dumps(as_dict(profile, _SHOWN_MOST), separators=(",", ":"))
    page = (_FOLDER / "report.html").read_text("utf-8")
    for mark, text in (
        ("{{title}}", html.escape(path.stem)),
        ("{{style}}", (_FOLDER / "report.css").read_text("utf-8")),
        ("{{script}}", (_FOLDER / "report.js").read_text("utf-8")),
        # A string of JSON must not end the HTML element around it.
        ("{{data}}", data.replace("<", "\\u003c")),
    ):
        page = page.replace(mark, text)
    path.write_text(page, "utf-8")
    return path

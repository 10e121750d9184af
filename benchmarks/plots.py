"""Draws plots of the figures' JSON: `python -m benchmarks.plots JSON…`.

A plot is SVG for the inside of an HTML page. It has no background, and text and lines have the
colour of the text around it, so that one plot serves light and dark pages.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the colour of the page's text until the SVG is written."""
OURS = "#2f7fd6"
OTHERS = ("#d1752f", "#5a9e4b", "#a56cc1", "#b8902b", "#6b8fa3", "#c75d7b")
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    ),
}

Figures = dict[str, Any]


def of_page(figures: Path, only: str | None = None) -> list[str]:
    """Return the plots of a page as SVG, most important first, or the one named `only`."""
    said = json.loads(figures.read_text(encoding="utf-8"))
    draws = _OF_OPERATIONS if "means" in said else _OF_LAUNCHES
    wanted = [draw for draw in draws if only in (None, draw.__name__)]
    return [_svg(draw, said, f"{figures.stem}-{draw.__name__}") for draw in wanted]


def _svg(draw: Callable[[Figures], Figure], figures: Figures, name: str) -> str:
    import matplotlib

    matplotlib.use("svg")
    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        figure = draw(figures)
        title = figure.get_suptitle()
        written = io.StringIO()
        look: dict[str, Any] = {"transparent": True, "bbox_inches": "tight"}
        figure.savefig(written, format="svg", metadata={"Date": None}, **look)
    text = _PROLOGUE.sub("", written.getvalue()).replace(INK, "currentColor")
    # A screen reader says the title; width and height come from the page.
    label = f'<svg role="img" aria-label="{title}" class="plot" '
    return re.sub(r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf"{label}\1>", text)


def _figure(
    title: str, figures: Figures, width: float, height: float, **grid: Any
) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(**grid)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    figure.supxlabel(f"{figures['date']} · {figures['machine']}", fontsize=8)
    return figure, axes


def _grid(axes: Axes, axis: Literal["x", "y"]) -> None:
    axes.grid(axis=axis, color=INK, alpha=0.15, linewidth=0.7)
    axes.set_axisbelow(True)


# -- launches --------------------------------------------------------------------------------------


def _cheapest(figures: Figures, what: str) -> dict[str, dict[int, float]]:
    """Nanoseconds of each library's cheapest way, by the number of arguments."""
    found: dict[str, dict[int, float]] = {}
    for row in figures["rows"]:
        if row["what"] == what and row["library"] != "floor":
            by_count = found.setdefault(row["library"], {})
            least = by_count.get(row["args"], float("inf"))
            by_count[row["args"]] = min(least, row["median_ns"])
    return found


def _colours(libraries: Iterable[str]) -> dict[str, str]:
    others = [name for name in libraries if not name.startswith("uhal")]
    own = {"uhal": OURS, "uhal, unchecked": "#8db9e8"}
    return {**own, **{name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}}


def by_arguments(figures: Figures) -> Figure:
    """Cost of a launch, by its number of arguments."""
    title = "One launch on a driver that does nothing, each library's cheapest way"
    figure, axes = _figure(title, figures, 7.6, 4.2)
    found = _cheapest(figures, "launch")
    colours = _colours(found)
    # Names are at the ends of lines; names of close lines are moved apart.
    taken: list[float] = []
    for name, counts in sorted(found.items(), key=lambda one: max(one[1].items())[1]):
        places = sorted(counts)
        axes.plot(places, [counts[at] for at in places], "o-", color=colours[name], markersize=4)
        level = counts[places[-1]]
        if taken:
            level = max(level, taken[-1] * 1.3)
        taken.append(level)
        axes.annotate(name, (places[-1], level), (8, 0), textcoords="offset points", va="center")
    axes.set_yscale("log")
    axes.set_xticks(sorted({at for counts in found.values() for at in counts}))
    axes.set_xlabel("arguments of the kernel")
    axes.set_ylabel("ns of the caller")
    _grid(axes, "y")
    return figure


def other_calls(figures: Figures) -> Figure:
    """Costs of other calls."""
    calls = [what for what in dict.fromkeys(row["what"] for row in figures["rows"])]
    calls = [what for what in calls if what not in ("launch", "control")]
    title = "Other calls, each library's cheapest way, ns of the caller"
    rows = -(-len(calls) // 2)
    figure, grid = _figure(title, figures, 7.6, 2.1 * rows, nrows=rows, ncols=2, squeeze=False)
    for axes, what in zip(grid.flat, calls, strict=False):
        found = {name: counts[0] for name, counts in _cheapest(figures, what).items()}
        found.pop("uhal, unchecked", None)
        names = sorted(found, key=found.__getitem__, reverse=True)
        colours = [OURS if name == "uhal" else OTHERS[4] for name in names]
        bars = axes.barh(names, [found[name] for name in names], color=colours)
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
        axes.set_title(what, fontsize=9)
        axes.margins(x=0.16)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
    for axes in list(grid.flat)[len(calls) :]:
        axes.set_visible(False)
    return figure


# -- operations ------------------------------------------------------------------------------------


def families(figures: Figures) -> Figure:
    """Speeds of families of operations relative to the fastest other library."""
    title = "Speed of ubridge over the faster of numpy and torch, geometric means"
    figure, axes = _figure(title, figures, 7.6, 3.4)
    means = figures["means"]
    sizes = list(dict.fromkeys(size for speeds in means.values() for size in speeds))
    shades = ("#8db9e8", OURS, "#1b4f8a")
    width = 0.8 / len(sizes)
    for index, size in enumerate(sizes):
        heights = [means[family].get(size) or 0 for family in means]
        places = [at + (index - (len(sizes) - 1) / 2) * width for at in range(len(means))]
        label = f"{int(size):,} elements"
        bars = axes.bar(places, heights, width * 0.92, color=shades[index % 3], label=label)
        axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    axes.axhline(1, color=INK, linewidth=0.9, linestyle="--")
    axes.set_xticks(range(len(means)), list(means))
    axes.set_ylabel("times as fast")
    axes.legend(frameon=False, fontsize=8)
    _grid(axes, "y")
    return figure


def operations(figures: Figures) -> Figure:
    """Speed of each operation, at every size."""
    title = "Speed of each operation over the faster of numpy and torch"
    found = [one for one in figures["speeds"] if one["speed"] is not None]
    names = list(dict.fromkeys(one["operation"] for one in found))[::-1]
    figure, axes = _figure(title, figures, 7.6, 0.21 * len(names) + 1.2)
    sizes = sorted({one["size"] for one in found})
    marks = dict(zip(sizes, "D.osv^"[: len(sizes)], strict=False))
    for size in sizes:
        label = f"{size:,} elements" if size else "products of matrices"
        fast = [one for one in found if one["size"] == size]
        axes.scatter(
            [one["speed"] for one in fast],
            [names.index(one["operation"]) for one in fast],
            marker=marks[size],
            s=34,
            label=label,
            alpha=0.85,
            color=(OTHERS[0], "#8db9e8", OURS, "#1b4f8a", OTHERS[1])[sizes.index(size) % 5],
        )
    axes.axvline(1, color=INK, linewidth=0.9, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("times as fast: right of the line ubridge is faster")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _grid(axes, "x")
    return figure


_OF_LAUNCHES = (by_arguments, other_calls)
_OF_OPERATIONS = (families, operations)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        for number, svg in enumerate(of_page(Path(given))):
            output = Path(given).with_suffix(f".{number}.svg")
            output.write_text(svg, encoding="utf-8")
            print(output)

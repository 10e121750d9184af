"""Puts plots where a page of figures says `<!-- plots -->`; the benchmarks draw them."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from benchmarks.plots import of_page

MARK = "<!-- plots -->"


def connect(app: Sphinx) -> None:
    """Draw while a page is read: a page without its JSON is an error there."""
    app.connect("source-read", _of_page)


def _of_page(app: Sphinx, name: str, source: list[str]) -> None:
    if MARK in source[0]:
        figures = Path(app.srcdir, f"{name}.json")
        app.env.note_dependency(str(figures))
        drawn = "\n\n".join(f"```{{raw}} html\n{svg}\n```" for svg in of_page(figures))
        source[0] = source[0].replace(MARK, drawn)

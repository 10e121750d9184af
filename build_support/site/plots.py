"""Puts plots of the benchmarks into pages of the site.

`<!-- plots -->` stands for every plot of the page's own figures, `<!-- plot: PAGE NAME -->` for one
plot of another page.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from benchmarks.plots import of_page

MARK = re.compile(r"<!-- plots?(?:: (\w+) (\w+))? -->")


def connect(app: Sphinx) -> None:
    """Draw while a page is read, so that a missing JSON file is an error of that page."""
    app.connect("source-read", _of_page)


def _of_page(app: Sphinx, name: str, source: list[str]) -> None:
    def drawn(mark: re.Match[str]) -> str:
        figures = Path(app.srcdir, "figures", "pages", f"{mark[1] or name}.json")
        app.env.note_dependency(str(figures))
        plots = of_page(figures, mark[2])
        return "\n\n".join(f"```{{raw}} html\n{svg}\n```" for svg in plots)

    source[0] = MARK.sub(drawn, source[0])

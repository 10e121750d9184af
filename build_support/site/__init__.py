"""Sphinx extensions of the site; `docs/conf.py` names them.

`names.py` chooses the names that a page of the reference shows, `reference.py` writes them out, and
`compiled.py` describes the classes of the lane from its stub. `links.py` makes links of code and of
paths, `gallery.py` and `plots.py` draw pictures. `check.py` and `browser.py` check the finished
site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect everything to Sphinx's events."""
    # Sphinx is installed only for building the site; tests read the parts without it.
    from build_support.site import gallery, links, plots, reference

    reference.connect(app)
    links.connect(app)
    plots.connect(app)
    gallery.connect(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

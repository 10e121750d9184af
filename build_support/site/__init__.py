"""What Sphinx does for the site besides what its extensions do; `docs/conf.py` names it.

`reference.py` writes out which names a page of the reference shows, `compiled.py` describes the
classes of the lane from its stub, `links.py` makes links of code and of paths. `gallery.py` and
`plots.py` draw pictures; `check.py` and `browser.py` look at the finished site.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from build_support.site import gallery, links, plots, reference


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect everything to Sphinx's events."""
    reference.connect(app)
    links.connect(app)
    plots.connect(app)
    gallery.connect(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

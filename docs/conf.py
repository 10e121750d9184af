"""Settings of Sphinx for the site: `make docs`. The project's part is in `build_support/site/`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from build_support.site.repository import repository_links  # noqa: E402 -- the path comes before it
from uhal import __version__  # noqa: E402

project = "uhal"
author = "the authors of uhal"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "build_support.site",
]

# -- text ------------------------------------------------------------------------------------------

source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
# Every heading can be linked to.
myst_heading_anchors = 4
suppress_warnings: list[str] = []
# Docstrings mark code with single backticks, as Markdown does.
default_role = "code"
highlight_language = "none"
smartquotes = False

# -- reference -------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

# -- look ------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"uhal {version}"
html_logo = "_static/logo.svg"
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "sidebar_hide_name": False,
    "navigation_with_keys": True,
    **repository_links(ROOT),
}
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

"""Looks at the finished site: `python -m build_support.site.check build/site/html`.

Every link within the site leads to a page, and to an existing place on the page. Every picture
exists; every public name has an entry. Links to other sites are only counted: `make docs LINKS=1`
checks them, which needs a network.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from sphinx.util.inventory import InventoryFile

from build_support.site.names import PACKAGES


@dataclass
class Page(HTMLParser):
    """Anchors and links of a page."""

    places: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note a tag's name and the target of its link."""
        for name, value in attributes:
            if value is None:
                continue
            if name in ("id", "name"):
                self.places.add(value)
            # Links of a drawing lead to its own parts.
            elif name in ("href", "src") and tag in ("a", "img", "link", "script", "iframe"):
                self.links.append(value)


def main(arguments: list[str]) -> int:
    """Print all faults; exit status 1 if there are any."""
    site = Path(arguments[0])
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    wrong = [*broken(site, pages), *undescribed(site)]
    for one in wrong:
        print(one)
    others = {link for page in pages.values() for link in page.links if link.startswith("http")}
    print(f"{len(pages)} pages, {len(others)} links to other sites, {len(wrong)} mistakes")
    return 1 if wrong else 0


def read(path: Path) -> Page:
    """Parse a page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Return the links within a site that lead nowhere."""
    found = []
    for path, page in pages.items():
        if "_modules" in path.parts:
            continue  # copies of sources: Sphinx links them to the defining module's names
        for link in page.links:
            address, place = urldefrag(link)
            if ":" in address or address.startswith("//"):
                continue
            target = (
                (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            )
            here = path.relative_to(site)
            if not target.exists():
                found.append(f"{here}: {link} leads nowhere")
            elif place and target in pages and unquote(place) not in pages[target].places:
                found.append(f"{here}: {link}: the page has no such place")
    return found


def undescribed(site: Path) -> list[str]:
    """Return the public names that the site's index of names lacks."""
    with (site / "objects.inv").open("rb") as stream:
        inventory = InventoryFile.load(stream, "", lambda base, name: name)
    names = {name for kind in inventory.values() for name in kind}
    return [
        f"{package}.{name} is not described"
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
        if f"{package}.{name}" not in names
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Tests the finished site in Chromium: `python -m build_support.site.browser build/site/html`.

It checks search, navigation, both colour schemes and narrow screens, as a reader would. Screenshots
go to `screenshots` beside the site. It needs the package `playwright` and a Chromium: `CHROMIUM`,
`chromium` in the path, or playwright's own.
"""

from __future__ import annotations

import functools
import http.server
import os
import posixpath
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from build_support.site.check import read

NARROW = {"width": 360, "height": 740}
WIDE = {"width": 1360, "height": 900}
SHOWN = ("index", "tutorial/2-fused-kernel", "reference/uhal", "performance", "gallery")
"""Pages whose screenshots are kept."""
LEAST_CONTRAST = 4.5
"""Least contrast of text, in WCAG 2.2, 1.4.3."""

PATIENCE_MS = 300_000
"""A machine with other work may need minutes for a page."""

_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_CONTRAST = """
() => {
  const level = (one) => {
    const [r, g, b] = one.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.body);
  const pair = [level(style.color), level(style.backgroundColor)].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), level(style.backgroundColor)];
}
"""


def main(arguments: list[str]) -> int:
    """Print all faults; exit status 1 if there are any."""
    site = Path(arguments[0])
    wrong: list[str] = []
    with served(site) as address, sync_playwright() as playwright:
        executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
        # A container has no name spaces for Chromium's own sandbox; the pages are ours.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for look in (pages, search, navigation, colours, narrow):
            found = look(browser, address, site)
            print(f"{look.__name__}: {'; '.join(found) or 'right'}", flush=True)
            wrong += found
        pictures(browser, address, site.parent / "screenshots")
        browser.close()
    return 1 if wrong else 0


def opened(browser: Browser, **how: Any) -> Page:
    """Open a view whose waits suit a machine with other work."""
    view = browser.new_page(**how)
    view.set_default_timeout(PATIENCE_MS)
    return view


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the site while the context is open."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None:
            """Log no requests."""

    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def names(site: Path) -> list[str]:
    """Return the site's pages, without extension."""
    found = [path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")]
    return sorted(name for name in found if not name.startswith("_"))


def pages(browser: Browser, address: str, site: Path) -> list[str]:
    """Check that every page loads, has one title, and logs no errors."""
    found: list[str] = []
    view = opened(browser, viewport=WIDE)
    at = ""
    view.on("pageerror", lambda error: found.append(f"{at}: {error}"))
    view.on("requestfailed", lambda request: found.append(f"{at}: {request.url} failed"))
    for at in names(site):
        answer = view.goto(f"{address}/{at}.html")
        if answer is None or not answer.ok:
            found.append(f"{at}: not served")
        elif at not in ("search", "genindex") and view.locator("article h1").count() != 1:
            found.append(f"{at}: {view.locator('article h1').count()} titles")
        broken = view.evaluate(
            "[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)"
        )
        found += [f"{at}: no picture {one}" for one in broken]
    view.close()
    return found


def search(browser: Browser, address: str, site: Path) -> list[str]:
    """Search finds a name's entry and a word's guide; it finds nothing for nonsense."""
    found = []
    view = opened(browser, viewport=WIDE)
    for words, expected in (
        ("DeviceBuffer", "reference/names/uhal.DeviceBuffer.html"),
        ("uhal.launch", "reference/names/uhal.launch.html"),
        ("pinned", "guide/memory.html"),
        ("softmax", "reference/names/ubridge.softmax.html"),
        ("qzxqzx", ""),
    ):
        view.goto(f"{address}/index.html")
        view.fill("input.sidebar-search", words)
        view.press("input.sidebar-search", "Enter")
        view.wait_for_selector("#search-results p.search-summary")
        view.wait_for_function(
            "!/Searching|Preparing/.test(document.querySelector('#search-results').innerText)"
        )
        links = view.locator("#search-results li a").evaluate_all("all => all.map((a) => a.href)")
        if expected and not any(expected in link for link in links):
            found.append(f"{words!r} does not lead to {expected} but to {links[:3]}")
        if not expected and links:
            found.append(f"{words!r} leads to {links[:3]}")
    view.close()
    return found


def navigation(browser: Browser, address: str, site: Path) -> list[str]:
    """Each page is in the side bar or linked from such a page; "next" visits the side bar's
    pages.
    """
    view = opened(browser, viewport=WIDE)
    view.goto(f"{address}/index.html")
    listed = view.locator(".sidebar-tree a").evaluate_all("all => all.map((a) => a.href)")
    inside = {link.partition("#")[0].removeprefix(f"{address}/") for link in listed}
    apart = {"search", "genindex", "py-modindex", "index"}
    known = inside | linked_from(site, inside)
    lost = [one for one in names(site) if f"{one}.html" not in known and one not in apart]
    found = [f"{one} is not listed, nor linked from a page that is" for one in lost]
    passed = 0
    while view.locator("a.next-page").count() and passed <= len(inside):
        # The previous page has links, too.
        with view.expect_navigation():
            view.click("a.next-page")
        passed += 1
    if passed != len(inside - {"#", "", "index.html"}):
        found.append(f"next leads through {passed} pages of {len(inside)}")
    view.close()
    return found


def linked_from(site: Path, pages: set[str]) -> set[str]:
    """Return the pages of the site that some pages link to."""
    found = set()
    for page in pages:
        if (site / page).is_file():
            for link in read(site / page).links:
                target = link.partition("#")[0]
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(page), target)))
    return found


def colours(browser: Browser, address: str, site: Path) -> list[str]:
    """Text can be read in both schemes, the system's choice counts, and the button changes it."""
    found = []
    for scheme in ("light", "dark"):
        view = opened(browser, viewport=WIDE, color_scheme=scheme)
        view.goto(f"{address}/performance.html")
        contrast, background = view.evaluate(_CONTRAST)
        if (background < 0.5) != (scheme == "dark"):
            found.append(f"{scheme}: the background has a luminance of {background:.2f}")
        if contrast < LEAST_CONTRAST:
            found.append(f"{scheme}: contrast {contrast:.1f}")
        text = view.evaluate("getComputedStyle(document.body).color")
        inks = set(
            view.locator("svg.plot text").evaluate_all(
                "all => all.map((a) => getComputedStyle(a).fill)"
            )
        )
        if inks != {text}:
            found.append(f"{scheme}: text of plots is {inks}, of the page {text}")
        before = view.evaluate("document.body.dataset.theme")
        view.locator(".theme-toggle:visible").first.click()
        if view.evaluate("document.body.dataset.theme") == before:
            found.append(f"{scheme}: the button does not change it")
        view.close()
    return found


def narrow(browser: Browser, address: str, site: Path) -> list[str]:
    """No page is wider than a telephone, and the menu opens."""
    found = []
    view = opened(browser, viewport=NARROW)
    for name in names(site):
        view.goto(f"{address}/{name}.html")
        if (over := view.evaluate(_OVERFLOW)) > 0:
            found.append(f"{name} is {over} pixels too wide")
    view.goto(f"{address}/index.html")
    view.locator("label[for=__navigation]:visible").first.click()
    view.wait_for_timeout(500)
    box = view.locator("aside.sidebar-drawer").bounding_box()
    if box is None or box["x"] < 0:
        found.append("the menu does not open")
    view.close()
    return found


def pictures(browser: Browser, address: str, folder: Path) -> None:
    """Keep screenshots of some pages."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("light", WIDE, "light"),
        ("dark", WIDE, "dark"),
        ("narrow", NARROW, "light"),
    )
    for kind, size, scheme in kinds:
        view = opened(browser, viewport=size, color_scheme=scheme)
        for name in SHOWN:
            view.goto(f"{address}/{name}.html")
            view.screenshot(path=folder / f"{name.replace('/', '-')}-{kind}.png")
        view.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The README and each page of the guide run from top to bottom, as written.

A block whose first line is `# needs torch` is left out where that library is not installed; the
skipped test says so.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"# needs ([\w.]+)\n")
CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def page_name(page: Path) -> str:
    return page.stem


def blocks_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def missing(block: str) -> str | None:
    """The library a block needs that is not installed."""
    found = NEEDS.match(block)
    if found is None:
        return None
    try:
        return None if importlib.util.find_spec(found[1]) else found[1]
    except ModuleNotFoundError:
        return found[1]


WITH_NEEDS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks_of(page), 1)
    if NEEDS.match(block)
]


@pytest.mark.parametrize("block", WITH_NEEDS)
def test_a_block_that_needs_a_library_has_it(block: str) -> None:
    compile(block, "guide", "exec")
    library = missing(block)
    if library is not None:
        pytest.skip(f"{library} is not installed: the block was not run")


def test_every_block_of_python_is_run() -> None:
    for page in PAGES:
        kinds = re.findall(r"^```(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not {"py", "python3", "pycon"} & set(kinds), f"{page.name} has code nobody runs"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=page_name)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem}.py"
    script.write_text(
        "\n".join(block for block in blocks_of(page) if not missing(block)), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "UHAL_BACKEND": "host"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "docs").glob("*.md"))], ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8").replace("[`", "[").replace("`]", "]"))
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""The README and every page of the site run from top to bottom, as written.

A Python block that begins with `# needs torch` is skipped if that library is not installed.
`console` blocks listed in `SESSIONS` run in a shell, and their output must match the page, where
`…` stands for any text. A comment before a block, such as `<!-- needs nvcc and llvmlite -->`, names
required programs and libraries. A shell parses all other `console` lines.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_support.pages import (
    COMMAND,
    NEEDS,
    PAGES,
    ROOT,
    SESSION,
    SESSIONS,
    SHELL,
    blocks_of,
    matches,
    page_name,
)
from tests.children import untold

CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def missing(block: str) -> str | None:
    """Return the library that a block needs and that is not installed."""
    found = NEEDS.match(block)
    if found is None:
        return None
    try:
        return None if importlib.util.find_spec(found[1]) else found[1]
    except ModuleNotFoundError:
        return found[1]


WITH_NEEDS = [
    pytest.param(block, id=f"{page_name(page)}-{number}")
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


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=page_name)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
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


def is_there(name: str) -> bool:
    """A program in the path, a library of Python, or a shared library that pip installed."""
    return bool(
        shutil.which(name)
        or importlib.util.find_spec(name)
        or Path(sys.prefix, "lib", f"lib{name}.so").is_file()
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHELL.search(page.read_text())], ids=page_name
)
def test_a_shell_understands_every_line_for_one(page: Path) -> None:
    for block in SHELL.findall(page.read_text(encoding="utf-8")):
        lines = COMMAND.findall(block)
        commands = "".join(command for command, _ in lines) if lines else block
        done = subprocess.run(["sh", "-n"], input=commands, capture_output=True, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, ""), commands


@pytest.mark.drawn(2)
@pytest.mark.parametrize("page", SESSIONS, ids=page_name)
def test_sessions_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    for source in (*page.parent.glob("*.cu"), *page.parent.glob("*.py")):
        shutil.copy(source, tmp_path)
    environment = {
        **untold(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
    }
    missing: dict[str, None] = {}
    for session in SESSION.finditer(page.read_text(encoding="utf-8")):
        lacks = [
            one for one in (session["needs"] or "").split(" and ") if one and not is_there(one)
        ]
        if lacks:
            missing.update(dict.fromkeys(lacks))
            continue
        for command, shown in COMMAND.findall(session["text"]):
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                encoding="utf-8",
                timeout=120,
            )
            assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
            assert matches(shown, done.stdout), f"{command}{done.stdout}"
    if missing:
        pytest.skip(f"not run for want of {', '.join(missing)}")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8").replace("[`", "[").replace("`]", "]"))
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"

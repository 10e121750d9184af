"""The script that follows the pages: it reads their commands and judges each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_support.follow import LEFT_OUT, Shell, environment_of
from build_support.pages import PAGES, Command, commands_of, matches, page_name


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, environment_of(tmp_path)) as opened:
        yield opened


def test_readme_leads_from_a_clone_to_a_program() -> None:
    lines = [one.line for one in commands_of(PAGES[0])]
    assert [line.partition("  ")[0] for line in lines if "uhal-py" not in line] == [
        "make demo",
        ". .venv/bin/activate",
        "make test",
    ]


def test_commands_of_every_kind_of_page_are_found() -> None:
    every = [one for page in PAGES for one in commands_of(page)]
    assert all(any(re.search(left, one.line) for one in every) for left in LEFT_OUT)
    shown = [one for one in every if one.shown]
    assert len(shown) > 5 and all(one.line for one in every)
    assert {page_name(page) for page in PAGES if any(commands_of(page))} >= {
        "README",
        "install",
        "guide/language-models",
        "tutorial/1-first-launch",
        "tutorial/4-without-a-compiler",
    }


def test_output_is_no_command(shell: Shell) -> None:
    assert shell.reason_against(Command("a line of output", is_indented=True)) == ""
    assert shell.reason_against(Command("cd folder", is_indented=True)) is None
    assert shell.reason_against(Command("name=$(pwd)", is_indented=True)) is None
    reason = shell.reason_against(Command("no-such-program --option"))
    assert reason == "needs no-such-program"
    assert shell.reason_against(Command("pwd", needs=("no-such",))) == "needs no-such"


def test_commands_share_a_shell_and_a_failure_is_told(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "within").mkdir()
    assert shell.run(Command("cd within")) == ""
    assert shell.run(Command("pwd; cat", f"…{os.sep}within\n")) == ""
    assert "exit status 3" in shell.run(Command("sh -c 'echo words >&2; exit 3'"))
    assert "got\nb\n" in shell.run(Command("echo b", "a\n"))
    assert "its shell ended" in shell.run(Command("exit 0"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [("a …\n", "a b\n", True), ("a …\n", "b\n", False), ("…", "", True), ("a.c\n", "abc\n", False)],
)
def test_an_ellipsis_stands_for_any_text(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same

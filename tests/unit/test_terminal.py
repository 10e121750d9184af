"""Names from files and devices cannot control a terminal, and every encoding shows them."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ubridge
import uhal
from tests.children import ROOT
from uhal import terminal
from uhal.doctor import run

EVIL = "\x1b[2Jé漢\nname\r\x7f\u202e\udcff"
ESCAPED = "\\x1b[2Jé漢\\nname\\r\\x7f\\u202e\\udcff"


def test_a_name_stays_on_its_line() -> None:
    assert terminal.one_line(EVIL) == ESCAPED
    assert terminal.one_line("plain é 漢") == "plain é 漢"


def test_errors_show_escapes_of_the_files_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ubridge.files.__main__ import main
    from ubridge.models.commands import main as of_models
    from uhal.profiler.command import run as profiled

    path = tmp_path / "x\x1b[2J\n"
    path.write_text("no weights")
    assert main(["ls", str(path)]) == 1
    assert of_models("generate", [str(path)]) == 1
    with pytest.raises(SystemExit):
        profiled([f"{path}.py"])
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert said.count("x\\x1b[2J") >= 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_command_writes_every_name(
    encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("UHAL_HOST_LIBRARY", f"{tmp_path}/\x1b[2J漢.so")
    assert run() in (0, 1)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdout", out)
    from ubridge.files.__main__ import main

    path = tmp_path / "x.safetensors"
    with uhal.Device("host"):
        ubridge.save(path, {"a\x1b[2J漢\nb": ubridge.full((2,), 1.0, "f32")})
    assert main(["ls", str(path)]) == 0
    with uhal.Device("host"), uhal.profile() as found, uhal.annotate(EVIL.rstrip("\udcff")):
        ubridge.full((2,), 1.0, "f32")
    terminal.write(out, found.table())
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    written = out.buffer.getvalue().decode(encoding)
    assert "\x1b" not in written and "\r" not in written
    assert written.count("\\x1b[2J") >= 3


def test_a_character_that_an_encoding_lacks_becomes_simpler() -> None:
    assert terminal.encodable("0…5 µs × 漢", "ascii") == "0...5 us x \\u6f22"
    assert terminal.encodable("0…5 µs × 漢", "latin-1") == "0...5 µs × \\u6f22"
    assert terminal.encodable("0…5 µs × 漢", "utf-8") == "0…5 µs × 漢"


PRINTS = """
import uhal, ubridge
with uhal.Device("host"):
    with uhal.profile() as found, uhal.annotate("漢"):
        x = ubridge.full((2,), 1.0, "f32")
    for shown in (found, uhal.bench(lambda: x + x, seconds=0.01)):
        assert not str(shown).isascii() or "utf" not in sys.stdout.encoding
        print(shown)
    try:
        x.buffer.view("漢")
    except uhal.DeviceError as error:
        print(error)
    graph = ubridge.ComputeGraph()
    graph.add_leaf(x, name="漢")
    print(graph)
try:
    raise uhal.DeviceError("0…5 漢")
except uhal.DeviceError as error:
    print(error)
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_program_prints_our_texts(encoding: str) -> None:
    done = python("-c", f"import sys\n{PRINTS}", PYTHONIOENCODING=f"{encoding}:strict")
    assert done.returncode == 0, done.stderr
    assert "0...5 \\u6f22" in done.stdout


@pytest.mark.parametrize("command", ["uhal cflags", "uhal sim run", "ubridge.files ls"])
def test_help_is_shown_by_every_terminal(command: str) -> None:
    done = python("-m", *command.split(), "--help", PYTHONIOENCODING="ascii", COLUMNS="40")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


def test_examples_print_ascii() -> None:
    for path in (ROOT / "examples").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        texts = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in texts:
                assert str(node.value).isascii(), f"{path}:{node.lineno}"


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        encoding="latin-1",
        timeout=120,
    )


@pytest.mark.parametrize(
    "again",
    [
        "for name in [one for one in sys.modules if one.split('.')[0] == 'uhal']:\n"
        "    del sys.modules[name]\nimport uhal",
        "import importlib; importlib.reload(uhal.dtypes)",
        "del sys.modules['uhal.dtypes']; import uhal.dtypes; from uhal.dtypes import F32",
    ],
)
def test_a_second_import_is_refused(again: str) -> None:
    done = python("-c", f"import sys, uhal\n{again}")
    assert done.returncode == 1
    assert "was imported before in this process" in done.stderr
    assert "Start a new process" in done.stderr


def test_examples_run_without_docstrings() -> None:
    for name in ("network_test", "graph_decoder"):
        done = python("-OO", "-m", "uhal", name, "--help")
        assert done.returncode == 0, done.stderr


def test_an_unreadable_proc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from uhal.images import cpu_level

    monkeypatch.setattr(cpu_level, "cpu_flags", frozenset)
    level = next(one for one in cpu_level.ALL_LEVELS["x86_64"] if one.cpu_flags)
    assert "/proc/cpuinfo cannot be read" in cpu_level.refusal(level)


def test_an_import_from_an_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "program.pyz"
    with zipfile.ZipFile(archive, "w") as written:
        for name in ("__init__.py", "_installation.py"):
            written.write(ROOT / "uhal" / name, f"uhal/{name}")
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import uhal"
    done = python("-c", code)
    assert done.returncode == 1
    assert "uhal cannot run from an archive" in done.stderr and "install it with pip" in done.stderr

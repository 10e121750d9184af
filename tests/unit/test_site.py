"""Parts of the site: names in the reference, figures of plots, pictures of the gallery."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
import uhal
import uhal.frameworks
from benchmarks import launch_overhead, tables
from benchmarks.suites import SUITES
from build_support.site import compiled, signatures
from build_support.site.names import BLOCK, public_names, shown
from build_support.site.repository import repository_links
from tests.requirements import needed_module
from tests.unit.test_public_names import attributes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DATA = DOCS / "figures" / "pages"
GALLERY = ROOT / "examples" / "gallery"
UNSTATED = {"hot_table"}
"""Names that the stub omits on purpose: no program needs them."""
WRITE = {"chat"}
"""Programs of the gallery that print text and draw no picture."""
DRAW = sorted(path for path in GALLERY.glob("*.py") if path.stem not in {"shared", *WRITE})


def test_pages_of_the_reference_show_names_there_are_and_each_once() -> None:
    for module, names in shown(DOCS).items():
        assert set(names) <= set(public_names(module))
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_a_name_that_no_page_shows_is_in_a_block_for_the_rest() -> None:
    rests = Counter(
        module
        for page in DOCS.rglob("*.md")
        for rest, module, _ in BLOCK.findall(page.read_text(encoding="utf-8"))
        if rest
    )
    assert set(rests.values()) == {1}
    for module in ("uhal", "uhal.frameworks", "ubridge", "ubridge.backends"):
        assert rests[module] == 1, f"a new name of {module} would be on no page"


COMPILED = {
    name: found
    for module in (uhal, uhal.frameworks)
    for name in module.__all__
    if isinstance(found := getattr(module, name), type) and compiled.is_compiled(found)
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_class_is_described_with_all_it_has(name: str) -> None:
    lines = "\n".join(compiled.described(f"uhal.{name}", COMPILED[name]))
    told = re.findall(r"^   \.\. py:(?:method|property|attribute):: (\w+)", lines, re.MULTILINE)
    assert set(told) == {attribute for attribute, _ in attributes(COMPILED[name])} - UNSTATED
    assert len(told) == len(set(told)), "overloads are signatures of one entry"
    assert "_Self" not in lines


def test_every_name_has_a_page_and_a_link_to_it(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the site is not built here")
    from build_support.site import reference

    pages = tmp_path / "docs"
    for folder in ("reference", "guide", "tutorial"):
        shutil.copytree(DOCS / folder, pages / folder, ignore=shutil.ignore_patterns("names"))
    reference.write_pages(pages)
    names = {path.name for path in (pages / reference.NAMES).iterdir()}
    assert {f"uhal.{name}.md" for name in uhal.__all__} <= names
    linked = set()
    for page in (pages / "reference").glob("*.md"):
        source = [page.read_text(encoding="utf-8")]
        reference._write_out(pages, f"reference/{page.stem}", source)
        linked |= set(re.findall(r"\(names/(\S+\.md)\)", source[0]))
    assert linked == names
    text = (pages / reference.NAMES / "uhal.bench.md").read_text(encoding="utf-8")
    assert ".. autofunction:: uhal.bench" in text
    assert "[the guide](../../guide/profiling.md)" in text and "uhal.bench(ubridge.add" in text
    reference.remove_pages(pages)
    assert not (pages / reference.NAMES).exists()


@pytest.mark.filterwarnings("ignore:.*NamesAsLinks.app")
def test_a_description_links_a_name_to_its_class_before_any_module(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the site is not built here")
    from sphinx.testing.util import SphinxTestApp

    from build_support.site import links

    (tmp_path / "conf.py").write_text("exclude_patterns = ['build']\n")
    (tmp_path / "index.rst").write_text(
        "Start\n=====\n\n``from_numpy``, ``DeviceBuffer.zeros``\n\n.. toctree::\n\n   a\n   b\n"
    )
    (tmp_path / "a.rst").write_text(
        "A\n=\n\n.. py:class:: DeviceBuffer\n   :module: uhal\n\n   See ``from_numpy``, ``sum``,\n"
        "   ``Stream``.\n\n   .. py:method:: zeros()\n\n      Not ``from_numpy``.\n"
    )
    (tmp_path / "b.rst").write_text(
        "B\n=\n\n.. py:function:: from_numpy(a)\n   :module: ubridge\n\n"
        ".. py:class:: Stream\n   :module: uhal\n"
    )
    app = SphinxTestApp("html", srcdir=tmp_path, builddir=tmp_path / "build")
    try:
        links.connect(app)
        app.build()
        written = {one: (app.outdir / f"{one}.html").read_text() for one in ("index", "a")}
    finally:
        app.cleanup()
    assert 'href="b.html#ubridge.from_numpy"' in written["index"]
    assert 'href="a.html#uhal.DeviceBuffer.zeros"' in written["index"]
    assert "b.html#ubridge.from_numpy" not in written["a"]
    assert 'href="b.html#uhal.Stream"' in written["a"]


def test_signatures_keep_the_aliases_of_the_source() -> None:
    shown, result = signatures.written_signature(ubridge.matmul) or ("", "")
    assert "stream: StreamLike | None = None" in shown and result == "Tensor"
    bound = signatures.written_signature(ubridge.ComputeGraph.instantiate, is_method=True) or (
        "",
        "",
    )
    assert bound == ("(stream: Stream)", "GraphPlan")
    assert signatures.written_signature(3) is None, "a value has no signature"
    assert signatures.written_signature(uhal.Stream) is None, "the stub describes compiled classes"


@pytest.mark.parametrize(
    ("origin", "page"),
    [
        ("https://example.org/who/uhal.git", "https://example.org/who/uhal/"),
        ("https://name:secret@example.org/who/uhal", "https://example.org/who/uhal/"),
        ("git@example.org:who/uhal.git", "https://example.org/who/uhal/"),
        ("ssh://git@example.org/who/uhal", "https://example.org/who/uhal/"),
        ("/home/who/uhal", None),
        (None, None),
    ],
)
def test_pages_link_to_the_repository_of_the_clone(
    origin: str | None, page: str | None, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    if origin is not None:
        subprocess.run(["git", "remote", "add", "origin", origin], cwd=tmp_path, check=True)
    assert repository_links(tmp_path).get("source_repository") == page


def test_every_link_of_the_side_bar_is_by_pattern_or_there() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for tree in trees for line in tree.splitlines()]
    named = {line for line in lines if line and not line.startswith(":")}
    assert "guide/*" in named, "a new page of the guide would be nowhere"
    for name in named:
        assert list(DOCS.glob(f"{name}.md")), name


def test_the_page_of_launches_says_what_its_figures_say() -> None:
    figures = json.loads((DATA / "performance.json").read_text(encoding="utf-8"))
    taken = ("rows", "gaps", "versions", "absent", "failed")
    starts = {name: launch_overhead.Start(**one) for name, one in figures["starts"].items()}
    result = launch_overhead.Result(**{name: figures[name] for name in taken}, starts=starts)
    known = {tables.gate_text(gate): gate for gate in SUITES["cuda"].gates}
    outcomes = [(known[gate["what"]], gate["is"]) for gate in figures["gates"]]
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    for table in tables.tables(result, outcomes, None).split("\n\n"):
        assert table in page
    assert figures["date"] in page and figures["machine"] in page


def as_cell(speed: float | None) -> str:
    return "not measured" if speed is None else f"{speed:.2f}"


def test_the_page_of_operations_says_what_its_figures_say() -> None:
    figures = json.loads((DATA / "performance_ops.json").read_text(encoding="utf-8"))
    page = (DOCS / "performance_ops.md").read_text(encoding="utf-8")
    times = {
        (row["operation"], row["size"], row["library"]): f"{row['nanoseconds'] / 1e3:,.2f}"
        for row in figures["rows"]
    }
    for one in figures["speeds"]:
        where = (one["operation"], one["size"])
        three = [times.get((*where, library), "") for library in ("ubridge", "numpy", "torch")]
        name = where[0].replace("|", "\\|")
        assert f"| {' | '.join((name, *three, as_cell(one['speed'])))} |" in page
    for family, speeds in figures["means"].items():
        assert f"| {family} | {' | '.join(map(as_cell, speeds.values()))} |" in page
    for gate in figures["gates"]:
        assert f"| {gate['what']} | {gate['least']:.2f} | {as_cell(gate['is'])} |" in page
    assert figures["date"] in page and figures["machine"] in page


def pixels_of(picture: Path) -> npt.NDArray[np.uint8]:
    """Return the rows of a PNG that uses no row filters."""
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    length = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8)
    return rows.reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("program", DRAW, ids=lambda path: path.stem)
def test_a_program_of_the_gallery_draws(program: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = subprocess.run(
        [sys.executable, str(program), "--size", "96", "--backend", "host", "--output", picture],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "host" in done.stdout
    pixels = pixels_of(picture)
    assert pixels.shape[1] == 96
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50


def test_every_program_of_the_gallery_is_on_its_page() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- picture: (\w+) -->", page) == [path.stem for path in DRAW]
    assert re.findall(r"<!-- printed: (\w+) -->", page) == sorted(WRITE)


def test_the_chat_of_the_gallery_answers_as_docstrings_do() -> None:
    needed_module("tokenizers")
    done = subprocess.run(
        [sys.executable, str(GALLERY / "chat.py"), "--backend", "host"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    talk = re.findall(r"^> (.*)\n(.*)\n", done.stdout, re.MULTILINE)
    assert len(talk) == 4
    for question, answer in talk:
        (name,) = set(re.findall(r"\w+", question)) & set(uhal.__all__)
        assert answer == (inspect.getdoc(getattr(uhal, name)) or "").partition("\n")[0]

"""Planted mistakes match the sources, change their behaviour, and name tests to run."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from build_support.mutants import compiled, every_case, near, python, sources
from build_support.mutants.bench import Bench, Killer
from build_support.mutants.mistakes import MISTAKES
from build_support.mutants.near import nearest
from tests.children import ROOT


def test_a_switch_chooses_between_the_text_and_the_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(int a) { return a > 3; }\n")
    one = compiled.Compiled("a.c", "a > 3", "a >= 3", ())
    (switched,) = compiled.with_switches(tmp_path, [one]).values()
    assert "return (uhal_mutant(1) ? (a >= 3) : (a > 3));" in switched
    (tmp_path / "cython_src").mkdir()
    (tmp_path / "cython_src" / "lane.pyx").write_text("cimport x\nimport atexit as _atexit\n")
    (tmp_path / "cython_src" / "b.pxi").write_text("if a and b:\n    pass\n")
    other = compiled.Compiled("cython_src/b.pxi", "a and b", "a", ())
    found = compiled.with_switches(tmp_path, [one, other])
    assert "if ((a) if uhal_mutant(2) else (a and b)):" in found["cython_src/b.pxi"]
    lane = found["cython_src/lane.pyx"]
    assert lane.index("bint uhal_mutant(int number)") < lane.index("import atexit")


@pytest.mark.parametrize("source", ["int f(void);\n", "a > 3; a > 3;\n"])
def test_a_text_that_does_not_stand_once_is_an_error(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.c").write_text(source)
    with pytest.raises(
        compiled.StaleTextError, match=r"a\.c: expected 'a > 3' once, found it [02]"
    ):
        compiled.with_switches(tmp_path, [compiled.Compiled("a.c", "a > 3", "1", ())])


def test_every_mistake_of_the_table_names_tests_that_there_are() -> None:
    for one in MISTAKES:
        assert one.tests and all((ROOT / test).is_file() for test in one.tests), one


def test_every_text_of_the_table_stands_once_in_its_source() -> None:
    compiled.with_switches(ROOT, MISTAKES)


def test_drawn_mistakes_change_what_a_module_does(seed: int) -> None:
    pytest.importorskip("cosmic_ray")  # of the extra `mutants`
    folders = ["uhal/images", "ubridge/core"]
    drawn = list(python.draw(ROOT, folders, 2, random.Random(seed)))
    # a turn passes if the file of the draw has no place for a mistake
    assert {one.path.rpartition("/")[0] for one in drawn} <= set(folders) and len(drawn) == 2
    for one in drawn:
        compile(one.source, one.path, "exec")
        assert one.source != (ROOT / one.path).read_text("utf-8") and one.before != one.after
    again = list(python.draw(ROOT, folders, 2, random.Random(seed)))
    assert again == drawn


def test_mistakes_are_drawn_in_compiled_sources_and_can_be_built_in(seed: int) -> None:
    drawn = list(sources.draw(ROOT, 40, random.Random(seed)))
    assert len({one.path for one in drawn}) == 40
    assert len({one.path.rpartition("/")[0] for one in drawn}) == len(sources.FOLDERS)
    for one in drawn:
        assert one.tests and one.text != one.replacement, one
        assert all((ROOT / test).is_file() for test in one.tests), one
    compiled.with_switches(ROOT, drawn)
    assert list(sources.draw(ROOT, 40, random.Random(seed))) == drawn


@pytest.mark.parametrize(
    ("source", "cython", "found"),
    [
        ("    if (a < b) {\n    } else if (c) {\n", False, ["a < b", "c"]),
        ("    return a + b;\n    const u64 x = a * 2;\n", False, ["a + b", "a * 2"]),
        ("    if (auto it = f(); it) {\n    if (a && // b\n#if (A)\n", False, []),
        ("    if a and b:\n    elif c:\n    return d\n", True, ["a and b", "c", "d"]),
        ("    if (x := f()):\n    return [a for a in b]\n    if a: # b\n", True, []),
    ],
)
def test_conditions_and_values_on_one_line_are_found(
    source: str, cython: bool, found: list[str]
) -> None:
    places = sources.expressions(source, cython)
    assert [source[start:end] for start, end in places] == found


def test_what_no_working_program_depends_on_is_no_mistake() -> None:
    plain = "if TYPE_CHECKING:\n    import a\ndef f(x: int | None) -> int:\n    y: int = 1\n"
    other = "if TYPE_CHECKING:\n    import b\ndef f(x: int & None) -> str:\n    y: str = 1\n"
    plain += "@dataclass(frozen=True)\nclass A: ...\nif __name__ == '__main__':\n    f(2)\n"
    other += "@dataclass(frozen=False)\nclass A: ...\nif __name__ <= '__main__':\n    f(2)\n"
    assert python._meaning(plain) == python._meaning(other)
    assert python._meaning(plain) != python._meaning(plain.replace("= 1", "= 2"))


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("uhal/signature.py", "tests/unit/test_signature.py"),
        ("uhal/images/ptx.py", "tests/unit/test_ptx.py"),
        ("ubridge/models/text/sampler.py", "tests/ubridge/test_token_sampling.py"),
        ("rocm_backend/_backend.py", "tests/unit/test_rocm_backend.py"),
        ("uhal/project/program.py", "tests/unit/test_new_project.py"),
        ("uhal/profiler/results.py", "tests/unit/test_profile.py"),
        ("ubridge/device/ready.py", "tests/ubridge/test_tracing.py"),
        ("host_backend/_backend.py", "tests/unit/test_host_backend.py"),
        ("uhal_conformance/command.py", "tests/unit/test_conformance_command.py"),
        ("simulators/ptx/operands.py", "tests/simulators/ptx/test_conversions.py"),
    ],
)
def test_the_nearest_tests_name_what_a_module_defines(
    path: str, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "_seconds", lambda root: {})
    assert test in nearest(path, 1, ROOT)


def test_a_bench_names_the_first_test_that_a_mistake_fails(tmp_path: Path) -> None:
    options = 'def pytest_addoption(parser):\n    parser.addoption("--seed")\n'
    (tmp_path / "conftest.py").write_text(options)
    (tmp_path / "tests").mkdir()
    for name, number in (("a", 2), ("b", 3)):
        text = f'def test_it():\n    assert os.environ["{compiled.VARIABLE}"] != "{number}"\n'
        (tmp_path / "tests" / f"test_{name}.py").write_text(f"import os\n{text}")
    bench = Bench(tmp_path, 1)
    files = ["tests/test_a.py", "tests/test_b.py"]
    with bench.planted("", "", 3):
        assert bench.killer(files) == Killer(files[1], f"{files[1]}::test_it")
    assert bench.killer(files[1:]) is None
    (tmp_path / "tests" / "test_b.py").write_text("import os\ndef test_it():\n    os._exit(3)\n")
    assert bench.killer(files) == Killer(files[1], files[1])


def test_every_case_runs_without_the_mark() -> None:
    marks = [SimpleNamespace(name="drawn"), SimpleNamespace(name="parametrize")]
    item: Any = SimpleNamespace(own_markers=marks, listchain=lambda: [item])
    every_case.pytest_collection_modifyitems([item])
    assert [mark.name for mark in marks] == ["parametrize"]

"""Environment variables: every reader goes through one table, which refuses nonsense."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from build_support.environment_table import PAGE, page
from build_support.jobs import MOST_WORKERS, BuildError, build
from tests.children import ROOT
from uhal import environment
from uhal.errors import ArgumentValueError

PRODUCT = (
    *("uhal", "host_backend", "cuda_backend", "rocm_backend", "tops_backend", "opencl_backend"),
    *("webgpu_backend", "ubridge", "cython_src"),
)
READERS = {
    "uhal/environment.py": "the one reader",
    "uhal/_simulated_program.py": "the environment of the program that it starts",
    "uhal/_simulated_run.py": "the environment of the program that it starts",
    "uhal/abi.py": "a library's file; the loader refuses a wrong one",
    "uhal/abi_table.py": "CC, the C compiler",
    "uhal/collectives/launchers.py": "ranks, in variables of launchers",
    "uhal/compile.py": "CXX, the C++ compiler",
    "uhal/doctor.py": "lists the variables that are set",
    "uhal/images/cpu_level.py": "the build loads it before uhal can be imported",
    "uhal/images/kernel_source.py": "the environment of the compiler that it starts",
    "uhal/images/private_folder.py": "XDG_CACHE_HOME",
    "uhal/profiler/vendor_ranges.py": "a library's file; an empty value means none",
    "uhal/registry.py": "a backend's name, also of other distributions; a library's file",
    "rocm_backend/images.py": "LOADER_USE_DYNSYM, a variable of AMD's loader",
    "ubridge/prepare/gcu/images.py": "a folder; an error names it if a file is missing",
    "ubridge/prepare/matmul/host_blas.py": "a library's file; the loader refuses a wrong one",
    "host_backend/runtime/platform.cpp": "numbers that host_backend checks first",
    "host_backend/runtime/runtime.cpp": "repeats a wrong value in its message",
    "host_backend/runtime/module.cpp": "TMPDIR",
}
"""Files of the product that read the environment directly, each with the reason."""

NONSENSE = ("x", "-1", "1e400", "nan", "0x10", "1_0", "9" * 5000, "\udcff", "4.5.6", "1;2")


def sources() -> dict[str, str]:
    """Return the text of each product source that may read the environment, by its path."""
    kinds = {".py", ".c", ".cpp", ".h", ".pxi", ".pyx"}
    tracked = subprocess.run(
        ["git", "ls-files", *PRODUCT], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    files = [Path(one) for one in tracked] or [
        path.relative_to(ROOT) for name in PRODUCT for path in sorted((ROOT / name).rglob("*"))
    ]
    return {
        path.as_posix(): (ROOT / path).read_text("utf-8")
        for path in files
        if path.suffix in kinds and (ROOT / path).is_file()
    }


def test_the_page_is_written_from_the_table() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m build_support.environment_table"


def test_only_listed_files_read_the_environment() -> None:
    reading = re.compile(r"\b_?os\.environ\b|\bgetenv\(")
    found = {path for path, text in sources().items() if reading.search(text)}
    assert found == set(READERS)


def test_the_table_has_every_variable_that_the_product_names() -> None:
    reading = re.compile(
        r'(?:VARIABLE = |read\(|environ\.get\(|getenv\(|environment_number\()"(UHAL_[A-Z0-9_]+)"'
    )
    named = {name for text in sources().values() for name in reading.findall(text)}
    assert named <= set(environment.with_simulated())
    assert {"UHAL_POOL", "UHAL_HOST_THREADS", "UHAL_CUDA_LIBRARY"} <= named


def test_c_readers_have_the_ranges_of_the_table() -> None:
    runtime = {path: text for path, text in sources().items() if path.endswith(".cpp")}
    constants = dict(re.findall(r"constexpr unsigned (\w+) = (\d+);", "".join(runtime.values())))
    calls = re.findall(
        r'environment_number\("(\w+)", (\d+), ([\w ]+<?<? ?\d*)', "".join(runtime.values())
    )
    assert len(calls) == 5
    for name, least, most in calls:
        base, _, shift = constants.get(most, most).partition("U << ")
        variable = environment.VARIABLES[name]
        expected = int(base) << int(shift or 0)
        own = (0, 1) if variable.choices else (variable.least, variable.most)
        assert own == (int(least), expected), name


def test_the_table_agrees_with_the_simulated_drivers() -> None:
    """The drivers' sources and the table have the same names, ranges and words."""
    paths = [*ROOT.glob("simulators/[a-z]*/*.cpp"), *ROOT.glob("simulators/ptx/executor/*.cpp")]
    text = "\n".join(path.read_text("utf-8") for path in paths if path.parent.name != "build")
    python = "\n".join(path.read_text("utf-8") for path in ROOT.glob("simulators/ptx/*.py"))
    simulated = {name: one for name, one in environment.with_simulated().items() if "_SIM_" in name}
    constants = dict(re.findall(r"constexpr \w+ (\w+) = (\d+);", text))
    constants |= {"UINT32_MAX": f"{2**32 - 1}", "UINT64_MAX": f"{2**64 - 1}"}
    constants |= {"1 << 20": f"{1 << 20}", "uint64_t{1} << 37": f"{1 << 37}"}
    header = (ROOT / "cuda_backend" / "abi.h").read_text("utf-8")
    constants |= dict(re.findall(r"#define (UHAL_CUDA_\w+) (\d+)", header))
    numbers = re.findall(r'Settings::number\(\s*"(\w+)",\s*([^,]+),\s*([^,]+),', text)
    words = re.findall(r'= !?other\("(\w+)", "(\w+)", "(\w+)"\)', text)
    texts = re.findall(r'Settings::(?:text|list)\("(\w+)"', text)
    read_in_python = re.findall(r'"UHAL_SIM_([A-Z_]+)"', python)
    for name, *range_ in numbers:
        least, most = (int(constants.get(bound, bound)) for bound in range_)
        one = simulated[f"UHAL_SIM_{name}"]
        own = (0, 1) if one.choices else (one.least, one.most)
        assert own == (least, most), name
    for name, *choices in words:
        assert simulated[f"UHAL_SIM_{name}"].choices == tuple(choices), name
    named = {name for name, *_ in (*numbers, *words)} | {*texts, *read_in_python}
    assert {f"UHAL_SIM_{name}" for name in named} == set(simulated)
    assert len(numbers) > 15 and len(words) == 10


def test_every_variable_of_the_tests_and_the_build_is_in_the_table() -> None:
    folders = ("tests", "uhal_conformance", "build_support")
    paths = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    reading = re.compile(r'(?:environ(?:\.get\(|\[)|read\()"(UHAL_(?:TEST|BUILD)_[A-Z_]+)"')
    named = {name for path in paths for name in reading.findall(path.read_text("utf-8"))}
    named -= {"UHAL_TEST_TOLD"}  # a test's own, which it gives to its child
    told = {name for name in environment.VARIABLES if name.startswith(("UHAL_TEST", "UHAL_BUILD"))}
    assert named == told


@pytest.mark.parametrize("text", ["0", "1025", "x", "-1", "1.5", "99999999", "²"])
def test_a_wrong_number_of_compilers_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_BUILD_JOBS", text)
    with pytest.raises(BuildError, match="UHAL_BUILD_JOBS: expected a number from 1 to 1024, got"):
        build([], ROOT)
    variable = environment.VARIABLES["UHAL_BUILD_JOBS"]
    assert (variable.least, variable.most) == (1, MOST_WORKERS)


@pytest.mark.parametrize(
    "name",
    [one.name for one in environment.with_simulated().values() if one.choices or one.most],
)
def test_nonsense_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = environment.with_simulated()[name]
    for text in NONSENSE:
        monkeypatch.setenv(name, text)
        with pytest.raises(ArgumentValueError) as refused:
            environment.read(name)
        said = str(refused.value)
        assert said.startswith(f"{name}: expected ") and "; unset it" in said
        assert len(said) < 400
    for text in ("", "  "):
        monkeypatch.setenv(name, text)
        assert environment.read(name) == variable.default
    for text in variable.choices or (f"{variable.least}", f"{variable.most}"):
        monkeypatch.setenv(name, f" {text} ")
        assert environment.read(name) == text
    if variable.most is not None:
        monkeypatch.setenv(name, f"{variable.most + 1}")
        with pytest.raises(ArgumentValueError, match="a number from"):
            environment.read(name)


PROGRAM = """
import os, sys
import numpy
def use():
    import uhal, uhal.progress
    uhal.Stream.default(uhal.Device("host")).synchronize()
wrong = []
for setting in sys.argv[1:]:
    name, _, value = setting.partition("=")
    os.environ[name] = value
    child = os.fork()
    if child == 0:
        try:
            use()
        except Exception as error:
            from uhal.errors import DeviceError
            ok = isinstance(error, DeviceError) and f"{name}: expected " in str(error)
            print(setting, type(error).__name__, str(error)[:300], flush=True)
            os._exit(0 if ok else 1)
        os._exit(2)
    if os.waitpid(child, 0)[1] != 0:
        wrong.append(setting)
    del os.environ[name]
print("wrong:", wrong)
"""


def test_programs_get_an_error_of_ours_for_every_wrong_variable() -> None:
    """Each child process imports uhal and opens the host with one wrong variable."""
    settings = [
        *("UHAL_POOL=x", "UHAL_PROGRESS=x", "UHAL_TRACEBACK=x", "UHAL_LAUNCH_MARKS=-1"),
        *("UHAL_LAUNCH_BLOCKING=2", "UHAL_MEMORY_LIMIT=nosuch=4G", "UHAL_MEMORY_LIMIT=x"),
        *("UHAL_HOST_CHECK=yes", "UHAL_HOST_CHECK_SECONDS=0", "UHAL_HOST_DEADLINE=1.5"),
        *("UHAL_HOST_LEVEL=fastest", "UHAL_HOST_THREADS=0", "UHAL_HOST_DEVICES=65"),
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UHAL_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *settings],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.endswith("wrong: []\n"), done.stdout + done.stderr

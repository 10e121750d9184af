"""Functions in separate processes: forks of a process with all imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.children import check_child, run_child


def told() -> None:
    print(os.environ.get("UHAL_TEST_TOLD"), "left" in sys.modules, os.getcwd(), os.getpid())
    sys.modules["left"] = sys


def test_a_child_has_its_environment_and_nothing_of_another() -> None:
    first = check_child(told, environment={"UHAL_TEST_TOLD": "1"}).split()
    second = check_child(told).split()
    assert (first[0], second[0]) == ("1", "None")
    assert first[1:3] == second[1:3] and first[1] == "False" and first[3] != second[3]
    assert "UHAL_TEST_TOLD" not in os.environ


def ends(how: str) -> None:
    import atexit

    atexit.register(print, "at the end")
    print("said")
    print("complained", file=sys.stderr)
    if how == "raises":
        raise ValueError(how)
    if how == "exits":
        sys.exit(7)
    if how == "aborts":
        sys.stdout.flush()
        os.abort()


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("how", "code"), [("returns", 0), ("raises", 1), ("exits", 7), ("aborts", -signal.SIGABRT)]
)
@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["fork", "fresh"])
def test_a_child_ends_as_an_interpreter_does(how: str, code: int, options: tuple[str, ...]) -> None:
    done = run_child(ends, how, options=options)
    assert done.returncode == code
    assert done.stdout == ("said\n" if how == "aborts" else "said\nat the end\n")
    assert done.stderr.startswith("complained\n")
    assert ("ValueError: raises" in done.stderr) == (how == "raises")


def sleeps(seconds: float) -> None:
    print("asleep", flush=True)
    time.sleep(seconds)


def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_child(sleeps, 60.0, timeout=2)
    assert check_child(sleeps, 0.0) == "asleep\n"


def test_children_of_several_threads_run_at_once() -> None:
    codes: list[int] = []
    started = [
        threading.Thread(target=lambda: codes.append(run_child(sleeps, 0.1).returncode))
        for _ in range(3)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert codes == [0, 0, 0]


def test_variables_that_are_read_before_the_fork_have_a_fresh_interpreter() -> None:
    done = run_child(told, environment={"PYTHONVERBOSE": "1"})
    assert done.returncode == 0 and "import 'site'" in done.stderr


def tells_libraries() -> None:
    with open("/proc/self/environ", "rb") as variables:
        print(*(one for one in variables.read().decode().split("\0") if one.startswith("LD_LIB")))
    print(os.getppid())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has a process's first variables")
def test_the_loader_of_a_child_has_its_path_of_libraries(tmp_path: Path) -> None:
    paths = {"LD_LIBRARY_PATH": str(tmp_path)}
    first, again = (check_child(tells_libraries, environment=paths) for _ in range(2))
    assert first == again and first.startswith(f"LD_LIBRARY_PATH={tmp_path}\n")

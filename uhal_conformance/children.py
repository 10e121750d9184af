"""Runs a function of a test module in a separate process."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uhal_conformance.forking import Forker
from uhal_conformance.sampling import SOAK, rounds

ROOT = Path(__file__).resolve().parents[1]


def run_child(
    function: Callable[..., object],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    timeout: float = rounds(120, 1200),
) -> subprocess.CompletedProcess[str]:
    """Call `function(*arguments)` in a separate process; arguments must have a literal repr.

    The call runs like a program of `run_text`, with the variables of this process and
    `environment`.
    """
    module = ".".join(Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
    call = f"{function.__name__}({', '.join(map(repr, arguments))})"
    program = f"from {module} import {function.__name__}; {call}"
    inherited = {**os.environ, **_paths(), **(environment or {})}
    return run_text(program, inherited, options, timeout)


def run_text(
    program: str,
    environment: Mapping[str, str],
    options: Sequence[str] = (),
    timeout: float = rounds(120, 1200),
) -> subprocess.CompletedProcess[str]:
    """Run a program's text in a separate process, with only these variables.

    A call with interpreter options, or a soak (which counts the lines that run), starts a new
    interpreter. Other calls fork a process that has imported numpy and pytest.
    """
    forker = _forker(environment.get(_LIBRARIES, ""))
    if not options and not SOAK and forker is not None and forker.suits(environment):
        done = forker.run(program, environment, timeout)
        if done is not None:
            return done
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_module(
    module: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments` as a program of `run_text`."""
    program = f"import runpy, sys; sys.argv = {[module, *arguments]!r}; "
    program += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return run_text(program, {**_paths(), **environment}, timeout=rounds(300, 3000))


def _paths() -> dict[str, str]:
    """Return the environment variable that lets a process import the tests' own modules."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


_LIBRARIES = "LD_LIBRARY_PATH"
"""The loader reads this variable when a process starts, so each value needs a forker."""
_MOST_FORKERS = 3
_forkers: dict[tuple[int, str], Forker] = {}
"""Forkers by process id and library path: a forked process has no forker."""


def _forker(libraries: str) -> Forker | None:
    if not hasattr(os, "fork"):
        return None
    key = (os.getpid(), libraries)
    if key not in _forkers:
        is_own = libraries == os.environ.get(_LIBRARIES, "")
        if not is_own and sum(pid == key[0] for pid, _ in _forkers) >= _MOST_FORKERS:
            return None
        environment = {**os.environ, **_paths()}
        if not is_own:
            environment[_LIBRARIES] = libraries
        _forkers[key] = Forker(ROOT, environment)
        atexit.register(_forkers[key].close)
    return _forkers[key]


def check_child(function: Callable[..., object], *arguments: Any, **how: Any) -> str:
    """Run a function, expect success and an empty stderr; return its output."""
    result = run_child(function, *arguments, **how)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr or result.stdout
    return result.stdout

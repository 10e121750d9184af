"""Runs a function of a test module in a process of its own."""

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
    """Call `function(*arguments)` in a process of its own; arguments must have a literal repr.

    With options of the interpreter, and in a soak, which counts the lines that run, the interpreter
    is a fresh one. Else it is a fork that has imported numpy and pytest.
    """
    module = ".".join(Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
    call = f"{function.__name__}({', '.join(map(repr, arguments))})"
    program = f"from {module} import {function.__name__}; {call}"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    reported = {**inherited, **(environment or {})}
    forker = _forker(inherited)
    if not options and not SOAK and forker is not None and forker.suits(reported):
        done = forker.run(program, reported, timeout)
        if done is not None:
            return done
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT,
        env=reported,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


_forkers: dict[int, Forker] = {}
"""Runner of a process, by process id: a fork has none."""


def _forker(environment: Mapping[str, str]) -> Forker | None:
    if not hasattr(os, "fork"):
        return None
    if os.getpid() not in _forkers:
        _forkers[os.getpid()] = Forker(ROOT, environment)
        atexit.register(_forkers[os.getpid()].close)
    return _forkers[os.getpid()]


def check_child(function: Callable[..., object], *arguments: Any, **how: Any) -> str:
    """Run it, expect success and a silent stderr; return its output."""
    result = run_child(function, *arguments, **how)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr or result.stdout
    return result.stdout

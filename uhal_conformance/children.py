"""Runs a function of a test module in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uhal_conformance.sampling import rounds

ROOT = Path(__file__).resolve().parents[1]


def run_child(
    function: Callable[..., object],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    timeout: float = rounds(120, 1200),
) -> subprocess.CompletedProcess[str]:
    """Call `function(*arguments)` in a fresh interpreter; arguments must have a literal repr."""
    module = ".".join(Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
    call = f"{function.__name__}({', '.join(map(repr, arguments))})"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *options, "-c", f"from {module} import {function.__name__}; {call}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def check_child(function: Callable[..., object], *arguments: Any, **how: Any) -> str:
    """Run it, expect success and a silent stderr; return what it printed."""
    result = run_child(function, *arguments, **how)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr or result.stdout
    return result.stdout

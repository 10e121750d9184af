"""Runs test programs in forks of a process with numpy and pytest imported.

Importing both packages takes half a second, most of the time of a small test in a separate process.
Nothing of uhal is imported before the fork: only the child opens libraries, reads variables and
starts threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

BEFORE_THE_FORK = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "COV", "OPENBLAS_", "OMP_")
"""Prefixes of variables that the interpreter, the loader or numpy read before the fork."""

_PROGRAM = """
import json, os, sys
import numpy, pytest
given = None
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        given = json.loads(line)
        break
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
if given is not None:
    for number, path in enumerate((os.devnull, given["out"], given["err"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(given["environment"])
    exec(given["program"], {"__name__": "__main__"})
"""


class Forker:
    """Runs programs one at a time in forks of one process. Threads may share it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start the forking process in a folder. The forking process ends with this process."""
        self._told = _before_the_fork(environment)
        # threads started before the fork would be missing in the child
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            cwd=folder,
            env={**environment, **single},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._lock = threading.Lock()

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Return whether a fork can have this environment."""
        return self._process.poll() is None and _before_the_fork(environment) == self._told

    def run(
        self, program: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """Run the text of a program; return None while another program runs."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with tempfile.TemporaryDirectory() as folder:
                return self._run(program, environment, timeout, Path(folder))
        finally:
            self._lock.release()

    def _run(
        self, program: str, environment: Mapping[str, str], timeout: float, folder: Path
    ) -> subprocess.CompletedProcess[str]:
        written = [folder / "out", folder / "err"]
        for path in written:
            path.touch()
        out, err = map(str, written)
        given = {"program": program, "environment": dict(environment), "out": out, "err": err}
        self._tell(json.dumps(given))
        pid = int(self._line())
        assert self._process.stdout is not None
        in_time = bool(select.select([self._process.stdout], [], [], timeout)[0])
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = int(self._line())
        said = [path.read_text("utf-8", "replace") for path in written]
        command = [sys.executable, "-c", program]
        if not in_time:
            raise subprocess.TimeoutExpired(command, timeout, *said)
        return subprocess.CompletedProcess(command, code, *said)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        found = bytearray()
        while not found.endswith(b"\n"):
            more = self._process.stdout.read(1)
            if not more:
                raise RuntimeError("the process that forks has ended")
            found += more
        return bytes(found)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _before_the_fork(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(BEFORE_THE_FORK)}

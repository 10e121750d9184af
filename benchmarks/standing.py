"""A peer program to measure, which is stopped between requests."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.suites import ROOT


class Standing:
    """A process that answers each line of its input with a line, and is stopped in between.

    In OpenMP's fastest setting, threads spin while they wait (`OMP_WAIT_POLICY=active`). Spinning
    threads would take a processor from the measured program.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env={**environment, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def ask(self, line: str) -> str:
        """Return the answer; raise SystemExit with the errors' end if the process ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        answer = ""
        try:
            self._process.send_signal(signal.SIGCONT)
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            self._process.send_signal(signal.SIGSTOP)
        except BrokenPipeError:
            pass
        if not answer:
            self._errors.seek(0)
            raise SystemExit(f"{self._process.args}: {self._errors.read()[-2000:]}")
        return answer.rstrip("\n")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Standing:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

"""A copy of the checkout built with other compiler options, for debuggers and sanitizers.

    python -m build_support.flavoured FLAVOUR [COMMAND…]

The copy is `build/flavours/FLAVOUR`, so its build does not touch the checkout's. The command brings
it up to date, and runs there, with this interpreter for `python`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from build_support.native import FLAVOURS, Flavour

ROOT = Path(__file__).resolve().parents[1]

SANITIZER_OPTIONS = {
    # Python never frees all its memory, and Python's libraries were not built for these checks.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1:die_after_fork=0",
}
REPORTS = "build/reports"
"""Folder of reports in the copy; files, because a test may capture a process's output."""
NOTICE = "WARNING: ASan doesn't fully support makecontext/swapcontext functions"
"""AddressSanitizer's notice about a test's fibers; it is no finding."""


def mirror(flavour: Flavour, root: Path = ROOT) -> Path:
    """Bring the copy's files up to date with the checkout's; the copy keeps its build."""
    copy = root / "build" / "flavours" / flavour.name
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout
    names = {name for name in listed.decode().split("\0") if name and (root / name).is_file()}
    record = copy / "build" / "mirrored"
    before = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()
    for name in before - names:
        (copy / name).unlink(missing_ok=True)
    for name in names:
        source, target = root / name, copy / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("\n".join(sorted(names)), encoding="utf-8")
    return copy


def environment(flavour: Flavour, copy: Path) -> Mapping[str, str]:
    """Return the environment for a program that loads the flavour's libraries."""
    if not flavour.runtime:
        return os.environ
    # The sanitizer needs libstdc++ at its start, for exceptions; Python does not load libstdc++.
    libraries = " ".join(_compiler_file(name) for name in (flavour.runtime, "libstdc++.so.6"))
    options = {
        name: f"{value}:log_path={copy / REPORTS / name.partition('_')[0].lower()}"
        for name, value in SANITIZER_OPTIONS.items()
    }
    return {**os.environ, **options, "LD_PRELOAD": libraries}


def _compiler_file(name: str) -> str:
    compiler = os.environ.get("CC", "cc")
    command = [compiler, f"-print-file-name={name}"]
    found = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        raise SystemExit(f"{compiler} has no {name}: install its sanitizers")
    return str(found.resolve())


def main(arguments: Sequence[str]) -> int:
    """Build the flavour that is named, and run the rest of the arguments in its copy."""
    if not arguments or arguments[0] not in FLAVOURS:
        raise SystemExit(f"expected one of {', '.join(FLAVOURS)} and, if wanted, a command")
    flavour = FLAVOURS[arguments[0]]
    copy = mirror(flavour)
    build = ["setup.py", "-q", "build_ext", "--inplace", f"--flavour={flavour.name}"]
    done = subprocess.run([sys.executable, *build], cwd=copy)
    if done.returncode or not arguments[1:]:
        print(f"{flavour.name}: {copy}" if not done.returncode else f"{flavour.name}: not built")
        return done.returncode
    command = [sys.executable if part == "python" else part for part in arguments[1:]]
    reports = copy / REPORTS
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    status = subprocess.run(command, cwd=copy, env=environment(flavour, copy)).returncode
    written = (path.read_text("utf-8", "replace") for path in sorted(reports.iterdir()))
    found = [text for text in written if not is_notice(text)]
    for report in found:
        print(report)
    return status or len(found)


def is_notice(report: str) -> bool:
    """Whether a report contains only `NOTICE`."""
    return all(NOTICE in line for line in report.splitlines() if line.strip())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

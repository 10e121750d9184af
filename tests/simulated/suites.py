"""Runs other projects' own tests, and checks how many pass on the simulator.

The lists in `tests/data/suites` have a line `path number` for each file of tests. `short` precedes
files that run in every `make test`. A line that ends in a colon is the reason why the indented
files or tests below it are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulated.process import ROOT

LISTS = ROOT / "tests" / "data" / "suites"
LONGEST = 1200
"""Seconds a file of tests may take."""

# Some kernels of the suites run long, and a machine that tests is busy.
_SETTINGS = {"UHAL_SIM_LAUNCH_SECONDS": "900"}


@dataclass
class Suite:
    """Contents of a list."""

    passing: dict[str, int] = field(default_factory=dict)
    short: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """The reason for each file or test."""


def read(name: str) -> Suite:
    """Read a list of `tests/data/suites`."""
    suite = Suite()
    reason = ""
    for line in (LISTS / f"{name}.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            assert reason, f"{line}: no reason stands above"
            suite.left_out[line.strip()] = reason
        elif line.endswith(":"):
            reason = line[:-1]
        else:
            *short, file, number = line.split()
            assert short in ([], ["short"]), line
            suite.passing[file] = int(number)
            suite.short += [file] if short else []
    return suite


def check(suite: Suite, files: list[str], command: list[str], folder: Path, **env: str) -> None:
    """Run these files in one process; fail unless as many tests pass as the list says.

    `folder` holds the files; `command` is extended by pytest's arguments.
    """
    skipped = [one for one in suite.left_out if one.partition("::")[0] in files]
    options = "-q --tb=short -rfE -c /dev/null --import-mode=importlib -p no:cacheprovider".split()
    arguments = [f"--rootdir={folder}", *options, *(f"--deselect={one}" for one in skipped), *files]
    inherited = {name: value for name, value in os.environ.items() if "UHAL_" not in name}
    with (folder / "output").open("w+") as output:
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(ROOT), **_SETTINGS, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LONGEST,
            check=False,
        )
        output.seek(0)
        said = output.read()
    last = said.strip().splitlines()[-1:] or [""]
    found = re.search(r"\b(\d+) passed", last[0])
    passed = int(found[1]) if found else 0
    wanted = sum(suite.passing[file] for file in files)
    assert done.returncode == 0 and passed == wanted, (
        f"{' '.join(files)}: {passed} passed, {wanted} must; exit status {done.returncode}\n"
        f"{said[-8000:]}"
    )

"""Follows the pages in an empty clone: `python -m build_support.follow [--without-cache] [PAGE …]`.

The last commit is cloned into a temporary folder. The commands of README and of the page on
installing build the clone. Then each page's commands run in a separate shell, from top to bottom,
and after them the page's Python. The exit status must be 0, and the output must equal the page's
output. Results of this checkout's compilers are copied into the clone, unless `--without-cache`
asks for a whole build.

A page is named as in `guide/launching`; without names all are followed. A command is left out, and
listed with the reason, if `LEFT_OUT` has it or its program is missing. Exit status 1: a command
failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from build_support.pages import NEEDS, PAGES, ROOT, Command, blocks_of, commands_of, matches
from build_support.pages import page_name as name_of

MOST_SECONDS = 1800
LEFT_OUT = {
    r"^make (test|wheel|docs|debug|sanitize)\b|^cd my_kernels": "long: CI runs it",
    r"\b(kernels?\.(ptx|hsaco|hipfb)|triple\.cu|saxpy\.(cu|cpp))\b": "needs a file of the reader's",
    r" DIR/| a,b|--backend NAME|\bMODEL\b": "stands for names of the reader's",
    r"gdb --args|^\(gdb\)| serve tiny": "waits for its user",
}
"""Lines of the pages that are not followed, and the reason."""
BEGINNING = ("README", "install")
"""Pages that are always followed, first: they build the clone."""
ASSIGNMENT = re.compile(r"\w+=[^\s(]*$")
"""A variable before a program."""
IN_CLONE = re.compile(r"make demo|\b(tests|examples)/")
"""Commands of a page that is followed in the clone itself."""
PROGRAM = """import ubridge
import uhal

uhal.Api.quick_init()
print(ubridge.ones(8).sum().item())
"""
"""The file `your_program.py`: pages give this name to the reader's file."""


def main(arguments: list[str]) -> int:
    """Follow the pages; return 1 if a command failed."""
    names = [one for one in arguments if not one.startswith("--")]
    chosen = [one for one in PAGES if name_of(one) in names or not names]
    first = [one for one in PAGES if name_of(one) in BEGINNING]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="uhal-follow-") as folder:
        clone = Path(folder, "uhal")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        if "--without-cache" not in arguments and (ROOT / "build" / "cache").is_dir():
            shutil.copytree(ROOT / "build" / "cache", clone / "build" / "cache")
        for page in dict.fromkeys((*first, *chosen)):
            wrong += follow(page, Path(folder, name_of(page).replace("/", "-")), clone)
    print(f"{wrong} commands failed")
    return 1 if wrong else 0


def follow(page: Path, folder: Path, clone: Path) -> int:
    """Run a page's commands and its Python; return how many failed."""
    commands = list(commands_of(page))
    python = "\n".join(one for one in blocks_of(page) if not NEEDS.match(one))
    if any(IN_CLONE.search(one.line) for one in commands):
        folder = clone
    else:
        folder.mkdir()
        for source in (*page.parent.glob("*.cu"), *page.parent.glob("*.py")):
            shutil.copy(source, folder)
    (folder / "your_program.py").write_text(PROGRAM)
    (folder / "program.py").write_text(python or PROGRAM, encoding="utf-8")
    if python:
        commands.append(Command("python program.py"))
    wrong = 0
    with Shell(folder, environment_of(clone)) as shell:
        for command in commands:
            reason = shell.reason_against(command)
            if reason is None:
                problem = shell.run(command)
                wrong += bool(problem)
                print(f"{name_of(page)}: {problem or 'right'}: {command.line}", flush=True)
            elif reason:
                print(f"{name_of(page)}: left out, {reason}: {command.line}")
    return wrong


def environment_of(clone: Path) -> dict[str, str]:
    """Return a new user's environment, with the clone's `.venv` first in the path."""
    own = Path(sys.executable).parent
    folders = [one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != own]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UHAL_", "PYTHON")) and name not in ("VIRTUAL_ENV", "MAKEFLAGS")
    }
    # Containers run as root, which Open MPI asks to confirm.
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
    return {**kept, **root, "PATH": os.pathsep.join([str(clone / ".venv" / "bin"), *folders])}


class Shell:
    """A shell that runs a page's commands one after another, in a folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start the shell."""
        self._path = environment["PATH"]
        self._answers = tempfile.TemporaryDirectory()
        self._count = 0
        self._shell = subprocess.Popen(
            ["sh"], cwd=folder, env=environment, stdin=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.communicate()
        self._answers.cleanup()

    def reason_against(self, command: Command) -> str | None:
        """Return why a line is left out: `None` to run it, empty for output."""
        words = command.line.split()
        program = next((one for one in words if not ASSIGNMENT.match(one)), words[0])
        is_program = re.match(r"\.$|cd$|\w+=", program) or shutil.which(program, path=self._path)
        if command.is_indented and not is_program:
            return ""
        for pattern, reason in LEFT_OUT.items():
            if re.search(pattern, command.line):
                return reason
        missing = [one for one in command.needs if not self._has(one)]
        if not is_program:
            missing.append(program)
        return f"needs {' and '.join(missing)}" if missing else None

    def run(self, command: Command) -> str:
        """Run a command; return its problem, empty without one."""
        assert self._shell.stdin is not None
        self._count += 1
        answer = Path(self._answers.name, str(self._count))
        out, errors, status = (answer.with_suffix(one) for one in (".out", ".err", ".status"))
        self._shell.stdin.write(
            f"{{\n{command.line}\n}} < /dev/null > {out} 2> {errors}\n"
            f"echo $? > {status}.new; mv {status}.new {status}\n"
        )
        self._shell.stdin.flush()
        end = time.monotonic() + MOST_SECONDS
        while not status.exists():
            if time.monotonic() > end or self._shell.poll() is not None:
                return f"not done within {MOST_SECONDS} s, or its shell ended"
            time.sleep(0.05)
        printed = out.read_text("utf-8", "replace")
        if (code := status.read_text().strip()) != "0":
            return f"exit status {code}\n{printed}{errors.read_text('utf-8', 'replace')}"
        if command.shown and not matches(command.shown, printed):
            return f"expected the page's output, got\n{printed}"
        return ""

    def _has(self, name: str) -> bool:
        """Whether the path, or the clone's `.venv`, has a program, a module or a library."""
        prefix = Path(self._path.split(os.pathsep)[0]).parent
        module = prefix.glob(f"lib/python3*/site-packages/{name}")
        inside = [prefix / "lib" / f"lib{name}.so", *module]
        return bool(shutil.which(name, path=self._path)) or any(one.exists() for one in inside)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

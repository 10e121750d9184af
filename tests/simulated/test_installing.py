"""Workers install third-party libraries into an empty cache at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WORKER = """
import subprocess, sys, time
from pathlib import Path
from tests.simulated import third_party

def pip(command, **_):
    target = Path(command[command.index("--target") + 1])
    target.mkdir()
    (target / "library.py").write_text("whole = True")
    # No worker ends before all workers have begun.
    folder = target.parent
    (folder / f"begun-{target.name}").touch()
    while len(list(folder.glob("begun-*"))) < 2:
        time.sleep(0.01)
    return subprocess.CompletedProcess(command, 0, "", "")

third_party.subprocess = type("", (), {"run": staticmethod(pip)})
print(third_party.install(Path(sys.argv[1]), ("library==1",)))
"""


def test_two_workers_publish_one_folder(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)],
            cwd=root,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for _ in range(2)
    ]
    said = {worker.communicate(timeout=60)[0] for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0]
    assert len(said) == 1
    assert (Path(said.pop().strip()) / "library.py").read_text() == "whole = True"
    assert not list(tmp_path.glob("unfinished-*"))

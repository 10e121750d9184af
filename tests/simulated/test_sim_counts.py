"""`python -m uhal sim run --count`: the simulated driver's counts of a program's kernels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import needed
from tests.simulated_driver import LIBRARY, ROOT

pytestmark = needed(LIBRARY.exists(), "make simulators")

SOURCE = """\
// Each lane loads 8 bytes from the next one.
__global__ void spread(const float *x, float *y) {
    y[i] = x[2 * i];
}
"""
PTX = """\
.version 7.0
.target sm_70
.address_size 64
.file 1 "{source}"
.visible .entry spread(.param .u64 x, .param .u64 y) {{
    .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f;
    .loc 1 2 1
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    .loc 1 3 5
    mul.wide.u32 %rd3, %r4, 8;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f, [%rd4];
    mul.wide.u32 %rd5, %r4, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.f32 [%rd6], %f;
    ret;
}}
"""
PROGRAM = """\
import sys
import numpy as np
from uhal import Api, DeviceBuffer, Module
Api.quick_init(0)
blocks, launches = map(int, sys.argv[2:])
x = np.random.default_rng(int(sys.argv[1], 16)).random(2 * 64 * blocks, np.float32)
module = Module.from_file("spread.ptx")
y = DeviceBuffer.uninitialized(64 * blocks, "f32")
source = DeviceBuffer.from_numpy(x)
for _ in range(launches):
    module.get_function("spread")[blocks, 64](source, y)
np.testing.assert_array_equal(y.to_numpy(), x[::2])
print("the program ran")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "spread.cu"
    source.write_text(SOURCE)
    (tmp_path / "spread.ptx").write_text(PTX.format(source=source))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "UHAL" not in name}
    return subprocess.run(
        [sys.executable, "-m", "uhal", "sim", *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT), "UHAL_POOL": "direct"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def counts_of(folder: Path, seed: int, *options: str, blocks: int, launches: int = 1) -> Any:
    program = ("program.py", f"{seed:x}", str(blocks), str(launches))
    done = run(folder, "run", "--count", *options, "--count-json", "counts.json", *program)
    assert (done.returncode, done.stdout) == (0, "the program ran\n"), done
    (kernel,) = json.loads((folder / "counts.json").read_text())
    return kernel, done.stderr


def test_a_kernel_is_told_by_its_source_line(folder: Path, seed: int) -> None:
    kernel, text = counts_of(folder, seed, blocks=6, launches=3)
    assert (kernel["kernel"], kernel["launches"], kernel["grid"]) == ("spread", 3, [6, 1, 1])
    metrics = kernel["metrics"]
    requests = 6 * 2 * 3
    load = "pipe_lsu_mem_global_op_ld"
    assert metrics[f"l1tex__t_requests_{load}.sum"] == requests
    assert metrics[f"l1tex__average_t_sectors_per_request_{load}.ratio"] == 8
    assert metrics["memory_l2_theoretical_sectors_global"] == 12 * requests
    assert metrics["memory_l2_theoretical_sectors_global_ideal"] == 8 * requests
    assert metrics["uhal__sectors_per_sector_touched.ratio"] == 1
    assert metrics["smsp__thread_inst_executed.sum"] == 13 * 64 * 6 * 3
    line = next(one for one in kernel["lines"] if one["line"] == 3)
    assert line["file"] == str(folder / "spread.cu")
    assert line["text"] == "y[i] = x[2 * i];"
    assert "8.0 sectors a request, 50 % of their bytes used" in line["advice"]
    assert "spread.cu:3" in text
    assert "y[i] = x[2 * i];" in text
    assert line["advice"] in text
    assert "Instructions are PTX's" in text


def test_of_a_large_grid_a_part_is_counted(folder: Path, seed: int) -> None:
    kernel, text = counts_of(folder, seed, blocks=1000)
    metrics = kernel["metrics"]
    assert 60 <= kernel["counted_blocks"] <= 70
    assert metrics["uhal__sectors_per_sector_touched.ratio"] is None
    # All blocks do the same work, so scaled counts are exact.
    total = metrics["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"]
    assert total == pytest.approx(2 * 1000, rel=1e-12)
    assert metrics["uhal__error_of_sectors.pct"] == pytest.approx(0, abs=1e-4)
    assert f"{kernel['counted_blocks']} of 1000 blocks were counted; standard error 0.0 %" in text
    whole, _ = counts_of(folder, seed, "--count-every", "1", blocks=1000)
    assert whole["counted_blocks"] == 1000
    assert whole["metrics"]["uhal__sectors_per_sector_touched.ratio"] == 1


def test_counts_are_kept_in_a_file(folder: Path, seed: int) -> None:
    variables = {"UHAL_SIM_CHECK": "count", "UHAL_SIM_COUNTS": str(folder / "kept.jsonl")}
    for _ in range(2):
        done = run(folder, "run", "program.py", f"{seed:x}", "2", "1", **variables)
        assert done.returncode == 0, done
    done = run(folder, "counts", "kept.jsonl", "--json", "kept.json")
    assert done.returncode == 0, done
    assert "spread.cu:3" in done.stdout
    (kernel,) = json.loads((folder / "kept.json").read_text())
    assert kernel["launches"] == 2


def test_the_exit_status_is_the_programs(folder: Path) -> None:
    done = run(folder, "run", "--count", "-c", "raise SystemExit(5)")
    assert (done.returncode, done.stderr) == (5, "No kernel was counted.\n"), done


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--count", "--check", "strict", "program.py"), "--count: expected"),
        (("run", "--count", "--backend", "rocm", "program.py"), "--count: expected"),
        (("counts", "absent.jsonl"), "absent.jsonl"),
        (("counts", "spread.cu"), "spread.cu"),
    ],
)
def test_mistakes(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(folder, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_counting_needs_a_file(folder: Path) -> None:
    text = "from uhal import Api; Api.quick_init(0)"
    done = run(folder, "run", "-c", text, UHAL_SIM_CHECK="count", UHAL_SIM_COUNTS="/absent/x")
    assert done.returncode != 0
    assert "expected in UHAL_SIM_COUNTS a file that can be written, got '/absent/x'" in done.stderr


@needed(shutil.which("ptxas") is not None, "ptxas")
def test_registers_and_occupancy_of_a_target(folder: Path, seed: int) -> None:
    kernel, text = counts_of(folder, seed, "--count-target", "sm_90", blocks=2)
    metrics = kernel["metrics"]
    assert 0 < metrics["launch__registers_per_thread"] < 64
    # A block has 64 threads, so 32 blocks have 64 warps.
    assert metrics["sm__maximum_warps_per_active_cycle_pct"] == 100
    assert metrics["uhal__spill_stores.bytes"] == 0
    assert "occup." in text


@needed(shutil.which("ptxas") is not None, "ptxas")
def test_resources_of_an_image(folder: Path) -> None:
    done = run(folder, "resources", "spread.ptx", "--target", "sm_80", "--block", "64")
    assert done.returncode == 0, done
    assert "spread" in done.stdout and "100 %" in done.stdout
    missing = run(folder, "resources", "spread.ptx")
    assert missing.returncode == 1
    assert "expected a target for PTX, as in sm_90" in missing.stderr


def test_a_profile_has_the_counts_of_its_launches(folder: Path, seed: int) -> None:
    program = PROGRAM.replace("for _ in range(launches):", "import uhal\nfor _ in range(2):", 1)
    profiled = program.replace(
        'print("the program ran")',
        """\
with uhal.profile(measure_copy=False) as p:
    module.get_function("spread")[blocks, 64](source, y)
p.export_json("profile.json")
p.export_html("profile.html")
""",
    )
    (folder / "program.py").write_text(profiled)
    done = run(folder, "run", "--count", "program.py", f"{seed:x}", "4", "0")
    assert done.returncode == 0, done
    (kernel,) = json.loads((folder / "profile.json").read_text())["counted"]
    assert (kernel["kernel"], kernel["launches"]) == ("spread", 1)
    line = next(one for one in kernel["lines"] if one["line"] == 3)
    page = (folder / "profile.html").read_text()
    assert 'id="counted"' in page
    assert json.dumps(line["advice"])[1:-1] in page
    plain = run(folder, "run", "program.py", f"{seed:x}", "4", "0")
    assert plain.returncode == 0, plain
    assert json.loads((folder / "profile.json").read_text())["counted"] == []


def test_a_kernel_of_an_image_is_counted(folder: Path) -> None:
    options = ("--grid", "2", "--block", "64", "--args", "f32[256]=range", "f32[128]")
    done = run(folder, "run", "spread.ptx", "--count", *options)
    assert done.returncode == 0, done
    assert "250. 252. 254.]" in done.stdout
    assert "8.0 sectors a request" in done.stderr

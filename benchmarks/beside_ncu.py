"""Compares counts of ten workloads with Nsight Compute: `python -m benchmarks.beside_ncu`.

`ncu` measures the workloads on this machine's GPU, and the simulated driver counts them; both use
the same metric names. Counts of instructions differ, because the simulator counts PTX instructions.
Without `ncu` in `PATH` the counts are printed alone; without a simulated driver there is nothing to
compare.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.gpu_counts import DRIVER, in_counting_process
from benchmarks.suites import ROOT

WORKS = (
    "copy contiguous f32",
    "copy transposed f32",
    "add contiguous f16",
    "sum first axis 64x4096",
    "softmax 64x1024 f32",
    "rms_norm 32x2048 f16",
    "matmul 256x256x256 f32",
    "vector by 256x2048 f16",
    "attention 4x128x128 d64 f16",
    "conv2d 1x16x32x32 k3 32 f32",
)
ONLY = f"^({'|'.join(WORKS)})$"
METRICS = (
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
)


def measured() -> dict[str, dict[str, float]]:
    """Metrics that `ncu` measures for each kernel of the works, by the kernel's name."""
    done = subprocess.run(
        [
            *("ncu", "--csv", "--metrics", ",".join(METRICS)),
            *(sys.executable, "-m", "benchmarks.gpu_counts", "--launch", "--only", ONLY),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(f"ncu failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return read_csv(done.stdout.splitlines())


def read_csv(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Read ncu's table; lines before its header are messages. A kernel's last launch counts."""
    text = list(lines)
    start = next((at for at, line in enumerate(text) if line.startswith('"ID"')), len(text))
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(text[start:]))):
        name = row["Kernel Name"].partition("(")[0]
        found.setdefault(name, {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return found


def main() -> None:
    """Print a line for each kernel and metric; with `--json` one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print a line of JSON at the end")
    options = parser.parse_args()
    if not DRIVER.exists():
        raise SystemExit("beside_ncu: expected the simulated driver. Run `make simulators`.")
    counted = in_counting_process(ONLY)
    beside = measured() if shutil.which("ncu") else {}
    if not beside:
        print("ncu is not in PATH: counts alone")
    rows: list[dict[str, Any]] = []
    for work in counted:
        for kernel in work["kernels"]:
            other = beside.get(kernel["name"], {})
            for metric in METRICS:
                value, ncu = kernel["metrics"][metric], other.get(metric)
                rows.append(
                    {"kernel": kernel["name"], "metric": metric, "counted": value, "ncu": ncu}
                )
                reported = "-" if value is None else f"{value:.2f}"
                print(
                    f"{kernel['name'][:28]:28} {metric:72} {reported:>14} "
                    f"{'' if ncu is None else f'{ncu:.2f}':>14}"
                )
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()

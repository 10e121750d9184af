"""`python -m uhal conformance`: the shipped suite, on a device, and its report."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import uhal
from build_support import conformance_images
from tests.children import run_module
from tests.conformance.rows import ROOT, compile_for_host, prepare_skeleton
from tests.sampling import rounds
from uhal_conformance import images, report
from uhal_conformance.gaps import UNSUPPORTED, Gaps, read_gaps
from uhal_conformance.images import IMAGES, KERNELS, NoImageError, image_for
from uhal_conformance.kept_folders import kept_folder
from uhal_conformance.row import DeviceRow
from uhal_conformance.running import Run, TestResult


def conformance(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    told = ["conformance", *map(str, arguments)]
    return run_module("uhal", told, {**os.environ, **environment})


def test_a_run_writes_its_report(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    ran = conformance(
        *("--backend", "host", "--seed", 7, "--report", tmp_path / "r.json"),
        *("-k", "every_launch_and_copy or INTERPROCESS or (two_devices and threads)"),
        **cache,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert (told["format"], told["version"], told["uhal"]) == (
        "uhal-conformance",
        1,
        uhal.__version__,
    )
    # a run of a part does not prove conformance
    assert (told["complete"], told["conforms"], told["seed"]) == (False, False, 7)
    outcomes = {(one["file"], one["outcome"]) for one in told["tests"]}
    assert ("profile", "passed") in outcomes
    assert told["summary"]["failed"] == 0 and told["summary"]["gap"] >= 1
    (gap,) = told["gaps"]
    assert gap["reason"] == UNSUPPORTED["host"]["test_events_with_every_flag*INTERPROCESS*"]
    assert len(gap["tests"]) == told["summary"]["gap"]
    assert told["device"]["name"] and told["device"]["limits"]["max_threads_per_block"] > 0
    assert told["backend"]["name"] == "host" and told["suite"] == report.suite_digest()
    assert "says nothing about conformance" in ran.stdout
    documented = (ROOT / "docs" / "reference" / "conformance.md").read_text("utf-8")
    assert all(f"`{key}`" in documented for key in (*told, *told["tests"][0]))


def test_a_failure_is_told_with_its_reason(tmp_path: Path) -> None:
    wrong = tmp_path / "images"
    wrong.mkdir()
    for source in KERNELS.glob("*.cu"):
        (wrong / f"{source.stem}.so").write_bytes(b"no image")
    ran = conformance(
        *("--backend", "host", "--images", wrong, "--report", tmp_path / "r.json"),
        *("-k", "every_launch_and_copy"),
    )
    assert ran.returncode == 1
    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    (one,) = told["tests"]
    assert one["outcome"] == "failed" and "InvalidImageError" in one["reason"]
    assert "FAILED profile::test_every_launch_and_copy_is_there_once[host:0]: " in ran.stdout


def test_a_backend_of_another_distribution_brings_images_and_gaps(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int
) -> None:
    folder = kept_folder(request.config, "kernels")
    for source in KERNELS.glob("*.cu"):
        shutil.copy(compile_for_host(source, folder), tmp_path / f"{source.stem}.so")
    installed = prepare_skeleton(folder)
    options = ("--images", tmp_path, "--gaps", ROOT / "tests/skeleton_backend/gaps.json")
    parts = ["a_plan", "profile", "memory"]
    chosen = rounds([random.Random(seed).choice(parts)], [*parts, "leave_nothing"])
    ran = conformance(
        *("--backend", "skeleton", *options, "--report", tmp_path / "r.json"),
        *("-k", " or ".join(["gate", *chosen])),
        **installed,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert told["summary"]["passed"] > rounds(1, 20)
    reasons = {gap["reason"] for gap in told["gaps"]}
    assert reasons <= {
        *read_gaps(options[3]).tests.values(),
        *read_gaps(options[3]).fixtures.values(),
    }
    assert "calls are done when they return: nothing can be held" in reasons
    assert told["backend"]["package"] == "skeleton_backend"


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    assert "expected --backend NAME" in conformance().stderr
    absent = conformance("--backend", "cuda", UHAL_CUDA_LIBRARY=str(tmp_path / "libcuda.so.1"))
    assert absent.returncode == 2 and absent.stderr.startswith("cuda: ")
    assert Path(conformance("--kernels").stdout.strip()) == KERNELS
    (tmp_path / "gaps.json").write_text('{"tests": {"test_x": ""}}')
    refused = conformance("--backend", "host", "--gaps", tmp_path / "gaps.json")
    assert refused.returncode == 2 and "every reason a text" in refused.stderr
    for wrong in ("[]", '{"gaps": {}}', "{", '{"tests": []}'):
        (tmp_path / "gaps.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"gaps\.json: "):
            read_gaps(tmp_path / "gaps.json")
    assert read_gaps(ROOT / "tests/skeleton_backend/gaps.json") != Gaps()


def test_images_are_found_or_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    basic = KERNELS / "basic.cu"
    assert image_for("cuda", 0, basic, tmp_path) == IMAGES / "cuda" / "basic.ptx"
    assert image_for("webgpu", 0, basic, tmp_path) == IMAGES / "opencl" / "basic.spv"
    with pytest.raises(NoImageError, match=r"pass the folder of the images as --images"):
        image_for("npu", 0, basic, tmp_path)
    with pytest.raises(NoImageError, match=r"expected one image of basic\.cu, got none"):
        image_for("npu", 0, basic, tmp_path, given=tmp_path)
    (tmp_path / "basic.bin").touch()
    (tmp_path / "basic.bin.sig").touch()
    assert image_for("npu", 0, basic, tmp_path, given=tmp_path) == tmp_path / "basic.bin"
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "basic.so").touch()
    monkeypatch.setattr(images, "IMAGES", tmp_path)
    assert image_for("host", 0, basic, tmp_path) == tmp_path / "host" / "basic.so"
    monkeypatch.setattr(images, "IMAGES", tmp_path / "nowhere")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoImageError, match="needs a C\\+\\+ compiler, and no-such-compiler"):
        image_for("host", 0, basic, tmp_path)


@pytest.mark.parametrize("backend", ["cuda", "opencl", "rocm"])
def test_shipped_images_are_of_todays_sources(backend: str) -> None:
    made_of = json.loads((IMAGES / backend / "sources.json").read_text("utf-8"))
    assert made_of == conformance_images.source_digests(), f"make kernels-{backend}"
    folders = [IMAGES / backend]
    if backend == "rocm":
        folders = sorted(path for path in (IMAGES / backend).iterdir() if path.is_dir())
        assert len(folders) == 5
    for folder in folders:
        found = [path.stem for path in folder.iterdir() if path.suffix not in (".sig", ".json")]
        assert sorted(found) == sorted(path.stem for path in KERNELS.glob("*.cu"))


def test_only_a_whole_run_without_failures_conforms() -> None:
    row = DeviceRow("npu:0", "npu", lambda source, folder: source)
    passed = TestResult("streams", "test_a[npu:0]", "passed", 0.1, "")
    gap = TestResult("streams", "test_b[npu:0]", "gap", 0.0, "it cannot")
    failed = TestResult("streams", "test_c[npu:0]", "failed", 0.0, "E   nothing came\nmore")
    assert Run(row, (passed, gap), 1, 1.0, True).conforms
    assert not Run(row, (passed, gap), 1, 1.0, False).conforms
    assert not Run(row, (passed, failed), 1, 1.0, True).conforms

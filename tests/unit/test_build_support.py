"""The build rebuilds only changed parts, and names missing tools in one line."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import replace
from functools import partial
from importlib.metadata import requires
from pathlib import Path
from typing import ClassVar

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from build_support import interpreters, jobs, wheels
from build_support.changed import EVERYTHING, reached
from build_support.flavoured import NOTICE, is_notice, mirror
from build_support.imports import PRODUCT
from build_support.jobs import OUTPUT, BuildError, Job, build
from build_support.native import FLAVOURS, RELEASE, load_cpu_level, native_jobs
from build_support.requirements import build_requirements, unmet
from build_support.target import other_machine, python_at
from tests.requirements import needed_module
from uhal.images import cpu_level

ROOT = Path(__file__).resolve().parents[2]
COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"


def copy_job(folder: Path) -> Job:
    source = folder / "source"
    source.write_text("first")
    return Job(
        label="copy",
        output=folder / "out" / "copy.so",
        inputs=(source,),
        commands=((sys.executable, "-c", COPY, str(source), OUTPUT),),
        weight=1,
    )


def prerequisites(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "build_support" / "prerequisites.sh"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
    )


class TestJobs:
    def test_unchanged_inputs_are_not_built_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = copy_job(tmp_path)
        build([job], tmp_path)
        made = job.output.stat().st_ino
        os.utime(job.inputs[0])
        build([job], tmp_path)
        assert job.output.stat().st_ino == made
        assert "1 up to date" in capsys.readouterr().out

    def test_changed_contents_are_built_again(self, tmp_path: Path) -> None:
        job = copy_job(tmp_path)
        build([job], tmp_path)
        job.inputs[0].write_text("second")
        build([job], tmp_path)
        assert job.output.read_text() == "second"

    def test_what_was_made_once_is_copied_and_not_made_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = copy_job(tmp_path)
        build([job], tmp_path)
        elsewhere = replace(job, output=tmp_path / "wheel" / "copy.so")
        build([elsewhere], tmp_path)
        assert elsewhere.output.read_text() == "first"
        assert os.access(elsewhere.output, os.X_OK)
        assert "copy: kept from before" in capsys.readouterr().out
        # The output is a copy: changing the file in place does not change the cache.
        elsewhere.output.write_text("broken")
        job.output.unlink()
        build([job], tmp_path)
        assert job.output.read_text() == "first"

    def test_of_what_was_made_the_longest_unused_goes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "CACHE_LIMIT", len("first") + len("second"))
        job = copy_job(tmp_path)
        for text in ("first", "second"):
            job.inputs[0].write_text(text)
            build([job], tmp_path)
        kept = tmp_path / "build" / "cache"
        first = next(path for path in kept.iterdir() if path.read_text() == "first")
        os.utime(first, (1, 1))
        job.inputs[0].write_text("third")
        build([job], tmp_path)
        assert [path.read_text() for path in kept.iterdir()].count("first") == 0
        assert (kept / job.digest(tmp_path)).read_text() == "third"

    def test_another_command_or_tool_builds_again(self, tmp_path: Path) -> None:
        job = copy_job(tmp_path)
        build([job], tmp_path)
        for changed in (
            replace(job, commands=((*job.commands[0], "-O3"),)),
            replace(job, tools="another compiler"),
        ):
            made = job.output.stat().st_mtime_ns
            build([changed], tmp_path)
            assert job.output.stat().st_mtime_ns > made

    def test_a_failure_keeps_the_old_output_and_shows_the_command(self, tmp_path: Path) -> None:
        job = copy_job(tmp_path)
        build([job], tmp_path)
        script = "import sys; print('no such thing'); sys.exit(3)"
        broken = replace(job, commands=((sys.executable, "-c", script),))
        with pytest.raises(BuildError, match=r"(?s)copy: exit status 3.*no such thing"):
            build([broken], tmp_path)
        assert job.output.read_text() == "first"
        assert os.listdir(job.output.parent) == ["copy.so"]

    def test_the_longest_starts_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UHAL_BUILD_JOBS", "1")
        job = copy_job(tmp_path)
        jobs = [
            replace(
                job,
                label=f"weight {weight}",
                weight=weight,
                output=tmp_path / str(weight),
                tools=str(weight),  # without this the outputs would be copies of the first
            )
            for weight in (1, 3, 2)
        ]
        build(jobs, tmp_path)
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
        assert lines == ["[1/3] weight 3 …", "[2/3] weight 2 …", "[3/3] weight 1 …"]


class TestTargets:
    def test_an_interpreter_is_asked_for_its_own_facts(self) -> None:
        python = python_at()
        assert (python.minor, python.tag) == (sys.version_info.minor, sys.implementation.cache_tag)
        assert python.suffix == sysconfig.get_config_var("EXT_SUFFIX")
        assert sysconfig.get_path("include") in python.includes
        assert not any("rpath" in part or part.startswith("-L") for part in python.link)

    def test_another_machine_has_its_own_compiler_levels_and_names(self, tmp_path: Path) -> None:
        needed_module("ziglang")
        target = other_machine("aarch64", python_at())
        made = native_jobs(ROOT, tmp_path, every_level=True, target=target)
        kernels = [job for job in made if job.label.startswith("kernels")]
        levels = {job.output.parent.name for job in kernels}
        assert levels == {level.name for level in cpu_level.ALL_LEVELS["aarch64"]}
        assert made[0].output.name.endswith("aarch64-linux-gnu.so")
        for job in made:
            command = " ".join(job.commands[-1])
            assert "-target aarch64-linux-gnu.2.28" in command
            assert "march" not in command, "zig takes -march for the name of a CPU"
        own = native_jobs(ROOT, tmp_path, every_level=True)
        digests = {job.digest(ROOT) for job in (*own, *made)}
        assert len(digests) == len(own) + len(made)


class TestWheels:
    CONTENTS: ClassVar = {
        "uhal/__init__.py": b"x = 1\n",
        "uhal/_lane.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
        "uhal_py-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
        "uhal_py-1.dist-info/METADATA": b"Name: uhal-py\n",
    }

    def test_a_wheel_says_its_tag_and_what_is_in_it(self, tmp_path: Path) -> None:
        wheel = tmp_path / "uhal_py-1-cp312-cp312-linux_x86_64.whl"
        wheels.write(wheel, self.CONTENTS, tag="cp312-cp312-linux_x86_64")
        found = wheels.read(wheel)
        assert found["uhal_py-1.dist-info/WHEEL"].endswith(b"Tag: cp312-cp312-linux_x86_64\n")
        assert found["uhal/__init__.py"] == b"x = 1\n"
        with zipfile.ZipFile(wheel) as archive:
            record = archive.read("uhal_py-1.dist-info/RECORD").decode().splitlines()
            mode = archive.getinfo("uhal/_lane.cpython-311-x86_64-linux-gnu.so").external_attr >> 16
        assert mode & 0o111
        said = dict(line.split(",", 1) for line in record)
        assert said.pop("uhal_py-1.dist-info/RECORD") == ","
        for name, data in found.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert said.pop(name) == f"sha256={digest},{len(data)}"
        assert not said

    def test_the_same_contents_are_the_same_wheel(self, tmp_path: Path) -> None:
        first, second = tmp_path / "first.whl", tmp_path / "second.whl"
        wheels.write(first, self.CONTENTS, tag="a")
        wheels.write(second, dict(reversed(self.CONTENTS.items())), tag="a")
        assert first.read_bytes() == second.read_bytes()


class TestFlavours:
    def test_every_part_has_the_options_behind_its_own(self, tmp_path: Path) -> None:
        released = native_jobs(ROOT, tmp_path, every_level=False)
        for flavour in FLAVOURS.values():
            jobs = native_jobs(ROOT, tmp_path, every_level=False, flavour=flavour)
            assert [job.output for job in jobs] == [job.output for job in released]
            for job in (one for one in jobs if one.output.suffix != ".json"):
                command = job.commands[-1]
                optimised = max(i for i, part in enumerate(command) if part.startswith("-O"))
                assert flavour is RELEASE or command[optimised] == flavour.options[0], job.label
                assert set(flavour.options) <= set(command)
                stripped = any(part.startswith("-Wl,-s") for part in command)
                assert stripped == ("kernels" in job.label and flavour is RELEASE)

    def test_a_copy_follows_the_checkout_and_keeps_what_it_built(self, tmp_path: Path) -> None:
        run = partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True)
        run(["git", "init", "-q"])
        (tmp_path / ".gitignore").write_text("build/\n*.so\n")
        (tmp_path / "kept.py").write_text("1")
        (tmp_path / "gone.py").write_text("1")
        (tmp_path / "ours.so").write_text("release")
        run(["git", "add", "kept.py"])
        copy = mirror(FLAVOURS["debug"], tmp_path)
        assert sorted(path.name for path in copy.iterdir()) == [
            ".gitignore",
            "build",
            "gone.py",
            "kept.py",
        ]
        (copy / "ours.so").write_text("debug")
        unchanged = (copy / ".gitignore").stat().st_ino
        (tmp_path / "kept.py").write_text("2")
        (tmp_path / "gone.py").unlink()
        assert mirror(FLAVOURS["debug"], tmp_path) == copy
        assert (copy / "kept.py").read_text() == "2"
        assert not (copy / "gone.py").exists()
        assert (copy / "ours.so").read_text() == "debug"
        assert (copy / ".gitignore").stat().st_ino == unchanged

    def test_a_notice_is_no_finding(self) -> None:
        notice = f"==7=={NOTICE} and may produce false positives in some cases!\n"
        assert is_notice(notice + "\n" + notice)
        assert not is_notice(notice + "==7==ERROR: AddressSanitizer: heap-use-after-free\n")


class TestRequirements:
    def test_they_are_what_pyproject_states(self) -> None:
        names = [requirement.partition(">=")[0] for requirement in build_requirements(ROOT)]
        assert names == ["setuptools", "Cython", "numpy", "pycparser"]

    def test_missing_and_too_old(self) -> None:
        assert unmet(["numpy>=1.24", "numpy>=99.1", "no-such-package>=1"]) == [
            "numpy>=99.1",
            "no-such-package>=1",
        ]

    def test_what_multiplies_matrices_is_required_where_it_has_wheels(self) -> None:
        (blas,) = (one for one in map(Requirement, requires("uhal-py") or []) if "blas" in one.name)
        assert blas.marker is not None
        for system, machine, asked_for in (
            ("linux", "x86_64", True),
            ("linux", "aarch64", True),
            ("darwin", "arm64", True),
            ("linux", "riscv64", False),
            ("freebsd14", "amd64", False),
        ):
            there = {"sys_platform": system, "platform_machine": machine}
            assert blas.marker.evaluate({**default_environment(), **there}) is asked_for

    def test_an_installation_takes_names_of_its_own_only(self, tmp_path: Path) -> None:
        command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
        subprocess.run(command, cwd=ROOT, check=True)
        (told,) = tmp_path.glob("*.egg-info/top_level.txt")
        backends = {path.parent.name for path in ROOT.glob("*_backend/__init__.py")}
        names = set(told.read_text("utf-8").split())
        assert names == {"uhal", "ubridge", "uhal_simulators", "uhal_conformance", *backends}

    def test_the_translator_works_under_the_name_it_is_installed_by(self, tmp_path: Path) -> None:
        translator = tmp_path / "site" / "uhal_simulators" / "ptx"
        shutil.copytree(ROOT / "simulators" / "ptx", translator)
        table = tmp_path / "site" / "uhal" / "ptx" / "instructions.py"
        table.parent.mkdir(parents=True)
        shutil.copy(ROOT / "uhal" / "ptx" / table.name, table)
        text = tmp_path / "empty.ptx"
        text.write_text(".version 8.0\n.target sm_80\n.address_size 64\n")
        command = [sys.executable, "-I", str(translator / "__main__.py"), "check", str(text)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["kernels"] == []

    def test_the_simulators_bring_what_executes_kernels(self) -> None:
        command = ["make", "--dry-run", "simulators"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert re.search(r"environment\.sh \S+ \S+ sim$", said, re.MULTILINE)
        assert any('extra == "sim"' in one for one in requires("uhal-py") or [] if "llvm" in one)


class TestCpuLevel:
    def test_build_and_run_time_agree(self) -> None:
        assert load_cpu_level(ROOT).best_level().name == cpu_level.best_level().name

    def test_a_clone_builds_each_module_once(self, tmp_path: Path) -> None:
        made = native_jobs(ROOT, tmp_path, every_level=False)
        built = {
            job.output.stem: job.output.parent.name
            for job in made
            if job.label.startswith("kernels")
        }
        assert len(built) == sum(job.label.startswith("kernels") for job in made)
        assert built == {module: cpu_level.best_level(module).name for module in built}

    def test_levels_by_what_the_cpu_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        levels = tuple(one for one in cpu_level.ALL_LEVELS["x86_64"] if not one.modules)
        monkeypatch.setattr(cpu_level, "machine_levels", lambda module: levels)
        for index, level in enumerate(levels):
            monkeypatch.setattr(cpu_level, "cpu_flags", lambda flags=level.cpu_flags: flags)
            assert cpu_level.usable_levels() == (*levels[index:], cpu_level.GENERIC)
        monkeypatch.setattr(cpu_level, "cpu_flags", frozenset)
        assert cpu_level.best_level() is cpu_level.GENERIC

    def test_flags_for_any_cpu_name_no_machine(self) -> None:
        assert not any(flag.startswith("-m") for flag in cpu_level.compile_flags())


@pytest.mark.skipif(sys.platform != "linux", reason="the advice is for Debian and Ubuntu")
class TestPrerequisites:
    def test_a_whole_machine_says_nothing(self) -> None:
        done = prerequisites("--offline", sys.executable)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_everything_missing_is_one_line(self) -> None:
        done = prerequisites(
            "python3.99", CXX="no-such-compiler", PIP_INDEX_URL="http://127.0.0.1:9/simple"
        )
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        packages = "python3.99 python3.99-dev python3.99-venv g++"
        assert packages in done.stderr

    def test_only_the_network_missing_asks_for_no_package(self) -> None:
        done = prerequisites(sys.executable, PIP_INDEX_URL="http://127.0.0.1:9/simple")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "127.0.0.1 does not answer" in done.stderr
        assert "apt-get" not in done.stderr

    def test_packages_alone_for_a_machine(self) -> None:
        done = prerequisites("--packages", sys.executable, CXX="no-such-compiler")
        assert (done.returncode, done.stdout) == (1, "g++\n")


CODE = (".py", ".pyi", ".pyx", ".pxi", ".c", ".cpp", ".h", ".cu")


class TestChanged:
    """Tests selected for a change: at least all tests implied by imports or names."""

    def test_sources_that_are_compiled_and_settings_reach_all(self) -> None:
        every = reached(["pyproject.toml"])
        for path in ("cython_src/lane.pyx", "ubridge/kernels/unary.cu", "uhal/registry.py"):
            assert reached([path]) == every, path
        assert "tests/conformance/test_pool.py" in every

    def test_a_test_reaches_itself(self) -> None:
        own = "tests/unit/test_build_support.py"
        assert reached([own]) == sorted({own, *EVERYTHING})

    def test_imports_are_followed_through_helpers(self) -> None:
        found = reached(["uhal_conformance/children.py"])
        assert "tests/conformance/test_faults.py" in found
        assert "tests/unit/test_signature.py" not in found

    def test_operations_do_not_reach_the_interface(self) -> None:
        found = reached(["ubridge/ops/reductions.py"])
        assert "tests/ubridge/test_reduce_kernels.py" in found
        assert "tests/unit/test_doctor.py" not in found

    @pytest.mark.parametrize(
        ("path", "test"),
        [
            ("examples/01_devices.py", "tests/unit/test_examples.py"),
            ("simulators/hsa/processor.cpp", "tests/ubridge/test_cast_kernels.py"),
            ("rocm_backend/_backend.py", "tests/unit/test_rocm_backend.py"),
            ("docs/guide/memory.md", "tests/unit/test_guide.py"),
        ],
    )
    def test_words_are_followed(self, path: str, test: str) -> None:
        assert test in reached([path])

    @pytest.mark.parametrize(
        ("path", "test"),
        [
            # compiled code imports it
            ("uhal/arguments.py", "tests/unit/test_lane_arguments.py"),
            ("uhal/_geometry.py", "tests/unit/test_lane_refusals.py"),
            ("uhal/_capture_words.py", "tests/conformance/test_capture_rules.py"),
            ("uhal/memory.py", "tests/conformance/test_memory.py"),
            # a table names it
            ("ubridge/models/tokenizers/huggingface.py", "tests/ubridge/test_tokenizers.py"),
            ("ubridge/models/commands/chat.py", "tests/ubridge/test_model_commands.py"),
            # a backend imports it, and tests name the backend
            ("uhal/emulation/__init__.py", "tests/unit/test_conformance_command.py"),
            ("uhal/adapters.py", "tests/simulated/test_cuda_driver.py"),
            ("uhal/images/chooser.py", "tests/simulated/test_rocm_backend.py"),
            # a program or a driver reads it
            ("simulators/ptx/runtime/warp.c", "tests/simulators/ptx/test_turns.py"),
            ("simulators/ptx/executor/launch.cpp", "tests/simulated/test_ptx_faults.py"),
            ("ubridge/array_api/functions.py", "tests/ubridge/test_array_api.py"),
            ("uhal/project/Makefile", "tests/unit/test_new_project.py"),
            ("uhal/debugger/uhal_gdb.py", "tests/unit/test_debugger.py"),
            ("uhal_conformance/command.py", "tests/unit/test_conformance_command.py"),
            ("uhal_conformance/fixtures.py", "tests/conformance/test_pool.py"),
            ("build_support/site/check.py", "tests/unit/test_site.py"),
            ("tests/simulated/programs/pool_stress.py", "tests/simulated/test_pool_stress.py"),
        ],
    )
    def test_tests_are_reached_without_an_import_of_their_own(self, path: str, test: str) -> None:
        assert (ROOT / path).is_file() and test in reached([path])

    def test_every_file_of_the_product_reaches_a_test_of_its_own(self) -> None:
        listed = ["git", "ls-files", *PRODUCT, "cython_src", "simulators", "build_support/site"]
        files = subprocess.check_output(listed, cwd=ROOT, text=True).splitlines()
        code = [path for path in files if path.endswith(CODE)]
        assert len(code) > 500
        assert not [path for path in code if set(reached([path])) <= set(EVERYTHING)]

    def test_nothing_changed_reaches_nothing(self) -> None:
        assert reached([]) == []


class TestInterpreters:
    def test_the_oldest_and_the_newest_are_taken(self) -> None:
        have = {minor: Path(f"python3.{minor}") for minor in (12, 10, 13)}
        assert list(interpreters.extremes(have)) == [10, 13]
        assert list(interpreters.extremes({12: Path("python3.12")})) == [12]
        assert interpreters.extremes({}) == {}

    def test_what_does_not_start_or_nobody_promised_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        programs = {"3.8": "echo cpython 3 8", "3.10": "exit 3", "3.12": "echo cpython 3 12"}
        for version, text in programs.items():
            program = tmp_path / f"python{version}"
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
        minors = [10, 11, 12, 13]
        assert interpreters.found(minors, own=11) == {12: tmp_path / "python3.12"}
        assert interpreters.found(minors, own=12) == {}

"""The image that `load_module` chooses, and its error when there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ubridge
import ubridge.device.images
from ubridge.device.images import HostImages
from uhal import Device
from uhal.errors import NotFoundError
from uhal.images import cpu_level
from uhal.images.elf import Elf

KERNELS = Path(ubridge.__file__).parent / "kernels"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def host() -> Device:
    return Device(0, backend="host")


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, from which it imports modules first."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )


def test_a_module_is_loaded_once(host: Device) -> None:
    module = ubridge.load_module("activation", device=host)
    assert ubridge.load_module("activation", device=Device(0, backend="host")) is module
    assert module.kernels == ("activationf32",)


def test_every_module_has_its_entries(host: Device) -> None:
    """The host's libraries, built on this machine, have the same kernels as the committed
    images."""
    told = json.loads((KERNELS / "images" / "cuda" / "manifest.json").read_text("utf-8"))["modules"]
    assert sorted(told) == sorted(ubridge.modules("cuda"))
    for name in ubridge.modules():
        kernels = ubridge.load_module(name, device=host).kernels
        assert sorted(kernels) == sorted(told[name]["signatures"])
    assert ubridge.load_module("activation", device=host).kernels == ("activationf32",)


def test_a_library_exports_one_symbol(host: Device) -> None:
    """Other exported symbols would clash between two modules."""
    for name in ubridge.modules():
        path = HostImages().find(name, host).path
        symbols = Elf(path.read_bytes()).dynamic_symbols
        exported = [one.name for one in symbols if one.section != 0 and one.other & 3 == 0]
        assert exported == ["uhal_host_module"], name


def test_a_closed_module_is_loaded_again(host: Device) -> None:
    module = ubridge.load_module("convolution", device=host)
    module.close()
    again = ubridge.load_module("convolution", device=host)
    assert again is not module
    assert not again.closed


def test_closing_the_device_unloads_its_modules(tmp_path: Path) -> None:
    script = """
import uhal, ubridge
for _ in range(3):
    device = uhal.Device(0, backend="host")
    data = uhal.DeviceBuffer.zeros(4, "f32", device=device)
    tanh = ubridge.load_module("activation", device=device).get_function("activationf32")
    tanh[1, 4](data, 2, 2, 3)
    data.to_numpy()
    del data, tanh
    device.close()
live = uhal.diagnostics()["live"]
print(live["modules"], live["functions"])
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("0 0\n", "", 0)


def test_chosen_tells_the_level_and_why(host: Device) -> None:
    chosen = ubridge.load_module("activation", device=host).chosen
    accepted = [candidate for candidate in chosen.candidates if candidate.accepted]
    assert [candidate.description for candidate in accepted] == [chosen.description]
    assert any(level.name in chosen.description for level in cpu_level.usable_levels())
    assert "this CPU runs" in str(chosen)


def test_an_image_that_is_not_built(
    host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.cu").write_text("")
    monkeypatch.setattr(ubridge.device.images, "KERNELS", tmp_path)
    with pytest.raises(NotFoundError, match=r"not built.*python setup\.py build_ext --inplace"):
        ubridge.load_module("new", device=host)


def test_better_levels_come_first(
    host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.cu").write_text("")
    usable = cpu_level.usable_levels()
    for level in usable:
        (tmp_path / "host" / level.name).mkdir(parents=True)
        (tmp_path / "host" / level.name / "new.so").write_bytes(b"")
    monkeypatch.setattr(ubridge.device.images, "KERNELS", tmp_path)
    found = HostImages().find("new", host)
    assert found.path.parent.name == usable[0].name
    candidates = found.chosen.candidates
    passed_over = [one.reason for one in candidates if usable[-1].name in one.description]
    assert passed_over in (["a better one was found"], [found.chosen.reason])


def test_a_forked_child_loads_its_own(tmp_path: Path) -> None:
    script = """
import os, ubridge
from uhal import Api, DeviceBuffer
Api.quick_init(0, backend="host")
ubridge.load_module("unary")
child = os.fork()
if child == 0:
    Api.quick_init(0, backend="host")
    data = DeviceBuffer.from_slice([-1.0, 2.0], "f32")
    ubridge.launch_unary("relu", data, ubridge.Layout.contiguous(2), out=data)
    print(data.to_numpy().tolist(), flush=True)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("[0.0, 2.0]\n", "", 0)


def test_a_fork_beside_a_first_product(tmp_path: Path) -> None:
    """A thread looks for the kernels of products during the fork; the child looks for its own."""
    script = """
import faulthandler, os, threading, ubridge
from ubridge.prepare.matmul import packed_products
from uhal import Api
Api.quick_init(0, backend="host")
x = ubridge.ones((2, 2))
begun, forked, load = threading.Event(), threading.Event(), packed_products.load_module
def slow(*arguments, **options):
    begun.set()
    forked.wait()
    return load(*arguments, **options)
packed_products.load_module = slow
threading.Thread(target=lambda: x @ x).start()
begun.wait()
child = os.fork()
forked.set()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    Api.quick_init(0, backend="host")
    y = ubridge.ones((2, 2))
    print((y @ y).to_numpy().tolist(), flush=True)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("[[2.0, 2.0], [2.0, 2.0]]\n", "", 0)


def test_the_other_uhal_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "uhal").mkdir()
    (tmp_path / "uhal" / "__init__.py").write_text("def getDevice(): ...\n")
    done = run("import ubridge", tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the `uhal` imported from")
    assert "CERN's IPbus" in last

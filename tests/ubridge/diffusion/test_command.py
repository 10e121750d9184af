"""The commands `stable-diffusion` and `make-model`, from the command line to PNG."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ubridge.models.commands import main
from ubridge.models.diffusion import StableDiffusion
from ubridge.models.diffusion.making import make_pipeline
from uhal import Device
from uhal.errors import ArgumentValueError

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "tiny"
    assert main("make-model", [str(folder), "--arch", "stable-diffusion", "--seed", "5"]) == 0
    return folder


def drawn(tiny: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object, status: int = 0) -> str:
    """Run the command on the host; return standard error."""
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    given = [str(tiny), "--cpu", *map(str, arguments)]
    assert main("stable-diffusion", given) == status, told.getvalue()
    return told.getvalue()


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as opened:
        assert opened.format == "PNG"
        return np.asarray(opened)


def test_pictures_are_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    out, number = tmp_path / "out.png", seed % 2**32
    options = ["--prompt", "a b", "--uncond-prompt", "c", "--height", 24, "--width", 32]
    options += ["--n-steps", 3, "--seed", number, "--guidance-scale", 4, "--scheduler", "euler"]
    told = drawn(tiny, monkeypatch, *options, "--num-samples", 2, "--final-image", out)
    assert "of weights" in told and "step 3 (" in told
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.1.png", "out.2.png"]
    with Device(0, backend="host"):
        model = StableDiffusion.load(tiny)
        for one in range(2):
            expected = model(
                "a b",
                negative="c",
                height=24,
                width=32,
                steps=3,
                guidance=4,
                scheduler="euler",
                seed=number + one,
            )
            np.testing.assert_array_equal(pixels(tmp_path / f"out.{one + 1}.png"), expected[0])


def test_a_picture_after_each_step_and_a_picture_as_the_start(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    start, out = tmp_path / "start.jpg", tmp_path / "out.png"
    Image.fromarray(rng.integers(0, 256, (21, 35, 3), np.uint8)).save(start)
    common = ["--img2img", start, "--final-image", out, "--intermediary-images"]
    drawn(tiny, monkeypatch, *common, "--n-steps", 4, "--img2img-strength", 0.5)
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["out-1.png", "out-2.png", "out.png", "start.jpg"]
    assert pixels(out).shape == (16, 32, 3)
    np.testing.assert_array_equal(pixels(tmp_path / "out-2.png"), pixels(out))


def test_wrong_options_are_one_sentence(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.png").write_text("no picture")
    out = ["--final-image", tmp_path / "out.png"]
    for arguments, text in (
        (["--height", 12, *out], "height: expected a multiple of 8, got 12. Take 8 or 16."),
        (["--n-steps", 0, *out], "schedule, steps: expected 1"),
        (["--img2img", tmp_path / "text.png"], "expected a picture that pillow reads"),
        (["--img2img", tmp_path / "none.png"], "No such file"),
        (["--final-image", "out.gif"], "--final-image: expected a file that ends in .png"),
        (["--sd-version", "v9", *out], "version: expected one of v1-5, v2-base, v2-1, got 'v9'"),
    ):
        told = drawn(tiny, monkeypatch, *arguments, status=1)
        assert told.splitlines()[-1].startswith("stable-diffusion: ") and text in told, told
    assert not (tmp_path / "out.png").exists()


def test_a_made_pipeline_is_not_overwritten(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="a model is there already"):
        make_pipeline(tiny)
    made = [make_pipeline(tmp_path / name, seed=5, dtype="f16") for name in "ab"]
    files = [one.folder / "unet" / "diffusion_pytorch_model.safetensors" for one in made]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert made[0].description.endswith(" parameters in f16, seed 5")


def test_without_pillow_it_says_what_to_install(tiny: Path) -> None:
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "from ubridge.models.commands import main\n"
        f"sys.exit(main('stable-diffusion', [{str(tiny)!r}, '--cpu']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "pip install 'uhal-py[diffusion]'" in done.stderr.splitlines()[-1]

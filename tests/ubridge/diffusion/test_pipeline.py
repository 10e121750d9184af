"""From prompts to pictures: seeds, sizes, pictures as a start, files of every kind, wrong input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.diffusion.files import TOKENIZER, checkpoint, known, written
from ubridge.models import Model
from ubridge.models.diffusion import StableDiffusion, schedule
from ubridge.models.diffusion.loading import PARTS, Loader, sources_of
from ubridge.models.diffusion.names import of_checkpoint
from ubridge.models.diffusion.unet import UNet
from ubridge.models.tokenizers import Tokenizer
from uhal import Device
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

SIZE = {"height": 12, "width": 16}
PROMPT = "a kernel on a device"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pipeline of version 1, whose latents have half of a picture's rows."""
    return written(tmp_path_factory.mktemp("model") / "tiny", "v1")


@pytest.fixture
def model(host: Device, folder: Path) -> StableDiffusion:
    return StableDiffusion.load(folder)


def differing(one: Any, other: Any) -> int:
    """Return the largest difference of two pictures."""
    return int(np.abs(one.astype(int) - other.astype(int)).max())


@pytest.mark.parametrize("name", ["cuda", "opencl"])
def test_devices_agree_and_their_noise_is_equal(
    request: pytest.FixtureRequest, folder: Path, seed: int, name: str
) -> None:
    options: Any = {**SIZE, "steps": 4, "seed": seed, "scheduler": "euler-a"}
    starts, pictures = [], []
    request.getfixturevalue("simulated")(f"{name}-sim" if name == "cuda" else name)
    for backend in ("host", name):
        with Device(0, backend=backend):
            model = StableDiffusion.load(folder)
            starts.append(model._noise([ub.Generator(seed)], (4, 6, 8)).to_numpy())
            pictures.append(model(PROMPT, **options))
    np.testing.assert_array_equal(*starts)
    assert differing(*pictures) <= 2


def test_pictures_of_a_batch_are_those_of_single_seeds(model: StableDiffusion, seed: int) -> None:
    for more in ({"scheduler": "euler-a"}, {"image": np.full((12, 16, 3), 90, np.uint8)}):
        options: Any = {**SIZE, "steps": 3, **more}
        both = model(PROMPT, samples=2, seed=seed, **options)
        assert both.shape == (2, 12, 16, 3) and both.dtype == np.uint8
        for one in range(2):
            alone = model(PROMPT, seed=seed + one, **options)
            assert differing(alone[0], both[one]) <= 1
        assert differing(both[0], both[1]) > 1


def test_prompt_negative_prompt_guidance_and_seed_matter(model: StableDiffusion, seed: int) -> None:
    usual: Any = {**SIZE, "steps": 3, "seed": seed}
    first = model(PROMPT, **usual)
    np.testing.assert_array_equal(first, model(PROMPT, **usual))
    for change in ({"negative": "host"}, {"guidance": 2.0}, {"seed": seed + 1}, {"steps": 4}):
        assert differing(first, model(PROMPT, **{**usual, **change})) > 0, change
    assert differing(first, model("a host", **usual)) > 0
    alone = model(PROMPT, **{**usual, "guidance": 1.0})
    np.testing.assert_array_equal(alone, model(PROMPT, **usual, guidance=0.5, negative="host"))


def test_a_picture_is_the_start(model: StableDiffusion, rng: np.random.Generator) -> None:
    image = rng.integers(0, 256, (12, 16, 3), np.uint8)
    unchanged = model(PROMPT, image=image, strength=0.0, steps=5, seed=3)
    again = model.decode(model.encode(image, [ub.Generator(3)]))
    np.testing.assert_array_equal(unchanged, again)
    counted: list[int] = []
    changes = []
    for strength in (0.4, 1.0):
        found = model(
            PROMPT,
            image=image,
            strength=strength,
            steps=5,
            scheduler="dpm++2m",
            on_step=lambda step, latents: counted.append(step),
        )
        changes.append(found)
    assert counted == [0, 1, *range(5)]
    assert differing(*changes) > 0


@pytest.mark.parametrize(("strength", "start"), [(0.4, 3), (1.0, 0)])
def test_a_picture_begins_with_its_share_of_noise(
    model: StableDiffusion, monkeypatch: pytest.MonkeyPatch, strength: float, start: int
) -> None:
    image = np.full((12, 16, 3), 90, np.uint8)
    begun: list[Any] = []

    def kept(latents: ub.DeviceTensor, *rest: object, **options: object) -> ub.DeviceTensor:
        begun.append(latents.to_numpy())
        return latents

    monkeypatch.setattr(model, "denoise", kept)
    model(PROMPT, image=image, strength=strength, steps=5, seed=3, scheduler="dpm++2m")
    generators = [ub.Generator(3)]
    clean = model.encode(image, generators).to_numpy().astype("f8")
    noise = model._noise(generators, clean.shape[1:]).to_numpy().astype("f8")
    of_image, of_noise = schedule("dpm++2m", 5).noised[start]
    parts = clean * of_image, noise * of_noise
    # three roundings, each of at most the sum of the parts
    bound = 3 * 2.0**-23 * (abs(parts[0]) + abs(parts[1]))
    assert (abs(begun[0] - (parts[0] + parts[1])) <= bound).all()
    assert abs(parts[1]).max() > 0.1


def test_steps_behind_the_first_replay_a_plan_without_allocations(
    model: StableDiffusion, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    calls, allocated, steps = [], [], int(rng.integers(3, 8))
    run = UNet.__call__

    def counted(*arguments: Any) -> ub.DeviceTensor:
        calls.append(1)
        return run(*arguments)

    monkeypatch.setattr(UNet, "__call__", counted)
    latents = ub.asarray(rng.standard_normal((1, 4, 6, 8)).astype(np.float32))
    plan = schedule("dpm++2m", steps)
    context = model.embed(["", PROMPT])
    found = model.denoise(
        latents,
        context,
        plan,
        on_step=lambda *_: allocated.append(
            model.device.memory_stats()["allocation.all.allocated"]
        ),
    )
    assert len(calls) == 1 and len(allocated) == steps
    assert len(set(allocated)) == 1, "a replay allocates"
    x, before = latents.to_numpy(), np.zeros(latents.shape, np.float32)
    for one in plan.steps:
        both = ub.asarray(np.concatenate([x, x]) * np.float32(one.scale))
        out = model.predict(both, one.time, context).to_numpy()
        out = out[:1] + np.float32(7.5) * (out[1:] - out[:1])
        x0 = one.x0_of_x * x + one.x0_of_out * out
        x = one.of_x * x + one.of_x0 * x0 + one.of_before * before
        x, before = x.astype(np.float32), x0.astype(np.float32)
    np.testing.assert_allclose(found.to_numpy(), x, atol=1e-4 * np.abs(x).max())


def test_a_long_prompt_is_cut_with_a_warning(model: StableDiffusion) -> None:
    words = "ab " * 200
    with pytest.warns(UserWarning, match="prompt: .* tokens are behind the last of 77 positions"):
        cut = model.embed([words])
    assert cut.shape == (1, 77, 32)
    tokens = model.tokenizer.encode(words)
    expected = model._networks.text_encoder(ub.asarray(np.array([[*tokens[:76], tokens[-1]]])))
    np.testing.assert_array_equal(cut.to_numpy(), expected.to_numpy())


@pytest.mark.parametrize("case", ["v1", "v2"])
def test_a_single_checkpoint_is_the_same_model(
    host: Device, tmp_path: Path, seed: int, case: str
) -> None:
    folder = written(tmp_path / "folder", case)
    version, _ = sources_of(folder, host, None)
    path = checkpoint(tmp_path / "whole.safetensors", version, case)
    options: Any = {"height": 16, "width": 16, "steps": 2, "seed": seed}
    expected = StableDiffusion.load(folder)(PROMPT, **options)
    model = StableDiffusion.load(path, version=version, tokenizer=TOKENIZER)
    np.testing.assert_array_equal(model(PROMPT, **options), expected)
    with pytest.raises(ArgumentValueError, match=r"expected a version.*v1-5, v2-base, v2-1"):
        StableDiffusion.load(path, tokenizer=TOKENIZER)
    with pytest.raises(ArgumentValueError, match="expected a tokenizer"):
        StableDiffusion.load(path, version=version)
    with pytest.raises(ub.InvalidFileError, match="expected shape"):
        StableDiffusion.load(path, version="v1-5", tokenizer=TOKENIZER)


def test_names_of_checkpoints_are_the_published_ones() -> None:
    from ubridge.models.diffusion import VERSIONS

    for part, name, expected in (
        ("unet", "conv_in.weight", "input_blocks.0.0.weight"),
        ("unet", "down_blocks.0.downsamplers.0.conv.bias", "input_blocks.3.0.op.bias"),
        (
            "unet",
            "down_blocks.1.resnets.0.conv_shortcut.weight",
            "input_blocks.4.0.skip_connection.weight",
        ),
        (
            "unet",
            "down_blocks.3.resnets.1.time_emb_proj.bias",
            "input_blocks.11.0.emb_layers.1.bias",
        ),
        ("unet", "mid_block.attentions.0.proj_in.weight", "middle_block.1.proj_in.weight"),
        ("unet", "mid_block.resnets.1.norm2.weight", "middle_block.2.out_layers.0.weight"),
        ("unet", "up_blocks.0.upsamplers.0.conv.weight", "output_blocks.2.1.conv.weight"),
        ("unet", "up_blocks.1.upsamplers.0.conv.weight", "output_blocks.5.2.conv.weight"),
        (
            "unet",
            "up_blocks.3.attentions.2.transformer_blocks.0.norm1.weight",
            "output_blocks.11.1.transformer_blocks.0.norm1.weight",
        ),
        ("unet", "conv_norm_out.weight", "out.0.weight"),
        (
            "vae",
            "encoder.down_blocks.0.downsamplers.0.conv.bias",
            "encoder.down.0.downsample.conv.bias",
        ),
        ("vae", "decoder.up_blocks.0.resnets.2.conv1.weight", "decoder.up.3.block.2.conv1.weight"),
        ("vae", "decoder.up_blocks.2.upsamplers.0.conv.bias", "decoder.up.1.upsample.conv.bias"),
        (
            "vae",
            "decoder.mid_block.attentions.0.to_out.0.weight",
            "decoder.mid.attn_1.proj_out.weight",
        ),
        ("vae", "encoder.mid_block.attentions.0.group_norm.bias", "encoder.mid.attn_1.norm.bias"),
        ("vae", "encoder.conv_norm_out.bias", "encoder.norm_out.bias"),
        ("vae", "post_quant_conv.weight", "post_quant_conv.weight"),
        ("text_encoder", "encoder.layers.3.mlp.fc1.bias", "transformer.resblocks.3.mlp.c_fc.bias"),
        (
            "text_encoder",
            "encoder.layers.0.self_attn.q_proj.bias",
            "transformer.resblocks.0.attn.in_proj_bias",
        ),
        ("text_encoder", "final_layer_norm.weight", "ln_final.weight"),
        ("text_encoder", "embeddings.position_embedding.weight", "positional_embedding"),
    ):
        stem = {
            "unet": "model.diffusion_model",
            "vae": "first_stage_model",
            "text_encoder": "cond_stage_model.model",
        }[part]
        spell = of_checkpoint(part, VERSIONS["v2-1"])
        assert spell(name)[-1].name == f"{stem}.{expected}", name


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantized_products_move_the_prediction_little(
    model: StableDiffusion, folder: Path, rng: np.random.Generator, kind: str
) -> None:
    small = StableDiffusion.load(folder, quantize=kind)
    latents = ub.asarray(rng.standard_normal((1, 4, 6, 8)).astype(np.float32))
    exact, rounded = (
        one.predict(latents, 500.0, one.embed([PROMPT])).to_numpy() for one in (model, small)
    )
    error = np.sqrt(np.mean((rounded - exact) ** 2) / np.mean(exact**2))
    assert 0 < error <= {"q8_0": 0.05, "q4_0": 0.4}[kind]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_files_of_halves_stay_halves(host: Device, tmp_path: Path, seed: int, dtype: str) -> None:
    told: list[tuple[int, int]] = []
    folder = written(tmp_path, "v1", dtype)
    # Rename the files like f16 files that are beside other files.
    for part, (stem, *_) in PARTS.items():
        file = folder / part / f"{stem}.safetensors"
        file.rename(file.with_name(f"{stem}.fp16.safetensors"))
    model = StableDiffusion.load(folder, progress=lambda *both: told.append(both))
    assert model.dtype.name == dtype
    assert told[-1][0] == told[-1][1]
    assert model(PROMPT, **SIZE, steps=1).shape == (1, 12, 16, 3)
    assert StableDiffusion.load(folder, dtype="f32").dtype.name == "f32"


def test_memory_is_said_before_anything_is_read(
    host: Device, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = Loader(*sources_of(folder, host, None), host, None, None)
    loader.require_room(True)
    assert "tiny: " in capfd.readouterr().err
    assert loader.nbytes == sum(
        one.nbytes for told in known("v1").values() for one in told["weights"].values()
    )
    loader._allocated = 1 << 60
    with pytest.raises(OutOfMemoryError, match=r"tiny: .* of weights.*nothing was read"):
        loader.require_room(None)


def test_wrong_files_are_named(host: Device, folder: Path, tmp_path: Path) -> None:
    def refused(kind: type[Exception], *parts: str) -> None:
        with pytest.raises(kind) as caught:
            StableDiffusion.load(tmp_path / "model")
        for one in parts:
            assert one in str(caught.value), str(caught.value)

    def changed(part: str, key: str, value: Any) -> None:
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "model")
        path = tmp_path / "model" / part / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    refused(NotFoundError, "there is no such file or folder")
    (tmp_path / "model").mkdir()
    refused(NotFoundError, "config.json", "Give the folder that has text_encoder, unet, vae")
    for part, key, value, kind, text in (
        ("unet", "in_channels", 9, NotSupportedError, "out_channels equal to in_channels"),
        ("unet", "addition_embed_type", "text_time", NotSupportedError, "addition_embed_type"),
        ("unet", "down_block_types", ["DownBlock2D"], ub.InvalidFileError, "down_block_types"),
        ("unet", "cross_attention_dim", 48, ub.InvalidFileError, "cross_attention_dim"),
        ("unet", "attention_head_dim", 5, ub.InvalidFileError, "block_out_channels"),
        ("unet", "layers_per_block", 2, ub.InvalidFileError, "resnets.1.norm1.weight of shape"),
        ("vae", "norm_num_groups", 3, ub.InvalidFileError, "multiples of 3 groups"),
        ("unet", "block_out_channels", [], ub.InvalidFileError, "expected at least one number"),
        ("vae", "block_out_channels", [], ub.InvalidFileError, "expected at least one number"),
        ("vae", "act_fn", "relu", NotSupportedError, "act_fn"),
        ("text_encoder", "num_attention_heads", 5, ub.InvalidFileError, "a divisor of hidden_size"),
        (
            "text_encoder",
            "intermediate_size",
            40,
            ub.InvalidFileError,
            "expected shape (40, 32), got",
        ),
        ("text_encoder", "num_hidden_layers", 1 << 31, ub.InvalidFileError, "tensors, got"),
        ("unet", "layers_per_block", 1 << 31, ub.InvalidFileError, "tensors, got 2147483648"),
        ("vae", "layers_per_block", 1 << 31, ub.InvalidFileError, "tensors, got 2147483648"),
        ("vae", "layers_per_block", 100, ub.InvalidFileError, "more"),
        ("text_encoder", "num_hidden_layers", 1, ub.InvalidFileError, "nothing asks for it"),
        ("text_encoder", "vocab_size", 1001, ub.InvalidFileError, "expected shape (1001, 32)"),
    ):
        changed(part, key, value)
        refused(kind, text, part)
    changed("unet", "sample_size", 8)
    (tmp_path / "model" / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    refused(NotFoundError, "vae", "expected *.safetensors")
    (tmp_path / "model" / "vae" / "diffusion_pytorch_model.bin").write_bytes(b"\x80\2")
    refused(NotSupportedError, "a pickle can run any program")
    with pytest.raises(ArgumentValueError, match=r"version: expected one of v1-5, .*, got 'v3'"):
        StableDiffusion.load(folder, version="v3")
    with pytest.raises(ArgumentValueError, match="version: expected the model of"):
        StableDiffusion.load(folder, version="v1-5")
    with pytest.raises(ArgumentValueError, match="dtype: expected f32, f16 or bf16, got i32"):
        StableDiffusion.load(folder, dtype="i32")
    with pytest.raises(ArgumentValueError, match="quantize: expected one of"):
        StableDiffusion.load(folder, quantize="q9")


def test_wrong_arguments_are_named_before_anything_runs(
    model: StableDiffusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_networks", None)
    image = np.zeros((12, 16, 3), np.uint8)
    for options, kind, text in (
        (
            {"height": 13},
            ArgumentValueError,
            "height: expected a multiple of 2, got 13. Take 12 or 14",
        ),
        ({"width": -2}, ArgumentValueError, "width: expected 2 to"),
        ({"width": 8.0}, ArgumentTypeError, "width: expected an int, got float"),
        ({"steps": 0}, ArgumentValueError, "steps: expected 1"),
        ({"samples": 0}, ArgumentValueError, "samples: expected 1"),
        ({"seed": -1}, ArgumentValueError, "seed: expected 0"),
        ({"guidance": "7"}, ArgumentTypeError, "guidance: expected a number, got str"),
        ({"strength": 1.5}, ArgumentValueError, "strength: expected 0…1, got 1.5"),
        ({"scheduler": "heun"}, ArgumentValueError, "expected one of ddim, euler"),
        ({"image": image[:11]}, ArgumentValueError, "height: expected a multiple of 2, got 11"),
        ({"image": image, "width": 8}, ArgumentValueError, "image: expected shape (12, 8, 3)"),
        ({"image": image / 255}, ArgumentTypeError, "image: expected an array of u8"),
        ({"image": image[..., :2]}, ArgumentValueError, "image: expected shape (12, 16, 3)"),
    ):
        with pytest.raises(kind) as caught:
            model(PROMPT, **options)
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_train_timesteps", 10**12),
        ("steps_offset", 500),
        ("beta_end", 1.0),
        ("beta_start", 1e-300),
        ("prediction_type", 1),
    ],
)
def test_wrong_schedules_are_named(
    host: Device, folder: Path, tmp_path: Path, key: str, value: Any
) -> None:
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    where = r"scheduler_config\.json: " + ("beta_end" if "beta" in key else key)
    with pytest.raises(ub.InvalidFileError, match=f"{where}: expected"):
        StableDiffusion.load(tmp_path / "model")


def test_the_home_of_an_unknown_user_is_refused(host: Device, folder: Path) -> None:
    path = "~nosuchuser/model"
    for read in (
        lambda: Model.load(path),
        lambda: Tokenizer.load(path),
        lambda: StableDiffusion.load(path),
        lambda: StableDiffusion.load(folder, tokenizer=path),
    ):
        with pytest.raises(NotFoundError, match=path):
            read()

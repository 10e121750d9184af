"""Damages files of models, tokenizers, sessions, indices and signatures, and loads each.

`run_mutants` runs in a process of its own. The system ends this process when a file takes 5 seconds
of processor time, and refuses more than 512 MB of new memory.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
from tests.host_kernels import build
from tests.ubridge.tokenizer_makers import files_of
from ubridge.models import Model
from ubridge.models.diffusion import StableDiffusion, Version
from ubridge.models.diffusion.loading import PARTS, sources_of
from ubridge.models.making import make_model
from ubridge.models.text import Session
from ubridge.models.tokenizers import Tokenizer
from uhal import Device, Module
from uhal.errors import ArgumentValueError, DeviceError

SECONDS, BYTES = 5, 512 << 20
MOST_SHOWN = 12
"""Number of failures after which a run ends."""
HOSTILE: tuple[Any, ...] = (
    *(0, -1, 1, 2, 64, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 64, 10**400, 10**8),
    *(0.5, -0.0, 1e308, -1e-308, float("nan"), float("inf"), True, False, None),
    *("", "64", "a" * 5000, "\ud800", "\0", "<s>", "../x", [], [1], ["a"], [[1, 2]], [None] * 3),
    *({}, {"a": 1}, {"content": "a"}, {"type": "default", "factor": 2}),
)
EDGES = (0, 1, 7, 8, 31, 34, 44, 91, 93, 123, 127, 128, 255)
TEXT = "The <s>Ärger of 99 bottles\n\n  \u2581<|im_end|> \U0001f600"
ARCHITECTURES = ("llama", "phi3", "qwen2", "chatglm", "gemma2", "mixtral", "qwen3_moe", "rwkv5")


# -- loaders: what a user does with the files of a folder ------------------------------------------


def load_model(folder: Path) -> None:
    model = Model.load(folder)
    model([1, 2]).to_numpy()


def load_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    tokens = tokenizer.encode(TEXT)
    tokenizer.encode(TEXT, add_special=False, parse_special=False)
    tokenizer.decode([one for one in tokens if one < tokenizer.vocabulary])
    stream = tokenizer.stream()
    for token in range(min(tokenizer.vocabulary, 300)):
        stream.push(token)
    stream.finish()
    for _ in (tokenizer.special, tokenizer.end_tokens, tokenizer.template_names):
        pass


def load_weights(folder: Path) -> None:
    weights = ub.load(folder)
    for name in weights:
        weights[name]


def load_graph(leaves: Any, folder: Path) -> None:
    ub.ComputeGraph.load(folder / "graph.json", leaves)


def load_pictures(folder: Path) -> None:
    model = StableDiffusion.load(folder)
    model("a kernel", steps=2, scheduler="dpm++2m", height=12, width=16)


def load_checkpoint(version: Version, folder: Path) -> None:
    StableDiffusion.load(folder / "whole.safetensors", version=version, tokenizer=folder)


def load_session(session: Session, folder: Path) -> None:
    session.restore(folder / "session.safetensors")
    try:
        session.generate([1, 2, 3], max_tokens=1).read()
    except ArgumentValueError as error:
        # A file's numbers may be NaN; only the logits show it.
        if not str(error).startswith("sample: expected logits with a number"):
            raise


def load_module(folder: Path) -> None:
    with Module.from_file(folder / "kernel.so") as module:
        for name in module.kernels:
            module.get_function(name)


# -- damages ---------------------------------------------------------------------------------------


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a JSON value, with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in list(keys)[:200]:
        yield value, key
        yield from places(value[key])


def damaged_json(draw: random.Random, raw: bytes) -> bytes:
    whole = json.loads(raw)
    for _ in range(draw.randint(1, 2)):
        # Search again, because the last change may have moved the containers.
        found = list(places(whole))
        if not found:
            break
        held, key = draw.choice(found)
        match draw.randrange(6):
            case 0:
                del held[key]
            case 1:
                held[key] = [held[key]]
            case 2 if isinstance(held, dict):
                held[draw.choice(["", "x", "type", "content"])] = held.pop(key)
            case 3:
                other, there = draw.choice(found)
                held[key] = json.loads(json.dumps(other[there]))
            case _:
                # A copy, because a second change may be within the value.
                held[key] = copy.deepcopy(draw.choice(HOSTILE))
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def damaged_bytes(draw: random.Random, raw: bytes, within: int) -> bytes:
    made = bytearray(raw)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(max(min(len(made), within), 1))
        match draw.randrange(6):
            case 0:
                made[at : at + 1] = bytes([draw.choice(EDGES)])
            case 1:
                made[at : at + 1] = draw.randbytes(1)
            case 2:
                word = draw.choice([0, 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63])
                made[at : at + 8] = word.to_bytes(8, "little")
            case 3:
                del made[at:]
            case 4:
                other = draw.randrange(max(len(made), 1))
                made[at : at + 8] = made[other : other + 8]
            case _:
                del made[at : at + draw.randint(1, 8)]
    return bytes(made)


def damaged(draw: random.Random, name: str, raw: bytes) -> bytes:
    """Damage a file: mostly its JSON values if it has any, else bytes of the first half
    megabyte."""
    if name.endswith(".json") and draw.random() < 0.8:
        return damaged_json(draw, raw)
    if name.endswith(".safetensors") and draw.random() < 0.7:
        length = int.from_bytes(raw[:8], "little")
        header = damaged_json(draw, raw[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + raw[8 + length :]
    within = {".safetensors": 3000, ".gguf": 30_000}.get(Path(name).suffix, 1 << 19)
    return damaged_bytes(draw, raw, draw.choice([64, 1000, within]))


# -- good files ------------------------------------------------------------------------------------

Case = tuple[Callable[[Path], None], tuple[str, ...]]
"""A loader, and the files in the folder to damage."""


def model_case(kind: str, folder: Path) -> Case:
    make_model(folder, kind, text="a text of few words\n" * 9, seed=3)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3], "top_p": 0.5}')
    return load_model, ("config.json", "config.json", "generation_config.json", "model.safetensors")


def split_case(folder: Path) -> Case:
    ub.save(folder / "a.safetensors", {"x": np.ones(3, np.float32)})
    ub.save(folder / "b.safetensors", {"y": np.ones((2, 2), np.float32)})
    index = {"metadata": {}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return load_weights, ("model.safetensors.index.json", "a.safetensors")


def gguf_case(folder: Path) -> Case:
    """Write a llama model with its tokenizer in one GGUF file."""
    source = folder.with_name(f"{folder.name}-source")
    make_model(source, "llama", text="a text of few words\n" * 9, seed=3)
    from tests.ubridge.models.gguf_files import all_of, written_gguf

    weights = ub.load(source)
    arrays = {name: weights[name].to_numpy() for name in weights}
    config = json.loads((source / "config.json").read_text())
    config.update(rms_norm_eps=1e-5, rope_theta=1e4)
    written_gguf(folder / "m.gguf", config, arrays, all_of("F32"))
    return load_model, ("m.gguf",)


def tokenizer_case(kind: str, folder: Path) -> Case:
    for name, raw in files_of(kind).items():
        (folder / name).write_bytes(raw)
    damages = list(files_of(kind))
    if not any(name.endswith((".gguf", ".txt")) for name in damages):
        told = {
            "bos_token": {"content": "<s>"},
            "eos_token": "</s>",
            "add_bos_token": True,
            "chat_template": [{"name": "default", "template": "{{ messages }}"}],
            "added_tokens_decoder": {"1": {"content": "<s>", "special": True, "lstrip": False}},
            "additional_special_tokens": ["<|im_end|>"],
        }
        beside = {
            "tokenizer_config.json": told,
            "special_tokens_map.json": {"unk_token": "<unk>", "pad_token": {"content": "<pad>"}},
            "added_tokens.json": {},
        }
        if kind == "json":  # this file lacks the token and gives its number to a new token
            del told["added_tokens_decoder"]
        for name, fields in beside.items():
            (folder / name).write_text(json.dumps(fields))
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        damages += [*damages, *beside, "chat_template.jinja"]
    return load_tokenizer, tuple(damages)


def pictures_case(folder: Path) -> Case:
    from tests.ubridge.diffusion.files import written

    written(folder, "v1")
    parts = ("text_encoder", "unet", "vae")
    settings = [f"{part}/config.json" for part in parts] * 3 + ["scheduler/scheduler_config.json"]
    words = [f"tokenizer/{name}" for name in ("vocab.json", "merges.txt")]
    return load_pictures, (*settings * 2, *words, f"unet/{PARTS['unet'].stem}.safetensors")


def checkpoint_case(folder: Path) -> Case:
    from tests.ubridge.diffusion.files import TOKENIZER, checkpoint, written

    source = written(folder.with_name(f"{folder.name}-source"), "v1")
    version, _ = sources_of(source, Device.current(), None)
    checkpoint(folder / "whole.safetensors", version, "v1")
    words = ("vocab.json", "merges.txt")
    for name in words:
        (folder / name).write_bytes((TOKENIZER / name).read_bytes())
    return partial(load_checkpoint, version), ("whole.safetensors", *words)


def graph_case(folder: Path) -> Case:
    from tests.ubridge.graph_mutants import traced

    graph = traced(np.random.default_rng(0))
    graph.save(folder / "graph.json")
    return partial(load_graph, graph.leaves), ("graph.json",)


def session_case(folder: Path) -> Case:
    source = folder.with_name(f"{folder.name}-source")
    make_model(source, "llama", text="a text of few words\n" * 9, seed=3)
    session = Model.load(source).session()
    session.generate([1, 2, 3, 4], max_tokens=2).read()
    session.save(folder / "session.safetensors")
    return partial(load_session, session), ("session.safetensors",)


def signature_case(folder: Path) -> Case:
    source = "#include <uhal/kernel.h>\nKERNEL(scale, (u64 n, const f32 *x, f32 *y)) { (void)n; }"
    (folder / "kernel.so").write_bytes(build(source))
    (folder / "kernel.so.sig").write_text("scale: u64 n, const f32* x, ptr y  # a comment\n")
    return load_module, ("kernel.so.sig",)


TOKENIZERS = (
    *("json", "json of bytes", "byte pairs", "world", "pieces", "pieces of a gguf"),
    "pieces without bytes",
)
CASES: dict[str, Callable[[Path], Case]] = {
    **{f"model of {kind}": partial(model_case, kind) for kind in ARCHITECTURES},
    **{f"tokenizer, {kind}": partial(tokenizer_case, kind) for kind in TOKENIZERS},
    "weights in parts": split_case,
    "model of a gguf": gguf_case,
    "pictures": pictures_case,
    "checkpoint of pictures": checkpoint_case,
    "graph": graph_case,
    "session": session_case,
    "signature": signature_case,
}


# -- the run ---------------------------------------------------------------------------------------


def fault_of(load: Callable[[Path], None], folder: Path) -> str | None:
    """Return the failure of a load; empty if the files were refused, `None` if accepted."""
    try:
        load(folder)
    except (DeviceError, FileNotFoundError) as error:
        # Errors of signatures only contain the file's name.
        is_named = str(folder) in str(error) or "kernel.so.sig" in str(error)
        return "" if is_named else f"names no file: {traceback.format_exc()}"
    except BaseException:
        return traceback.format_exc()
    return None


def run_mutants(case: str, seed: int, count: int, name: str) -> None:
    """Load `count` damaged folders of a case; print failures and the number of refused files."""
    warnings.simplefilter("ignore")
    draw = random.Random(seed)
    folder = Path(name)
    failures = refused = 0
    with Device(0, "host"):
        load, damages = CASES[case](folder)
        good = {one: (folder / one).read_bytes() for one in set(damages)}
        load(folder)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in range(count):
            victim = draw.choice(damages)
            # Create a new file, because pages of the last file may still be mapped.
            (folder / victim).unlink()
            (folder / victim).write_bytes(damaged(draw, victim, good[victim]))
            (folder / "number").write_text(f"{number} {victim}")
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            fault = fault_of(load, folder)
            signal.setitimer(signal.ITIMER_PROF, 0)
            refused += fault is not None
            if fault:
                kept = folder / f"failure-{number}-{Path(victim).name}"
                kept.write_bytes((folder / victim).read_bytes())
                print(f"-- {kept.name}\n{fault}")
                failures += 1
            (folder / victim).unlink()
            (folder / victim).write_bytes(good[victim])
            if failures >= MOST_SHOWN:
                break
    print(f"refused {refused}")

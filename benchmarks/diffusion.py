"""Stable Diffusion 1.5 compared with diffusers: `python -m benchmarks.diffusion --peers PYTHON`.

The UNet and the VAE have the sizes of version 1.5 and random weights in safetensors, which both
programs read. A step runs the UNet on latents of 64 x 64 (803 GFLOP). A decode runs the VAE for a
picture of 512 x 512 (2,515 GFLOP). The libraries run one after the other in separate processes; the
fastest turn counts. The exit status is 1 when a gate is missed.

    python -m benchmarks.diffusion --peers PYTHON … [--folder DIR] [--dtypes f32 bf16] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.workers.resident import peak_resident

Gate = dict[str, Any]
LEAST = {"f32": 1.0, "bf16": 0.9}
"""Least speed relative to diffusers on torch."""
MOST_MEMORY = 1.0
"""Most resident memory relative to diffusers on torch."""
TURNS = 3
_WORK = {"step": "UNet at 64 x 64", "decode": "VAE to 512 x 512"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diffusion")
    parser.add_argument("--peers", nargs="*", default=[], help="Pythons that have diffusers")
    parser.add_argument("--dtypes", nargs="+", choices=LEAST, default=list(LEAST))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="where the files are kept; default: nowhere")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--run", nargs=3, metavar=("LIBRARY", "WORK", "DTYPE"), help="a child's")
    options = parser.parse_args()
    if options.run:
        assert options.folder
        print(json.dumps(_measured(options.folder, *options.run)))
        return 0
    # Not imported in children: the peers' Pythons lack ubridge.
    from benchmarks.llm import python_with

    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        _write(folder)
        peer = python_with("diffusers", options.peers)
        for work, dtype in product(_WORK, options.dtypes):
            own = _child(sys.executable, folder, "ubridge", work, dtype, options.threads)
            other = None
            if peer is not None:
                other = _child(peer, folder, "diffusers", work, dtype, options.threads)
            for gate in _gates(f"{_WORK[work]}, {dtype}", dtype, own, other):
                gates.append(gate)
                print(gate, file=sys.stderr, flush=True)
    print(json.dumps({"gates": gates}) if options.json else "")
    return 1 if any(_is_missed(gate) for gate in gates) else 0


def _gates(name: str, dtype: str, own: Any, other: Any) -> list[Gate]:
    """The gates of one kind of work; without diffusers they have no value."""
    speed = memory = None
    if other is not None:
        speed, memory = other["seconds"] / own["seconds"], own["bytes"] / other["bytes"]
    print(f"{name}: {own['seconds']:.1f} s", file=sys.stderr, flush=True)
    return [
        {"what": f"speed of {name}, over diffusers", "is": speed, "least": LEAST[dtype]},
        {"what": f"memory of {name}, over diffusers", "is": memory, "at_most": MOST_MEMORY},
    ]


def _is_missed(gate: Gate) -> bool:
    value = gate["is"]
    least, most = gate.get("least", 0.0), gate.get("at_most", float("inf"))
    return value is not None and not least <= value <= most


def _child(python: str, folder: Path, library: str, work: str, dtype: str, threads: int) -> Any:
    """Run a library in a process of its own; return seconds and resident bytes."""
    count = str(threads)
    limits = {"UHAL_HOST_THREADS": count, "OMP_NUM_THREADS": count}
    command = [python, __file__, "--folder", str(folder), "--run", library, work, dtype]
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, **limits, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def _measured(folder: Path, library: str, work: str, dtype: str) -> dict[str, float]:
    run = {"ubridge": _of_ubridge, "diffusers": _of_diffusers}[library](folder, work, dtype)
    seconds = []
    # One additional run, because the first compiles.
    for _ in range(TURNS + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds[1:]), "bytes": peak_resident()}


def _write(folder: Path) -> None:
    """Write random weights of version 1.5, unless they are there."""
    import numpy as np

    import ubridge as ub
    from ubridge.models.diffusion.design import VERSIONS
    from ubridge.models.diffusion.making import drawn

    for part in ("unet", "vae"):
        path = folder / f"{part}.safetensors"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            design, rng = getattr(VERSIONS["v1-5"], part), np.random.default_rng(1)
            weights = {name: one.astype(np.float32) for name, one in drawn(part, design, rng)}
            ub.save(path, weights)


def _of_ubridge(folder: Path, work: str, dtype: str) -> Callable[[], Any]:
    import numpy as np

    import ubridge as ub
    from ubridge.models.diffusion.design import VERSIONS
    from ubridge.models.diffusion.layers import Take
    from ubridge.models.diffusion.unet import UNet
    from ubridge.models.diffusion.vae import Vae
    from uhal import Api, as_dtype

    device = Api.quick_init(backend="host")
    version, kind = VERSIONS["v1-5"], as_dtype(dtype)
    part = "unet" if work == "step" else "vae"
    weights: Any = ub.load(folder / f"{part}.safetensors")
    take = Take({name: weights[name].astype(kind, copy=False) for name in weights})
    device.synchronize()  # as when a pipeline loads
    rng = np.random.default_rng(2)
    latents = ub.asarray(rng.standard_normal((1, 4, 64, 64)).astype(np.float32)).astype(kind)
    if work == "decode":
        vae = Vae(version.vae, take)
        return lambda: vae.decode(latents).to_numpy()
    unet = UNet(version.unet, take)
    text = ub.asarray(rng.standard_normal((1, 77, 768)).astype(np.float32)).astype(kind)
    time_of = ub.asarray(unet.times([500.0])).astype(kind)
    return lambda: unet(latents, time_of, text).to_numpy()


def _of_diffusers(folder: Path, work: str, dtype: str) -> Callable[[], Any]:
    import diffusers
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    generator = torch.Generator().manual_seed(2)
    latents = torch.randn((1, 4, 64, 64), generator=generator).to(kind)
    if work == "decode":
        with torch.device("meta"):
            network = diffusers.AutoencoderKL(
                block_out_channels=(128, 256, 512, 512),
                layers_per_block=2,
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
            )
        network.load_state_dict(load_file(folder / "vae.safetensors"), assign=True)
        vae = network.to(kind).eval()
        return torch.no_grad()(lambda: vae.decode(latents).sample)
    with torch.device("meta"):
        network = diffusers.UNet2DConditionModel(cross_attention_dim=768, attention_head_dim=8)
    flat = load_file(folder / "unet.safetensors")
    state = {name: flat[name].reshape(one.shape) for name, one in network.state_dict().items()}
    network.load_state_dict(state, assign=True)
    unet = network.to(kind).eval()
    text = torch.randn((1, 77, 768), generator=generator).to(kind)
    return torch.no_grad()(lambda: unet(latents, 500, text).sample)


if __name__ == "__main__":
    sys.exit(main())

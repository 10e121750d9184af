"""`VERSIONS`: the published models, for files without configurations; and a folder's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ubridge.models.diffusion.design import TextDesign, UNetDesign, VaeDesign
from ubridge.models.diffusion.schedule import Training


@dataclass(frozen=True)
class Version:
    """The networks of a model and the way it was trained."""

    name: str
    text: TextDesign
    unet: UNetDesign
    vae: VaeDesign
    training: Training
    size: int = 512
    """Usual rows and columns of a picture."""
    pad: str | None = None
    """Token behind short prompts; None for the token that ends a text."""


_V1 = Version("v1-5", TextDesign(), UNetDesign(), VaeDesign(), Training())
_V2 = Version(
    "v2-base",
    TextDesign(hidden=1024, inner=4096, layers=23, heads=16, activation="gelu"),
    UNetDesign(heads=(5, 10, 20, 20), context=1024),
    VaeDesign(),
    Training(),
    pad="!",
)
VERSIONS: Mapping[str, Version] = {
    "v1-5": _V1,
    "v2-base": _V2,
    "v2-1": replace(
        _V2,
        name="v2-1",
        vae=VaeDesign(tile=768),
        training=Training(prediction="v_prediction"),
        size=768,
    ),
}
"""By the names of `--sd-version`; `v1-5` is every Stable Diffusion 1.x."""

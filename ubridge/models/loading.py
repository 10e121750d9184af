"""From files to the decoder's weights: tensors are found, checked, copied and put in order."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.block_formats import BlockFormat
from ubridge.device.host import has_host_memory
from ubridge.files.mapped import Bytes
from ubridge.models.architecture import Architecture
from ubridge.models.rwkv5 import Rwkv5
from ubridge.models.sharding import Cut, Share
from ubridge.models.sources import Source
from ubridge.models.weights import (
    in_kind,
    multiplies_blocks,
    nbytes_of,
    recipe_for,
    require_fitting,
    require_room,
    usual_dtype,
)
from ubridge.recipes import Shape
from uhal import Device, DeviceBuffer, DType
from uhal.dtypes import f32
from uhal.errors import NotSupportedError
from uhal.progress import Bar, Progress, in_units

Weight: TypeAlias = ub.DeviceTensor | ub.QuantizedWeight
Parts: TypeAlias = dict[str, Weight]
_SAMPLES, _SAMPLED = 4, 1024
"""Parts of a tensor that a fingerprint takes, and the bytes of each."""


@dataclass(frozen=True)
class Wanted:
    """One part of a model: its place in the files and its shape."""

    layer: int
    part: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    """A tensor, or several to stack: experts, norms of heads, or gate before up."""


def wanted_of(source: Source) -> list[Wanted]:
    """Find every part among the tensors of the files.

    Raises `InvalidFileError`, which names missing tensors, unknown tensors and wrong shapes, each
    with the shape the architecture expects.
    """
    entries, found, wrong = source.weights.entries, [], []
    taken: set[str] = set()
    for layer, part, shape in source.design.tensors():
        names = _names(source, layer, part, shape)
        missing = [name for name in names if name not in entries]
        if missing:
            wrong.append(f"{missing[0]} of shape {shape} is missing")
            continue
        taken.update(names)
        given = _shape(source, part, names)
        if given != shape:
            wrong.append(f"{names[0]}: expected shape {shape}, got {given}")
            continue
        found.append(Wanted(layer, part, shape, names))
    wrong += [
        f"{name} of shape {entries[name].shape} is there, and nothing asks for it"
        for name in entries
        if name not in taken and not source.ignored(name)
    ]
    require_fitting(
        f"{source.path}: not a {source.design.name} model by its configuration: ", wrong
    )
    return found


def _names(source: Source, layer: int, part: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of a part's tensors in the files; the expected names if the files have no such
    tensors.
    """
    entries = source.weights.entries
    spellings = list(source.spellings(layer, part))
    for name in spellings:
        if name in entries:
            return (name,)
    usual = spellings[0]
    if "{}" not in usual:
        return (usual,)
    if part.startswith("expert_"):
        # transformers 5 may join the experts, and gate and up.
        stem = f"{source.names['layer'].format(layer)}{source.names['experts']}"
        fused = f"{stem}.{'down_proj' if part.startswith('expert_down') else 'gate_up_proj'}"
        if fused in entries:
            return (fused,)
    return tuple(usual.format(one) for one in range(shape[0]))


def _is_fused(part: str, names: tuple[str, ...]) -> bool:
    return part.startswith(("expert_gate", "expert_up")) and names[0].endswith("gate_up_proj")


def _shape(source: Source, part: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """The shape of the tensors' concatenation."""
    shapes = {tuple(source.weights.entries[name].shape) for name in names}
    first = tuple(source.weights.entries[names[0]].shape)
    if _is_fused(part, names):
        return (first[0], first[1] // 2, *first[2:])
    if len(names) == 1:
        return first
    return (len(names), *(first if len(shapes) == 1 else ()))


# -- bringing over -------------------------------------------------------------------------------


class Loader:
    """Copies the parts of one model to a device."""

    def __init__(
        self,
        source: Source,
        device: Device,
        dtype: DType | None,
        quantize: str | None,
        member: tuple[int, int] = (0, 1),
    ) -> None:
        """`dtype` applies to activations and dense weights; by default it is the files'.

        `member` is a rank and the number of ranks: only the rank's share of each part is read.

        Raises `ArgumentValueError` for a format that cannot be written, `NotSupportedError` where
        the device has no products of blocks.
        """
        self.source = source
        self.device = device
        self.recipe = recipe_for(quantize, device)
        self.wanted = wanted_of(source)
        self.dtype = dtype or usual_dtype(source.weights.entries)
        self.share = self._share(*member)
        """The rank's share of the parts; `None` for the whole model."""

    def _share(self, rank: int, ranks: int) -> Share | None:
        design = self.source.design
        if ranks == 1:
            return None
        if isinstance(design, Rwkv5):
            raise NotSupportedError(
                f"group: expected a model with attention, got {design.name}, which is recurrent. "
                "Load it on one rank."
            )
        blocks = dict.fromkeys(("output.weight", "down.weight", "expert_down.weight"), 1)
        for one in self.wanted:
            kind = self.kind_of(one)
            if one.part in blocks and isinstance(kind, BlockFormat):
                blocks[one.part] = max(blocks[one.part], kind.elements)
        units = blocks["down.weight"], blocks["expert_down.weight"]
        share = Share(design, rank, ranks, *units)
        for part, elements in blocks.items():
            share.require_blocks(part, elements)
        return share

    def _cut(self, one: Wanted) -> Cut | None:
        return None if self.share is None else self.share.cut(one.part)

    def _own_shape(self, one: Wanted) -> tuple[int, ...]:
        cut = self._cut(one)
        return one.shape if cut is None else cut.shape(one.shape)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes for the user about matrices in another format than requested."""
        if self.recipe is None:
            return ()
        chosen = [one for one in self.wanted if self._is_quantizable(one)]
        wished = [self.recipe.wished(*self._role_of(one)) for one in chosen]
        found = map(self._format_of, chosen)
        fallbacks = Counter(one for one, other in zip(found, wished, strict=True) if one != other)
        told = self.recipe.summary(fallbacks)
        return (f"{self.source.path}: {told}",) if told else ()

    @property
    def nbytes(self) -> int:
        """Bytes that the weights will take on the device, pages of files included."""
        return sum(self._nbytes_of(one) for one in self.wanted)

    @property
    def allocated(self) -> int:
        """Bytes of device memory that the weights will take: on the host, pages need none."""
        has_pages = has_host_memory(self.device)
        own = [one for one in self.wanted if not (has_pages and self._is_as_in_its_file(one))]
        return sum(map(self._nbytes_of, own))

    def _nbytes_of(self, one: Wanted) -> int:
        return nbytes_of(self._own_shape(one), self.kind_of(one))

    def kind_of(self, one: Wanted) -> DType | BlockFormat:
        """Return the element type or the format of a part on the device."""
        kind, *others = {self.source.weights.entries[name].kind for name in one.names}
        is_kept = _is_matrix(one) and not others and not self._is_regrouped(one)
        if is_kept and isinstance(kind, BlockFormat) and multiplies_blocks(self.device):
            return kind
        if "." not in one.part or self._is_summed(one):
            return f32
        return self._format_of(one) or self.dtype

    def _is_summed(self, one: Wanted) -> bool:
        """Return whether a part is a norm whose stored weights need 1 added."""
        is_norm = one.part.endswith(("norm.weight", "_after.weight"))
        return is_norm and self.source.design.norm == "rms_plus_one"

    def _is_regrouped(self, one: Wanted) -> bool:
        """Return whether the rows of a part are in another order than in the files."""
        design = self.source.design
        return one.part.startswith("qkv") and design.qkv == "groups" and design.kv_heads > 1

    def _is_as_in_its_file(self, one: Wanted) -> bool:
        """Return whether the device can use the file's bytes unchanged."""
        entry = self.source.weights.entries[one.names[0]]
        cut = self._cut(one)
        is_copied = cut is not None and not cut.is_run_of_rows
        is_cut = is_copied or _is_fused(one.part, one.names)
        changed = is_cut or self._is_regrouped(one) or self._is_summed(one)
        is_stored = len(one.names) == 1 and self.source.weights.is_in_file(one.names[0])
        return is_stored and not changed and entry.kind == self.kind_of(one)

    def _is_quantizable(self, one: Wanted) -> bool:
        entry = self.source.weights.entries[one.names[0]]
        return isinstance(entry.kind, DType) and _is_matrix(one)

    def _format_of(self, one: Wanted) -> BlockFormat | None:
        """The format to which a part is quantized while it is read, if any."""
        if self.recipe is None or not self._is_quantizable(one):
            return None
        return self.recipe.format_of(*self._role_of(one), one.shape[-1])

    def _role_of(self, one: Wanted) -> tuple[str, int, Shape]:
        """Role, layer and model of a matrix, as recipes take them."""
        design = self.source.design
        stem = one.part.removesuffix(".weight").removeprefix("expert_")
        is_head = stem == "embedding" and design.is_tied
        role = "head" if is_head else {"qkv": "v"}.get(stem, stem)
        model = Shape(
            design.layers,
            experts=0 if design.experts is None else design.experts.count,
            is_falcon=design.name == "falcon",
            is_grouped=design.kv_heads < design.heads,
        )
        return role, one.layer, model

    def require_room(self, cache_bytes: int, progress: Progress) -> None:
        """Print the memory that the model needs, if `progress` is True; refuse too large a model.

        Raises `OutOfMemoryError` before anything is read.
        """
        what = (
            f"{self.source.design.name}: {in_units(self.nbytes)} of weights and "
            f"{in_units(cache_bytes)} for the cache"
        )
        require_room(what, self.allocated + cache_bytes, self.device, progress)

    @property
    def description(self) -> str:
        """The model's name and the kinds of its weights, the most frequent first."""
        sizes: Counter[str] = Counter()
        for one in self.wanted:
            sizes[self.kind_of(one).name] += self._nbytes_of(one)
        kinds = ", ".join(kind for kind, _ in sizes.most_common())
        return f"{self.source.path.resolve().name} ({self.source.design.name}; {kinds})"

    def fingerprint(self) -> str:
        """Return a digest of everything that decides the layers' state of a text.

        The digest covers the files' description of each tensor and some of the tensor's bytes: all
        bytes of a small tensor, else samples over its whole length. So files of many GB are not
        read again.
        """
        digest = hashlib.blake2b(digest_size=16)
        axes = dataclasses.asdict(self.source.design)
        del axes["end_tokens"]
        told: list[object] = [axes, self.dtype.name]
        if self.share is not None:
            told += [self.share.rank, self.share.ranks]
        digest.update(json.dumps(told, sort_keys=True, default=sorted).encode())
        for one in self.wanted:
            digest.update(repr((one.layer, one.part, one.shape, self.kind_of(one).name)).encode())
            for name in one.names:
                raw = self.source.weights.raw(name)
                step = max(len(raw) // _SAMPLES, _SAMPLED)
                for start in range(0, len(raw), step):
                    digest.update(raw[start : start + _SAMPLED].tobytes())
                digest.update(raw[-_SAMPLED:].tobytes())
        return digest.hexdigest()

    def load(self, progress: Progress) -> tuple[Parts, list[Parts]]:
        """Return the parts outside layers, and each layer's parts."""
        outside: Parts = {}
        layers: list[Parts] = [{} for _ in range(self.source.design.layers)]
        with Bar(progress, self.nbytes, f"loading {self.source.design.name}") as bar:
            for one in self.wanted:
                weight = self.brought(one)
                (layers[one.layer] if one.layer >= 0 else outside)[one.part] = weight
                bar.add(self._nbytes_of(one))
        if self.source.design.qk_norm == "heads":
            width = self.source.design.width
            outside["ones"] = ub.ones((width,), self.dtype, device=self.device)
            outside["zeros"] = ub.zeros((width,), self.dtype, device=self.device)
        return outside, layers

    def brought(self, one: Wanted) -> Weight:
        """Return a part in the order and type that the decoder expects."""
        design = self.source.design if self.share is None else self.share.own
        tensors, kind = self._read(one), self.kind_of(one)
        blocks = [each for each in tensors if isinstance(each, ub.QuantizedWeight)]
        if len(blocks) == len(tensors) and isinstance(kind, BlockFormat):
            return _stacked(blocks)
        dense = [self._dense(each, kind) for each in tensors]
        found = dense[0]
        if _is_fused(one.part, one.names) and self._cut(one) is None:
            inner = one.shape[1]
            found = found[:, :inner] if one.part.startswith("expert_gate") else found[:, inner:]
            found = found.contiguous()
        elif len(dense) > 1:
            found = ub.stack(dense)
        if one.part.startswith("qkv") and design.qkv == "groups":
            found = _by_kind(found, design)
        if self._is_summed(one):
            # The weight plus 1 is no f16 or bf16, so it stays f32, and so does the norm.
            return found.astype(f32, copy=False) + 1.0
        return in_kind(found, kind)

    def _read(self, one: Wanted) -> list[Weight]:
        """The tensors of a part, or the rank's share of each."""
        weights, cut = self.source.weights, self._cut(one)
        if cut is None:
            return [weights[name] for name in one.names]
        if len(one.names) > 1 and cut.axis == 0:
            # A norm for each head.
            return [weights[name] for bounds in cut.ranges for name in one.names[slice(*bounds)]]
        if _is_fused(one.part, one.names) and one.part.startswith("expert_up"):
            inner = one.shape[1]
            cut = Cut(cut.axis, tuple((start + inner, stop + inner) for start, stop in cut.ranges))
        return [self._part_of(name, cut) for name in one.names]

    def _part_of(self, name: str, cut: Cut) -> Weight:
        """The ranges of a tensor; the rest of it is not read."""
        weights, device = self.source.weights, self.device
        entry = weights.entries[name]
        kind, whole = entry.kind, tuple(entry.shape)
        if cut.is_run_of_rows and has_host_memory(device):
            return weights[name][slice(*cut.ranges[0])]
        if isinstance(kind, str):
            return weights[name]  # refuses the kind
        raw, shape = _bytes_of(cut, weights.raw(name), kind, whole), cut.shape(whole)
        if isinstance(kind, DType):
            return ub.asarray(raw.view(kind.dtype).reshape(shape), device=device)
        buffer = DeviceBuffer.from_numpy(raw, device=device)
        return ub.QuantizedWeight(buffer, kind, prod(shape[:-1]), shape[-1], shape=shape)

    def _dense(self, weight: Weight, kind: DType | BlockFormat) -> ub.DeviceTensor:
        """The elements of a tensor; the host computes those of blocks, as some devices cannot."""
        if isinstance(weight, ub.DeviceTensor):
            return weight
        values = ub.quantized.dequantize(weight.blocks.to_numpy(), weight.format)
        dtype = kind.dtype if isinstance(kind, DType) else np.float32
        return ub.asarray(values.reshape(weight.shape).astype(dtype), device=self.device)


def _stacked(weights: list[ub.QuantizedWeight]) -> ub.QuantizedWeight:
    """Stack matrices of blocks, such as experts with a tensor each."""
    first = weights[0]
    if len(weights) == 1:
        return first
    joined = ub.stack([ub.DeviceTensor(one.blocks) for one in weights])
    rows, shape = len(weights) * first.rows, (len(weights), *first.shape)
    return ub.QuantizedWeight(joined.buffer, first.format, rows, first.columns, shape=shape)


def _bytes_of(
    cut: Cut, raw: Bytes, kind: DType | BlockFormat, shape: tuple[int, ...]
) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor's ranges."""
    axis = cut.axis % len(shape)
    table = np.frombuffer(raw, np.uint8).reshape(prod(shape[:axis]), -1)
    elements, width = 1, table.shape[1] // shape[axis]
    if axis == len(shape) - 1 and isinstance(kind, BlockFormat):
        elements, width = kind.elements, kind.block_bytes
    parts = [
        table[:, start // elements * width : stop // elements * width] for start, stop in cut.ranges
    ]
    return np.concatenate(parts, 1).reshape(-1)


def _is_matrix(one: Wanted) -> bool:
    """Return whether the decoder multiplies by a part, which may then be quantized."""
    axes = 3 if one.part.startswith("expert_") else 2
    is_other = one.part.startswith(("router", "positions", "q_", "k_"))
    return len(one.shape) == axes and one.part.endswith("weight") and not is_other


def _by_kind(joined: ub.DeviceTensor, design: Architecture) -> ub.DeviceTensor:
    """Rows of groups (queries, a key, a value) as all queries, then all keys, then all values."""
    groups, each = design.kv_heads, design.group
    if groups == 1:
        return joined
    split = joined.reshape(groups, each + 2, design.width, *joined.shape[1:])
    parts = (split[:, :each], split[:, each : each + 1], split[:, each + 1 :])
    return ub.concatenate([one.reshape(-1, *joined.shape[1:]) for one in parts], 0)

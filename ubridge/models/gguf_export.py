"""A model's folder as one GGUF file, which this package and llama.cpp read.

The tensors are the decoder's parts in the order of llama.cpp's converter, `convert_hf_to_gguf.py`.
Keys and names are the same as in the reader. Before anything is written, the reader reads the new
file's description, which must describe the same model as the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.block_formats import BlockFormat
from ubridge.device.host import HOST
from ubridge.files.entries import TensorEntry, bytes_of
from ubridge.files.mapped import Bytes
from ubridge.files.saving import Later, Saved
from ubridge.models.architecture import Architecture
from ubridge.models.gguf_config import divisors_of, metadata_of
from ubridge.models.loading import Loader, Wanted, wanted_of
from ubridge.models.positions import Rope
from ubridge.models.sources import Source, described_gguf, open_source
from ubridge.models.table import ROWS, ArchitectureRow
from ubridge.models.tensor_names import GGUF_NAMES
from ubridge.models.tokenizers.exporting import tokenizer_metadata
from uhal import Device, DType
from uhal.dtypes import bf16, f16, f32
from uhal.errors import NotSupportedError

_FILE_TYPES = {f32: 0, f16: 1, bf16: 32}
"""`general.file_type` by the element type of matrices (`enum llama_ftype` of llama.h)."""
_WIDE = ("router.weight", "positions.weight", "q_norm.weight", "k_norm.weight")
"""Matrices that llama.cpp expects in f32, as it expects vectors."""
_OF_THE_FILE = ("name", "end_tokens", "rope", "windows")
"""Fields of an architecture that are compared in another way, or not at all."""


def write_model(folder: Path, out: Path, quantize: str | None = None) -> tuple[str, ...]:
    """Write a model's folder to a GGUF file; return notes for the user.

    The file holds the architecture, the weights, the tokenizer and its chat templates. `quantize`
    is a format or a mixture of llama.cpp. A complete new file replaces an existing one.

    Raises `NotSupportedError` for a model that GGUF files cannot describe, and the errors of
    `Model.load`, before anything is written.
    """
    with Device(0, backend=HOST) as device:
        source = open_source(folder, device)
        row = _row_of(source)
        loader = Loader(source, device, None, quantize)
        export = _Export(source, row, loader)
        words, notes = tokenizer_metadata(folder, source.design)
        metadata = export.metadata | words
        metadata, differing = _checked(out, source, row, metadata, export.tensors())
        ub.save(out, export.tensors(), metadata=metadata)
    return (*source.notices, *loader.notices, *differing, *notes)


def _row_of(source: Source) -> ArchitectureRow:
    row = ROWS.get(source.design.name)
    if row is None or not row.gguf:
        known = ", ".join(sorted(name for name, one in ROWS.items() if one.gguf))
        raise NotSupportedError(
            f"{source.path}: convert: expected a model that llama.cpp has, one of {known}, got "
            f"{source.design.name}. Load the folder itself."
        )
    return row


@dataclass(frozen=True)
class _Export:
    """The description and the tensors of the new file."""

    source: Source
    row: ArchitectureRow
    loader: Loader

    @property
    def metadata(self) -> dict[str, Any]:
        """The keys of the model, without its tokenizer."""
        design, recipe = self.source.design, self.loader.recipe
        name = self.source.path.resolve().name
        # llama.cpp and this package know Phi-3's tokenizer by the model's name.
        shown = name if design.name in name.lower() else f"{name} {design.name}"
        file_type = _FILE_TYPES[self.loader.dtype] if recipe is None else recipe.file_type
        told = {
            "general.architecture": self.row.gguf,
            "general.type": "model",
            "general.name": shown,
            "general.file_type": file_type,
            "general.quantization_version": 2,
            **metadata_of(design, self.row.gguf),
        }
        return {key: value for key, value in told.items() if value is not None}

    def tensors(self) -> dict[str, Saved | Later]:
        """The tensors by name; a part of the model is read when it is written."""
        found: dict[str, Saved | Later] = {}
        names = _names_of({one.part.partition(".")[0] for one in self.loader.wanted}, self.row)
        for one in self.loader.wanted:
            stem, _, kind = one.part.partition(".")
            prefix = GGUF_NAMES["layer"].format(one.layer) if one.layer >= 0 else ""
            name = f"{prefix}{names[stem]}.{kind}"
            found[name] = Later(self._kind_of(one), one.shape, partial(self._made, one))
        return found | divisors_of(self.source.design)

    def _kind_of(self, one: Wanted) -> DType | BlockFormat:
        is_wide = len(one.shape) == 1 or one.part in _WIDE
        return f32 if is_wide else self.loader.kind_of(one)

    def _made(self, one: Wanted) -> Saved:
        weight = self.loader.brought(one)
        kind = self._kind_of(one)
        if isinstance(kind, DType) and isinstance(weight, ub.DeviceTensor):
            weight = weight.astype(kind, copy=False)
        order = self._order_of(one)
        if order is None:
            return weight
        blocks = weight.blocks if isinstance(weight, ub.QuantizedWeight) else weight
        rows: npt.NDArray[Any] = blocks.to_numpy().reshape(len(order), -1)[order]
        return rows

    def _order_of(self, one: Wanted) -> npt.NDArray[np.int64] | None:
        """The order of rows of queries and keys where files have the pairs that turn adjacent."""
        design, stem = self.source.design, one.part.partition(".")[0]
        is_turned = self.row.gguf_axes.get("is_interleaved", False) and not design.is_interleaved
        if stem not in ("q", "k") or not is_turned or design.rope is None:
            return None
        turned = design.rope.width
        heads = np.arange(one.shape[0]).reshape(-1, design.width)
        pairs = heads[:, :turned].reshape(len(heads), 2, -1).swapaxes(1, 2)
        pairs = pairs.reshape(len(heads), turned)
        return np.concatenate([pairs, heads[:, turned:]], 1).reshape(-1)


def _names_of(stems: set[str], row: ArchitectureRow) -> dict[str, str]:
    """The name of each part: the last of its names that no other part has."""
    possible = {stem: {**GGUF_NAMES, **row.gguf_names}[stem].split() for stem in stems}
    found: dict[str, str] = {}
    for stem in sorted(stems, key=lambda one: (len(possible[one]), one)):
        found[stem] = next(name for name in reversed(possible[stem]) if name not in found.values())
    return found


# -- reading the new file's description ----------------------------------------------------------


class _Described(ub.Weights):
    """The description of a file that does not exist yet."""

    def __init__(
        self,
        source: Source,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, Saved | Later],
    ) -> None:
        file = next(iter(source.weights.entries.values())).file
        entries, made = {}, {}
        for name, one in tensors.items():
            if isinstance(one, Later):
                nbytes = bytes_of(one.kind, one.shape)
                entries[name] = TensorEntry(name, one.kind, one.shape, file, 0, nbytes)
            elif isinstance(one, np.ndarray):
                entries[name] = TensorEntry(name, f32, one.shape, file, 0, one.nbytes)
                made[name] = one
        super().__init__(entries, metadata, source.weights.device)
        self._made = made

    def raw(self, name: str) -> Bytes:
        """Return the bytes of a small tensor."""
        return self._made[name].view(np.uint8)


def _checked(
    out: Path,
    source: Source,
    row: ArchitectureRow,
    metadata: dict[str, Any],
    tensors: Mapping[str, Saved | Later],
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys that a reader uses, and notes on what such files cannot say.

    Raises `NotSupportedError` where a reader would compute another model.
    """
    written = _as_read(metadata)
    found, config = described_gguf(out, _Described(source, written, tensors))
    unread = {key for key, _ in config.unread()}
    kept = {key: value for key, value in metadata.items() if key not in unread}
    expected = replace(source.design, **row.gguf_axes)
    if expected.qkv == "groups":
        expected = replace(expected, qkv="rows")
    for name, only in row.gguf_fixed.items():
        if getattr(expected, name) != only:
            raise _refusal(source, row, name, getattr(expected, name), only)
    for one in fields(Architecture):
        wanted, got = getattr(expected, one.name), getattr(found.design, one.name)
        if one.name not in _OF_THE_FILE and not _are_alike(wanted, got):
            raise _refusal(source, row, one.name, wanted, got)
    notes = list(_differences(source, row, expected, found.design))
    wanted_of(found)
    return kept, notes


def _differences(
    source: Source, row: ArchitectureRow, wanted: Architecture, got: Architecture
) -> Iterator[str]:
    """Notes on texts whose logits differ. Raises `NotSupportedError` where all texts' differ."""
    windows = [one for one in wanted.windows if 0 < one < wanted.context]
    if windows and not row.gguf_windows:
        yield (
            f"{source.path}: llama.cpp has no sliding window for {row.gguf}; behind the first "
            f"{min(windows)} tokens its logits differ from the folder's"
        )
    one, two = wanted.rope, got.rope
    if one is None or two is None:
        if one is not two or wanted.alibi != got.alibi:
            raise _refusal(source, row, "rope", one, two)
        return
    long = 1 if one.kind == "dynamic" else max(one.trained, two.trained) + 1
    if not all(one.is_like(two, length) for length in (1, long)):
        raise _refusal(source, row, "rope", one, two)
    if one.kind == "dynamic":
        yield (
            f"{source.path}: GGUF files have no angles that depend on the length; logits of texts "
            f"of more than {one.context} tokens differ from the folder's"
        )


def _refusal(
    source: Source, row: ArchitectureRow, what: str, wanted: object, got: object
) -> NotSupportedError:
    shown = [repr(one) if not isinstance(one, Rope) else one.kind for one in (wanted, got)]
    return NotSupportedError(
        f"{source.path}: convert: GGUF files of {row.gguf} mean {what} = {shown[1]}, the folder's "
        f"model has {shown[0]}. Load the folder itself."
    )


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether values are equal, numbers in f32 as in files."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-6, atol=0))
    return bool(one == other)


def _as_read(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as a reader of the file gets them: floats are f32."""
    return {
        key: float(np.float32(value)) if isinstance(value, float) else value
        for key, value in metadata.items()
    }

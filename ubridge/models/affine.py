"""Weights of MLX: groups of integers, each with a scale and a bias, of 2 to 8 bits.

A matrix `x.weight` of u32 holds the integers as a little-endian stream of bits; `x.scales` and
`x.biases` have one number for each group of a row (MLX's documentation of `mlx.core.quantize`).
An element is scale · integer + bias. Matrices of 4 bits become blocks of q4_1, others f32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.block_formats import FORMATS
from ubridge.files.entries import TensorEntry, bytes_of
from ubridge.files.mapped import Bytes
from ubridge.files.settings import Settings
from ubridge.files.weights import Weight, made_of
from uhal import DeviceBuffer, DType
from uhal.dtypes import bf16, f16, f32, u32
from uhal.errors import NotSupportedError

_BLOCKS = FORMATS["q4_1"]
_BITS = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class _Matrix:
    """A matrix of integers in the files."""

    bits: int
    group: int
    integers: TensorEntry
    scales: TensorEntry
    biases: TensorEntry


class AffineWeights(ub.Weights):
    """Files of MLX, whose matrices are blocks of q4_1 or dense."""

    def __init__(self, weights: ub.Weights, config: Settings) -> None:
        """Take open files, and a configuration with the section `quantization`.

        Raises `InvalidFileError` for matrices that contradict it, `NotSupportedError` for other
        kinds of quantization.
        """
        entries = dict(weights.entries)
        super().__init__(entries, weights.metadata, weights.device)
        self._files = weights
        self._matrices: dict[str, _Matrix] = {}
        usual = settings_of_mlx(config)
        assert usual is not None
        for name in weights:
            stem, _, kind = name.rpartition(".")
            if kind == "scales":
                self._matrices[f"{stem}.weight"] = self._matrix_of(stem, usual)
        for name, one in self._matrices.items():
            stem = name.removesuffix(".weight")
            del entries[f"{stem}.scales"], entries[f"{stem}.biases"]
            shape = (*one.integers.shape[:-1], one.integers.shape[-1] * 32 // one.bits)
            is_blocks = one.bits == 4 and one.group % _BLOCKS.elements == 0 and self._fits(one)
            made = _BLOCKS if is_blocks else f32
            file, nbytes = one.integers.file, bytes_of(made, shape)
            entries[name] = TensorEntry(name, made, shape, file, one.integers.start, nbytes)

    def is_in_file(self, name: str) -> bool:
        """Return whether a tensor's bytes are a part of a file."""
        return name not in self._matrices

    def raw(self, name: str) -> Bytes:
        """Return a tensor's bytes; the bytes of a matrix are new memory."""
        if name not in self._matrices:
            return super().raw(name)
        one, entry = self._matrices[name], self.entries[name]
        integers = _integers(self._files.raw(name), one)
        scales, biases = (self._numbers(each) for each in (one.scales, one.biases))
        if entry.kind == f32:
            groups = integers.reshape(*scales.shape, one.group).astype(np.float32)
            return (groups * scales[..., None] + biases[..., None]).reshape(-1).view(np.uint8)
        return _blocks(integers, scales, biases, one.group)

    def __getitem__(self, name: str) -> Weight:
        if name not in self._matrices:
            return super().__getitem__(name)
        buffer = DeviceBuffer.from_numpy(self.raw(name), device=self.device)
        return made_of(self.entries[name], buffer)

    def _matrix_of(self, stem: str, usual: Settings) -> _Matrix:
        """Find a matrix, and check its shapes against its number of bits."""
        own = usual.section(stem) if isinstance(usual.value(stem), dict) else usual
        bits = own.integer("bits", usual.integer("bits"))
        own.ignore(*own)
        entries = [self.entries.get(f"{stem}.{one}") for one in ("weight", "scales", "biases")]
        integers, scales, biases = entries
        if integers is None or scales is None or biases is None or bits not in _BITS:
            raise own.refuse("bits", f"one of {_BITS}, and weight, scales and biases of {stem}")
        columns = integers.shape[-1] * 32 // bits
        group = columns // max(scales.shape[-1], 1)
        is_whole = group * scales.shape[-1] == columns and columns * bits % 32 == 0
        lines = {one.shape[:-1] for one in (integers, scales, biases)}
        kinds = {scales.kind, biases.kind}
        if not is_whole or len(lines) > 1 or scales.shape != biases.shape:
            shapes = [one.shape for one in (integers, scales, biases)]
            raise own.refuse("group_size", f"groups of {stem} with a scale and a bias each", shapes)
        if integers.kind != u32 or not kinds <= {f16, bf16, f32}:
            raise own.refuse("bits", f"u32 and floats in {stem}", integers.kind_name)
        return _Matrix(bits, group, integers, scales, biases)

    def _numbers(self, entry: TensorEntry) -> npt.NDArray[np.float32]:
        kind = entry.kind
        assert isinstance(kind, DType)
        stored = self._files.raw(entry.name).view(kind.dtype)
        return stored.astype(np.float32).reshape(entry.shape)

    def _fits(self, one: _Matrix) -> bool:
        """Return whether scales and biases are numbers of f16, as blocks of q4_1 have them."""
        with np.errstate(over="ignore"):
            return all(
                np.array_equal(values.astype(np.float16).astype(np.float32), values)
                for values in map(self._numbers, (one.scales, one.biases))
            )


def settings_of_mlx(config: Settings) -> Settings | None:
    """Return the section of a `config.json` with MLX's quantization, if there is one.

    Raises `NotSupportedError` for kinds without scales and biases.
    """
    for name in ("quantization", "quantization_config"):
        found = config.section(name)
        if "group_size" in found and "bits" in found and "quant_method" not in found:
            mode = found.text("mode", "affine")
            if mode != "affine":
                raise NotSupportedError(
                    f"{config.where}: {name}.mode: expected affine, got {mode}; take the original "
                    "weights with quantize='q4_K', or a GGUF file"
                )
            for one in (found, config.section("quantization_config")):
                one.ignore(*one)
            return found
    return None


def _integers(raw: Bytes, one: _Matrix) -> npt.NDArray[np.uint8]:
    """The integers of a matrix, (…, columns)."""
    shape = (*one.integers.shape[:-1], -1)
    if one.bits == 8:
        return raw.reshape(shape)
    if one.bits == 4:
        return np.stack([raw & 15, raw >> 4], -1).reshape(shape)
    bits = np.unpackbits(raw, bitorder="little").reshape(-1, one.bits)
    return np.packbits(bits, axis=1, bitorder="little").reshape(shape)


def _blocks(
    integers: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    biases: npt.NDArray[np.float32],
    group: int,
) -> Bytes:
    """Blocks of q4_1: scale and bias in f16, then 16 bytes of the first and the last half."""
    half = _BLOCKS.elements // 2
    pairs = integers.reshape(-1, 2, half)
    repeats = group // _BLOCKS.elements
    factors = np.stack([scales.reshape(-1), biases.reshape(-1)], -1).astype(np.float16)
    head = np.repeat(factors, repeats, 0).view(np.uint8)
    return np.concatenate([head, pairs[:, 0] | pairs[:, 1] << 4], 1).reshape(-1)

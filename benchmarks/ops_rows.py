"""Rows of `benchmarks.ops_host`: each operation as ubridge, numpy and torch spell it.

A row is three Python expressions. An empty expression means that the library has no such
function. `benchmarks.ops` makes the operands, by the names in the expressions. A row with `axis` is
measured along the first and the last axis. Rows without `shapes` are measured at every size.

A test fails if a public function, an operation of the table or a method of tensors has no row here
and no reason in `OUTSIDE`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """One operation as an expression of each library."""

    ubridge: str
    numpy: str = ""
    torch: str = ""
    shapes: Shapes = field(default_factory=dict)
    """Shapes of the operands by name, for a row with one size of its own."""
    dtypes: str = ""
    """Element types; empty: those that the definition of the function promises."""
    is_compared: bool = True
    """Whether all libraries give the same numbers."""

    @property
    def name(self) -> str:
        shape = " × ".join(str(tuple(one)) for one in self.shapes.values())
        name = self.ubridge.replace("ub.", "")
        return f"{name} of {shape}" if shape else name

    def of(self, library: str) -> str:
        """Return the expression of a library."""
        return str(getattr(self, library))

    @property
    def names(self) -> frozenset[str]:
        """The names that the expressions use."""
        trees = [ast.parse(one) for one in (self.ubridge, self.numpy, self.torch) if one]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def _same(names: str, arguments: str, dtypes: str = "") -> Iterator[Row]:
    """Rows of functions that have one name in all three libraries."""
    for name in names.split():
        call = f"{name}({arguments})"
        yield Row(f"ub.{call}", f"np.{call}", f"torch.{call}", dtypes=dtypes)


def _products() -> Iterator[Row]:
    pairs = (
        ((128, 128), (128, 128)),
        ((512, 512), (512, 512)),
        ((1024, 1024), (1024, 1024)),
        ((2048, 2048), (2048, 2048)),
        ((64, 128, 128), (64, 128, 128)),
        ((4096, 4096), (4096, 1)),
        ((64, 576), (576, 3136)),
        ((16, 2048), (2048, 5632)),
    )
    for left, right in pairs:
        call = "matmul(left, right)"
        spelled = (f"ub.{call}", f"np.{call}", f"torch.{call}")
        yield Row(*spelled, shapes={"left": left, "right": right}, dtypes="f32 bf16 f16")
    shapes = {"left": (16, 2048), "right": (5632, 2048)}
    spelled = ("ub.linear(left, right)", "left @ right.T", "F.linear(left, right)")
    yield Row(*spelled, shapes=shapes, dtypes="f32 bf16 f16")


def _convolutions() -> Iterator[Row]:
    """Convolutions of ResNet, MobileNet and Stable Diffusion."""
    for image, weight, settings in (
        ((1, 3, 224, 224), (64, 3, 7, 7), "stride=2, padding=3"),
        ((1, 64, 56, 56), (64, 64, 3, 3), "padding=1"),
        ((1, 64, 56, 56), (256, 64, 1, 1), "padding=0"),
        ((1, 128, 56, 56), (128, 128, 3, 3), "stride=2, padding=1"),
        ((1, 512, 7, 7), (512, 512, 3, 3), "padding=1"),
        ((1, 320, 64, 64), (320, 320, 3, 3), "padding=1"),
        ((1, 1280, 8, 8), (1280, 1280, 3, 3), "padding=1"),
        ((1, 64, 112, 112), (64, 1, 3, 3), "padding=1, groups=64"),
        ((1, 128, 56, 56), (128, 4, 3, 3), "padding=1, groups=32"),
        ((1, 64, 56, 56), (64, 64, 3, 3), "padding=2, dilation=2"),
    ):
        yield _convolution("conv2d", image, weight, settings)
    yield _convolution("conv1d", (1, 80, 3000), (384, 80, 3), "padding=1")
    yield _convolution("conv1d", (1, 384, 3000), (384, 384, 3), "stride=2, padding=1")
    yield _convolution("conv_transpose1d", (1, 256, 400), (256, 128, 16), "stride=8, padding=4")
    yield _convolution("conv_transpose2d", (1, 128, 28, 28), (128, 64, 4, 4), "stride=2, padding=1")


def _convolution(name: str, image: tuple[int, ...], weight: tuple[int, ...], settings: str) -> Row:
    call = f"{name}(image, weight, {settings})"
    shapes = {"image": image, "weight": weight}
    return Row(f"ub.{call}", "", f"F.{call}", shapes, "f32 bf16")


def _attentions() -> Iterator[Row]:
    heads, keys = (1, 32, 512, 128), (1, 8, 512, 128)
    square = dict.fromkeys(("query", "key", "value"), heads)
    grouped = {"query": heads, "key": keys, "value": keys}
    one = {"query": (1, 32, 1, 128), "key": (1, 32, 4096, 128), "value": (1, 32, 4096, 128)}
    torch = "F.scaled_dot_product_attention(query, key, value"
    for shapes, ours, theirs in (
        (square, "", ""),
        (square, ", causal=True", ", is_causal=True"),
        (grouped, "", ", enable_gqa=True"),
        (one, "", ""),
    ):
        call = f"ub.attention(query, key, value{ours})"
        yield Row(call, "", f"{torch}{theirs})", shapes, "f32 bf16")
    cached = {"queries": (1, 32, 128), "keys": (32, 4096, 128), "values": (32, 4096, 128)}
    yield Row(
        "ub.cached_attention(queries, keys, values, last)",
        "",
        "F.scaled_dot_product_attention(queries.permute(1, 0, 2), keys, values)",
        cached,
        "f32 bf16",
    )
    cache = {"keys": (32, 4096, 128), "token": (32, 1, 128)}
    write = "keys.__setitem__((slice(None), slice(4095, 4096)), token)"
    yield Row("ub.kv_append(keys, token, last)", write, write, cache, "f32 bf16")
    yield Row(
        "ub.kv_concat(keys, token, 1)",
        "np.concatenate((keys, token), 1)",
        "torch.cat((keys, token), 1)",
        cache,
        "f32 bf16",
    )
    pages = {"pool": (256, 16, 8, 128), "tokens": (8, 8, 128)}
    write = "pool.reshape(-1, 8, 128).__setitem__(slots, tokens)"
    yield Row("ub.paged_append(pool, tokens, slots)", write, write, pages, "f32 bf16")
    asked = {"queries": (8, 32, 128), "keys": (256, 16, 8, 128), "values": (256, 16, 8, 128)}
    call = "ub.paged_attention(queries, keys, values, tables, sequences, positions)"
    yield Row(call, shapes=asked, dtypes="f32 bf16")
    turned = {"heads": (1, 32, 512, 128), "cos": (512, 64), "sin": (512, 64)}
    pair = "heads[..., :64], heads[..., 64:]"
    parts = "a * cos - b * sin, a * sin + b * cos"
    yield Row(
        "ub.rope(heads, cos, sin)",
        f"(lambda a, b: np.concatenate(({parts}), -1))({pair})",
        f"(lambda a, b: torch.cat(({parts}), -1))({pair})",
        turned,
        "f32 bf16",
    )
    at = {"token": (1, 32, 128), "cos": (4096, 64), "sin": (4096, 64)}
    row = "cos[4095], sin[4095]"
    pair = "token[..., :64], token[..., 64:]"
    parts = "a * c - b * s, a * s + b * c"
    yield Row(
        "ub.rope_at(token, cos, sin, last)",
        f"(lambda a, b, c, s: np.concatenate(({parts}), -1))({pair}, {row})",
        f"(lambda a, b, c, s: torch.cat(({parts}), -1))({pair}, {row})",
        at,
        "f32",
    )


_NORM = "np.mean(np.square(x), -1, keepdims=True)"
_CENTRED = "(c := x - x.mean(-1, keepdims=True))"
_SPREAD = "np.sqrt(np.mean(np.square(c), -1, keepdims=True) + np.float32(1e-5))"

FAMILIES: Mapping[str, tuple[Row, ...]] = {
    "elementwise": (
        *_same("abs ceil floor negative round sign square", "x"),
        *_same("cos exp expm1 sin tanh", "x"),
        *_same("log log1p reciprocal sqrt", "positive"),
        *_same("add subtract multiply divide maximum minimum", "x, y"),
        Row("ub.equal(x, y)", "np.equal(x, y)", "torch.eq(x, y)"),
        *_same("not_equal less less_equal greater greater_equal", "x, y"),
        Row("ub.copy(x)", "np.copy(x)", "x.clone()"),
        Row("ub.erf(x)", "", "torch.erf(x)"),
        Row("ub.erfinv(unit)", "", "torch.erfinv(unit)"),
        Row("ub.gelu(x)", "", "F.gelu(x, approximate='tanh')"),
        Row("ub.gelu_erf(x)", "", "F.gelu(x)"),
        Row("ub.normcdf(x)", "", "torch.special.ndtr(x)"),
        Row("ub.relu(x)", "np.maximum(x, 0)", "torch.relu(x)"),
        Row("ub.sigmoid(x)", "", "torch.sigmoid(x)"),
        Row("ub.silu(x)", "", "F.silu(x)"),
        Row("ub.silu_mul(x, y)", "", "F.silu(x) * y"),
        Row("ub.elu(x, 1.0)", "", "F.elu(x)"),
        Row("ub.isnan(x)", "np.isnan(x)", "torch.isnan(x)", dtypes="f32 f64 f16 bf16"),
        Row("ub.atan2(x, y)", "np.arctan2(x, y)", "torch.atan2(x, y)"),
        Row("ub.power(positive, 2.5)", "np.power(positive, 2.5)", "torch.pow(positive, 2.5)"),
        Row("ub.affine(x, 2, 1)", "x * 2 + 1", "x * 2 + 1"),
        Row(
            "ub.where(condition, x, y)", "np.where(condition, x, y)", "torch.where(condition, x, y)"
        ),
        Row(
            "ub.masked_fill(x, condition, 3)",
            "np.where(condition, 3, x)",
            "x.masked_fill(condition, 3)",
        ),
        Row("ub.clip(x, -1, 1)", "np.clip(x, -1, 1)", "torch.clip(x, -1, 1)"),
        Row("x + y", "x + y", "x + y"),
        Row("x - y", "x - y", "x - y"),
        Row("x * y", "x * y", "x * y"),
        Row("x / y", "x / y", "x / y"),
        Row("x + row", "x + row", "x + row"),
        Row("x * 1.5", "x * 1.5", "x * 1.5", dtypes="f32 f64 f16 bf16"),
        Row("1 + x", "1 + x", "1 + x"),
        Row("1 - x", "1 - x", "1 - x"),
        Row("2 * x", "2 * x", "2 * x"),
        Row("1 / positive", "1 / positive", "1 / positive"),
        Row("positive ** 2", "positive ** 2", "positive ** 2", dtypes="f32 f64 f16 bf16"),
        Row("-x", "-x", "-x"),
        Row("+x", "x.copy()", "x.clone()"),
        Row("x.__abs__()", "x.__abs__()", "x.__abs__()"),
        *(
            Row(f"x {one} y", f"x {one} y", f"x {one} y", dtypes="f32")
            for one in ("==", "!=", "<", "<=", ">", ">=")
        ),
        *(Row(*3 * (f"condition {one} other",), dtypes="bool") for one in ("&", "|", "^")),
        *(Row(*3 * (f"True {one} condition",), dtypes="bool") for one in ("&", "|", "^")),
        Row("~condition", "~condition", "~condition", dtypes="bool"),
        *(
            Row(*3 * (f"operator.{one}(x, {value})",), dtypes="f32 f64 f16 bf16", is_compared=False)
            for one, value in (("iadd", 0.5), ("isub", 0.5), ("imul", 1.0), ("itruediv", 1.0))
        ),
    ),
    "casts and copies": (
        *(
            Row(f"x.astype({to!r})", f"x.astype(np.{name})", f"x.to(torch.{name}, copy=True)")
            for to, name in (
                ("f32", "float32"),
                ("f64", "float64"),
                ("f16", "float16"),
                ("i32", "int32"),
            )
        ),
        Row("positive.astype('u8')", "positive.astype(np.uint8)", "positive.to(torch.uint8)"),
        Row("x.astype('bf16')", "", "x.to(torch.bfloat16, copy=True)"),
        Row(
            "x.T.contiguous()",
            "np.ascontiguousarray(x.T)",
            "x.T.contiguous()",
            dtypes="f32 f64 f16 u8",
        ),
        Row("x.copy()", "x.copy()", "x.clone()"),
        Row("x.fill(3)", "x.fill(3)", "x.fill_(3)", is_compared=False),
        Row("x.copy_from(y)", "np.copyto(x, y)", "x.copy_(y)", is_compared=False),
        Row(*3 * ("x.__setitem__(slice(1, None), y[1:])",), dtypes="f32", is_compared=False),
        Row(
            "x[::2].contiguous()",
            "np.ascontiguousarray(x[::2])",
            "x[::2].contiguous()",
            dtypes="f32",
        ),
        Row(
            "x[:, ::2].contiguous()",
            "np.ascontiguousarray(x[:, ::2])",
            "x[:, ::2].contiguous()",
            dtypes="f32",
        ),
        Row("x.to_numpy()", "x.copy()", "x.clone()", dtypes="f32"),
        Row("ub.from_numpy(array)", "array.copy()", "torch.tensor(array)", dtypes="f32"),
        Row("ub.asarray(array)", "np.array(array)", "torch.tensor(array)", dtypes="f32"),
        Row("ub.array(array)", "np.array(array)", "torch.tensor(array)", dtypes="f32"),
    ),
    "creation": (
        Row(
            "ub.empty(shape, dtype)",
            "np.empty(shape, dtype)",
            "torch.empty(shape, dtype=dtype)",
            dtypes="f32",
            is_compared=False,
        ),
        Row(
            "ub.empty_like(x)",
            "np.empty_like(x)",
            "torch.empty_like(x)",
            dtypes="f32",
            is_compared=False,
        ),
        *(
            Row(
                f"ub.{one}(shape, dtype)",
                f"np.{one}(shape, dtype)",
                f"torch.{one}(shape, dtype=dtype)",
                dtypes="f32 f64 i32",
            )
            for one in ("zeros", "ones")
        ),
        *_same("zeros_like ones_like", "x", "f32"),
        Row(
            "ub.full(shape, 3, dtype)",
            "np.full(shape, 3, dtype)",
            "torch.full(shape, 3, dtype=dtype)",
            dtypes="f32",
        ),
        *_same("full_like", "x, 3", "f32"),
        Row(
            "ub.arange(0, size, 1, dtype)",
            "np.arange(0, size, 1, dtype)",
            "torch.arange(0, size, 1, dtype=dtype)",
            dtypes="f32 i64",
        ),
        Row(
            "ub.linspace(0, 1, size)",
            "np.linspace(0, 1, size, dtype=np.float32)",
            "torch.linspace(0, 1, size)",
            dtypes="f32",
        ),
        Row(
            "ub.eye(*shape)", "np.eye(*shape, dtype=np.float32)", "torch.eye(*shape)", dtypes="f32"
        ),
        *_same("tril triu", "x", "f32"),
        Row(
            "ub.rand(shape)",
            "rng.random(shape, np.float32)",
            "torch.rand(shape)",
            dtypes="f32",
            is_compared=False,
        ),
        Row(
            "ub.randn(shape)",
            "rng.standard_normal(shape, np.float32)",
            "torch.randn(shape)",
            dtypes="f32",
            is_compared=False,
        ),
    ),
    "reductions": (
        *(
            Row(f"ub.{one}(x{rest})", f"np.{one}(x{rest})", f"torch.{torch}(x{dim})")
            for one, torch in (
                ("sum", "sum"),
                ("mean", "mean"),
                ("max", "amax"),
                ("min", "amin"),
                ("argmax", "argmax"),
                ("argmin", "argmin"),
            )
            for rest, dim in (("", ""), (", axis", ", axis"))
        ),
        *(
            Row(
                f"ub.{one}(x, axis)",
                f"np.{one}(x, axis)",
                f"torch.{one}(x, axis, correction=0)",
                dtypes="f32 f64 bf16",
            )
            for one in ("std", "var")
        ),
        *_same("prod", "x, axis"),
        *_same("any all", "condition, axis", "bool"),
        Row(
            "ub.count_nonzero(condition, axis)",
            "np.count_nonzero(condition, axis)",
            "torch.count_nonzero(condition, axis)",
            dtypes="bool",
        ),
        Row("ub.logsumexp(x, axis)", "np.log(np.exp(x).sum(axis))", "torch.logsumexp(x, axis)"),
        *_same("cumsum", "x, axis"),
        *_same("diff", "x, axis=axis", "f32"),
        Row("narrow.sum(-1)", "narrow.sum(-1)", "narrow.sum(-1)", dtypes="f32"),
        Row("narrow.max(-1)", "narrow.max(-1)", "narrow.amax(-1)", dtypes="f32"),
    ),
    "rows": (
        Row(
            "ub.softmax(x, axis)",
            "(e := np.exp(x - x.max(axis, keepdims=True))) / e.sum(axis, keepdims=True)",
            "torch.softmax(x, axis)",
        ),
        Row("ub.log_softmax(x, axis)", "", "torch.log_softmax(x, axis)"),
        Row(
            "ub.layer_norm(x, row, row)",
            f"{_CENTRED} / {_SPREAD} * row + row",
            "F.layer_norm(x, row.shape, row, row, 1e-5)",
        ),
        Row(
            "ub.rms_norm(x, row)",
            f"x / np.sqrt({_NORM} + np.float32(1e-5)) * row",
            "F.rms_norm(x, row.shape, row, 1e-5)",
        ),
        Row(
            "ub.group_norm(image, channel, channel, 1)",
            "",
            "F.group_norm(image, 1, channel, channel)",
        ),
    ),
    "indexing": (
        Row("ub.take(x, ids, axis)", "np.take(x, ids, axis)", "torch.index_select(x, axis, ids)"),
        Row(
            "ub.gather(x, indices, axis)",
            "np.take_along_axis(x, indices, axis)",
            "torch.gather(x, axis, indices)",
        ),
        Row(
            "ub.scatter(x, indices, y, axis)",
            "np.put_along_axis(x, indices, y, axis)",
            "x.scatter_(axis, indices, y)",
            is_compared=False,
        ),
        Row(
            "ub.scatter_add(x, indices, y, axis)",
            "",
            "x.scatter_add_(axis, indices, y)",
            is_compared=False,
        ),
        Row("ub.index_add(x, ids, y, axis)", "", "x.index_add_(axis, ids, y)", is_compared=False),
        Row("ub.embedding(ids, x)", "x[ids]", "F.embedding(ids, x)", dtypes="f32 bf16"),
        Row(
            "ub.nonzero(condition)",
            "np.nonzero(condition)",
            "torch.nonzero(condition)",
            dtypes="bool",
            is_compared=False,
        ),
    ),
    "sorting and sets": (
        Row(
            "ub.sort(x, axis)",
            "np.sort(x, axis)",
            "torch.sort(x, axis).values",
            dtypes="f32 f64 f16 bf16 i32 i64",
        ),
        Row(
            "ub.argsort(x, axis)",
            "np.argsort(x, axis, kind='stable')",
            "torch.argsort(x, dim=axis, stable=True)",
            is_compared=False,
        ),
        Row("ub.topk(x, 4, axis)[0]", "", "torch.topk(x, 4, axis).values", dtypes="f32 bf16 i32"),
        Row(
            "ub.unique_values(small)",
            "np.unique_values(small)",
            "torch.unique(small)",
            dtypes="i32 i64",
        ),
        Row(
            "ub.unique_counts(small)[1]",
            "np.unique_counts(small)[1]",
            "torch.unique(small, return_counts=True)[1]",
            dtypes="i32",
        ),
        Row(
            "ub.unique_inverse(small)[1]",
            "np.unique_inverse(small)[1]",
            "torch.unique(small, return_inverse=True)[1]",
            dtypes="i32",
        ),
        Row("ub.unique_all(small)[0]", "np.unique_all(small)[0]", "", dtypes="i32"),
        Row(
            "ub.searchsorted(ordered, flat)",
            "np.searchsorted(ordered, flat)",
            "torch.searchsorted(ordered, flat)",
            dtypes="f32",
        ),
    ),
    "manipulation": (
        Row(
            "ub.concatenate((x, y), axis)",
            "np.concatenate((x, y), axis)",
            "torch.cat((x, y), axis)",
            dtypes="f32 f16 u8",
        ),
        Row("ub.cat((x, y))", "np.concatenate((x, y))", "torch.cat((x, y))", dtypes="f32"),
        Row("ub.concat((x, y))", "np.concat((x, y))", "torch.concat((x, y))", dtypes="f32"),
        Row(
            "ub.stack((x, y), axis)",
            "np.stack((x, y), axis)",
            "torch.stack((x, y), axis)",
            dtypes="f32 f16",
        ),
        Row(
            "ub.flip(x, axis)",
            "np.flip(x, axis).copy()",
            "torch.flip(x, (axis,))",
            dtypes="f32 f16 u8",
        ),
        Row("ub.roll(x, 3, axis)", "np.roll(x, 3, axis)", "torch.roll(x, 3, axis)", dtypes="f32"),
        Row(
            "ub.repeat(x, 2, axis)",
            "np.repeat(x, 2, axis)",
            "torch.repeat_interleave(x, 2, axis)",
            dtypes="f32",
        ),
        *_same("tile", "x, (2, 1)", "f32"),
        Row(
            "ub.einsum('ij,ij->i', x, y)",
            "np.einsum('ij,ij->i', x, y)",
            "torch.einsum('ij,ij->i', x, y)",
            dtypes="f32",
        ),
    ),
    "views": (
        *(
            Row(*3 * (f"x{one}",), dtypes="f32")
            for one in (
                "[1:]",
                "[:, 1:]",
                "[0]",
                ".T",
                ".mT",
                ".squeeze()",
                ".reshape(-1)",
                ".ravel()",
                ".swapaxes(0, 1)",
            )
        ),
        Row("x.transpose()", "x.transpose()", "x.transpose(0, 1)", dtypes="f32"),
        Row("x.permute(1, 0)", "x.transpose(1, 0)", "x.permute(1, 0)", dtypes="f32"),
        Row("x.expand_dims(0)", "np.expand_dims(x, 0)", "x.unsqueeze(0)", dtypes="f32"),
        Row("x.narrow(0, 1, 2)", "x[1:3]", "x.narrow(0, 1, 2)", dtypes="f32"),
        Row("x.flatten()", "x.flatten()", "x.flatten().clone()", dtypes="f32"),
        Row("x.contiguous()", "np.ascontiguousarray(x)", "x.contiguous()", dtypes="f32"),
        Row(
            "row.broadcast_to(shape)",
            "np.broadcast_to(row, shape)",
            "row.broadcast_to(shape)",
            dtypes="f32",
        ),
        Row(
            "ub.broadcast_to(row, shape)",
            "np.broadcast_to(row, shape)",
            "torch.broadcast_to(row, shape)",
            dtypes="f32",
        ),
        Row(
            "ub.broadcast_arrays(x, row)[1]",
            "np.broadcast_arrays(x, row)[1]",
            "torch.broadcast_tensors(x, row)[1]",
            dtypes="f32",
        ),
        Row(
            "ub.meshgrid(row, row)[0]",
            "np.meshgrid(row, row)[0]",
            "torch.meshgrid(row, row, indexing='xy')[0].clone()",
            dtypes="f32",
        ),
        Row("ub.split(x, 2)[0]", "np.split(x, 2)[0]", "torch.tensor_split(x, 2)[0]", dtypes="f32"),
        Row(
            "ub.unstack(ub.reshape(x, (2, -1)))[0]",
            "np.unstack(np.reshape(x, (2, -1)))[0]",
            "torch.unbind(torch.reshape(x, (2, -1)))[0]",
            dtypes="f32",
        ),
        *_same("reshape", "x, (-1,)", "f32"),
        *_same("squeeze", "x", "f32"),
        *_same("moveaxis", "x, 0, 1", "f32"),
        Row("ub.expand_dims(x, 0)", "np.expand_dims(x, 0)", "torch.unsqueeze(x, 0)", dtypes="f32"),
        Row(
            "ub.permute_dims(x, (1, 0))",
            "np.permute_dims(x, (1, 0))",
            "torch.permute(x, (1, 0))",
            dtypes="f32",
        ),
        Row("ub.matrix_transpose(x)", "np.matrix_transpose(x)", "x.mT", dtypes="f32"),
        Row("x.__dlpack__()", "x.__dlpack__()", "x.__dlpack__()", dtypes="f32", is_compared=False),
        Row(
            "ub.from_dlpack(array)",
            "np.from_dlpack(array)",
            "torch.from_dlpack(array)",
            dtypes="f32",
        ),
    ),
    "numbers to the host": (
        Row("one.item()", "one.item()", "one.item()", dtypes="f32"),
        Row("one.tolist()", "one.tolist()", "one.tolist()", dtypes="f32"),
        Row("float(one)", "float(one)", "float(one)", dtypes="f32"),
        Row("int(one)", "int(one)", "int(one)", dtypes="f32"),
        Row("bool(one)", "bool(one)", "bool(one)", dtypes="f32"),
        Row("range(9)[count]", "range(9)[count]", "range(9)[count]", dtypes="i64"),
        Row("len(x)", "len(x)", "len(x)", dtypes="f32"),
        Row("3 in x", "3 in x", "3 in x", dtypes="f32"),
        Row("sum(1 for part in x)", "sum(1 for part in x)", "sum(1 for part in x)", dtypes="f32"),
    ),
    "products": tuple(_products()),
    "convolutions": tuple(_convolutions()),
    "windows": (
        Row("ub.avg_pool2d(image, 2)", "", "F.avg_pool2d(image, 2)", dtypes="f32 bf16"),
        Row("ub.max_pool2d(image, 2)", "", "F.max_pool2d(image, 2)", dtypes="f32 bf16"),
        Row(
            "ub.upsample_nearest2d(image, 2 * side, 2 * side)",
            "",
            "F.interpolate(image, scale_factor=2)",
            dtypes="f32 bf16",
        ),
        Row(
            "ub.upsample_bilinear2d(image, 2 * side, 2 * side)",
            "",
            "F.interpolate(image, scale_factor=2, mode='bilinear')",
            dtypes="f32 bf16",
        ),
    ),
    "attention": tuple(_attentions()),
}
"""Family to its rows."""

OUTSIDE = {
    "load": "reads a file",
    "save": "writes a file",
    "load_module": "opens an image",
    "modules": "lists names",
    "execute_graph": "`benchmarks.graph_replay` measures graphs",
    "trace": "`benchmarks.graph_replay` measures graphs",
    "matmul_choice": "explains a choice",
    "quantized_matmul": "`benchmarks.quantized` compares it with ggml",
    "indexed_matmul": "`benchmarks.quantized` compares it with ggml",
    "rsqrt": "has no kernel",
    "mod": "has no kernel",
    "__array__": "is `to_numpy`",
    "__array_function__": "refuses calls of numpy",
    "__array_ufunc__": "is an operator with a number of numpy on the left",
    "__dlpack_device__": "returns two constants",
    "__reduce__": "is for pickle",
}
"""Public names without a row, and the reason."""


def spelled(rows: Iterator[Row]) -> frozenset[str]:
    """Return the functions, methods and operators that the rows of ubridge call."""
    found: set[str] = set()
    for row in rows:
        for node in ast.walk(ast.parse(row.ubridge)):
            if isinstance(node, ast.Attribute):
                is_in_place = isinstance(node.value, ast.Name) and node.value.id == "operator"
                found.add(f"__{node.attr}__" if is_in_place else node.attr)
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
                found.add(_method(node))
            elif isinstance(node, ast.Compare):
                found.update(_OPERATORS[type(one)] for one in node.ops)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.add(f"__{node.func.id}__")
            elif isinstance(node, ast.Subscript):
                found.update(("__getitem__", "__index__"))
            elif isinstance(node, ast.comprehension):
                found.add("__iter__")
    return frozenset(found)


def _method(node: ast.BinOp | ast.UnaryOp) -> str:
    name = _OPERATORS[type(node.op)]
    reflected = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant)
    return f"__r{name[2:]}" if reflected else name


_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__",
    ast.Pow: "__pow__",
    ast.MatMult: "__matmul__",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
    ast.LShift: "__lshift__",
    ast.RShift: "__rshift__",
    ast.USub: "__neg__",
    ast.UAdd: "__pos__",
    ast.Invert: "__invert__",
    ast.Eq: "__eq__",
    ast.NotEq: "__ne__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
    ast.In: "__contains__",
}

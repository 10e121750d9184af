"""Rows of networks: products, convolutions, windows, attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.ops_rows.row import Row


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


NETWORKS: Mapping[str, tuple[Row, ...]] = {
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

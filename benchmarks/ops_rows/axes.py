"""Rows of functions along an axis: reductions, norms, indices, sorting."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ops_rows.row import Row, same

_NORM = "np.mean(np.square(x), -1, keepdims=True)"
_CENTRED = "(c := x - x.mean(-1, keepdims=True))"
_SPREAD = "np.sqrt(np.mean(np.square(c), -1, keepdims=True) + np.float32(1e-5))"

AXES: Mapping[str, tuple[Row, ...]] = {
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
        *same("prod", "x, axis"),
        *same("any all", "condition, axis", "bool"),
        Row(
            "ub.count_nonzero(condition, axis)",
            "np.count_nonzero(condition, axis)",
            "torch.count_nonzero(condition, axis)",
            dtypes="bool",
        ),
        Row("ub.logsumexp(x, axis)", "np.log(np.exp(x).sum(axis))", "torch.logsumexp(x, axis)"),
        *same("cumsum", "x, axis"),
        *same("diff", "x, axis=axis", "f32"),
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
}

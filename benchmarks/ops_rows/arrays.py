"""Rows of functions that make, copy, rearrange or read arrays."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ops_rows.row import Row, same

ARRAYS: Mapping[str, tuple[Row, ...]] = {
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
        *same("zeros_like ones_like", "x", "f32"),
        Row(
            "ub.full(shape, 3, dtype)",
            "np.full(shape, 3, dtype)",
            "torch.full(shape, 3, dtype=dtype)",
            dtypes="f32",
        ),
        *same("full_like", "x, 3", "f32"),
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
        *same("tril triu", "x", "f32"),
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
        *same("tile", "x, (2, 1)", "f32"),
        Row(
            "ub.pad(x, 1)", "np.pad(x, 1)", "torch.nn.functional.pad(x, (1, 1, 1, 1))", dtypes="f32"
        ),
        Row("ub.pad(x, 1, 'edge')", "np.pad(x, 1, 'edge')", dtypes="f32"),
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
        Row("x[ids]", "x[ids]", "x[ids]", dtypes="f32"),
        Row("x[condition]", "x[condition]", "x[condition]", dtypes="f32"),
        Row("x[::-1]", "x[::-1].copy()", "x.flip(0)", dtypes="f32"),
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
        *same("reshape", "x, (-1,)", "f32"),
        *same("squeeze", "x", "f32"),
        *same("moveaxis", "x, 0, 1", "f32"),
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
}

"""Rows of elementwise functions and operators."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ops_rows.row import Row, same

ELEMENTWISE: Mapping[str, tuple[Row, ...]] = {
    "elementwise": (
        *same("abs ceil floor negative round sign square", "x"),
        *same("cos cosh exp expm1 sin sinh tan tanh trunc", "x"),
        *same("asinh atan", "x"),
        *same("acos asin atanh", "unit"),
        Row("ub.acosh(1 + positive)", "np.acosh(1 + positive)", "torch.acosh(1 + positive)"),
        *same("log log10 log1p log2 reciprocal sqrt", "positive"),
        Row("ub.rsqrt(positive)", "1 / np.sqrt(positive)", "torch.rsqrt(positive)"),
        *same("add subtract multiply divide maximum minimum", "x, y"),
        Row("ub.equal(x, y)", "np.equal(x, y)", "torch.eq(x, y)"),
        *same("not_equal less less_equal greater greater_equal", "x, y"),
        *same("copysign hypot logaddexp", "x, y"),
        *same("remainder floor_divide", "x, positive", "f32 f64 f16 bf16 i32 i64"),
        Row(
            "ub.mod(x, positive)",
            "np.fmod(x, positive)",
            "torch.fmod(x, positive)",
            dtypes="f32 f64 f16 bf16 i32 i64",
        ),
        *same("pow", "positive, y", "f32 f64 f16 bf16 i32 i64"),
        *same("bitwise_and bitwise_or bitwise_xor", "x, y", "i32 i64 u8"),
        *same("bitwise_left_shift bitwise_right_shift", "x, y", "i32 i64 u8"),
        Row("ub.bitwise_invert(x)", "np.invert(x)", "torch.bitwise_not(x)", dtypes="i32 i64 u8"),
        *same("logical_and logical_or logical_xor", "x, y", "f32 i32"),
        *same("logical_not", "x", "f32 i32"),
        *same("isfinite isinf signbit", "x", "f32 f64 f16 bf16"),
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
        *(
            Row(*3 * (f"{one}",), dtypes="f32 f64 i32")
            for one in ("x % positive", "x // positive", "9 % positive", "9 // positive")
        ),
        Row(*3 * ("2 ** positive",), dtypes="f32 f64"),
        *(Row(*3 * (one,), dtypes="i32 i64") for one in ("x << 1", "x >> 1", "1 << x", "256 >> x")),
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
            for one, value in (
                ("iadd", 0.5),
                ("isub", 0.5),
                ("imul", 1.0),
                ("itruediv", 1.0),
                ("ifloordiv", 1.0),
                ("imod", 9.0),
                ("ipow", 1.0),
            )
        ),
        *(
            Row(*3 * (f"operator.{one}(x, {value})",), dtypes="i32", is_compared=False)
            for one, value in (("iand", 7), ("ior", 1), ("ixor", 1), ("ilshift", 0), ("irshift", 0))
        ),
    ),
}

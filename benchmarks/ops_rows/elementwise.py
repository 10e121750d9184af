"""Rows of elementwise functions and operators."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ops_rows.row import Row, same

ELEMENTWISE: Mapping[str, tuple[Row, ...]] = {
    "elementwise": (
        *same("abs ceil floor negative round sign square", "x"),
        *same("cos exp expm1 sin tanh", "x"),
        *same("log log1p reciprocal sqrt", "positive"),
        *same("add subtract multiply divide maximum minimum", "x, y"),
        Row("ub.equal(x, y)", "np.equal(x, y)", "torch.eq(x, y)"),
        *same("not_equal less less_equal greater greater_equal", "x, y"),
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
}

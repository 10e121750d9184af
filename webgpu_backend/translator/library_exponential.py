"""Exponentials, logarithms, powers, hyperbolic functions and error functions of f32."""

from __future__ import annotations

from collections.abc import Mapping

EXPONENTIAL: Mapping[str, tuple[tuple[str, ...], str]] = {
    "exp_near_0": (
        ("kept",),
        """
// x - count log 2; the first product is exact. Mesa would add the two constants first.
fn less_logarithms(x: f32, count: f32) -> f32 {
  return fma(count, -0x1.7f7d1cp-20f, kept(fma(count, -0x1.62e4p-1f, x)));
}
fn expm1_near_0(x: f32) -> f32 {
  var sum = fma(x, 2.4801587e-5f, 1.98412698e-4f);
  sum = fma(x, sum, 1.38888889e-3f);
  sum = fma(x, sum, 8.33333333e-3f);
  sum = fma(x, sum, 0.0416666667f);
  sum = fma(x, sum, 0.166666667f);
  sum = fma(x, sum, 0.5f);
  return fma(x * x, sum, x);
}
fn power_of_2(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }
""",
    ),
    "exp": (
        ("nan", "special", "exp_near_0"),
        """
fn math_exp(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x > 89.0f) { return infinity(); }
  if (x < -105.0f) { return 0.0f; }
  let count = floor(fma(x, 0x1.715476p+0f, 0.5f));
  let rest = less_logarithms(x, count);
  let n = i32(count);
  let half = n / 2;
  return (1.0f + expm1_near_0(rest)) * power_of_2(half) * power_of_2(n - half);
}
""",
    ),
    "exp2": (
        ("nan", "special", "exp_near_0"),
        """
fn math_exp2(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x >= 129.0f) { return infinity(); }
  if (x < -151.0f) { return 0.0f; }
  let count = floor(x + 0.5f);
  let rest = (x - count) * 0.693147182f;
  let n = i32(count);
  let half = n / 2;
  return (1.0f + expm1_near_0(rest)) * power_of_2(half) * power_of_2(n - half);
}
""",
    ),
    "expm1": (
        ("exp",),
        """
fn math_expm1(x: f32) -> f32 {
  if (abs(x) < 0.35f) { return select(expm1_near_0(x), x, x == 0.0f); }
  if (!(x > -20.0f && x < 80.0f)) { return math_exp(x) - 1.0f; }
  let count = floor(fma(x, 0x1.715476p+0f, 0.5f));
  let rest = less_logarithms(x, count);
  let power = power_of_2(i32(count));
  return fma(power, expm1_near_0(rest), power - 1.0f);
}
""",
    ),
    # log x of a positive finite x as a sum of two floats, to about 2^-40.
    "log_pair": (
        ("kept", "product_pair"),
        """
fn sum_pair(x: f32, y: f32) -> vec2<f32> {
  let high = kept(x + y);
  return vec2<f32>(high, (x - high) + y);
}
fn log_pair(given: f32) -> vec2<f32> {
  var x = given;
  var count = 0.0f;
  if (x < 0x1p-126f) { x *= 0x1p23f; count = -23.0f; }
  let exponent = (bitcast<i32>(bitcast<u32>(x) - 0x3f3504f3u)) >> 23u;
  count += f32(exponent);
  let f = bitcast<f32>(bitcast<u32>(x) - (bitcast<u32>(exponent) << 23u));
  let above = f - 1.0f;
  let below = sum_pair(max(f, 1.0f), min(f, 1.0f));
  let s = above / below.x;
  let back = product_pair(s, below.x);
  let s_rest = (((above - back.x) - back.y) - s * below.y) / below.x;
  let square = product_pair(s, s);
  let square_rest = fma(2.0f * s, s_rest, square.y);
  var sum = fma(square.x, 2.0f / 15.0f, 2.0f / 13.0f);
  sum = fma(sum, square.x, 2.0f / 11.0f);
  sum = fma(sum, square.x, 2.0f / 9.0f);
  sum = fma(sum, square.x, 2.0f / 7.0f);
  sum = fma(sum, square.x, 2.0f / 5.0f);
  let cube = product_pair(square.x, s);
  let cube_rest = cube.y + fma(square.x, s_rest, square_rest * s);
  let third = product_pair(cube.x, 0x1.555556p-1f);
  let third_rest = third.y + fma(cube.x, -0x1.555556p-26f, cube_rest * 0x1.555556p-1f);
  let tail = sum * square.x * cube.x;
  let first = sum_pair(count * 0x1.62e4p-1f, 2.0f * s);
  let scaled = count != 0.0f;
  let base = select(2.0f * s, first.x, scaled);
  let base_rest = select(0.0f, first.y, scaled);
  let second = sum_pair(base, third.x);
  let low = base_rest + second.y + 2.0f * s_rest + third_rest + tail + count * 0x1.7f7d1cp-20f;
  return sum_pair(second.x, low);
}
""",
    ),
    "log": (
        ("nan", "special", "log_pair"),
        """
fn math_log(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x < 0.0f) { return quiet_nan(); }
  if (x == 0.0f) { return -infinity(); }
  if (!is_finite(x)) { return x; }
  return log_pair(x).x;
}
""",
    ),
    "log2": (
        ("log",),
        """
fn math_log2(x: f32) -> f32 {
  if (!(x > 0.0f) || !is_finite(x)) { return math_log(x); }
  let found = log_pair(x);
  let scaled = product_pair(found.x, 0x1.715476p+0f);
  return scaled.x + (scaled.y + fma(found.x, 0x1.4ae0cp-26f, found.y * 0x1.715476p+0f));
}
""",
    ),
    "log10": (
        ("log",),
        """
fn math_log10(x: f32) -> f32 {
  if (!(x > 0.0f) || !is_finite(x)) { return math_log(x); }
  let found = log_pair(x);
  let scaled = product_pair(found.x, 0x1.bcb7b2p-2f);
  return scaled.x + (scaled.y + fma(found.x, -0x1.5b235ep-27f, found.y * 0x1.bcb7b2p-2f));
}
""",
    ),
    "log1p": (
        ("log",),
        """
fn math_log1p(x: f32) -> f32 {
  let sum = kept(1.0f + x);
  if (abs(x) < 0x1p-25f) { return x; }
  if (!(sum > 0.0f) || !is_finite(sum)) { return math_log(sum); }
  let found = log_pair(sum);
  // What rounding took from the sum: log(s + r) is log s + r / s.
  let lost = select(x - (sum - 1.0f), 1.0f - (sum - x), x > 1.0f);
  return found.x + (found.y + lost / sum);
}
""",
    ),
    "pow": (
        ("exp", "log_pair"),
        """
fn math_pow(x: f32, y: f32) -> f32 {
  if (y == 0.0f || x == 1.0f || (x == -1.0f && abs(y) == infinity())) { return 1.0f; }
  if (is_nan(x) || is_nan(y)) { return quiet_nan(); }
  let size = bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
  if (!is_finite(y)) { return select(0.0f, infinity(), (size > 1.0f) == (y > 0.0f)); }
  let whole = trunc(y) == y;
  let odd = whole && trunc(0.5f * y) != 0.5f * y;
  let sign = select(0u, sign_bit(x), odd);
  if (size == 0.0f || !is_finite(x)) {
    return with_sign(select(infinity(), 0.0f, (size == 0.0f) == (y > 0.0f)), sign);
  }
  if (x < 0.0f && !whole) { return quiet_nan(); }
  let logarithm = log_pair(size);
  let exponent = product_pair(y, logarithm.x);
  if (!(abs(exponent.x) < 110.0f)) {
    return with_sign(select(0.0f, infinity(), exponent.x > 0.0f), sign);
  }
  let rest = fma(y, logarithm.y, exponent.y);
  // The rest belongs into the sum before it is scaled: of a subnormal result it would be lost.
  let count = floor(fma(exponent.x, 0x1.715476p+0f, 0.5f));
  let near = less_logarithms(exponent.x, count) + rest;
  let n = i32(count);
  let half = n / 2;
  let found = (1.0f + expm1_near_0(near)) * power_of_2(half) * power_of_2(n - half);
  return with_sign(found, sign);
}
""",
    ),
    "powr": (("pow",), "fn math_powr(x: f32, y: f32) -> f32 { return math_pow(x, y); }"),
    "tanh": (
        ("expm1",),
        """
fn math_tanh(x: f32) -> f32 {
  if (is_nan(x) || x == 0.0f) { return x; }
  let twice = math_expm1(2.0f * min(abs(x), 10.0f));
  return with_sign(twice / (twice + 2.0f), sign_bit(x));
}
""",
    ),
    "sinh": (
        ("expm1",),
        """
fn math_sinh(x: f32) -> f32 {
  if (is_nan(x) || x == 0.0f) { return x; }
  let size = abs(x);
  if (size > 88.0f) {
    let root = math_exp(0.5f * size);
    return with_sign((0.5f * root) * root, sign_bit(x));
  }
  let e = math_expm1(size);
  return with_sign(0.5f * (e + e / (e + 1.0f)), sign_bit(x));
}
""",
    ),
    "cosh": (
        ("exp",),
        """
fn math_cosh(x: f32) -> f32 {
  let root = math_exp(0.5f * abs(x));
  if (abs(x) > 20.0f) { return (0.5f * root) * root; }
  let e = math_exp(abs(x));
  return 0.5f * (e + 1.0f / e);
}
""",
    ),
    "erfc": (
        ("exp", "product_pair"),
        """
fn math_erfc(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let z = min(abs(x), 40.0f);
  let t = 1.0f / fma(0.5f, z, 1.0f);
  var sum = fma(t, 0.17087277f, -0.82215223f);
  sum = fma(t, sum, 1.48851587f);
  sum = fma(t, sum, -1.13520398f);
  sum = fma(t, sum, 0.27886807f);
  sum = fma(t, sum, -0.18628806f);
  sum = fma(t, sum, 0.09678418f);
  sum = fma(t, sum, 0.37409196f);
  sum = fma(t, sum, 1.00002368f);
  let square = product_pair(z, z);
  let found = t * math_exp(-square.x) * math_exp(fma(t, sum, -1.26551223f) - square.y);
  return select(found, 2.0f - found, x < 0.0f);
}
""",
    ),
    "erf": (
        ("erfc",),
        """
fn math_erf(x: f32) -> f32 {
  let square = x * x;
  if (square < 0.25f) {
    var sum = fma(square, -8.5483298e-4f, 5.2239776e-3f);
    sum = fma(square, sum, -0.026866170f);
    sum = fma(square, sum, 0.11283792f);
    sum = fma(square, sum, -0.37612639f);
    return fma(x * square, sum, x * 1.12837917f);
  }
  return select(1.0f - math_erfc(x), math_erfc(-x) - 1.0f, x < 0.0f);
}
""",
    ),
}

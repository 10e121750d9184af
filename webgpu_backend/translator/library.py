"""Functions that WGSL lacks, or whose accuracy it leaves to the driver, as its text.

f32 functions are within 4 ulp where `fma` is fused and sums are not reordered. f64 is computed with
integers of 64 bits, after Berkeley SoftFloat (John Hauser, BSD): rounded to nearest even, subnormal
numbers included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webgpu_backend.translator.kinds import refuse
from webgpu_backend.translator.library_double import DOUBLES

_FLOATS: Mapping[str, tuple[tuple[str, ...], str]] = {
    # A number the compiler does not know: it would refuse literals of infinities.
    "nothing": ((), "var<private> nothing: u32 = 0u;"),
    "nan": (
        (),
        "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    ),
    # The rounded sum: shader compilers simplify (a + b) - a to b. The condition is never true: no
    # grid has 0 blocks.
    "kept": ((), "fn kept(x: f32) -> f32 { return select(x, 0.0f, P.w[0].x == 0u); }"),
    "special": (
        ("nothing",),
        """
fn quiet_nan() -> f32 { return bitcast<f32>(0x7fc00000u ^ nothing); }
fn infinity() -> f32 { return bitcast<f32>(0x7f800000u ^ nothing); }
fn is_finite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }
fn sign_bit(x: f32) -> u32 { return bitcast<u32>(x) & 0x80000000u; }
fn with_sign(x: f32, sign: u32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ sign); }
""",
    ),
    # Sign extension by halves: Mesa 22.3 compares only the low half of a sign-extended i32, so a
    # negative number compares as a large number.
    "extended": (
        (),
        """
fn extended(x: i32) -> u64 {
  return u64(bitcast<u32>(x)) | (u64(bitcast<u32>(x >> 31u)) << 32u);
}
""",
    ),
    "negate": (
        (),
        """
fn negated(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u); }
fn absolute(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu); }
""",
    ),
    "half": (
        (),
        """
fn half_of(h: u32) -> f32 {
  let m = h & 0x7fffu;
  let small = bitcast<u32>(f32(m) * 0x1p-24f);
  let usual = select((m << 13u) + 0x38000000u, (m << 13u) | 0x7f800000u, m >= 0x7c00u);
  return bitcast<f32>(select(usual, small, m < 0x400u) | ((h & 0x8000u) << 16u));
}
fn half_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let m = bits & 0x7fffffffu;
  let small = bitcast<u32>(bitcast<f32>(m) + 0.5f) - 0x3f000000u;
  let usual = (m - 0x38000000u + 0xfffu + ((m >> 13u) & 1u)) >> 13u;
  var found = select(usual, small, m < 0x38800000u);
  found = select(found, 0x7c00u, m >= 0x477ff000u);
  // A NaN keeps what of its payload there is room for.
  let payload = (m >> 13u) & 0x3ffu;
  found = select(found, 0x7c00u | select(payload, 0x200u, payload == 0u), m > 0x7f800000u);
  return found | ((bits >> 16u) & 0x8000u);
}
fn half_rounded(x: f32) -> f32 { return half_of(half_bits(x)); }
""",
    ),
    "long_of_float": (
        ("nan",),
        """
fn u64_of_float(x: f32) -> u64 {
  if (!(x > 0.0f)) { return 0lu; }
  if (x >= 0x1p64f) { return 0xfffffffffffffffflu; }
  let exponent = i32((bitcast<u32>(x) >> 23u) & 0xffu) - 150;
  let m = u64((bitcast<u32>(x) & 0x7fffffu) | 0x800000u);
  if (exponent >= 0) { return m << u32(exponent); }
  if (exponent < -31) { return 0lu; }
  return m >> u32(-exponent);
}
fn i64_of_float(x: f32) -> u64 {
  if (is_nan(x)) { return 0lu; }
  if (x >= 0x1p63f) { return 0x7ffffffffffffffflu; }
  if (x <= -0x1p63f) { return 0x8000000000000000lu; }
  let found = u64_of_float(abs(x));
  return select(found, 0lu - found, x < 0.0f);
}
""",
    ),
    # `odd`: the last bit records any lost bits, for a second rounding to f16.
    "float_of_long": (
        (),
        """
fn leading_zeros(x: u64) -> u32 {
  let high = u32(x >> 32u);
  if (high != 0u) { return countLeadingZeros(high); }
  return 32u + countLeadingZeros(u32(x & 0xfffffffflu));
}
fn float_of_u64(x: u64, odd: bool) -> f32 {
  if (x == 0lu) { return 0.0f; }
  let zeros = leading_zeros(x);
  let m = x << zeros;
  let rest = u32((m >> 8u) & 0xfffffffflu) | select(0u, 1u, (m & 0xfflu) != 0lu);
  var found = u32(m >> 40u);
  if (odd) {
    if (rest != 0u) { found |= 1u; }
  } else if (rest > 0x80000000u || (rest == 0x80000000u && (found & 1u) != 0u)) {
    found += 1u;
  }
  return bitcast<f32>(((189u - zeros) << 23u) + found);
}
fn float_of_i64(x: u64, odd: bool) -> f32 {
  if (bitcast<i64>(x) >= 0li) { return float_of_u64(x, odd); }
  return -float_of_u64(0lu - x, odd);
}
""",
    ),
    "exp_near_0": (
        (),
        """
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
  let rest = fma(count, -0x1.7f7d1cp-20f, fma(count, -0x1.62e4p-1f, x));
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
  let rest = fma(count, -0x1.7f7d1cp-20f, fma(count, -0x1.62e4p-1f, x));
  let power = power_of_2(i32(count));
  return fma(power, expm1_near_0(rest), power - 1.0f);
}
""",
    ),
    # log x of a positive finite x as a sum of two floats, to about 2^-40.
    "log_pair": (
        ("kept",),
        """
fn product_pair(x: f32, y: f32) -> vec2<f32> {
  let high = x * y;
  return vec2<f32>(high, fma(x, y, -high));
}
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
  let s_rest = (fma(-s, below.x, above) - s * below.y) / below.x;
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
  let near = fma(count, -0x1.7f7d1cp-20f, fma(count, -0x1.62e4p-1f, exponent.x)) + rest;
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
        ("exp",),
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
  let square = z * z;
  let rest = fma(z, z, -square);
  let found = t * math_exp(-square) * math_exp(fma(t, sum, -1.26551223f) - rest);
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
    # The angle in quadrants after Payne and Hanek, with integers: exact for any argument.
    "reduced_angle": (
        ("float_of_long", "special"),
        """
const TWO_OVER_PI = array<u32, 10>(0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
  0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u);
struct Angle { rest: f32, quadrant: u32 }
fn reduced_angle(x: f32) -> Angle {
  if (abs(x) < 0.78539816f) { return Angle(x, 0u); }
  let bits = bitcast<u32>(x);
  let m = u64((bits & 0x7fffffu) | 0x800000u);
  // |x| = m 2^(start - 62); of 2 / pi, 64 zeros before it, the bits from `start` on matter.
  let start = ((bits >> 23u) & 0xffu) - 88u;
  let index = start / 32u;
  let shift = start % 32u;
  var window: array<u32, 3>;
  for (var i = 0u; i < 3u; i++) {
    var next = 0u;
    if (shift != 0u) { next = TWO_OVER_PI[index + i + 1u] >> (32u - shift); }
    window[i] = (TWO_OVER_PI[index + i] << shift) | next;
  }
  let low = m * u64(window[2]);
  let middle = m * u64(window[1]) + (low >> 32u);
  let high = m * u64(window[0]) + (middle >> 32u);
  // Modulo 2^96, of which the two highest bits are whole quadrants.
  let turned = ((high & 0xfffffffflu) << 32u) | (middle & 0xfffffffflu);
  var quadrant = u32(turned >> 62u);
  var fraction = (turned << 2u) | ((low & 0xfffffffflu) >> 30u);
  if ((fraction >> 63u) != 0lu) { quadrant += 1u; }
  let rest = float_of_i64(fraction, false) * 0x1.921fb6p-64f;
  if ((bits >> 31u) != 0u) { return Angle(-rest, 0u - quadrant); }
  return Angle(rest, quadrant);
}
fn sine_near_0(x: f32) -> f32 {
  let square = x * x;
  var sum = fma(square, 2.7183114e-6f, -1.9839334e-4f);
  sum = fma(square, sum, 8.3333293e-3f);
  sum = fma(square, sum, -1.6666667e-1f);
  return fma(sum * square, x, x);
}
fn cosine_near_0(x: f32) -> f32 {
  let square = x * x;
  var sum = fma(square, 2.4390449e-5f, -1.3887316e-3f);
  sum = fma(square, sum, 4.1666645e-2f);
  return fma(square * square, sum, fma(square, -0.5f, 1.0f));
}
""",
    ),
    "sin": (
        ("reduced_angle",),
        """
fn math_sin(x: f32) -> f32 {
  if (!is_finite(x)) { return quiet_nan(); }
  let angle = reduced_angle(x);
  let found = select(cosine_near_0(angle.rest), sine_near_0(angle.rest), angle.quadrant % 2u == 0u);
  return select(-found, found, angle.quadrant % 4u < 2u);
}
""",
    ),
    "cos": (
        ("reduced_angle",),
        """
fn math_cos(x: f32) -> f32 {
  if (!is_finite(x)) { return quiet_nan(); }
  let angle = reduced_angle(x);
  let found = select(sine_near_0(angle.rest), cosine_near_0(angle.rest), angle.quadrant % 2u == 0u);
  return select(-found, found, (angle.quadrant + 1u) % 4u < 2u);
}
""",
    ),
    "tan": (
        ("reduced_angle",),
        """
fn math_tan(x: f32) -> f32 {
  if (!is_finite(x)) { return quiet_nan(); }
  let angle = reduced_angle(x);
  let sine = sine_near_0(angle.rest);
  let cosine = cosine_near_0(angle.rest);
  if (angle.quadrant % 2u == 0u) { return sine / cosine; }
  return -cosine / sine;
}
""",
    ),
    # After fdlibm's s_atanf.c (Sun Microsystems, 1993).
    "atan": (
        ("nan", "special"),
        """
fn angle_of(x: f32) -> f32 {
  var near = x;
  var angle = 0.0f;
  var rest = 0.0f;
  if (x >= 2.4375f) {
    near = -1.0f / x; angle = 1.5707962513e+00f; rest = 7.5497894159e-08f;
  } else if (x >= 1.1875f) {
    near = (x - 1.5f) / fma(1.5f, x, 1.0f); angle = 9.8279368877e-01f; rest = 3.4473217170e-08f;
  } else if (x >= 0.6875f) {
    near = (x - 1.0f) / (x + 1.0f); angle = 7.8539812565e-01f; rest = 3.7748947079e-08f;
  } else if (x >= 0.4375f) {
    near = fma(2.0f, x, -1.0f) / (2.0f + x); angle = 4.6364760399e-01f; rest = 5.0121582440e-09f;
  }
  let square = near * near;
  var sum = fma(square, 6.1687607318e-02f, -1.0648017377e-01f);
  sum = fma(square, sum, 1.4253635705e-01f);
  sum = fma(square, sum, -1.9999158382e-01f);
  sum = fma(square, sum, 3.3333328366e-01f);
  return angle - ((near * (square * sum) - rest) - near);
}
fn math_atan(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  return with_sign(angle_of(abs(x)), sign_bit(x));
}
""",
    ),
    "atan2": (
        ("atan",),
        """
fn math_atan2(y: f32, x: f32) -> f32 {
  if (is_nan(x) || is_nan(y)) { return quiet_nan(); }
  let height = bitcast<f32>(bitcast<u32>(y) & 0x7fffffffu);
  let width = bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
  var angle = 0.0f;
  if (!is_finite(x) && !is_finite(y)) {
    angle = 0.785398163f;
  } else if (!is_finite(x) || height == 0.0f) {
    angle = 0.0f;
  } else if (!is_finite(y) || width == 0.0f) {
    angle = 1.57079633f;
  } else {
    // Scaled, so that no part of a quotient of small or large numbers is lost.
    let scale = select(select(1.0f, 0x1p64f, max(height, width) < 0x1p-60f), 0x1p-64f,
      max(height, width) > 0x1p60f);
    angle = angle_of((height * scale) / (width * scale));
  }
  if (sign_bit(x) != 0u) { angle = 3.14159274f - (angle + 8.74227766e-08f); }
  return with_sign(angle, sign_bit(y));
}
""",
    ),
    "asin": (
        ("atan2", "sqrt"),
        """
fn math_asin(x: f32) -> f32 {
  if (!(abs(x) <= 1.0f)) { return quiet_nan(); }
  return math_atan2(x, math_sqrt((1.0f - x) * (1.0f + x)));
}
""",
    ),
    "acos": (
        ("atan2", "sqrt"),
        """
fn math_acos(x: f32) -> f32 {
  if (!(abs(x) <= 1.0f)) { return quiet_nan(); }
  return math_atan2(math_sqrt((1.0f - x) * (1.0f + x)), x);
}
""",
    ),
    # One Newton step with `fma` rounds the driver's approximation correctly.
    "sqrt": (
        ("nan", "special"),
        """
fn math_sqrt(x: f32) -> f32 {
  if (is_nan(x) || x == 0.0f) { return x; }
  if (x < 0.0f) { return quiet_nan(); }
  if (!is_finite(x)) { return x; }
  let small = x < 0x1p-100f;
  let scaled = select(x, x * 0x1p100f, small);
  let root = sqrt(scaled);
  let better = fma(fma(-root, root, scaled), 0.5f / root, root);
  return select(better, better * 0x1p-50f, small);
}
""",
    ),
    "rsqrt": (("sqrt",), "fn math_rsqrt(x: f32) -> f32 { return 1.0f / math_sqrt(x); }"),
    "recip": ((), "fn math_recip(x: f32) -> f32 { return 1.0f / x; }"),
    "fma": ((), "fn math_fma(x: f32, y: f32, z: f32) -> f32 { return fma(x, y, z); }"),
    "fmax": (
        ("nan",),
        """
fn math_fmax(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return b; }
  if (is_nan(b)) { return a; }
  return select(b, a, a > b);
}
""",
    ),
    "fmin": (
        ("nan",),
        """
fn math_fmin(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return b; }
  if (is_nan(b)) { return a; }
  return select(b, a, a < b);
}
""",
    ),
    "copysign": (
        (),
        """
fn math_copysign(a: f32, b: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u));
}
""",
    ),
    "round": (
        (),
        """
fn math_round(x: f32) -> f32 {
  let whole = trunc(x);
  let found = select(whole, whole + sign(x), abs(x - whole) >= 0.5f);
  return bitcast<f32>((bitcast<u32>(found) & 0x7fffffffu) | (bitcast<u32>(x) & 0x80000000u));
}
""",
    ),
    # Exact, by long division of the significands.
    "fmod": (
        ("nan", "special"),
        """
fn math_fmod(x: f32, y: f32) -> f32 {
  var a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (b == 0u || a >= 0x7f800000u || b > 0x7f800000u) { return quiet_nan(); }
  if (a < b) { return x; }
  var exponent = i32(max(a >> 23u, 1u)) - i32(max(b >> 23u, 1u));
  var rest = (a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u);
  let divisor = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
  rest %= divisor;
  while (exponent > 0) {
    let step = min(exponent, 7);
    rest = (rest << u32(step)) % divisor;
    exponent -= step;
  }
  // The rest is so many units of the divisor's last place.
  let unit = max(b >> 23u, 1u);
  var found = 0u;
  if (rest != 0u) {
    let zeros = countLeadingZeros(rest) - 8u;
    if (unit > zeros) { found = ((unit - zeros) << 23u) + ((rest << zeros) & 0x7fffffu); }
    else { found = rest << (unit - 1u); }
  }
  return bitcast<f32>(found | (bitcast<u32>(x) & 0x80000000u));
}
""",
    ),
}

_FUNCTIONS = {**_FLOATS, **DOUBLES}


def library(needs: Iterable[str]) -> str:
    """Return the text of functions and of their dependencies."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        if name in found:
            return
        if name not in _FUNCTIONS:
            refuse(f"{name} of f32, which is not written for WebGPU devices")
        inner, text = _FUNCTIONS[name]
        for one in inner:
            add(one)
        found[name] = text.strip("\n")

    for name in sorted(needs):
        add(name)
    return "\n".join(found.values())

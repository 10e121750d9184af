"""Signs, infinities, NaN, conversions, roots and remainders of f32, and f16 as its bits."""

from __future__ import annotations

from collections.abc import Mapping

NUMBERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    # A number the compiler does not know: it would refuse literals of infinities.
    "nothing": ((), "var<private> nothing: u32 = 0u;"),
    "nan": (
        (),
        "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    ),
    # The rounded sum: shader compilers simplify (a + b) - a to b. The condition is never true: no
    # grid has 0 blocks. It reads the z axis, which no branch of a kernel along x reads: lavapipe
    # compiles the values of branches into a kernel.
    "kept": ((), "fn kept(x: f32) -> f32 { return select(x, 0.0f, P.w[0].z == 0u); }"),
    # A product, and what its rounding lost (Dekker, A floating-point technique for extending the
    # available precision, 1971). Drivers may round twice in `fma`; products of halves are exact.
    "product_pair": (
        ("kept",),
        """
fn product_pair(x: f32, y: f32) -> vec2<f32> {
  let product = kept(x * y);
  let x_high = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
  let y_high = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let x_low = x - x_high;
  let y_low = y - y_high;
  let lost = ((x_high * y_high - product) + x_high * y_low) + x_low * y_high;
  return vec2<f32>(product, lost + x_low * y_low);
}
""",
    ),
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
    # A number times a power of 2 from 2^24 on. Drivers may take a subnormal operand for 0.
    "raised": (
        (),
        """
fn raised(bits: u32, power: f32) -> f32 {
  let small = f32(bits & 0x7fffffu) * ((power * 0x1p-100f) * 0x1p-49f);
  let exact = bitcast<f32>(bitcast<u32>(small) | (bits & 0x80000000u));
  return select(bitcast<f32>(bits) * power, exact, (bits & 0x7f800000u) == 0u);
}
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
// Both numbers of a word. Drivers may take small halves for 0.
fn halves_of(word: u32) -> vec2<f32> {
  let m = vec2<u32>(word & 0x7fffu, (word >> 16u) & 0x7fffu);
  let signs = vec2<u32>(word << 16u, word) & vec2<u32>(0x80000000u);
  let small = bitcast<vec2<u32>>(vec2<f32>(m) * 0x1p-24f) | signs;
  return select(unpack2x16float(word), bitcast<vec2<f32>>(small), m < vec2<u32>(0x400u));
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
    "brain": (
        ("nan",),
        """
fn brain_of(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn brains_of(word: u32) -> vec2<f32> {
  return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));
}
fn brain_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (is_nan(x)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
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
    # One Newton step with the exact square rounds the driver's approximation correctly.
    "sqrt": (
        ("nan", "special", "product_pair"),
        """
fn math_sqrt(x: f32) -> f32 {
  if (is_nan(x) || x == 0.0f) { return x; }
  if (x < 0.0f) { return quiet_nan(); }
  if (!is_finite(x)) { return x; }
  let small = x < 0x1p-100f;
  let scaled = select(x, x * 0x1p100f, small);
  let root = sqrt(scaled);
  let square = product_pair(root, root);
  let better = fma((scaled - square.x) - square.y, 0.5f / root, root);
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

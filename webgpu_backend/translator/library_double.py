"""f64 as bits in a `u64`, for kernels of other types that compute a few numbers in f64."""

from __future__ import annotations

from collections.abc import Mapping

DOUBLES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "double_order": (
        (),
        """
fn double_nan(x: u64) -> bool { return (x & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }
fn double_key(x: u64) -> u64 {
  if ((x << 1u) == 0lu) { return 0x8000000000000000lu; }
  if ((x >> 63u) != 0lu) { return ~x; }
  return x | 0x8000000000000000lu;
}
fn double_equal(a: u64, b: u64) -> bool {
  return !double_nan(a) && !double_nan(b) && double_key(a) == double_key(b);
}
fn double_less(a: u64, b: u64) -> bool {
  return !double_nan(a) && !double_nan(b) && double_key(a) < double_key(b);
}
fn double_at_most(a: u64, b: u64) -> bool {
  return !double_nan(a) && !double_nan(b) && double_key(a) <= double_key(b);
}
""",
    ),
    # A significand has its first bit in place 62; `exponent` is the biased exponent minus 1.
    "double_pack": (
        ("float_of_long",),
        """
fn shifted_odd(x: u64, n: u32) -> u64 {
  if (n == 0u) { return x; }
  if (n > 63u) { return select(0lu, 1lu, x != 0lu); }
  return (x >> n) | select(0lu, 1lu, (x << (64u - n)) != 0lu);
}
fn double_pack(sign: u64, exponent: i32, significand: u64) -> u64 {
  var e = exponent;
  var m = significand;
  if (e < 0) {
    m = shifted_odd(m, u32(-e));
    e = 0;
  } else if (e > 0x7fd || (e == 0x7fd && m + 0x200lu >= 0x8000000000000000lu)) {
    return sign | 0x7ff0000000000000lu;
  }
  let rest = m & 0x3fflu;
  m = (m + 0x200lu) >> 10u;
  if (rest == 0x200lu) { m &= 0xfffffffffffffffelu; }
  if (m == 0lu) { e = 0; }
  return sign + (u64(u32(e)) << 52u) + m;
}
fn double_normal(sign: u64, exponent: i32, significand: u64) -> u64 {
  if (significand == 0lu) { return sign; }
  let zeros = leading_zeros(significand) - 1u;
  return double_pack(sign, exponent - i32(zeros), significand << zeros);
}
""",
    ),
    "double_resize": (
        ("double_pack",),
        """
fn double_of_float(x: f32) -> u64 {
  let bits = bitcast<u32>(x);
  let sign = u64(bits & 0x80000000u) << 32u;
  let e = (bits >> 23u) & 0xffu;
  let m = bits & 0x7fffffu;
  if (e == 255u) {
    return sign | 0x7ff0000000000000lu | (u64(m) << 29u) | select(0lu, 0x8000000000000lu, m != 0u);
  }
  if (e != 0u) { return sign | (u64(e + 896u) << 52u) | (u64(m) << 29u); }
  if (m == 0u) { return sign; }
  let n = countLeadingZeros(m) - 8u;
  return sign | (u64(897u - n) << 52u) | ((u64(m) << (29u + n)) & 0xffffffffffffflu);
}
fn float_of_double(x: u64, odd: bool) -> f32 {
  let sign = u32(x >> 32u) & 0x80000000u;
  let e = i32((x >> 52u) & 0x7fflu);
  let m = x & 0xffffffffffffflu;
  if (e == 0x7ff) {
    let rest = select(0u, 0x400000u | u32(m >> 29u), m != 0lu);
    return bitcast<f32>(sign | 0x7f800000u | rest);
  }
  if (e > 1150) { return bitcast<f32>(sign | select(0x7f800000u, 0x7f7fffffu, odd)); }
  var q = select(m | 0x10000000000000lu, 0lu, e == 0);
  var exponent = e - 897;
  if (exponent < 0) {
    q = shifted_odd(q, u32(min(-exponent, 60)));
    exponent = 0;
  }
  let low = q & 0x1ffffffflu;
  var found = u32(q >> 29u);
  if (odd) {
    if (low != 0lu) { found |= 1u; }
  } else if (low > 0x10000000lu || (low == 0x10000000lu && (found & 1u) != 0u)) {
    found += 1u;
  }
  return bitcast<f32>(sign | ((u32(exponent) << 23u) + found));
}
""",
    ),
    "double_of_integer": (
        ("double_pack",),
        """
fn double_of_u64(x: u64) -> u64 {
  if ((x >> 63u) != 0lu) { return double_pack(0lu, 0x43d, shifted_odd(x, 1u)); }
  return double_normal(0lu, 0x43c, x);
}
fn double_of_i64(x: u64) -> u64 {
  if (bitcast<i64>(x) >= 0li) { return double_of_u64(x); }
  return double_of_u64(0lu - x) | 0x8000000000000000lu;
}
""",
    ),
    "double_to_integer": (
        ("double_order",),
        """
fn u64_of_double(x: u64) -> u64 {
  if (double_nan(x) || (x >> 63u) != 0lu) { return 0lu; }
  let e = i32(u32(x >> 52u));
  let m = (x & 0xffffffffffffflu) | 0x10000000000000lu;
  if (e < 0x3ff) { return 0lu; }
  if (e >= 0x43f) { return 0xfffffffffffffffflu; }
  if (e >= 0x433) { return m << u32(e - 0x433); }
  return m >> u32(0x433 - e);
}
fn i64_of_double(x: u64) -> u64 {
  if (double_nan(x)) { return 0lu; }
  let found = u64_of_double(x & 0x7ffffffffffffffflu);
  if ((x >> 63u) == 0lu) { return min(found, 0x7ffffffffffffffflu); }
  return 0lu - min(found, 0x8000000000000000lu);
}
""",
    ),
    "double_arithmetic": (
        ("double_pack", "double_order"),
        """
const DOUBLE_NAN: u64 = 0x7ff8000000000000lu;
const DOUBLE_INFINITY: u64 = 0x7ff0000000000000lu;
fn double_sum(a: u64, b: u64) -> u64 {
  if (double_nan(a)) { return a; }
  if (double_nan(b)) { return b; }
  let e1 = i32((a >> 52u) & 0x7fflu);
  let e2 = i32((b >> 52u) & 0x7fflu);
  let sign = a & 0x8000000000000000lu;
  let same = sign == (b & 0x8000000000000000lu);
  if (e1 == 0x7ff) { return select(DOUBLE_NAN, a, e2 != 0x7ff || same); }
  if (e2 == 0x7ff) { return b; }
  if ((b << 1u) == 0lu) { return select(a, 0lu, (a << 1u) == 0lu && !same); }
  if ((a << 1u) == 0lu) { return b; }
  var m1 = ((a & 0xffffffffffffflu) | select(0lu, 0x10000000000000lu, e1 != 0)) << 9u;
  var m2 = ((b & 0xffffffffffffflu) | select(0lu, 0x10000000000000lu, e2 != 0)) << 9u;
  let x1 = max(e1, 1);
  let x2 = max(e2, 1);
  let e = max(x1, x2);
  m1 = shifted_odd(m1, u32(e - x1));
  m2 = shifted_odd(m2, u32(e - x2));
  if (same) { return double_normal(sign, e, m1 + m2); }
  if (m1 == m2) { return 0lu; }
  if (m1 > m2) { return double_normal(sign, e, m1 - m2); }
  return double_normal(sign ^ 0x8000000000000000lu, e, m2 - m1);
}
struct Wide { high: u64, low: u64 }
fn wide_product(a: u64, b: u64) -> Wide {
  let al = a & 0xfffffffflu;
  let ah = a >> 32u;
  let bl = b & 0xfffffffflu;
  let bh = b >> 32u;
  let ll = al * bl;
  let lh = al * bh;
  let hl = ah * bl;
  let middle = (ll >> 32u) + (lh & 0xfffffffflu) + (hl & 0xfffffffflu);
  let high = ah * bh + (lh >> 32u) + (hl >> 32u) + (middle >> 32u);
  return Wide(high, (ll & 0xfffffffflu) | (middle << 32u));
}
struct Parts { exponent: i32, significand: u64 }
fn double_parts(x: u64) -> Parts {
  let m = x & 0xffffffffffffflu;
  let e = i32((x >> 52u) & 0x7fflu);
  if (e != 0) { return Parts(e, m | 0x10000000000000lu); }
  let n = leading_zeros(m) - 11u;
  return Parts(1 - i32(n), m << n);
}
fn double_product(a: u64, b: u64) -> u64 {
  if (double_nan(a)) { return a; }
  if (double_nan(b)) { return b; }
  let sign = (a ^ b) & 0x8000000000000000lu;
  let p = a & 0x7ffffffffffffffflu;
  let q = b & 0x7ffffffffffffffflu;
  if (p == DOUBLE_INFINITY || q == DOUBLE_INFINITY) {
    return select(sign | DOUBLE_INFINITY, DOUBLE_NAN, p == 0lu || q == 0lu);
  }
  if (p == 0lu || q == 0lu) { return sign; }
  let x = double_parts(p);
  let y = double_parts(q);
  let product = wide_product(x.significand << 10u, y.significand << 11u);
  let m = product.high | select(0lu, 1lu, product.low != 0lu);
  return double_normal(sign, x.exponent + y.exponent - 0x3ff, m);
}
fn double_quotient(a: u64, b: u64) -> u64 {
  if (double_nan(a)) { return a; }
  if (double_nan(b)) { return b; }
  let sign = (a ^ b) & 0x8000000000000000lu;
  let p = a & 0x7ffffffffffffffflu;
  let q = b & 0x7ffffffffffffffflu;
  if (p == DOUBLE_INFINITY) { return select(sign | p, DOUBLE_NAN, q == p); }
  if (q == DOUBLE_INFINITY) { return sign; }
  if (q == 0lu) { return select(sign | DOUBLE_INFINITY, DOUBLE_NAN, p == 0lu); }
  if (p == 0lu) { return sign; }
  let x = double_parts(p);
  let y = double_parts(q);
  var e = x.exponent - y.exponent + 0x3fe;
  var rest = x.significand;
  if (rest < y.significand) {
    e -= 1;
    rest <<= 1u;
  }
  var m = 0lu;
  for (var i = 0u; i < 63u; i++) {
    m <<= 1u;
    if (rest >= y.significand) {
      rest -= y.significand;
      m |= 1lu;
    }
    rest <<= 1u;
  }
  return double_pack(sign, e, m | select(0lu, 1lu, rest != 0lu));
}
""",
    ),
    "double_functions": (
        ("double_arithmetic", "double_order"),
        """
fn double_trunc(x: u64) -> u64 {
  let e = i32((x >> 52u) & 0x7fflu);
  if (e < 0x3ff) { return x & 0x8000000000000000lu; }
  if (e >= 0x433) { return x; }
  return x & (0xfffffffffffffffflu << u32(0x433 - e));
}
fn double_floor(x: u64) -> u64 {
  let whole = double_trunc(x);
  if (whole != x && (x >> 63u) != 0lu) { return double_sum(whole, 0xbff0000000000000lu); }
  return whole;
}
fn double_ceil(x: u64) -> u64 {
  let whole = double_trunc(x);
  if (whole != x && (x >> 63u) == 0lu) { return double_sum(whole, 0x3ff0000000000000lu); }
  return whole;
}
fn double_rint(x: u64) -> u64 {
  if (i32((x >> 52u) & 0x7fflu) >= 0x433) { return x; }
  let sign = x & 0x8000000000000000lu;
  let size = x & 0x7ffffffffffffffflu;
  // Beyond 2^52 there are whole numbers alone.
  let found = double_sum(double_sum(size, 0x4330000000000000lu), 0xc330000000000000lu);
  return found | sign;
}
fn double_fmin(a: u64, b: u64) -> u64 {
  if (double_nan(a)) { return b; }
  return select(b, a, double_less(a, b) || double_nan(b));
}
fn double_fmax(a: u64, b: u64) -> u64 {
  if (double_nan(a)) { return b; }
  return select(b, a, double_less(b, a) || double_nan(b));
}
fn double_sqrt(x: u64) -> u64 {
  if (double_nan(x) || (x << 1u) == 0lu) { return x; }
  if ((x >> 63u) != 0lu) { return DOUBLE_NAN; }
  if (x == DOUBLE_INFINITY) { return x; }
  let parts = double_parts(x);
  let exponent = parts.exponent - 0x3ff;
  var rest = parts.significand << u32((exponent & 1) + 1);
  var root = 0lu;
  var sum = 0lu;
  var bit = 0x20000000000000lu;
  while (bit != 0lu) {
    let next = sum + bit;
    if (next <= rest) {
      sum = next + bit;
      rest -= next;
      root += bit;
    }
    rest <<= 1u;
    bit >>= 1u;
  }
  let m = (root << 9u) | select(0lu, 1lu, rest != 0lu);
  return double_normal(0lu, (exponent >> 1u) + 0x3fe, m);
}
fn wide_shifted_odd(x: Wide, n: u32) -> Wide {
  if (n == 0u) { return x; }
  if (n >= 128u) { return Wide(0lu, select(0lu, 1lu, (x.high | x.low) != 0lu)); }
  if (n >= 64u) {
    let lost = x.low != 0lu || (n > 64u && (x.high << (128u - n)) != 0lu);
    let low = select(x.high >> (n - 64u), x.high, n == 64u);
    return Wide(0lu, low | select(0lu, 1lu, lost));
  }
  let lost = (x.low << (64u - n)) != 0lu;
  return Wide(x.high >> n, (x.low >> n) | (x.high << (64u - n)) | select(0lu, 1lu, lost));
}
fn double_fma(a: u64, b: u64, c: u64) -> u64 {
  let p = a & 0x7ffffffffffffffflu;
  let q = b & 0x7ffffffffffffffflu;
  let r = c & 0x7ffffffffffffffflu;
  let is_finite = p < DOUBLE_INFINITY && q < DOUBLE_INFINITY && r < DOUBLE_INFINITY;
  if (!is_finite || p == 0lu || q == 0lu || r == 0lu) {
    if (!is_finite || p == 0lu || q == 0lu) { return double_sum(double_product(a, b), c); }
    return double_product(a, b);
  }
  let x = double_parts(p);
  let y = double_parts(q);
  let z = double_parts(r);
  let product_sign = (a ^ b) & 0x8000000000000000lu;
  let sum_sign = c & 0x8000000000000000lu;
  // Both with their first bit in place 125 or 124, the exponents of place 0.
  var product = wide_product(x.significand << 10u, y.significand << 10u);
  var product_exponent = x.exponent + y.exponent - 2 * 1075 - 20;
  var addend = Wide(z.significand << 9u, 0lu);
  var addend_exponent = z.exponent - 1075 - 73;
  let exponent = max(product_exponent, addend_exponent);
  product = wide_shifted_odd(product, u32(exponent - product_exponent));
  addend = wide_shifted_odd(addend, u32(exponent - addend_exponent));
  var found = Wide(0lu, 0lu);
  var sign = product_sign;
  if (product_sign == sum_sign) {
    let low = product.low + addend.low;
    found = Wide(product.high + addend.high + select(0lu, 1lu, low < product.low), low);
  } else {
    var more = product;
    var less = addend;
    if (less.high > more.high || (less.high == more.high && less.low > more.low)) {
      more = addend;
      less = product;
      sign = sum_sign;
    }
    let borrow = select(0lu, 1lu, more.low < less.low);
    found = Wide(more.high - less.high - borrow, more.low - less.low);
  }
  if ((found.high | found.low) == 0lu) { return 0lu; }
  var e = exponent;
  if (found.high == 0lu) {
    found = Wide(found.low, 0lu);
    e -= 64;
  }
  let zeros = leading_zeros(found.high);
  if (zeros > 1u) {
    let n = zeros - 1u;
    found = Wide((found.high << n) | (found.low >> (64u - n)), found.low << n);
    e -= i32(n);
  }
  let m = found.high | select(0lu, 1lu, found.low != 0lu);
  return double_normal(sign, e + 64 + 1084, m);
}
""",
    ),
}

"""Trigonometric functions of f32 and their inverses."""

from __future__ import annotations

from collections.abc import Mapping

ANGLES: Mapping[str, tuple[tuple[str, ...], str]] = {
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
}

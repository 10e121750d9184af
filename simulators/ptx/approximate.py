"""Approximate functions of f32 as inline arithmetic that LLVM can turn into vector code.

Each stays within the error the ISA manual allows (§9.7.3: ex2.approx two units in the last place,
lg2.approx 2^-22 absolute near 1 and relative elsewhere); the test suite compares them with exact
values. The functions use series instead of fitted polynomials, so that every constant can be
checked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emitter import Emitter

_EXPONENT_BITS = 23
_BIAS = 127
_ONE = 0x3F800000
_ROOT_HALF = 0x3F3504F3
"""The bits of 2^-0.5: mantissas are taken from there to 2^0.5."""


def constant(value: float) -> str:
    """A float as LLVM spells it: the bits of the double that equals it."""
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


def fma(e: Emitter, first: str, second: str, third: str) -> str:
    """First * second + third, rounded once."""
    return e.call("float", "llvm.fma.f32", f"float {first}", f"float {second}", f"float {third}")


def polynomial(e: Emitter, x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule; the constant coefficient comes first."""
    result = constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(e, result, x, constant(coefficient))
    return result


def exp2(e: Emitter, x: str) -> str:
    """2^x: the nearest integer goes into the exponent, Taylor's series takes the rest."""
    # Beyond these the result is infinite or zero anyway.
    above = e.call("float", "llvm.maxnum.f32", f"float {x}", f"float {constant(-152.0)}")
    bounded = e.call("float", "llvm.minnum.f32", f"float {above}", f"float {constant(129.0)}")
    whole = e.call("float", "llvm.roundeven.f32", f"float {bounded}")
    rest = e.value(f"fsub float {bounded}, {whole}")
    series = [math.log(2) ** power / math.factorial(power) for power in range(8)]
    mantissa = polynomial(e, rest, series)
    exponent = e.value(f"fptosi float {whole} to i32")
    # In two steps, because a denormal's power of two is no normal number.
    half = e.value(f"ashr i32 {exponent}, 1")
    other = e.value(f"sub i32 {exponent}, {half}")
    scaled = e.value(f"fmul float {mantissa}, {_power(e, half)}")
    result = e.value(f"fmul float {scaled}, {_power(e, other)}")
    return _nan_stays(e, x, result)


def log2(e: Emitter, x: str) -> str:
    """log2 x = exponent + 2 / ln 2 (s + s³/3 + …), s = (m - 1) / (m + 1), m the mantissa."""
    smallest = constant(2.0**-126)
    tiny = e.value(f"fcmp olt float {x}, {smallest}")
    raised = e.value(f"fmul float {x}, {constant(2.0**_EXPONENT_BITS)}")
    normal = e.value(f"select i1 {tiny}, float {raised}, float {x}")
    bits = e.value(f"bitcast float {normal} to i32")
    above = e.value(f"sub i32 {bits}, {_ROOT_HALF}")
    exponent = e.value(f"ashr i32 {above}, {_EXPONENT_BITS}")
    removed = e.value(f"shl i32 {exponent}, {_EXPONENT_BITS}")
    mantissa = e.value(f"bitcast i32 {e.value(f'sub i32 {bits}, {removed}')} to float")
    one = constant(1.0)
    up = e.value(f"fsub float {mantissa}, {one}")
    s = e.value(f"fdiv float {up}, {e.value(f'fadd float {mantissa}, {one}')}")
    square = e.value(f"fmul float {s}, {s}")
    series = [2 / math.log(2) / power for power in range(1, 13, 2)]
    part = e.value(f"fmul float {s}, {polynomial(e, square, series)}")
    lowered = e.value(f"select i1 {tiny}, i32 {_EXPONENT_BITS}, i32 0")
    true_exponent = e.value(f"sub i32 {exponent}, {lowered}")
    whole = e.value(f"sitofp i32 {true_exponent} to float")
    finite = e.value(f"fadd float {whole}, {part}")
    return _nan_stays(e, x, _logarithm_edges(e, x, finite))


def _logarithm_edges(e: Emitter, x: str, finite: str) -> str:
    infinity = constant(math.inf)
    is_zero = e.value(f"fcmp oeq float {x}, {constant(0.0)}")
    is_negative = e.value(f"fcmp olt float {x}, {constant(0.0)}")
    is_infinite = e.value(f"fcmp oeq float {x}, {infinity}")
    result = e.value(f"select i1 {is_infinite}, float {infinity}, float {finite}")
    result = e.value(f"select i1 {is_negative}, float {constant(math.nan)}, float {result}")
    return e.value(f"select i1 {is_zero}, float {constant(-math.inf)}, float {result}")


def _power(e: Emitter, exponent: str) -> str:
    """2 to an integer between the exponents of normal numbers."""
    biased = e.value(f"add i32 {exponent}, {_BIAS}")
    return e.value(f"bitcast i32 {e.value(f'shl i32 {biased}, {_EXPONENT_BITS}')} to float")


def _nan_stays(e: Emitter, x: str, result: str) -> str:
    is_nan = e.value(f"fcmp uno float {x}, {x}")
    return e.value(f"select i1 {is_nan}, float {x}, float {result}")


# -- rounding in other directions ------------------------------------------------------------------


def directed(e: Emitter, name: str, mode: int, values: Sequence[str]) -> str:
    """A sum, product or fma of floats, rounded towards zero (1), down (2) or up (3).

    The exact result is a double and a double's rounding error (Knuth's two-sum; the product of
    two floats fits a double). If the value rounded to nearest is on the wrong side of the exact
    value, the next float is the result (§9.7.3: .rz, .rm, .rp).
    """
    wide = [e.value(f"fpext float {one} to double") for one in values]
    if name == "sub":
        wide[1] = e.value(f"fneg double {wide[1]}")
    first, second = wide[0], wide[1]
    if name in ("mul", "fma", "mad"):
        first = e.value(f"fmul double {wide[0]}, {wide[1]}")
        second = wide[2] if len(wide) > 2 else ""
    total, lost = (first, "") if not second else _two_sum(e, first, second)
    nearest = e.value(f"fptrunc double {total} to float")
    back = e.value(f"fpext float {nearest} to double")
    beyond = e.value(f"fsub double {total}, {back}")
    if lost:
        beyond = e.value(f"fadd double {beyond}, {lost}")
    result = _moved_to(e, mode, nearest, beyond)
    return result if not second or mode != _DOWN else _zero_sum(e, result, total, first, second)


_ZERO, _DOWN, _UP = 1, 2, 3


def _two_sum(e: Emitter, first: str, second: str) -> tuple[str, str]:
    total = e.value(f"fadd double {first}, {second}")
    part = e.value(f"fsub double {total}, {first}")
    rest = e.value(f"fsub double {total}, {part}")
    lost = e.value(
        f"fadd double {e.value(f'fsub double {first}, {rest}')}, "
        f"{e.value(f'fsub double {second}, {part}')}"
    )
    return total, lost


def _moved_to(e: Emitter, mode: int, nearest: str, beyond: str) -> str:
    """The next float if the exact value, `beyond` away, is on the other side of `nearest`."""
    bits = e.value(f"bitcast float {nearest} to i32")
    # The sign of zero does not show the side; the sign of the exact value does.
    negative = e.value(f"icmp slt i32 {bits}, 0")
    below = e.value(f"fcmp olt double {beyond}, 0.0")
    above = e.value(f"fcmp ogt double {beyond}, 0.0")
    is_zero = e.value(f"fcmp oeq float {nearest}, 0.0")
    grow, shrink = e.value(f"add i32 {bits}, 1"), e.value(f"sub i32 {bits}, 1")
    down = e.value(f"select i1 {negative}, i32 {grow}, i32 {shrink}")
    down = e.value(f"select i1 {is_zero}, i32 {0x80000001}, i32 {down}")
    up = e.value(f"select i1 {negative}, i32 {shrink}, i32 {grow}")
    up = e.value(f"select i1 {is_zero}, i32 1, i32 {up}")
    if mode == _DOWN:
        moved = e.value(f"select i1 {below}, i32 {down}, i32 {bits}")
    elif mode == _UP:
        moved = e.value(f"select i1 {above}, i32 {up}, i32 {bits}")
    else:
        positive = e.value(f"xor i1 {negative}, true")
        too_large = e.value(f"and i1 {positive}, {below}")
        too_small = e.value(f"and i1 {negative}, {above}")
        outside = e.value(f"or i1 {too_large}, {too_small}")
        not_zero = e.value(f"xor i1 {is_zero}, true")
        outside = e.value(f"and i1 {outside}, {not_zero}")
        moved = e.value(f"select i1 {outside}, i32 {shrink}, i32 {bits}")
    return e.value(f"bitcast i32 {moved} to float")


def _zero_sum(e: Emitter, result: str, total: str, first: str, second: str) -> str:
    """Rounding down, an exact sum of zero is -0 unless both parts are +0 (IEEE 754 §6.3)."""
    is_zero = e.value(f"fcmp oeq double {total}, 0.0")
    signs = [
        e.value(f"icmp slt i64 {e.value(f'bitcast double {one} to i64')}, 0")
        for one in (first, second)
    ]
    negative = e.value(f"or i1 {signs[0]}, {signs[1]}")
    zero = e.value(f"select i1 {negative}, float {constant(-0.0)}, float {constant(0.0)}")
    return e.value(f"select i1 {is_zero}, float {zero}, float {result}")

"""The table of PTX instructions: forms, operands, first target and first version of each.

A pattern spells an opcode with its modifiers. Braces hold alternatives; an empty alternative makes
the modifier optional: `add{.rn,.rz,}{.ftz,}.f32`. The builder checks and types instructions by this
table, the reference page lists it, and the simulated driver attaches its handlers to the keys.
Section numbers are from the PTX ISA manual, version 9.0. This module imports nothing of uhal, so
that the simulator's translator can load it alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

_PART = re.compile(r"\{([^}]*)\}|([^{]+)")

Version = tuple[int, int]


@dataclass(frozen=True)
class Form:
    """One form of an instruction."""

    key: str
    """Operation, such as `add.integer`: forms with equal keys are computed in the same way."""
    pattern: str
    operands: str
    """One word per operand: `=` precedes a result, `?` follows an optional operand.

    `t` is the last type in the spelling, `t0` the first, `w` a type twice as wide as `t`. `n` is an
    integer constant, `l` a label or function, `[]` an address, `{x}` a vector, `x|y` a pair. Other
    words are types.
    """
    section: str
    """Chapter of the manual, its title, the instruction."""
    target: int
    """Compute capability, times ten, of the first device with the form."""
    version: Version
    """The first version of PTX with the form."""

    @property
    def name(self) -> str:
        """The opcode."""
        return re.split(r"[.{]", self.pattern, maxsplit=1)[0]

    def parts(self) -> list[list[str]]:
        """The alternatives of each part of the pattern, in order."""
        return [
            [one.strip() for one in found[1].split(",")] if found[1] is not None else [found[2]]
            for found in _PART.finditer(self.pattern)
        ]

    def spellings(self) -> Iterator[str]:
        """Every spelling the form allows."""
        return ("".join(choice) for choice in product(*self.parts()))

    def allows(self, spelling: str) -> bool:
        """Say whether the form allows a spelling."""
        # Compiling an expression for each form would take longer than building a kernel.
        reached = {0}
        for choices in self.parts():
            reached = {
                at + len(one) for at in reached for one in choices if spelling.startswith(one, at)
            }
        return len(spelling) in reached


FORMS: list[Form] = []
_BY_NAME: dict[str, list[Form]] = {}


@functools.lru_cache(maxsize=4096)
def find(spelling: str) -> Form | None:
    """Return an instruction's form, `None` if the table has none."""
    name = spelling.partition(".")[0]
    if name in ("atom", "red"):
        spelling = _in_order(spelling)
    for form in _BY_NAME.get(name, ()):
        if form.allows(spelling):
            return form
    return None


def forms_of(name: str) -> list[Form]:
    """Return all forms of an opcode; none for an unknown opcode."""
    return _BY_NAME.get(name, [])


@functools.lru_cache(maxsize=4096)
def needs(spelling: str) -> tuple[int, Version]:
    """Return the first target and version of a spelling that the table has."""
    form = find(spelling)
    assert form is not None, spelling
    of_parts = [MODIFIERS[one] for one in spelling.split(".")[1:] if one in MODIFIERS]
    target = max([form.target, *(target for target, _ in of_parts)])
    return target, max([form.version, *(version for _, version in of_parts)])


MODIFIERS: dict[str, tuple[int, Version]] = {
    "cluster": (90, (7, 8)),
    "shared::cta": (30, (7, 8)),
    "shared::cluster": (90, (7, 8)),
    "param::entry": (20, (8, 3)),
    "param::func": (20, (8, 3)),
    "b128": (70, (8, 3)),
    "v8": (100, (8, 8)),
    "L1::evict_normal": (70, (7, 4)),
    "L1::evict_unchanged": (70, (7, 4)),
    "L1::evict_first": (70, (7, 4)),
    "L1::evict_last": (70, (7, 4)),
    "L1::no_allocate": (70, (7, 4)),
    "L2::evict_first": (80, (7, 4)),
    "L2::evict_normal": (80, (7, 4)),
    "L2::evict_last": (80, (7, 4)),
    "L2::cache_hint": (80, (7, 4)),
    "L2::64B": (75, (7, 4)),
    "L2::128B": (75, (7, 4)),
    "L2::256B": (80, (7, 4)),
    "relu": (80, (7, 0)),
    "NaN": (80, (7, 0)),
    "xorsign": (86, (7, 2)),
    "satfinite": (75, (6, 5)),
    "tf32": (80, (7, 0)),
    "e4m3x2": (89, (8, 1)),
    "e5m2x2": (89, (8, 1)),
}
"""Requirements of a modifier beyond its form, in every position."""

_ORDER = {
    modifier: rank
    for rank, modifiers in enumerate(
        (
            ("relaxed", "acquire", "release", "acq_rel"),
            ("cta", "cluster", "gpu", "sys"),
            ("global", "shared", "shared::cta", "shared::cluster"),
            ("add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max"),
            ("noftz",),
            ("L2::cache_hint",),
            ("v2", "v4", "v8"),
        )
    )
    for modifier in modifiers
}


def _in_order(spelling: str) -> str:
    """Compilers write the modifiers of atomics in different orders; ptxas takes them all."""
    name, *modifiers = spelling.split(".")
    ordered = sorted(modifiers, key=lambda modifier: _ORDER.get(modifier, len(_ORDER)))
    return ".".join((name, *ordered))


def _enter(
    key: str,
    section: str,
    operands: str,
    *patterns: str,
    target: int = 20,
    version: Version = (1, 0),
) -> None:
    for pattern in patterns:
        form = Form(key, pattern, operands, section, target, version)
        FORMS.append(form)
        _BY_NAME.setdefault(form.name, []).append(form)


# -- integers --------------------------------------------------------------------------------------

_INTEGER = "9.7.1 Integer Arithmetic: "
_CARRY = "9.7.2 Extended-Precision Integer Arithmetic: "
_ANY = "{.u16,.u32,.u64,.s16,.s32,.s64}"
_WIDE = "{.u32,.s32,.u64,.s64}"
_WORD = "{.u32,.s32}"

for _name in ("add", "sub"):
    _enter(f"{_name}.integer", _INTEGER + _name, "=t t t", f"{_name}{_ANY}", f"{_name}.sat.s32")
for _name in ("add", "min", "max"):
    _enter(
        f"{_name}.pairs",
        _INTEGER + _name,
        "=b32 b32 b32",
        f"{_name}{{.u16x2,.s16x2}}",
        target=90,
        version=(8, 0),
    )
_enter("mul.integer", _INTEGER + "mul", "=t t t", f"mul{{.hi,.lo}}{_ANY}")
_enter("mul.integer", _INTEGER + "mul", "=w t t", "mul.wide{.u16,.u32,.s16,.s32}")
_enter("mad.integer", _INTEGER + "mad", "=t t t t", f"mad{{.hi,.lo}}{_ANY}", "mad.hi.sat.s32")
_enter("mad.integer", _INTEGER + "mad", "=w t t w", "mad.wide{.u16,.u32,.s16,.s32}")
_enter("mul24", _INTEGER + "mul24", "=t t t", f"mul24{{.hi,.lo}}{_WORD}")
_enter("mad24", _INTEGER + "mad24", "=t t t t", f"mad24{{.hi,.lo}}{_WORD}", "mad24.hi.sat.s32")
_enter("sad", _INTEGER + "sad", "=t t t t", f"sad{_ANY}")
for _name in ("div", "rem"):
    _enter(f"{_name}.integer", _INTEGER + _name, "=t t t", f"{_name}{_ANY}")
for _name in ("abs", "neg"):
    _enter(f"{_name}.integer", _INTEGER + _name, "=t t", f"{_name}{{.s16,.s32,.s64}}")
for _name in ("min", "max"):
    _enter(f"{_name}.integer", _INTEGER + _name, "=t t t", f"{_name}{_ANY}")
    _enter(
        f"{_name}.integer",
        _INTEGER + _name,
        "=t t t",
        f"{_name}.relu.s32",
        target=90,
        version=(8, 0),
    )
_DOT = "{.u32,.s32}{.u32,.s32}"
for _name, _modes in (("dp4a", ""), ("dp2a", "{.lo,.hi}")):
    _enter(
        _name,
        _INTEGER + _name,
        "=b32 b32 b32 b32",
        f"{_name}{_modes}{_DOT}",
        target=61,
        version=(5, 0),
    )
for _name in ("add", "sub"):
    _enter(
        f"{_name}.carry",
        _CARRY + f"{_name}.cc",
        "=t t t",
        f"{_name}.cc{_WIDE}",
        f"{_name}c{{.cc,}}{_WIDE}",
        version=(4, 3),
    )
_enter(
    "mad.carry",
    _CARRY + "mad.cc",
    "=t t t t",
    f"mad{{.hi,.lo}}.cc{_WIDE}",
    f"madc{{.hi,.lo}}{{.cc,}}{_WIDE}",
    version=(4, 3),
)

# -- bits ------------------------------------------------------------------------------------------

_LOGIC = "9.7.8 Logic and Shift: "
_MOVE = "9.7.9 Data Movement and Conversion: "

for _name in ("and", "or", "xor"):
    _enter(_name, _LOGIC + _name, "=t t t", f"{_name}{{.pred,.b16,.b32,.b64}}")
_enter("not", _LOGIC + "not", "=t t", "not{.pred,.b16,.b32,.b64}")
_enter("cnot", _LOGIC + "cnot", "=t t", "cnot{.b16,.b32,.b64}")
_enter("lop3", _LOGIC + "lop3", "=b32 b32 b32 b32 n", "lop3.b32", target=50, version=(4, 3))
_enter("shl", _LOGIC + "shl", "=t t b32", "shl{.b16,.b32,.b64}")
_enter("shr", _LOGIC + "shr", "=t t b32", "shr{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64}")
_enter(
    "shf",
    _LOGIC + "shf",
    "=b32 b32 b32 b32",
    "shf{.l,.r}{.clamp,.wrap}.b32",
    target=32,
    version=(3, 1),
)
for _name in ("popc", "clz"):
    _enter(_name, _INTEGER + _name, "=b32 t", f"{_name}{{.b32,.b64}}", version=(2, 0))
_enter("brev", _INTEGER + "brev", "=t t", "brev{.b32,.b64}", version=(2, 0))
_enter(
    "bfind", _INTEGER + "bfind", "=b32 t", "bfind{.shiftamt,}{.u32,.u64,.s32,.s64}", version=(2, 0)
)
_enter("fns", _INTEGER + "fns", "=b32 b32 b32 b32", "fns.b32", target=30, version=(6, 0))
_enter("bfe", _INTEGER + "bfe", "=t t b32 b32", "bfe{.u32,.u64,.s32,.s64}", version=(2, 0))
_enter("bfi", _INTEGER + "bfi", "=t t t b32 b32", "bfi{.b32,.b64}", version=(2, 0))
_enter(
    "szext",
    _INTEGER + "szext",
    "=t t b32",
    "szext{.clamp,.wrap}{.u32,.s32}",
    target=70,
    version=(7, 6),
)
_enter(
    "bmsk", _INTEGER + "bmsk", "=b32 b32 b32", "bmsk{.clamp,.wrap}.b32", target=70, version=(7, 6)
)
_enter(
    "prmt",
    _MOVE + "prmt",
    "=b32 b32 b32 b32",
    "prmt.b32{.f4e,.b4e,.rc8,.ecl,.ecr,.rc16,}",
    version=(2, 0),
)

# -- floating point --------------------------------------------------------------------------------

_FLOAT = "9.7.3 Floating-Point: "
_HALF = "9.7.4 Half Precision Floating-Point: "
_ROUND = "{.rn,.rz,.rm,.rp,}"
_ROUNDED = "{.rn,.rz,.rm,.rp}"

for _name in ("add", "sub", "mul"):
    _enter(
        f"{_name}.float",
        _FLOAT + _name,
        "=t t t",
        f"{_name}{_ROUND}{{.ftz,}}{{.sat,}}.f32",
        f"{_name}{_ROUND}.f64",
    )
    _half = f"{_name}{{.rn,}}{{.ftz,}}{{.sat,}}{{.f16,.f16x2}}"
    _enter(f"{_name}.half", _HALF + _name, "=t t t", _half, target=53, version=(4, 2))
    _half = f"{_name}{{.rn,}}{{.bf16,.bf16x2}}"
    _enter(f"{_name}.half", _HALF + _name, "=t t t", _half, target=90, version=(7, 8))
_enter(
    "div.float",
    _FLOAT + "div",
    "=t t t",
    "div.rn{.ftz,}.f32",
    "div{.rz,.rm,.rp}{.ftz,}.f32",
    f"div{_ROUNDED}.f64",
)
_enter("div.approx", _FLOAT + "div", "=t t t", "div{.approx,.full}{.ftz,}.f32")
_enter(
    "fma.float",
    _FLOAT + "fma",
    "=t t t t",
    f"fma{_ROUNDED}{{.ftz,}}{{.sat,}}.f32",
    f"fma{_ROUNDED}.f64",
)
_enter(
    "mad.float",
    _FLOAT + "mad",
    "=t t t t",
    f"mad{_ROUND}{{.ftz,}}{{.sat,}}.f32",
    f"mad{_ROUNDED}.f64",
)
_enter(
    "fma.half",
    _HALF + "fma",
    "=t t t t",
    "fma.rn{.ftz,}{.sat,.relu,}{.f16,.f16x2}",
    target=53,
    version=(4, 2),
)
_enter(
    "fma.half",
    _HALF + "fma",
    "=t t t t",
    "fma.rn{.relu,}{.bf16,.bf16x2}",
    target=80,
    version=(7, 0),
)
for _name in ("min", "max"):
    _enter(
        f"{_name}.float",
        _FLOAT + _name,
        "=t t t",
        f"{_name}{{.ftz,}}{{.NaN,}}{{.xorsign.abs,}}.f32",
        f"{_name}.f64",
    )
    _enter(
        f"{_name}.half",
        _HALF + _name,
        "=t t t",
        f"{_name}{{.ftz,}}{{.NaN,}}{{.xorsign.abs,}}{{.f16,.f16x2}}",
        f"{_name}{{.NaN,}}{{.xorsign.abs,}}{{.bf16,.bf16x2}}",
        target=80,
        version=(7, 0),
    )
for _name in ("abs", "neg"):
    _enter(f"{_name}.float", _FLOAT + _name, "=t t", f"{_name}{{.ftz,}}.f32", f"{_name}.f64")
    _half = f"{_name}{{.ftz,}}{{.f16,.f16x2}}"
    _enter(f"{_name}.half", _HALF + _name, "=t t", _half, target=53, version=(6, 5))
    _half = f"{_name}{{.bf16,.bf16x2}}"
    _enter(f"{_name}.half", _HALF + _name, "=t t", _half, target=80, version=(7, 0))
_enter("copysign", _FLOAT + "copysign", "=t t t", "copysign{.f32,.f64}", version=(2, 0))
_enter(
    "testp",
    _FLOAT + "testp",
    "=pred t",
    "testp{.finite,.infinite,.number,.notanumber,.normal,.subnormal}{.f32,.f64}",
    version=(2, 0),
)
for _name in ("rcp", "sqrt"):
    _enter(
        _name,
        _FLOAT + _name,
        "=t t",
        f"{_name}{_ROUNDED}{{.ftz,}}.f32",
        f"{_name}.approx{{.ftz,}}.f32",
        f"{_name}{_ROUNDED}.f64",
    )
_enter("rcp", _FLOAT + "rcp.approx.ftz.f64", "=t t", "rcp.approx.ftz.f64", version=(2, 1))
_enter("rsqrt", _FLOAT + "rsqrt", "=t t", "rsqrt.approx{.ftz,}.f32", "rsqrt.approx.f64")
_enter("rsqrt", _FLOAT + "rsqrt", "=t t", "rsqrt.approx.ftz.f64", version=(4, 0))
for _name in ("sin", "cos", "lg2", "ex2"):
    _enter(f"{_name}.approx", _FLOAT + _name, "=t t", f"{_name}.approx{{.ftz,}}.f32")
_enter("tanh.approx", _FLOAT + "tanh", "=t t", "tanh.approx.f32", target=75, version=(7, 0))
_enter("tanh.approx", _HALF + "tanh", "=t t", "tanh.approx{.f16,.f16x2}", target=75, version=(7, 0))
_enter(
    "tanh.approx", _HALF + "tanh", "=t t", "tanh.approx{.bf16,.bf16x2}", target=90, version=(7, 8)
)
_enter("ex2.approx", _HALF + "ex2", "=t t", "ex2.approx{.f16,.f16x2}", target=75, version=(7, 0))
_enter(
    "ex2.approx", _HALF + "ex2", "=t t", "ex2.approx.ftz{.bf16,.bf16x2}", target=90, version=(7, 8)
)

# -- comparison and selection ----------------------------------------------------------------------

_COMPARISON = "9.7.6 Comparison and Selection: "
_HALF_COMPARISON = "9.7.7 Half Precision Comparison: "
_JOINED = "{.and,.or,.xor,}"
_FLOATING = (
    "{.eq,.ne,.lt,.le,.gt,.ge,.equ,.neu,.ltu,.leu,.gtu,.geu,.num,.nan}" + _JOINED + "{.ftz,}"
)
_SIGNED = "{.eq,.ne,.lt,.le,.gt,.ge}" + _JOINED
_UNSIGNED = "{.eq,.ne,.lt,.le,.gt,.ge,.lo,.ls,.hi,.hs}" + _JOINED
_BITS = "{.eq,.ne}" + _JOINED
_FLAG = "{.u32,.s32,.f32}"
_SELECTED = "{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64,.f32,.f64}"

_enter(
    "setp",
    _COMPARISON + "setp",
    "=pred|pred t t pred?",
    f"setp{_FLOATING}{{.f32,.f64}}",
    f"setp{_SIGNED}{{.s16,.s32,.s64}}",
    f"setp{_UNSIGNED}{{.u16,.u32,.u64}}",
    f"setp{_BITS}{{.b16,.b32,.b64}}",
)
_SETP = _HALF_COMPARISON + "setp"
for _type, _target, _version in (("f16", 53, (4, 2)), ("bf16", 90, (7, 8))):
    for _key, _suffix in (("setp", ""), ("setp.pairs", "x2")):
        _enter(
            _key,
            _SETP,
            "=pred|pred t t pred?",
            f"setp{_FLOATING}.{_type}{_suffix}",
            target=_target,
            version=_version,
        )
_enter(
    "set",
    _COMPARISON + "set",
    "=t0 t t pred?",
    f"set{_FLOATING}{_FLAG}{{.f32,.f64}}",
    f"set{_SIGNED}{_FLAG}{{.s16,.s32,.s64}}",
    f"set{_UNSIGNED}{_FLAG}{{.u16,.u32,.u64}}",
    f"set{_BITS}{_FLAG}{{.b16,.b32,.b64}}",
)
_SET = _HALF_COMPARISON + "set"
for _type, _results, _target, _version in (
    ("f16", ".f16", 53, (4, 2)),
    ("f16", "{.u16,.s16,.u32,.s32}", 53, (6, 5)),
    ("f16", ".bf16", 90, (7, 8)),
    ("bf16", "{.bf16,.u16,.s16,.u32,.s32}", 90, (7, 8)),
):
    _pattern = f"set{_FLOATING}{_results}.{_type}"
    _enter("set", _SET, "=t0 t t pred?", _pattern, target=_target, version=_version)
for _type, _target, _version in (("f16x2", 53, (4, 2)), ("bf16x2", 90, (7, 8))):
    _pattern = f"set{_FLOATING}.{_type}.{_type}"
    _enter("set.pairs", _SET, "=t0 t t pred?", _pattern, target=_target, version=_version)
_enter("selp", _COMPARISON + "selp", "=t t t pred", f"selp{_SELECTED}")
_enter("slct", _COMPARISON + "slct", "=t0 t0 t0 t", f"slct{_SELECTED}.s32")
_enter("slct", _COMPARISON + "slct", "=t0 t0 t0 t", f"slct{{.ftz,}}{_SELECTED}.f32")

# -- conversion ------------------------------------------------------------------------------------

_CVT = _MOVE + "cvt"
_INTEGERS = "{.u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64}"
_FLOATS = "{.f16,.f32,.f64}"
_TO_INTEGER = "{.rni,.rzi,.rmi,.rpi}{.ftz,}{.sat,}"

_enter("cvt.integers", _CVT, "=t0 t", f"cvt{{.sat,}}{_INTEGERS}{_INTEGERS}")
_enter("cvt.to_integer", _CVT, "=t0 t", f"cvt{_TO_INTEGER}{_INTEGERS}{_FLOATS}")
_enter(
    "cvt.to_integer",
    _CVT,
    "=t0 t",
    f"cvt{_TO_INTEGER}{_INTEGERS}.bf16",
    target=90,
    version=(7, 8),
)
_enter("cvt.from_integer", _CVT, "=t0 t", f"cvt{_ROUNDED}{{.ftz,}}{{.sat,}}{_FLOATS}{_INTEGERS}")
_enter(
    "cvt.from_integer",
    _CVT,
    "=t0 t",
    f"cvt{_ROUNDED}{{.ftz,}}{{.sat,}}.bf16{_INTEGERS}",
    target=90,
    version=(7, 8),
)
_enter(
    "cvt.floats",
    _CVT,
    "=t0 t",
    f"cvt{{.rn,.rz,.rm,.rp,.rni,.rzi,.rmi,.rpi,}}{{.ftz,}}{{.sat,}}{_FLOATS}{_FLOATS}",
)
_enter("cvt.floats", _CVT, "=t0 t", "cvt{.ftz,}{.sat,}.f32.bf16", target=80, version=(7, 1))
_enter("cvt.floats", _CVT, "=t0 t", "cvt{.ftz,}{.sat,}.f64.bf16", target=90, version=(7, 8))
_NARROWED = f"cvt{_ROUNDED}{{.relu,}}{{.satfinite,}}"
for _pattern, _target, _version in (
    (f"{_NARROWED}.f16.f32", 80, (7, 0)),
    (f"{_NARROWED}.bf16.f32", 80, (7, 0)),
    (f"{_NARROWED}{{.f16,.bf16}}.f64", 90, (7, 8)),
    ("cvt{.rn,.rz,.rm,.rp,.rni,.rzi,.rmi,.rpi,}{.sat,}{.bf16,.f16}{.bf16,.f16}", 90, (7, 8)),
):
    _enter("cvt.floats", _CVT, "=t0 t", _pattern, target=_target, version=_version)
_enter(
    "cvt.tf32",
    _CVT,
    "=b32 f32",
    "cvt.rna{.satfinite,}.tf32.f32",
    target=80,
    version=(7, 0),
)
_enter(
    "cvt.tf32",
    _CVT,
    "=b32 f32",
    "cvt{.rn,.rz}{.relu,}{.satfinite,}.tf32.f32",
    target=90,
    version=(7, 8),
)
_enter(
    "cvt.pair_from_floats",
    _CVT,
    "=t0 f32 f32",
    "cvt{.rn,.rz}{.relu,}{.satfinite,}{.f16x2,.bf16x2}.f32",
    "cvt.rn.satfinite{.relu,}{.e4m3x2,.e5m2x2}.f32",
    target=80,
    version=(7, 0),
)
_F8 = "{.e4m3x2,.e5m2x2}"
_enter("cvt.pair_to_f8", _CVT, "=b16 b32", f"cvt.rn.satfinite{{.relu,}}{_F8}.f16x2", target=89)
_enter("cvt.pair_from_f8", _CVT, "=b32 b16", f"cvt.rn{{.relu,}}.f16x2{_F8}", target=89)
_enter(
    "cvt.pack",
    _CVT + ".pack",
    "=b32 b32 b32",
    "cvt.pack.sat{.u16,.s16}.s32",
    target=72,
    version=(6, 5),
)

# -- control flow ----------------------------------------------------------------------------------

_CONTROL = "9.7.12 Control Flow: "
_SYNC = "9.7.13 Parallel Synchronization and Communication: "
_OTHER = "9.7.19 Miscellaneous: "

_enter("bra", _CONTROL + "bra", "l", "bra{.uni,}")
_enter("brx.idx", _CONTROL + "brx.idx", "u32 l", "brx.idx{.uni,}", target=30, version=(6, 0))
_enter("ret", _CONTROL + "ret", "", "ret{.uni,}")
_enter("exit", _CONTROL + "exit", "", "exit")
_enter("call", _CONTROL + "call", "l l? l? l?", "call{.uni,}", version=(2, 1))
for _name in ("trap", "brkpt"):
    _enter(_name, _OTHER + _name, "", _name)
_enter("hint", _OTHER + "nanosleep", "u32", "nanosleep.u32", target=70, version=(6, 3))
_enter("hint", _OTHER + "pmevent", "n", "pmevent")
_enter("hint", _OTHER + "pmevent", "n", "pmevent.mask", version=(3, 0))
_enter(
    "hint",
    _SYNC + "griddepcontrol",
    "",
    "griddepcontrol{.launch_dependents,.wait}",
    target=90,
    version=(7, 8),
)
_enter(
    "hint",
    _OTHER + "setmaxnreg",
    "n",
    "setmaxnreg{.inc,.dec}.sync.aligned.u32",
    target=90,
    version=(8, 0),
)

# -- memory ----------------------------------------------------------------------------------------

_SHARED = ".shared,.shared::cta,.shared::cluster"
_SPACES = f"{{.global,{_SHARED},.local,.const,.param,.param::entry,.param::func,}}"
_SCOPES = "{.cta,.cluster,.gpu,.sys}"
_TYPES = "{.b8,.b16,.b32,.b64,.b128,.u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64,.f32,.f64}"
_VECTOR = "{.v2,.v4,.v8,}"
_HINTS = (
    "{.ca,.cg,.cs,.lu,.cv,.wb,.wt,}{.L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,"
    ".L1::evict_last,.L1::no_allocate,}{.L2::evict_first,.L2::evict_last,.L2::evict_normal,}"
    "{.L2::cache_hint,}{.L2::64B,.L2::128B,.L2::256B,}"
)

for _name, _operands, _strong in (("ld", "={t} []", "acquire"), ("st", "[] {t}", "release")):
    _enter(
        _name,
        _MOVE + _name,
        _operands,
        f"{_name}{_SPACES}{_HINTS}{_VECTOR}{_TYPES}",
        f"{_name}.volatile{_SPACES}{_VECTOR}{_TYPES}",
    )
    _enter(
        _name,
        _MOVE + _name,
        _operands,
        f"{_name}.weak{_SPACES}{_HINTS}{_VECTOR}{_TYPES}",
        f"{_name}{{.relaxed,.{_strong}}}{_SCOPES}{_SPACES}{_HINTS}{_VECTOR}{_TYPES}",
        target=70,
        version=(6, 0),
    )
    _enter(
        _name,
        _MOVE + _name,
        _operands,
        f"{_name}.mmio.relaxed.sys{{.global,}}{_TYPES}",
        target=70,
        version=(8, 2),
    )
_enter(
    "ld",
    _MOVE + "ld.global.nc",
    "={t} []",
    f"ld.global{_HINTS}.nc{_HINTS}{_VECTOR}{_TYPES}",
    target=32,
    version=(3, 1),
)
_enter("ld", _MOVE + "ldu", "={t} []", f"ldu{{.global,}}{_VECTOR}{_TYPES}", version=(2, 0))
_enter(
    "mov",
    _MOVE + "mov",
    "=t t",
    "mov{.pred,.b16,.b32,.b64,.b128,.u16,.u32,.u64,.s16,.s32,.s64,.f32,.f64}",
)
_SPACE = "{.global,.shared,.shared::cta,.shared::cluster,.local,.const}"
_PARAMETERS = "{.param,.param::entry}"
_enter(
    "cvta",
    _MOVE + "cvta",
    "=t t",
    f"cvta{_PARAMETERS}{{.u32,.u64}}",
    f"cvta.to{_PARAMETERS}{{.u32,.u64}}",
    target=70,
    version=(7, 7),
)
_enter(
    "isspacep",
    _MOVE + "isspacep",
    "=pred u64",
    f"isspacep{_PARAMETERS}",
    target=70,
    version=(7, 7),
)
_enter(
    "cvta",
    _MOVE + "cvta",
    "=t t",
    f"cvta{_SPACE}{{.u32,.u64}}",
    f"cvta.to{_SPACE}{{.u32,.u64}}",
    version=(2, 0),
)
_enter("isspacep", _MOVE + "isspacep", "=pred u64", f"isspacep{_SPACE}", version=(2, 0))
_enter(
    "cache",
    _MOVE + "prefetch",
    "[]",
    "prefetch{.global,.local,}{.L1,.L2}",
    "prefetchu.L1",
    version=(2, 0),
)
_enter(
    "cache",
    _MOVE + "prefetch",
    "[]",
    "prefetch.global{.L2::evict_last,.L2::evict_normal}",
    target=80,
    version=(7, 4),
)
_enter(
    "cache",
    _MOVE + "applypriority",
    "[] n",
    "applypriority{.global,}.L2::evict_normal",
    target=80,
    version=(7, 4),
)
_enter("cache", _MOVE + "discard", "[] n", "discard{.global,}.L2", target=80, version=(7, 4))
_CP = _MOVE + "cp.async"
_enter(
    "cp.async",
    _CP,
    "[] [] n u32? b64?",
    "cp.async{.ca,.cg}.shared{::cta,}.global{.L2::cache_hint,}{.L2::64B,.L2::128B,.L2::256B,}",
    target=80,
    version=(7, 0),
)
_enter(
    "cp.async.wait",
    _CP,
    "",
    "cp.async.commit_group",
    "cp.async.wait_all",
    target=80,
    version=(7, 0),
)
_enter("cp.async.wait", _CP, "n", "cp.async.wait_group", target=80, version=(7, 0))
_PRIORITY = "{.L2::evict_last,.L2::evict_normal,.L2::evict_first,.L2::evict_unchanged}"
_PRIORITIES = _PRIORITY + "{.L2::evict_first,.L2::evict_unchanged,}.b64"
_POLICY = _MOVE + "createpolicy"
for _pattern, _operands in (
    (f"createpolicy.fractional{_PRIORITIES}", "=b64 f32?"),
    (f"createpolicy.range{{.global,}}{_PRIORITIES}", "=b64 [] u32 u32"),
    ("createpolicy.cvt.L2.b64", "=b64 b64"),
):
    _enter("createpolicy", _POLICY, _operands, _pattern, target=80, version=(7, 4))

_SEM = f"{{.relaxed,.acquire,.release,.acq_rel,}}{{.cta,.cluster,.gpu,.sys,}}{{.global,{_SHARED},}}"
_OPERATIONS = (
    "{.and,.or,.xor}{.L2::cache_hint,}{.b32,.b64}",
    ".add{.L2::cache_hint,}{.u32,.s32,.u64,.f32,.f64}",
    "{.inc,.dec}{.L2::cache_hint,}.u32",
    "{.min,.max}{.L2::cache_hint,}{.u32,.s32,.u64,.s64}",
)
_NARROW = (
    (".add.noftz{.L2::cache_hint,}.f16x2", 60, (6, 2)),
    (".add.noftz{.L2::cache_hint,}.f16", 70, (6, 3)),
    (".add.noftz{.L2::cache_hint,}{.bf16,.bf16x2}", 90, (7, 8)),
)
_VECTOR_ORDER = "{.relaxed,.acquire,.release,.acq_rel,}{.cta,.cluster,.gpu,.sys,}{.global,}"
_VECTORS = (
    ".add{.L2::cache_hint,}{.v2,.v4}.f32",
    ".add.noftz{.L2::cache_hint,}{.v2,.v4}{.f16,.bf16}",
    ".add.noftz{.L2::cache_hint,}{.v2,.v4}{.f16x2,.bf16x2}",
)
for _name, _operands in (("atom", "=t [] t"), ("red", "[] t")):
    _enter(
        _name,
        _SYNC + _name,
        _operands,
        *(f"{_name}{_SEM}{each}" for each in _OPERATIONS),
        target=60,
        version=(5, 0),
    )
    for _pattern, _target, _version in _NARROW:
        _enter(
            _name,
            _SYNC + _name,
            _operands,
            f"{_name}{_SEM}{_pattern}",
            target=_target,
            version=_version,
        )
    _enter(
        f"{_name}.vector",
        _SYNC + _name,
        _operands.replace("t", "{t}"),
        *(f"{_name}{_VECTOR_ORDER}{each}" for each in _VECTORS),
        f"{_name}{_VECTOR_ORDER}.add.noftz{{.L2::cache_hint,}}.v8{{.f16,.bf16}}",
        target=90,
        version=(8, 1),
    )
_enter(
    "atom", _SYNC + "atom", "=t [] t", f"atom{_SEM}.exch{{.b32,.b64}}", target=60, version=(5, 0)
)
_enter(
    "atom.cas",
    _SYNC + "atom",
    "=t [] t t",
    f"atom{_SEM}.cas{{.b16,.b32,.b64}}",
    target=70,
    version=(6, 3),
)
_enter("fence", _SYNC + "membar", "", "membar{.cta,.gl,.sys}")
_enter(
    "fence",
    _SYNC + "membar",
    "",
    f"fence{{.sc,.acq_rel,}}{_SCOPES}",
    target=70,
    version=(6, 0),
)
_enter("fence", _SYNC + "membar", "", "fence.proxy.alias", target=70, version=(7, 5))
_enter(
    "fence",
    _SYNC + "membar",
    "",
    f"fence{{.acquire,.release}}{_SCOPES}",
    target=90,
    version=(8, 6),
)

# -- threads that wait for threads -----------------------------------------------------------------

_BAR = _SYNC + "bar"
for _operation, _operands, _count in (("sync", "b32 b32?", 20), ("arrive", "b32 b32", 20)):
    _enter(f"bar.{_operation}", _BAR, _operands, f"bar.{_operation}")
    _enter(f"bar.{_operation}", _BAR, _operands, f"bar.cta.{_operation}", version=(7, 8))
    _enter(
        f"bar.{_operation}",
        _BAR,
        _operands,
        f"barrier.{_operation}{{.aligned,}}",
        target=30,
        version=(6, 0),
    )
    _enter(
        f"bar.{_operation}",
        _BAR,
        _operands,
        f"barrier.cta.{_operation}{{.aligned,}}",
        target=30,
        version=(7, 8),
    )
for _prefix, _aligned, _target, _version in (
    ("bar", "", 20, (2, 0)),
    ("bar.cta", "", 30, (7, 8)),
    ("barrier", "{.aligned,}", 30, (6, 0)),
    ("barrier.cta", "{.aligned,}", 30, (7, 8)),
):
    for _result, _pattern in (
        ("u32", f"{_prefix}.red.popc{_aligned}.u32"),
        ("pred", f"{_prefix}.red{{.and,.or}}{_aligned}.pred"),
    ):
        _operands = f"={_result} b32 b32? pred"
        _enter("bar.red", _BAR, _operands, _pattern, target=_target, version=_version)
_enter("bar.warp", _SYNC + "bar.warp.sync", "b32", "bar.warp.sync", target=30, version=(6, 0))
_enter(
    "shfl",
    _MOVE + "shfl.sync",
    "=b32|pred b32 b32 b32 b32",
    "shfl.sync{.up,.down,.bfly,.idx}.b32",
    target=30,
    version=(6, 0),
)
_VOTE = _SYNC + "vote.sync"
_enter("vote", _VOTE, "=pred pred b32", "vote.sync{.all,.any,.uni}.pred", target=30, version=(6, 0))
_enter("vote", _VOTE, "=b32 pred b32", "vote.sync.ballot.b32", target=30, version=(6, 0))
_MATCH = _SYNC + "match.sync"
_enter("match", _MATCH, "=b32 t b32", "match.any.sync{.b32,.b64}", target=70, version=(6, 0))
_enter("match", _MATCH, "=b32|pred t b32", "match.all.sync{.b32,.b64}", target=70, version=(6, 0))
_enter(
    "redux",
    _SYNC + "redux.sync",
    "=t t b32",
    "redux.sync{.add,.min,.max}{.u32,.s32}",
    "redux.sync{.and,.or,.xor}.b32",
    target=80,
    version=(7, 0),
)
_enter("activemask", _SYNC + "activemask", "=b32", "activemask.b32", target=30, version=(6, 2))
_enter("elect", _SYNC + "elect.sync", "=b32|pred b32", "elect.sync", target=90, version=(8, 0))

# -- matrices of a warp ----------------------------------------------------------------------------

_MATRIX = "9.7.14 Warp-Level Matrix: "
_OF_MATRICES = "sync.aligned.m8n8{.x1,.x2,.x4}{.trans,}{.shared,.shared::cta,}.b16"
_enter(
    "ldmatrix",
    _MATRIX + "ldmatrix",
    "={b32} []",
    f"ldmatrix.{_OF_MATRICES}",
    target=75,
    version=(6, 5),
)
_enter(
    "stmatrix",
    _MATRIX + "stmatrix",
    "[] {b32}",
    f"stmatrix.{_OF_MATRICES}",
    target=90,
    version=(7, 8),
)
_enter(
    "movmatrix",
    _MATRIX + "movmatrix",
    "=b32 b32",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    target=75,
    version=(7, 8),
)

MMA_REGISTERS = {
    "m16n8k16.f16": (2, 4, 2, 2),
    "m16n8k16.f32": (4, 4, 2, 4),
    "m16n8k8.f16": (2, 2, 1, 2),
    "m16n8k8.f32": (4, 2, 1, 4),
    "m16n8k8.f32.tf32": (4, 4, 2, 4),
    "m16n8k4.f32.tf32": (4, 2, 1, 4),
    "m8n8k4.f64": (2, 1, 1, 2),
    "m16n8k16.s32": (4, 2, 1, 4),
    "m16n8k32.s32": (4, 4, 2, 4),
    "m8n8k16.s32": (2, 1, 1, 2),
}
"""Registers per lane of `mma` for D, A, B and C, by the shape and the type of D (and of A)."""

for _shape, _target, _version in (
    ("m16n8k16.row.col.f32.f16.f16.f32", 80, (7, 0)),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", 80, (7, 0)),
    ("m16n8k16.row.col.f16.f16.f16.f16", 80, (7, 0)),
    ("m16n8k8.row.col.f32.f16.f16.f32", 75, (6, 5)),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", 80, (7, 0)),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 80, (7, 0)),
    ("m16n8k8.row.col.f16.f16.f16.f16", 75, (6, 5)),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", 80, (7, 0)),
    ("m8n8k4.row.col.f64.f64.f64.f64", 80, (7, 0)),
    ("m16n8k16.row.col{.satfinite,}.s32{.u8,.s8}{.u8,.s8}.s32", 80, (7, 0)),
    ("m16n8k32.row.col{.satfinite,}.s32{.u8,.s8}{.u8,.s8}.s32", 80, (7, 0)),
    ("m8n8k16.row.col{.satfinite,}.s32{.u8,.s8}{.u8,.s8}.s32", 75, (6, 5)),
):
    _kinds = "f64" if "f64" in _shape else "b32"
    _operands = f"={{{_kinds}}} {{{_kinds}}} {{{_kinds}}} {{{_kinds}}}"
    _pattern = f"mma.sync.aligned.{_shape}"
    _enter("mma", _MATRIX + "mma", _operands, _pattern, target=_target, version=_version)

_WMMA = _MATRIX + "wmma"
_LARGE = "{.m16n16k16,.m8n32k16,.m32n8k16}"
_ALIGNED = "{.aligned,}"
_FROM = "{.global,.shared,.shared::cta,}"
_FACTORS = (
    (f"{{.row,.col}}{_LARGE}{_FROM}{{.f16,.s8,.u8}}", 72, (6, 3)),
    (f"{{.row,.col}}{_LARGE}{_FROM}.bf16", 80, (7, 0)),
    (f"{{.row,.col}}.m16n16k8{_FROM}.tf32", 80, (7, 0)),
    (f"{{.row,.col}}.m8n8k4{_FROM}.f64", 80, (7, 0)),
)
_TINY = (f".m8n8k32{_FROM}{{.s4,.u4}}", f".m8n8k128{_FROM}.b1")
_SUMS = (
    (f"{{.row,.col}}{_LARGE}{_FROM}{{.f16,.f32,.s32}}", 72, (6, 3)),
    (f"{{.row,.col}}.m16n16k8{_FROM}.f32", 80, (7, 0)),
    (f"{{.row,.col}}.m8n8k4{_FROM}.f64", 80, (7, 0)),
    (f"{{.row,.col}}{{.m8n8k32,.m8n8k128}}{_FROM}.s32", 75, (6, 3)),
)
for _which, _forms in (
    ("{.a,.b}", _FACTORS),
    (".a", [(f".row{one}", 75, (6, 3)) for one in _TINY]),
    (".b", [(f".col{one}", 75, (6, 3)) for one in _TINY]),
    (".c", _SUMS),
):
    for _pattern, _target, _version in _forms:
        _pattern = f"wmma.load{_which}.sync{_ALIGNED}{_pattern}"
        _operands = "={t} [] b32?"
        _enter("wmma.load", _WMMA + ".load", _operands, _pattern, target=_target, version=_version)
for _pattern, _target, _version in _SUMS:
    _pattern = f"wmma.store.d.sync{_ALIGNED}{_pattern}"
    _operands = "[] {t} b32?"
    _enter("wmma.store", _WMMA + ".store", _operands, _pattern, target=_target, version=_version)
_PRODUCT = f"wmma.mma.sync{_ALIGNED}{{.row,.col}}{{.row,.col}}"
for _pattern, _target, _version in (
    (f"{_PRODUCT}{_LARGE}{{.f16,.f32}}{{.f16,.f32}}", 70, (6, 0)),
    (f"{_PRODUCT}{_LARGE}.f32.bf16.bf16.f32", 80, (7, 0)),
    (f"{_PRODUCT}{_LARGE}.s32.s8.s8.s32{{.satfinite,}}", 72, (6, 3)),
    (f"{_PRODUCT}{_LARGE}.s32.u8.u8.s32{{.satfinite,}}", 72, (6, 3)),
    (f"{_PRODUCT}.m16n16k8.f32.tf32.tf32.f32", 80, (7, 0)),
    (f"{_PRODUCT}.m8n8k4{_ROUNDED}.f64.f64.f64.f64", 80, (7, 0)),
    (f"{_PRODUCT}.m8n8k4.f64.f64.f64.f64{_ROUND}", 80, (7, 0)),
    (f"wmma.mma.sync{_ALIGNED}.row.col.m8n8k32.s32.s4.s4.s32{{.satfinite,}}", 75, (6, 3)),
    (f"wmma.mma.sync{_ALIGNED}.row.col.m8n8k32.s32.u4.u4.s32{{.satfinite,}}", 75, (6, 3)),
    (f"wmma.mma{{.xor,.and}}.popc.sync{_ALIGNED}.row.col.m8n8k128.s32.b1.b1.s32", 75, (6, 3)),
):
    _operands = "={t} {t} {t} {t}"
    _enter("wmma.mma", _WMMA + ".mma", _operands, _pattern, target=_target, version=_version)

# -- video -----------------------------------------------------------------------------------------

_SCALAR = "9.7.18 Video: "
_SIMD = "9.7.18 SIMD Video: "
_COMPARE = "{.eq,.ne,.lt,.le,.gt,.ge}"
_SECOND = "{.add,.min,.max,}"
_THREE = 3 * _WORD
for _name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
    _pattern = f"{_name}{_THREE}{{.sat,}}{_SECOND}"
    _enter("video", _SCALAR + _name, "=b32 b32 b32 b32?", _pattern, version=(2, 0))
_pattern = f"vset{_WORD}{_WORD}{_COMPARE}{_SECOND}"
_enter("video", _SCALAR + "vset", "=b32 b32 b32 b32?", _pattern, version=(2, 0))
for _name in ("vshl", "vshr"):
    _pattern = f"{_name}{_WORD}{_WORD}.u32{{.sat,}}{{.clamp,.wrap}}{_SECOND}"
    _enter("video.shift", _SCALAR + _name, "=b32 b32 b32 b32?", _pattern, version=(2, 0))
_pattern = f"vmad{_THREE}{{.po,}}{{.sat,}}{{.shr7,.shr15,}}"
_enter("vmad", _SCALAR + "vmad", "=b32 b32 b32 b32", _pattern, version=(2, 0))
for _count in (2, 4):
    _of_all = [
        f"v{name}{_count}{_THREE}{{.sat,.add,}}"
        for name in ("add", "sub", "avrg", "absdiff", "min", "max")
    ]
    _enter(
        "video.simd",
        _SIMD + "vadd2, vadd4 and their like",
        "=b32 b32 b32 b32",
        *_of_all,
        f"vset{_count}{_WORD}{_WORD}{_COMPARE}{{.add,}}",
        target=30,
        version=(3, 0),
    )

# -- predefined registers --------------------------------------------------------------------------

SPECIAL: dict[str, str] = {
    **{f"%{name}.{axis}": "u32" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"},
    **{f"%lanemask_{which}": "u32" for which in ("eq", "lt", "le", "gt", "ge")},
    "%laneid": "u32",
    "%warpid": "u32",
    "%nwarpid": "u32",
    "%smid": "u32",
    "%nsmid": "u32",
    "%gridid": "u64",
    "%clock": "u32",
    "%clock64": "u64",
    "%globaltimer": "u64",
    "%dynamic_smem_size": "u32",
    "%total_smem_size": "u32",
}
"""Predefined registers (§10) with their types."""

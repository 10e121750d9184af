"""One kernel as WGSL: its parameters, and the module around its instructions."""

from __future__ import annotations

from dataclasses import dataclass

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import Entry
from webgpu_backend._runtime import runtime_header
from webgpu_backend.translator.analysis import Analysis, Root
from webgpu_backend.translator.control_flow import Graph, structured
from webgpu_backend.translator.instructions import Instructions
from webgpu_backend.translator.kinds import BOOL, F16, F32, F64, I64, Kind, refuse
from webgpu_backend.translator.library import library

VERSION = "15"
"""Part of the cache's key: increase it when the translation changes."""

GRID_WORDS = 4
"""The grid's x, y, z, and the first block's x, for a dispatch that is part of a launch."""
NOWHERE = 0xFFFFFFFF
_CROSS, _FUNCTION = 5, 7


@dataclass(frozen=True)
class Argument:
    """A parameter of the native kernel, or a table behind them."""

    kind: str
    """value, pointer, shared, table, or indirect: the memory behind a module variable."""
    index: int
    """Index among the native parameters, or among the tables."""
    size: int = 8
    word: int = NOWHERE
    """Index in the parameter words: a value, or a pointer's offset and its tag."""
    tag: int = 0
    binding: int = NOWHERE


@dataclass(frozen=True)
class Translation:
    """A kernel in WGSL, and how it is launched."""

    text: str
    words: int
    """Words of parameters, a multiple of 4."""
    arguments: tuple[Argument, ...]
    bindings: int
    tables: tuple[bytes, ...]
    shared_bytes: int
    """Static."""
    has_shared: bool
    """Whether the kernel has the launch's shared memory, too."""
    has_uniform: bool


def translate(
    module: SpirvModule, entry: Entry, immediate_bytes: int, hidden: int = 0
) -> Translation:
    """Return a kernel that `spirv_slices.Cutter` cut out, as WGSL.

    Its parameters are immediates if the device has room; the last `hidden` of them are variables of
    the module. Raises `NotSupportedError`
    with the reason for a kernel that cannot be written, `InvalidImageError` for a damaged one.
    """
    try:
        analysis = Analysis(module, entry)
        atomic: set[Root] = set()
        while True:
            writer = Writer(analysis, hidden)
            writer.atomic = set(atomic)
            found = writer.write(immediate_bytes)
            if writer.atomic == atomic:
                return found
            atomic = writer.atomic
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        refuse(f"its instructions are damaged ({type(error).__name__})")


class Writer(Instructions):
    """Writes one kernel."""

    def __init__(self, analysis: Analysis, hidden: int) -> None:
        """Begin."""
        super().__init__(analysis)
        self._own = len(analysis.parameters) - hidden
        self._words = GRID_WORDS
        self._prologue: list[str] = []
        self._copies: list[tuple[Root, list[str]]] = []
        """Statements that copy a structure passed by value into its variable."""
        self._arguments: list[Argument] = []
        self._tables: list[bytes] = []

    def write(self, immediate_bytes: int) -> Translation:
        """Return the whole text."""
        self._lay_out()
        code = {block: self.code(block) for block in self.analysis.order}
        lines = structured(
            Graph(self.analysis.order, self.analysis.successors, code, self.choices, self.moves)
        )
        return self._module(lines, immediate_bytes)

    # -- parameters --------------------------------------------------------------------------------

    def _word(self, index: int) -> str:
        return f"P.w[{index >> 2}].{'xyzw'[index & 3]}"

    def _take_words(self, count: int) -> int:
        self._words += count
        most = runtime_header().constants["UHAL_WG_MOST_WORDS"]
        if self._words > most:
            refuse(f"{4 * self._words} bytes of parameters: expected at most {4 * most}")
        return self._words - count

    def _lay_out(self) -> None:
        for index, parameter in enumerate(self.analysis.parameters):
            kind = self.kinds.kind_of(parameter)
            if kind.tag != "pointer":
                self._value_parameter(index, parameter, kind)
            elif kind.storage == _CROSS:
                root = Root("binding", parameter)
                self._pointer_parameter(index, "pointer", root, f"{parameter}")
            elif kind.storage == _FUNCTION:
                self._structure_parameter(index, parameter, kind)
            else:
                self._arguments.append(Argument("shared", index))
        reached = {root for roots in self.analysis.roots.values() for root in roots}
        for root in sorted(reached):
            if root.tag == "indirect":
                index = self.analysis.parameters.index(root.id)
                if index < self._own:
                    refuse("a pointer to pointers among its parameters")
                self._pointer_parameter(index, "indirect", root, f"i{root.id}")

    def _pointer_parameter(self, index: int, kind: str, root: Root, name: str) -> None:
        word = self._take_words(2)
        self._prologue += [
            f"let o{name} = {self._word(word)};",
            f"let t{name} = {self._word(word + 1)};",
        ]
        if kind == "pointer":
            self.offset_names[root.id] = f"o{name}"
        self.tag_names[root] = f"t{name}"
        self._arguments.append(Argument(kind, index, 8, word, self.number(root)))

    def _structure_parameter(self, index: int, parameter: int, kind: Kind) -> None:
        size = self.kinds.size(kind.element)
        count = -(-size // 4)
        word = self._take_words(count)
        copies = [f"r{parameter}[{at}] = {self._word(word + at)};" for at in range(count)]
        self._copies.append((Root("local", parameter), copies))
        self._arguments.append(Argument("value", index, size, word))

    def _value_parameter(self, index: int, parameter: int, kind: Kind) -> None:
        word = self._take_words(2 if kind.bits == 64 else 1)
        low, name = self._word(word), f"v{parameter}"
        if kind == F64 or (kind == I64 and self.is_wide(parameter)):
            text = f"u64({low}) | (u64({self._word(word + 1)}) << 32u)"
        elif kind == F32:
            text = f"bitcast<f32>({low})"
        elif kind == F16:
            self.need("half")
            text = f"half_of({low} & 0xffffu)"
        elif kind == BOOL:
            text = f"({low} & 0xffu) != 0u"
        elif kind.tag == "int":
            text = self.cut(low, kind.bits)
        else:
            refuse(f"parameter {index} of the kind {kind.tag}")
        self._prologue.append(f"let {name} = {text};")
        size = max(kind.bits // 8, 1)
        self._arguments.append(Argument("value", index, size, word))

    # -- the module --------------------------------------------------------------------------------

    def _module(self, body: list[str], immediate_bytes: int) -> Translation:
        words = -(-self._words // 4) * 4
        has_uniform = words * 4 > immediate_bytes
        space = "@group(0) @binding(0) var<uniform>" if has_uniform else "var<immediate>"
        head = [f"struct Params {{ w: array<vec4<u32>, {words // 4}> }}", f"{space} P: Params;"]
        for axis in "xyz":
            head.append(f"override block_{axis}: u32 = 1u;")
        bindings: dict[Root, int] = {}
        shared_bytes, has_shared = 0, False
        local: list[str] = []
        for root in sorted(self.used_roots):
            name = self.root_name(root)
            element = "atomic<u32>" if root in self.atomic else "u32"
            if root.tag in ("binding", "indirect", "table"):
                number = bindings[root] = len(bindings)
                where = f"@group(0) @binding({number + 1}) var<storage, read_write>"
                head.append(f"{where} {name}: array<{element}>;")
                if root.tag == "table":
                    self._table(root, number)
            elif root.tag == "local":
                local.append(f"var {name}: array<u32, {self._words_of(root)}>;")
            elif root.id in self.analysis.parameters:
                has_shared = True
                head.append("override shared_words: u32 = 1u;")
                head.append(f"var<workgroup> {name}: array<{element}, shared_words>;")
            else:
                shared_bytes += 4 * self._words_of(root)
                head.append(f"var<workgroup> {name}: array<{element}, {self._words_of(root)}>;")
        copies = [line for root, lines in self._copies if root in self.used_roots for line in lines]
        text = "\n".join(
            [
                *head,
                library(self.needs),
                *self.loop_functions,
                "@compute @workgroup_size(block_x, block_y, block_z)",
                "fn kernel(@builtin(local_invocation_id) thread_id: vec3<u32>,",
                "          @builtin(workgroup_id) dispatched: vec3<u32>) {",
                "let grid = P.w[0].xyz;",
                # A variable, because naga refuses sums of constants that wrap around.
                "var block = vec3<u32>(block_x, block_y, block_z);",
                "let block_id = dispatched + vec3<u32>(P.w[0].w, 0u, 0u);",
                *self._prologue,
                *local,
                *copies,
                *self.declared,
                *body,
                "}\n",
            ]
        )
        arguments = tuple(self._bound(one, bindings) for one in self._arguments)
        return Translation(
            text,
            words,
            arguments,
            len(bindings),
            tuple(self._tables),
            shared_bytes,
            has_shared,
            has_uniform,
        )

    def _bound(self, argument: Argument, bindings: dict[Root, int]) -> Argument:
        if argument.kind not in ("pointer", "indirect"):
            return argument
        tag = "binding" if argument.kind == "pointer" else "indirect"
        root = Root(tag, self.analysis.parameters[argument.index])
        binding = bindings.get(root, NOWHERE)
        return Argument(
            argument.kind, argument.index, argument.size, argument.word, argument.tag, binding
        )

    def _words_of(self, root: Root) -> int:
        """Words of a variable, or of a parameter that is passed by value."""
        return max(1, -(-self.kinds.size(self.kinds.kind_of(root.id).element) // 4))

    def _table(self, root: Root, binding: int) -> None:
        words = self.analysis.module.operands(root.id)
        if len(words) < 5:
            refuse("a constant variable without a value")
        data = self.kinds.packed(self.kinds.kind_of(root.id).element, words[4])
        index = len(self._tables)
        self._tables.append(data + bytes(-len(data) % 4))
        self._arguments.append(Argument("table", index, 8, NOWHERE, 0, binding))

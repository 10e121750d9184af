"""Accesses to memory, and the checks emitted before them.

Each access of the text is a site. In a kernel with checks a site remembers, for every worker, an
interval of valid addresses. Only other addresses go to the run time (runtime/check.c). The run time
searches the allocations, and either widens the interval or ends the run.

A valid access costs a subtraction, a rotation and a comparison. The rotation of the distance by the
access's size moves the bits that must be zero to the top, so a misaligned distance is too large.
"""

from __future__ import annotations

from .count import count_access
from .errors import PtxSyntaxError
from .layout import INTERVAL
from .operands import Operands
from .program import Address, Operand, Symbol
from .sites import Kind, Site
from .types import BITS
from .unit import Unit


class Checks(Operands):
    """Adds accesses to the operands."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.check = unit.check
        self._stores: list[tuple[int, str, str]] = []

    def reach(
        self,
        operand: Operand | None,
        space: str,
        size: int,
        access: Kind,
        *,
        synchronizes: bool = False,
        watched_after: bool = False,
    ) -> str:
        """A host pointer to `size` bytes that an address operand names, checked.

        `space` is as the instruction names it. Parameters are not checked: their addresses are
        the translator's own. With `watched_after` the caller calls `watch_stores` behind the store.
        """
        if self.check == "off" or space == "param" or self._is_own_variable(operand):
            return self.pointer(operand, space)
        site = Site(self._line, size, access, space, synchronizes, watched_after)
        if space == "shared":
            return self._reach_shared(self.shared_index(operand), site)
        address = self._address(operand)
        # Only device functions can get the address of a caller's variable: an entry has no caller.
        if space == "local" and self._function.is_entry and self._local_variables():
            return self._reach_local(address, site)
        return self.reach_address(address, site)

    def reach_moved(
        self,
        operand: Operand | None,
        distance: str,
        space: str,
        size: int,
        access: Kind,
        *,
        watched_after: bool = False,
    ) -> str:
        """`reach` for memory at a distance (i64, bytes) behind an address."""
        if self.check == "off":
            return self.value(
                f"getelementptr i8, ptr {self.pointer(operand, space)}, i64 {distance}"
            )
        site = Site(self._line, size, access, space, watched_after=watched_after)
        if space == "shared":
            index = self.value(f"add i64 {self.shared_index(operand)}, {distance}")
            return self._reach_shared(index, site)
        address = self.value(f"add i64 {self._address(operand)}, {distance}")
        return self.reach_address(address, site)

    def _reach_shared(self, index: str, site: Site) -> str:
        """A host pointer to shared memory at an index (i64), checked."""
        number = self.unit.add_site(site)
        total = self.value(f"zext i32 {self.field('total_shared_bytes', 'i32')} to i64")
        count = self.value(f"lshr i64 {total}, {_shift(site.bytes)}")
        right = self.value(f"icmp ult i64 {self._in_units(index, site.bytes)}, {count}")
        self._or_refuse(right, number, index)
        if self.check == "count":
            count_access(self, number, index)
        if self.check == "strict":
            self._watch(site, number, index, "shared")
        start = self.field("shared", "ptr")
        return self.value(f"getelementptr i8, ptr {start}, i64 {index}")

    def reach_address(self, address: str, site: Site) -> str:
        """A host pointer to a global or generic address (i64), checked."""
        number = self.unit.add_site(site)
        interval = self.value(
            f"getelementptr i8, ptr {self.field('intervals', 'ptr')}, i64 {number * INTERVAL.bytes}"
        )
        start, count = (self._of_interval(interval, name) for name in ("start", "count"))
        distance = self.value(f"sub i64 {address}, {start}")
        known = self.value(f"icmp ult i64 {self._in_units(distance, site.bytes)}, {count}")
        look_up, go_on = self.label(), self.label()
        self.line(f"br i1 {known}, label %{go_on}, label %{look_up}, !prof !1")
        self.begin(look_up)
        self._call("check", number, address)
        self.fall_into(go_on)
        if self.check == "count":
            count_access(self, number, address)
        if self.check == "strict" and site.space == "generic":
            self._watch(site, number, address, "generic")
        delta = self._of_interval(interval, "delta")
        return self.value(f"inttoptr i64 {self.value(f'add i64 {address}, {delta}')} to ptr")

    def _reach_local(self, address: str, site: Site) -> str:
        number = self.unit.add_site(site)
        right = "false"
        for name, size in self._local_variables():
            start = self.value(f"ptrtoint ptr {self._own_memory(name)} to i64")
            distance = self.value(f"sub i64 {address}, {start}")
            units = self._in_units(distance, site.bytes)
            inside = self.value(f"icmp ult i64 {units}, {size // site.bytes}")
            right = self.value(f"or i1 {right}, {inside}")
        self._or_refuse(right, number, address)
        return self.value(f"inttoptr i64 {address} to ptr")

    # -- pieces ------------------------------------------------------------------------------------

    def _is_own_variable(self, operand: Operand | None) -> bool:
        """Whether an operand names a variable of the thread instead of an address."""
        if not isinstance(operand, Address):
            raise PtxSyntaxError("expected an address in brackets", self._line)
        return isinstance(operand.base, Symbol) and operand.base.name in self._known_memory()

    def _local_variables(self) -> list[tuple[str, int]]:
        variables = self._function.variables.values()
        return [(one.name, one.size) for one in variables if one.space == "local"]

    def _address(self, operand: Operand | None) -> str:
        assert isinstance(operand, Address)
        address = self.read(operand.base, BITS[64])
        return self.value(f"add i64 {address}, {operand.offset}") if operand.offset else address

    def shared_index(self, operand: Operand | None) -> str:
        """Offset of an address operand in the block's shared memory, as an i64."""
        if not isinstance(operand, Address):
            raise PtxSyntaxError("expected an address in brackets", self._line)
        index = self._shared_index(operand.base)
        return self.value(f"add i64 {index}, {operand.offset}") if operand.offset else index

    def _in_units(self, distance: str, size: int) -> str:
        """A distance in units of an access; enormous when the address is misaligned."""
        if size == 1:
            return distance
        arguments = (f"i64 {distance}", f"i64 {distance}", f"i64 {_shift(size)}")
        return self.call("i64", "llvm.fshr.i64", *arguments)

    def _of_interval(self, interval: str, name: str) -> str:
        at = self.value(f"getelementptr i8, ptr {interval}, i64 {INTERVAL.offsets[name]}")
        return self.value(f"load i64, ptr {at}")

    def _or_refuse(self, right: str, number: int, address: str) -> None:
        refuse, go_on = self.label(), self.label()
        self.line(f"br i1 {right}, label %{go_on}, label %{refuse}, !prof !1")
        self.begin(refuse)
        self._call("check", number, address)
        self.line("unreachable")
        self.begin(go_on)

    def watch_stores(self) -> None:
        """Report the stores since the last call to strict mode, after they are done."""
        for number, address, space in self._stores:
            self._watch_now(number, address, space)
        self._stores.clear()

    def _watch(self, site: Site, number: int, address: str, space: str) -> None:
        if site.watched_after:
            self._stores.append((number, address, space))
        else:
            self._watch_now(number, address, space)

    def _watch_now(self, number: int, address: str, space: str) -> None:
        if space == "shared":
            self._call("watch", number, address)
        else:
            self._watch_if_shared(number, address)

    def _watch_if_shared(self, number: int, address: str) -> None:
        start = self.value(f"ptrtoint ptr {self.field('shared', 'ptr')} to i64")
        total = self.value(f"zext i32 {self.field('total_shared_bytes', 'i32')} to i64")
        index = self.value(f"sub i64 {address}, {start}")
        shared = self.value(f"icmp ult i64 {index}, {total}")
        inside, go_on = self.label(), self.label()
        self.line(f"br i1 {shared}, label %{inside}, label %{go_on}")
        self.begin(inside)
        self._call("watch", number, index)
        self.fall_into(go_on)

    def _call(self, name: str, number: int, address: str) -> None:
        function = self.field(name, "ptr")
        self.line(
            f"call void {function}(ptr %block, i32 {number}, i64 {address}, "
            "i32 %tx, i32 %ty, i32 %tz) cold"
        )


def _shift(size: int) -> int:
    assert size & (size - 1) == 0, "accesses are powers of two wide"
    return size.bit_length() - 1

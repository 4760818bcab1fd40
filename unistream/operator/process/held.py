"""Value state of a bounded job: the value of the key whose rows are processed, without a look-up per row.

The same idea as that of Flink's BatchExecutionKeyValueState (FLIP-140), which has one key at a time; here
keys end together, so the value goes back to the state backend before the next key comes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from unistream.model.columns.state_leaves import Conform
from unistream.model.columns.state_values import conformer
from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import StateDescriptor


class HeldValue:
    """`port.state.ValueState` between `enter` and `leave`, with the current key of `handle`."""

    __slots__ = ("_before", "_conform", "_handle", "_now")

    def __init__(self, handle: Any, conform: Conform) -> None:
        self._handle = handle
        self._conform = conform
        self._before: Any = None
        self._now: Any = None

    def value(self) -> Any:
        return self._now

    def update(self, value: Any) -> None:
        self._now = self._conform(value)

    def clear(self) -> None:
        self._now = None

    def enter(self) -> None:
        """The current key is another one."""
        self._before = self._now = self._handle.value()

    def leave(self) -> None:
        """The current key is about to change."""
        if self._now is not self._before:
            self._handle.update(self._now)
        self._before = self._now = None


class HeldInteger(HeldValue):
    """A held int64, with the check in place: a call less for each row. The first range is that of one digit
    of CPython, which it compares faster."""

    __slots__ = ()

    def update(self, value: Any) -> None:
        if type(value) is int and (-(2**30) < value < 2**30 or -(2**63) <= value < 2**63):
            self._now = value
        else:
            self._now = self._conform(value)


def held(handle: Any, descriptor: StateDescriptor) -> HeldValue | None:
    """None for what is not one value, may be changed in place, or has a time to live."""
    options, kind = descriptor.options, descriptor.type
    if descriptor.kind is not StateKind.VALUE or options.ttl or options.pickled or pa.types.is_nested(kind):
        return None
    conform = conformer(descriptor.name, kind)
    return (HeldInteger if pa.types.is_int64(kind) else HeldValue)(handle, conform)

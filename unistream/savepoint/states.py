"""What a manifest stores of each operator, gathered over its subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.ids import OperatorUid
from unistream.model.snapshot import (
    KeyedHandle,
    ListHandle,
    ListMode,
    NativeHandle,
    OperatorStateHandle,
    VertexSnapshot,
)
from unistream.savepoint.watermarks import WatermarkSpan

NATIVE_KIND: Final = "native"


class StateContent(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one operator, over all subtasks.

    Attributes:
        name: As the operator calls it; of a backend's own files: their format.
        kind: "value", "list", "map", "reducing", "aggregating", "timers"; "table": columns of the operator's
            own; "list-split", "list-union", "list-broadcast": operator state; "native": a backend's files.
        rows: Rows of its table; of a list its stored items, each of one or several elements (how many, its
            table tells); of native files it is not known.
        size: Bytes of its files, or of the elements that lie in the manifest.
        files: How many; 0: it lies in the manifest.
        key_groups: How many have rows; None: it is not keyed, or not known.
        pickled: Its values are Python objects in a form that only the program can read that wrote them.
    """

    name: str
    kind: str
    rows: int | None
    size: int
    files: int
    key_groups: int | None = None
    pickled: bool = False


class OperatorContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one operator.

    Attributes:
        vertex: Name of the chain that it was in.
        max_parallelism: Number of key groups; a job that starts from here has as many.
        finished_subtasks: Of its vertex; they are not run again.
        watermark: How far event time was; None: the snapshot does not say.
    """

    uid: OperatorUid
    vertex: str
    parallelism: int
    max_parallelism: int
    finished_subtasks: tuple[int, ...]
    states: tuple[StateContent, ...]
    watermark: WatermarkSpan | None = None

    @property
    def is_finished(self) -> bool:
        return len(self.finished_subtasks) == self.parallelism


@dataclass(frozen=True, slots=True)
class Stored:
    """What an operator's subtasks hold of one state."""

    keyed: tuple[KeyedHandle, ...] = ()
    lists: tuple[tuple[int, ListHandle], ...] = ()
    native: tuple[NativeHandle, ...] = ()


def states_of(uid: OperatorUid, vertex: VertexSnapshot) -> dict[str, Stored]:
    """By name, in the order in which they are met."""
    found: dict[str, Stored] = {}
    for subtask, task in enumerate(vertex.subtasks):
        handle = OperatorStateHandle() if task is None else task.operators.get(uid, OperatorStateHandle())
        for keyed in handle.keyed:
            one = found.get(keyed.name, Stored())
            found[keyed.name] = Stored(keyed=(*one.keyed, keyed))
        for stored in handle.lists:
            one = found.get(stored.name, Stored())
            found[stored.name] = Stored(lists=(*one.lists, (subtask, stored)))
        for native in handle.native:
            one = found.get(native.format, Stored())
            found[native.format] = Stored(native=(*one.native, native))
    return found


def content_of(name: str, stored: Stored) -> StateContent:
    """What a savepoint says of one state, without reading its files."""
    if stored.native:
        files = [file for handle in stored.native for file in handle.files]
        return StateContent(
            name=name,
            kind=NATIVE_KIND,
            rows=None,
            size=sum(file.ref.size for file in files),
            files=len(files),
            pickled=any(handle.pickled for handle in stored.native),
        )
    if stored.lists:
        return _list_content(name, [handle for _, handle in stored.lists])
    return StateContent(
        name=name,
        kind=stored.keyed[0].kind.value,
        rows=sum(handle.rows for handle in stored.keyed),
        size=sum(handle.file.size for handle in stored.keyed),
        files=len(stored.keyed),
        key_groups=len({group for handle in stored.keyed for group in handle.key_groups}),
        pickled=any(handle.pickled for handle in stored.keyed),
    )


def _list_content(name: str, handles: list[ListHandle]) -> StateContent:
    mode = handles[0].mode
    counted = handles[:1] if mode is ListMode.BROADCAST else handles  # all copies are the same
    return StateContent(
        name=name,
        kind=f"list-{mode.value}",
        rows=sum(handle.count for handle in counted),
        size=sum(
            handle.file.size if handle.file else sum(map(len, handle.inline or ())) for handle in handles
        ),
        files=sum(handle.file is not None for handle in handles),
    )

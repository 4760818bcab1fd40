"""The state of each operator in a manifest, over all its subtasks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
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
        name: Of the state; for native files their format.
        kind: "value", "list", "map", "reducing", "aggregating", "timers"; "table": columns of the operator;
            "list-split", "list-union", "list-broadcast": operator state; "native": a backend's files.
        rows: Rows of its table; of a list its stored items, each with one or more elements; None for native
            files.
        size: Bytes of its files, or of the elements in the manifest.
        files: Number of files; 0: it is in the manifest.
        key_groups: Number of those with rows; None: it is not keyed, or not known.
        pickled: Its values are Python objects that only the program that wrote them can read.
    """

    name: str
    kind: str
    rows: int | None
    size: int
    files: int
    key_groups: int | None = None
    pickled: bool = False


class OperatorContent(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one operator.

    Attributes:
        vertex: Name of its chain.
        max_parallelism: Number of key groups; a job that starts from here has as many.
        finished_subtasks: Of its vertex; they do not run again.
        watermark: Progress of event time; None: not stored.
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
    """The handles of one state, of all subtasks of an operator."""

    keyed: list[KeyedHandle] = field(default_factory=list)
    lists: list[tuple[int, ListHandle]] = field(default_factory=list)
    native: list[NativeHandle] = field(default_factory=list)


def states_of(uid: OperatorUid, vertex: VertexSnapshot) -> dict[str, Stored]:
    """By name."""
    found: defaultdict[str, Stored] = defaultdict(Stored)
    for subtask, task in enumerate(vertex.subtasks):
        handle = OperatorStateHandle() if task is None else task.operators.get(uid, OperatorStateHandle())
        for keyed in handle.keyed:
            found[keyed.name].keyed.append(keyed)
        for stored in handle.lists:
            found[stored.name].lists.append((subtask, stored))
        for native in handle.native:
            found[native.format].native.append(native)
    return dict(found)


def content_of(name: str, stored: Stored) -> StateContent:
    """One state, without reading its files."""
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

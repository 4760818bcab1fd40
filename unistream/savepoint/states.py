"""State and watermarks of each operator in a manifest, over all its subtasks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from unistream.base.ids import OperatorUid
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.snapshot import (
    KeyedHandle,
    ListHandle,
    ListMode,
    NativeHandle,
    OperatorStateHandle,
    VertexSnapshot,
)

NATIVE_KIND: Final = "native"
NONE_YET: Final = "none yet"
END_OF_INPUT: Final = "end of input"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


class WatermarkSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The watermarks of one operator's subtasks: rows up to the least are complete in all of them.

    Attributes:
        least, greatest: ISO 8601, UTC; "none yet" before the first watermark, "end of input" after the last.
        least_ms, greatest_ms: The same in ms since the epoch; None before the first, 2**63 - 1 at the end.
    """

    least: str
    least_ms: int | None
    greatest: str
    greatest_ms: int | None


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
    """The states of an operator, by name."""
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


def span_of(uid: OperatorUid, vertex: VertexSnapshot) -> WatermarkSpan | None:
    """None: not stored. A finished subtask was at the end of its input."""
    found = [task.watermarks[uid] for task in vertex.subtasks if task is not None and uid in task.watermarks]
    found += [MAX_WATERMARK for _ in vertex.finished_subtasks]
    if not found:
        return None
    least, greatest = min(found), max(found)
    return WatermarkSpan(
        least=watermark_text(least),
        least_ms=_known(least),
        greatest=watermark_text(greatest),
        greatest_ms=_known(greatest),
    )


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark


def watermark_text(watermark: int) -> str:
    """A watermark as a time; as a number if it is out of the range of dates.

    >>> watermark_text(1_700_000_000_123), watermark_text(MIN_WATERMARK), watermark_text(MAX_WATERMARK)
    ('2023-11-14T22:13:20.123Z', 'none yet', 'end of input')
    """
    if watermark == MIN_WATERMARK:
        return NONE_YET
    if watermark == MAX_WATERMARK:
        return END_OF_INPUT
    try:
        at = _EPOCH + timedelta(milliseconds=watermark)
    except OverflowError:
        return f"{watermark} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

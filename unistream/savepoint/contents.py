"""The manifest's opaque parts for people: positions of sources, pending commits, in-flight rows.

A connector's own bytes are MessagePack; they are shown decoded, whatever connector wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.ids import EdgeId, OperatorUid
from unistream.model.messages import Split
from unistream.model.snapshot import VertexSnapshot

T = TypeVar("T")

SPLITS_STATE: Final = "splits"  # list of every source: the splits of its readers
COMMITTER_STATE: Final = "committables"  # list of every committer: pending committables
TARGET_STATE: Final = "committed-into"  # list of a committer that remembers where its output is


class SplitPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A split that is not read to its end.

    Attributes:
        uid: Of the source.
        subtask: Its reader's; None: it is not assigned yet.
        split: Its name: a partition of a topic, a range of a file.
        position: Of the connector: where to read next, and where to end.
    """

    uid: OperatorUid
    subtask: int | None
    split: str
    position: object


class PendingCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Staged output that a job which starts from here commits first. Most of it was committed when the
    savepoint was complete; committing it again changes nothing.

    Attributes:
        uid: Of the committer.
        checkpoint_id: With which it is committed; None: written by an unknown version.
        writer: Subtask of the sink's writer.
        committables: Number of committables.
        size: Of the committables, in bytes.
    """

    uid: OperatorUid
    checkpoint_id: int | None
    writer: int | None
    committables: int
    size: int


class RowsInFlight(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that the barriers of an unaligned checkpoint overtook.

    Attributes:
        vertex: Name of the task whose subtasks stored them, at inputs or outputs.
        edge: Id of their edge.
        size: In the checkpoint's files, in bytes.
    """

    vertex: str
    edge: EdgeId
    size: int


class _Assigner(msgspec.Struct):
    unassigned: tuple[Split, ...] = ()


class _StoredCommittables(msgspec.Struct):
    checkpoint_id: int
    subtask: int
    payloads: list[bytes] = []


def split_positions(uid: OperatorUid, subtask: int | None, items: Iterable[bytes]) -> list[SplitPosition]:
    """The positions in the stored splits of one reader. Raises CorruptSnapshot for an item that is not a
    split."""
    return [_position(uid, subtask, _decoded(item, Split, f"a split of {uid!r}")) for item in items]


def unassigned_positions(uid: OperatorUid, coordinator: bytes) -> list[SplitPosition]:
    """Splits that no reader had, of the state of a source's assigner. Raises CorruptSnapshot."""
    state = _decoded(coordinator, _Assigner, f"the split assigner of {uid!r}")
    return [_position(uid, None, split) for split in state.unassigned]


def pending_commits(uid: OperatorUid, items: Sequence[bytes]) -> list[PendingCommit]:
    """The pending commits in the stored list of a committer."""
    found: list[PendingCommit] = []
    for item in items:
        try:
            decoded = msgspec.msgpack.decode(item, type=list[_StoredCommittables])
        except UNDECODABLE:
            found.append(
                PendingCommit(uid=uid, checkpoint_id=None, writer=None, committables=1, size=len(item))
            )
            continue
        found.extend(
            PendingCommit(
                uid=uid,
                checkpoint_id=pending.checkpoint_id,
                writer=pending.subtask,
                committables=len(pending.payloads),
                size=sum(map(len, pending.payloads)),
            )
            for pending in decoded
            if pending.payloads
        )
    return found


def rows_in_flight(vertices: Iterable[VertexSnapshot]) -> list[RowsInFlight]:
    """The in-flight rows of each vertex and edge, in the order of the job."""
    sizes: Counter[tuple[str, EdgeId]] = Counter()
    for vertex in vertices:
        stored = (task.in_flight for task in vertex.subtasks if task is not None and task.in_flight)
        for handle in stored:
            for run in (*handle.restored, *handle.inputs, *handle.outputs):
                sizes[vertex.name, run.edge] += run.stop - run.start
    return [RowsInFlight(vertex=name, edge=edge, size=size) for (name, edge), size in sizes.items()]


def readable(data: bytes) -> object:
    """A value as text: decoded MessagePack, or the hex digits of anything else.

    >>> readable(msgspec.msgpack.encode({"offset": 7}))
    {'offset': 7}
    >>> readable(b"plain text")
    '706c61696e2074657874'
    """
    try:
        return msgspec.msgpack.decode(data)
    except (*UNDECODABLE, ValueError):
        return data.hex()


def _position(uid: OperatorUid, subtask: int | None, split: Split) -> SplitPosition:
    return SplitPosition(uid=uid, subtask=subtask, split=split.id, position=readable(split.data))


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (*UNDECODABLE, ValueError) as error:
        raise CorruptSnapshot(f"{what} cannot be read: {error}") from error

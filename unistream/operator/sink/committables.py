"""Committables that writers have announced and sent, and that are not committed, by checkpoint.

The rows between the operators of a sink: for each checkpoint and subtask one summary, also if there is
nothing to commit, and a row for each committable.

    checkpoint_id  subtask  of  count  watermark  payload
         7            0      2    1      36000             summary: subtask 0 of 2 sends one committable
         7            0                            ....    the committable

A checkpoint is whole when the summaries of all subtasks and all announced committables have arrived. Its
watermark is the lowest of its summaries: no row up to it is in a later checkpoint, but late ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, CorruptSnapshot, ProtocolError
from unistream.base.ids import CheckpointId

NOTHING_MORE: Final = 2**62  # instead of a checkpoint id: this subtask sends nothing from now on

COMMITTABLES: Final = pa.schema(
    [
        pa.field("checkpoint_id", pa.int64(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("of", pa.int32()),  # in a summary: the number of subtasks
        pa.field("count", pa.int32()),  # in a summary: the number of announced committables
        pa.field("watermark", pa.int64()),  # in a summary, ms: of the subtask's input; null if that is idle
        pa.field("payload", pa.binary()),  # in a row of a committable
    ]
)


def announce(
    checkpoint_id: int, subtask: int, of: int, payloads: Sequence[bytes], watermark: int | None = None
) -> pa.RecordBatch:
    """A summary and its committables, as rows."""
    more = [None] * len(payloads)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([checkpoint_id] * (len(payloads) + 1), pa.int64()),
            pa.array([subtask] * (len(payloads) + 1), pa.int32()),
            pa.array([of, *more], pa.int32()),
            pa.array([len(payloads), *more], pa.int32()),
            pa.array([watermark, *more], pa.int64()),
            pa.array([None, *payloads], pa.binary()),
        ],
        schema=COMMITTABLES,
    )


def of_member(
    records: pa.RecordBatch, member: int, members: int, wrapped: Callable[[bytes], bytes]
) -> pa.RecordBatch:
    """Rows of `announce` of one of several sinks with a common committer: subtasks of different sinks get
    different numbers, and each committable becomes `wrapped(committable)`."""
    subtasks = [subtask * members + member for subtask in records.column("subtask").to_pylist()]
    payloads = [None if one is None else wrapped(one) for one in records.column("payload").to_pylist()]
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    columns |= {"subtask": pa.array(subtasks, pa.int32()), "payload": pa.array(payloads, pa.binary())}
    return pa.RecordBatch.from_arrays([columns[name] for name in COMMITTABLES.names], schema=COMMITTABLES)


class _Part(msgspec.Struct):
    """What one subtask sent for one checkpoint. `announced` None: its summary has not arrived.

    In a snapshot also the identity under which it is committed, and the connector (empty: known to the user's
    code only); snapshots of older versions have neither, and no watermark.
    """

    checkpoint_id: int
    subtask: int
    announced: int | None = None
    payloads: list[bytes] = []
    sink_uid: str = ""
    connector: str = ""
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """All committables of one checkpoint. `watermark`: see the module; None: no subtask knows one."""

    checkpoint_id: CheckpointId
    payloads: tuple[bytes, ...]
    watermark: int | None = None


class Committables:
    """Committables by checkpoint and subtask, those of a restored snapshot first. `sink`: its name, for
    errors."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._restored: list[_Part] = []
        self._parts: dict[tuple[int, int], _Part] = {}
        self._announced: dict[int, int] = {}  # subtask -> newest checkpoint
        self._of = 1

    def __bool__(self) -> bool:
        return bool(self._restored or self._parts)

    @property
    def is_silent(self) -> bool:
        """No summary has arrived: everything was restored."""
        return not self._announced

    @property
    def newest(self) -> int:
        """The latest checkpoint with committables or a summary; 0: none."""
        return max((part.checkpoint_id for part in self._all()), default=0)

    def restore(self, items: Iterable[bytes], up_to: int) -> None:
        """Adds `items` from `encoded`, of one or several former subtasks. Raises CorruptSnapshot.

        `up_to`: the restored checkpoint. Older versions listed what had been staged for a later one, too, in
        AT_LEAST_ONCE mode: rows that are read again, in files that their writer has removed by now.
        """
        for item in items:
            try:
                stored = msgspec.msgpack.decode(item, type=list[_Part])
            except UNDECODABLE as error:
                raise CorruptSnapshot(f"a restored committable cannot be read: {error}") from error
            self._restored += _belonging(stored, up_to)

    def encoded(self, up_to: int, sink_uid: str = "", connector: str = "") -> tuple[bytes, ...]:
        """What belongs to checkpoint `up_to` and older ones as one item, with the identity and the connector;
        no item if there is nothing."""
        named = [
            msgspec.structs.replace(part, sink_uid=sink_uid, connector=connector)
            for part in _belonging(self._all(), up_to)
        ]
        return (msgspec.msgpack.encode(named),) if named else ()

    @property
    def restored_from(self) -> tuple[str, str]:
        """Identity and connector of what was restored; empty if the snapshot does not have them."""
        for part in self._restored:
            if part.sink_uid:
                return part.sink_uid, part.connector
        return "", ""

    def add(self, records: pa.RecordBatch) -> None:
        """Adds rows of `announce`.

        Raises:
            ProtocolError: a second summary, or more committables than announced.
        """
        for row in records.to_pylist():
            self._add(**row)

    def due(self, up_to: int) -> list[Due]:
        """Checkpoints until `up_to`, ascending, also empty ones. They stay until `remove`.

        Raises:
            ProtocolError: one is not whole. Its barrier preceded the notification, so rows were lost.
        """
        return [self._due(checkpoint_id) for checkpoint_id in self.checkpoints() if checkpoint_id <= up_to]

    def checkpoints(self) -> list[int]:
        """Checkpoints with committables or a summary, ascending."""
        return sorted({part.checkpoint_id for part in self._all()})

    def whole(self, expected: int | None = None) -> list[int]:
        """Complete checkpoints: every subtask has announced them or a later one. `expected`: the number of
        subtasks that send here; None: that of the summaries."""
        if len(self._announced) < (expected or self._of):
            return []
        limit = min(self._announced.values())
        for part in self._parts.values():
            if part.announced != len(part.payloads):  # the others have not arrived
                limit = min(limit, part.checkpoint_id - 1)
        return [checkpoint_id for checkpoint_id in self.checkpoints() if checkpoint_id <= limit]

    def remove(self, checkpoint_ids: Iterable[int]) -> None:
        """Removes finished checkpoints."""
        done = set(checkpoint_ids)
        self._restored = [part for part in self._restored if part.checkpoint_id not in done]
        self._parts = {key: part for key, part in self._parts.items() if part.checkpoint_id not in done}

    def _all(self) -> Iterator[_Part]:
        yield from self._restored
        yield from self._parts.values()

    def _due(self, checkpoint_id: int) -> Due:
        parts = [part for part in self._all() if part.checkpoint_id == checkpoint_id]
        for part in parts:
            if part.announced != len(part.payloads):
                raise ProtocolError(
                    f"sink {self._sink!r}, checkpoint {checkpoint_id}, writer {part.subtask}: "
                    f"{len(part.payloads)} committables have arrived of {part.announced} announced"
                )
        watermarks = [part.watermark for part in parts if part.watermark is not None]
        return Due(
            CheckpointId(checkpoint_id),
            tuple(p for part in parts for p in part.payloads),
            min(watermarks, default=None),
        )

    def _add(
        self,
        *,
        checkpoint_id: int,
        subtask: int,
        of: int | None,
        count: int | None,
        watermark: int | None,
        payload: bytes | None,
    ) -> None:
        part = self._parts.setdefault((checkpoint_id, subtask), _Part(checkpoint_id, subtask))
        what = f"sink {self._sink!r}, checkpoint {checkpoint_id}, writer {subtask}"
        if payload is not None:
            part.payloads.append(payload)
        elif part.announced is not None:
            raise ProtocolError(f"{what}: committables were announced twice")
        else:
            part.announced, part.watermark = count, watermark
            self._announced[subtask] = max(checkpoint_id, self._announced.get(subtask, 0))
            self._of = of or self._of
        if part.announced is not None and len(part.payloads) > part.announced:
            raise ProtocolError(f"{what}: more committables than the {part.announced} announced")


def _belonging(parts: Iterable[_Part], up_to: int) -> list[_Part]:
    """Parts of checkpoints until `up_to`, and ends."""
    return [part for part in parts if part.checkpoint_id <= up_to or part.checkpoint_id == NOTHING_MORE]

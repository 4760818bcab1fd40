"""Sources of a simulated user's job, read in small pieces, and sinks that record."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

import msgspec
import pyarrow as pa

from unistream.base.errors import Unreachable
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import MAX_WATERMARK
from unistream.connector.catalogue import create_discovery
from unistream.model.elements import Batch
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.port.sink import Committer, SinkWriter
from unistream.port.source import Idle, PhasedReader, Polled, ReaderContext, Rows, SourceReader
from unistream.testing.sim.table import Table, TableCommitter, TableWriter
from unistream.testing.sim.world import World

READ_AHEAD_S: Final = 240.0  # in real time: a thread of a reader that is slow is not one without rows


@dataclass(slots=True)
class SourcePace:
    """How sources read in one run.

    Attributes:
        pieces: The approximate number of pieces of a source; 0: its own batches.
        pause_ms: Mean time between two pieces.
        rows: Rows of each source, by uid, as counted by the undisturbed run.
    """

    pieces: int = 0
    pause_ms: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)

    def most(self, key: str) -> int:
        """Rows of one piece."""
        if not self.pieces:
            return 1 << 60
        return max(1, 2 * self.rows.get(key, 0) // self.pieces)


class SimulatedRun(Protocol):
    """The run of the tasks. `commit_lines`: of the longest commit of each sink so far."""

    world: World
    pace: SourcePace
    commit_lines: dict[OperatorUid, int]

    @property
    def recorded(self) -> RecordingTable: ...


# --- sources --------------------------------------------------------------------------------------


class PacedSource:
    """`port.source.Source` around another one. `site`: set where its reader is made."""

    def __init__(self, source: Any, key: str) -> None:
        self._source = source
        self._key = key
        self.site: SimulatedRun | None = None

    @property
    def name(self) -> str:
        return str(self._source.name)

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    def info(self) -> SourceInfo:
        return cast(SourceInfo, self._source.info())

    def create_reader(self) -> SourceReader:
        assert self.site is not None, "its chain was created for a run"
        return PacedReader(self._source.create_reader(), self._key, self.site)


class PacedDiscovery:
    """Lists the splits of a source, each at its start; `known` keeps them for all runs."""

    def __init__(self, info: SourceInfo, world: World, known: dict[str, list[Split]]) -> None:
        self._info = info
        self._world = world
        self._known = known

    def discover(self) -> Sequence[Split]:
        if self._world.chance(self._world.faults.store_fail):
            raise Unreachable("the source does not answer")
        key = repr(self._info)
        if key not in self._known:
            discovery = create_discovery(self._info)
            try:
                self._known[key] = [_encode(split, 0) for split in discovery.discover()]
            finally:
                discovery.close()
        return self._known[key]

    def close(self) -> None:
        """Nothing is held."""


def _encode(split: Split, skip: int) -> Split:
    return msgspec.structs.replace(
        split, data=msgspec.msgpack.encode((split.data, skip)), recorded=_moved(split.recorded, skip)
    )


def _moved(recorded: tuple[str, int] | None, rows: int) -> tuple[str, int] | None:
    """An offset for each row is assumed."""
    return None if recorded is None else (recorded[0], recorded[1] + rows)


@dataclass(slots=True)
class _Batch:
    """Rows of a split whose position was `base` before them; `done` of them were emitted or skipped."""

    rows: Rows
    base: Split
    done: int


class PacedReader:
    """The reader of a source, whose batches come in pieces."""

    def __init__(self, reader: SourceReader, key: str, site: SimulatedRun) -> None:
        self._reader = reader
        self._key = key
        self._world = site.world
        self._pace = site.pace
        self._skips: dict[str, int] = {}  # rows after the split's position that an earlier attempt emitted
        self._batch: _Batch | None = None
        self._pause = False
        self._woken = threading.Event()

    def open(self, context: ReaderContext) -> None:
        def wake() -> None:
            self._woken.set()
            context.wake()

        self._reader.open(replace(context, wake=wake, reads_ahead=False))

    def add_splits(self, splits: Sequence[Split]) -> None:
        inner = []
        for split in splits:
            data, skip = msgspec.msgpack.decode(split.data, type=tuple[bytes, int])
            self._skips[split.id] = skip
            recorded = _moved(split.recorded, -skip)
            inner.append(msgspec.structs.replace(split, data=data, recorded=recorded))
        self._reader.add_splits(inner)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def begin_phase(self, phase: int, newest: int | None) -> None:
        assert isinstance(self._reader, PhasedReader), "its source has phases"
        self._reader.begin_phase(phase, newest)

    def no_more_splits_of(self, phase: int) -> None:
        assert isinstance(self._reader, PhasedReader), "its source has phases"
        self._reader.no_more_splits_of(phase)

    def poll(self) -> Polled:
        if self._pause and self._pace.pause_ms:
            self._pause = False
            return Idle(retry_ms=1 + int(self._world.between(0, 2 * self._pace.pause_ms)))
        if self._batch is None:
            positions = {split.id: split for split in self._reader.snapshot()}
            polled = self._read()
            if not isinstance(polled, Rows):
                return polled
            self._batch = self._begun(polled, positions[polled.split_id])
            if self._batch is None:
                return Idle(retry_ms=1)
        return self._piece(self._batch)

    def _read(self) -> Polled:
        """Waits for a thread of the reader: on virtual time it would never be fast enough."""
        while True:
            self._woken.clear()
            polled = self._reader.poll()
            reads_ahead = isinstance(polled, Idle) and polled.retry_ms is None and self._has_rows()
            if not reads_ahead or not self._woken.wait(READ_AHEAD_S):
                return polled

    def _has_rows(self) -> bool:
        return any(split.min_timestamp != MAX_WATERMARK for split in self._reader.snapshot())

    def _begun(self, rows: Rows, base: Split) -> _Batch | None:
        """None: an earlier attempt has emitted all of them."""
        skip = self._skips.get(rows.split_id, 0)
        count = rows.records.num_rows
        if skip >= count > 0:
            self._skips[rows.split_id] = skip - count
            return None
        self._skips[rows.split_id] = 0
        return _Batch(rows, base, skip)

    def _piece(self, batch: _Batch) -> Rows:
        rows, first = batch.rows, batch.done
        left = rows.records.num_rows - first
        most = min(left, self._pace.most(self._key))
        count = 1 + self._world.random.randrange(most) if most > 1 and self._pace.pieces else most
        batch.done += count
        if not self._pace.pieces:
            self._pace.rows[self._key] = self._pace.rows.get(self._key, 0) + count
        if batch.done >= rows.records.num_rows:
            self._batch = None
        self._pause = True
        return Rows(
            rows.split_id,
            rows.records.slice(first, count),
            None if rows.timestamps is None else rows.timestamps.slice(first, count),
            rows.dead_letters if first == 0 else None,
        )

    def snapshot(self) -> Sequence[Split]:
        splits = {split.id: _encode(split, self._skips.get(split.id, 0)) for split in self._reader.snapshot()}
        if self._batch is not None:
            splits[self._batch.base.id] = _encode(self._batch.base, self._batch.done)
        return [splits[id_] for id_ in sorted(splits)]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        self._reader.close()


# --- sinks ----------------------------------------------------------------------------------------


class RecordingTable(Table):
    """Rows of any schema. `schemas`: of each sink that has got rows."""

    def __init__(self, world: World, judge: Any) -> None:
        super().__init__(world, judge)
        self.schemas: dict[OperatorUid, pa.Schema] = {}


class RecordingSink:
    """`port.sink.Sink` into a `RecordingTable`, which is set where writers and committers are made."""

    name = "simulated"
    global_committer = False

    def __init__(self, table: RecordingTable | None) -> None:
        self.table = table

    def check(self, schema: pa.Schema | None) -> None:
        """Takes any rows."""

    def create_writer(self) -> SinkWriter:
        assert self.table is not None, "its chain was created for a run"
        return RecordingWriter(self.table)

    def create_committer(self) -> Committer | None:
        return None if self.table is None else TableCommitter(self.table)


class StandIn:
    """`port.sink.Sink` for one that must not be touched, until a `RecordingSink` takes its place."""

    global_committer = False

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, schema: pa.Schema | None) -> None:
        """Takes any rows."""

    def create_writer(self) -> SinkWriter:
        raise AssertionError(f"{self.name} is replaced before anything runs")

    def create_committer(self) -> Committer | None:
        return None


class RecordingWriter(TableWriter):
    """Stages rows as they are."""

    def __init__(self, table: RecordingTable) -> None:
        super().__init__(table)
        self._schemas = table.schemas
        self._uid: OperatorUid | None = None

    def open(self, context: Any, restored: Sequence[bytes]) -> None:
        super().open(context, restored)
        self._uid = context.sink_uid

    def write(self, batch: Batch) -> None:
        assert self._uid is not None, "open comes first"
        self._schemas.setdefault(self._uid, batch.records.schema)
        self._rows.extend(zip(*(column.to_pylist() for column in batch.records.columns), strict=True))

"""Parts of simulated jobs: a source with known contents, and operators that may fail.

A row is (split, offset, key); a counting operator adds how many rows of that key there were so far, so that
a row that is counted twice or not at all shows in the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from unistream.base.errors import Unreachable
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot import ListMode, OperatorSnapshot, OperatorState
from unistream.model.state import OperatorListDescriptor, ValueStateDescriptor
from unistream.operator.common import BaseOperator, Row
from unistream.operator.process import Collector, FunctionContext, ProcessFunction
from unistream.port.operator import CommitPermit
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows, SourceReader, SplitFinished
from unistream.testing.sim.sst import SstState
from unistream.testing.sim.world import World

ROWS = pa.schema([("split", pa.int64()), ("offset", pa.int64()), ("k", pa.int64())])
GROUP = 5  # rows; no split has a multiple of it, so that some are left
_KEY = pa.schema([("k", pa.int64())])
_COUNT = ValueStateDescriptor("count", pa.int64())
_COUNTED = pa.schema([*ROWS, ("n", pa.int64())])


class UserBug(Exception):
    """An error of a user's function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Contents of one source.

    Attributes:
        first: Number of its first split; split numbers are unique in a run.
        rows: Of each split.
        batch: Most rows in one piece.
        pace_ms: Between two pieces.
        keys: Number of different keys.
    """

    first: int
    splits: int
    rows: int
    batch: int
    pace_ms: int
    keys: int
    bounded: bool
    pull: bool

    def info(self) -> SourceInfo:
        return SourceInfo(
            connector="sim", options={"first": self.first}, bounded=self.bounded, pull=self.pull
        )

    @property
    def numbers(self) -> range:
        """The numbers of the source's splits."""
        return range(self.first, self.first + self.splits)

    def key(self, split: int, offset: int) -> int:
        return (split + offset * offset) % self.keys


class SimSource:
    """`port.source.Source` of an `Input`."""

    name = "sim"
    schema = ROWS

    def __init__(self, contents: Input, world: World) -> None:
        self._contents = contents
        self._world = world

    def info(self) -> SourceInfo:
        return self._contents.info()

    def create_reader(self) -> SourceReader:
        return SimReader(self._contents, self._world)


class SimDiscovery:
    """Lists the splits of an `Input`."""

    def __init__(self, contents: Input, world: World) -> None:
        self._contents = contents
        self._world = world

    def discover(self) -> Sequence[Split]:
        if self._world.chance(self._world.faults.store_fail):
            self._world.sometimes("splits could not be listed")
            raise Unreachable("the source does not answer")
        return [_split(number, 0) for number in self._contents.numbers]

    def close(self) -> None:
        """Nothing is held."""


def _split(number: int, position: int) -> Split:
    return Split(id=f"split-{number}", data=msgspec.msgpack.encode((number, position)))


class SimReader:
    """Reads its splits in turn, a few rows at a time."""

    def __init__(self, contents: Input, world: World) -> None:
        self._contents = contents
        self._world = world
        self._splits: deque[tuple[int, int]] = deque()
        self._context: ReaderContext | None = None
        self._no_more = False
        self._requested = False
        self._pause = False

    def open(self, context: ReaderContext) -> None:
        self._context = context

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            number, position = msgspec.msgpack.decode(split.data, type=tuple[int, int])
            self._splits.append((number, position))
        self._requested = False

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Polled:
        if not self._splits:
            return self._nothing()
        if self._pause:
            self._pause = False
            return Idle(retry_ms=int(self._world.between(1, 2 * self._contents.pace_ms)) + 1)
        number, position = self._splits.popleft()
        left = self._contents.rows - position
        if left == 0 and self._contents.bounded:
            return SplitFinished(f"split-{number}")
        if left == 0:
            self._splits.append((number, position))
            self._pause = True
            read = all(at == self._contents.rows for _, at in self._splits)
            return Idle() if read else Idle(retry_ms=1)
        count = min(left, 1 + self._world.random.randrange(self._contents.batch))
        self._splits.append((number, position + count))
        self._pause = True
        return Rows(f"split-{number}", self._rows(number, position, count))

    def _nothing(self) -> Polled:
        if self._no_more:
            return Exhausted()
        if self._contents.pull and not self._requested:
            assert self._context is not None, "open comes first"
            self._requested = True
            self._context.request_split()
        return Idle()

    def _rows(self, number: int, position: int, count: int) -> pa.RecordBatch:
        offsets = range(position, position + count)
        keys = [self._contents.key(number, offset) for offset in offsets]
        return pa.RecordBatch.from_pydict(
            {"split": [number] * count, "offset": list(offsets), "k": keys}, schema=ROWS
        )

    def snapshot(self) -> Sequence[Split]:
        return [_split(number, position) for number, position in self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Nothing to commit."""

    def close(self) -> None:
        """Nothing is held."""


class FragileOperator(BaseOperator):
    """Forwards rows; its user code raises at random in four places."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _may_fail(self, probability: float, where: str) -> None:
        if self._world.chance(probability):
            self._world.sometimes(f"user code failed in {where}")
            raise UserBug(f"in {where}")

    def initialize_state(self, state: OperatorState) -> None:
        self._may_fail(self._world.faults.on_restore, "restore")

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._may_fail(self._world.faults.on_map, "map")
        self.output.emit(batch)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        self._may_fail(self._world.faults.on_snapshot, "snapshot")
        return OperatorSnapshot()

    def close(self) -> None:
        self._may_fail(self._world.faults.on_close, "close")


class InGroups(ProcessFunction):
    """Passes rows on in groups; what is left when it finishes is the last one."""

    held = OperatorListDescriptor("held", pa.struct(list(ROWS)), ListMode.SPLIT)

    def open(self, context: FunctionContext) -> None:
        self._rows = context.operator_state(self.held)

    def process_element(self, row: Row, context: FunctionContext, out: Collector) -> None:
        self._rows.add(row)
        if len(self._rows.get()) == GROUP:
            self.finish(context, out)
            self._rows.clear()

    def finish(self, context: FunctionContext, out: Collector) -> None:
        for row in self._rows.get():
            out.emit(row)


class CountOperator(BaseOperator):
    """Adds to each row how many of its key there were; in keyed state of the task's backend."""

    uses_managed_memory = True

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.restore(state.state)

    def open(self) -> None:
        self._counts = self.context.state.state(_COUNT)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        counts = []
        for key in self.context.state.keys_of(batch.records.select(_KEY.names)):
            self.context.state.set_current(key)
            count = 1 + (self._counts.value() or 0)
            self._counts.update(count)
            counts.append(count)
        self.output.emit(_counted(batch, counts))

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(state=self.context.state.snapshot(checkpoint_id))

    def close(self) -> None:
        self.context.state.close()


class FiledCountOperator(BaseOperator):
    """`CountOperator` whose counts are kept in files that checkpoints share.

    Args:
        merge_at: See `SstState`.
    """

    def __init__(self, world: World, merge_at: int) -> None:
        self._world = world
        self._merge_at = merge_at

    def initialize_state(self, state: OperatorState) -> None:
        context = self.context
        self._state = SstState(
            disk=self._world.disk,
            folder=Path(str(context.attempt), context.uid),
            schema=_COUNT.table_schema(_KEY),
            key_groups=context.key_groups,
            max_parallelism=context.max_parallelism,
            merge_at=self._merge_at,
        )
        self._state.restore(state.state)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        counts = []
        for key in batch.records.column(_KEY.names[0]).to_pylist():
            count = 1 + self._state.get(key)
            self._state.put(key, count)
            counts.append(count)
        self.output.emit(_counted(batch, counts))

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(state=self._state.snapshot(checkpoint_id))

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._state.notify_complete(permit.checkpoint_id)


def _counted(batch: Batch, counts: list[int]) -> Batch:
    columns = [*batch.records.columns, pa.array(counts, pa.int64())]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=_COUNTED))

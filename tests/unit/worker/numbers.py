"""A job of two vertices on the task harness, S (numbers) ──► K (an operator of the test), at any parallelism;
or of three, S ──► M ──► K, where M forwards its input.

    job = numbers_job(lambda: SumByKey(results), numbers_graph(2, config=...))
    deal_numbers(job, rows=100)                # 0 to 99 for the first subtask of S, and so on
    job.trigger(SnapshotKind.CHECKPOINT)
    ...
    again = numbers_again(job, lambda: SumByKey(results), numbers_graph(3), rows=100)
    again.finish()

A row is a number v and its key k = v modulo `KEYS`; its event time is v.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.support.harness.task import TaskJob
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, EdgeOutput
from unistream.model.elements import Batch
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import Split
from unistream.model.partition_type import PartitionType
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import ValueStateDescriptor
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import BaseOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows

KEYS: Final = 13
KEY: Final = pa.schema([("k", pa.int64())])
ROWS_PER_POLL: Final = 7  # so that a few hundred rows are more than an exchange may hold
EDGES: Final = {"S": EdgeId("e"), "M": EdgeId("f")}  # by the vertex that they leave


def number_rows(start: int, stop: int) -> pa.RecordBatch:
    """Numbers start to stop - 1, with their keys."""
    values = np.arange(start, stop, dtype=np.int64)
    return pa.record_batch({"k": values % KEYS, "v": values})


def number_split(start: int, stop: int) -> Split:
    """Numbers start to stop - 1 for a `NumberReader`, whose position is part of the split."""
    return Split(id=f"{start}", data=f"{start}-{stop}".encode())


def split_range(split: Split) -> tuple[int, int]:
    """The numbers of a split that are still to be read: start, stop."""
    start, stop = split.data.decode().split("-")
    return int(start), int(stop)


class NumberReader:
    """One split after the other, a few rows at a time."""

    def __init__(self, rows_per_poll: int) -> None:
        self._rows_per_poll = rows_per_poll
        self._left: dict[str, tuple[int, int]] = {}
        self._is_last = False

    def open(self, context: ReaderContext) -> None:
        """Nothing to open."""

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._left |= {split.id: split_range(split) for split in splits}

    def no_more_splits(self) -> None:
        self._is_last = True

    def poll(self) -> Polled:
        for split, (start, stop) in self._left.items():
            if start < stop:
                until = min(stop, start + self._rows_per_poll)
                self._left[split] = (until, stop)
                rows = number_rows(start, until)
                return Rows(split, rows, rows.column("v"))
        return Exhausted() if self._is_last else Idle()

    def snapshot(self) -> list[Split]:
        return [Split(id=i, data=f"{start}-{stop}".encode()) for i, (start, stop) in self._left.items()]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Nothing to commit."""

    def close(self) -> None:
        """Nothing is open."""


class NumberSource:
    """See the module."""

    name = "numbers"
    schema = number_rows(0, 0).schema

    def __init__(self, rows_per_poll: int = ROWS_PER_POLL) -> None:
        self._rows_per_poll = rows_per_poll

    def info(self) -> SourceInfo:
        return SourceInfo(connector="numbers", options={}, bounded=True, pull=False)

    def create_reader(self) -> NumberReader:
        return NumberReader(self._rows_per_poll)


class SumByKey(BaseOperator):
    """A sum for each key, in keyed value state; it puts the sums into `results` when it finishes."""

    uses_managed_memory = True

    def __init__(self, results: dict[int, int]) -> None:
        self.results = results

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.restore(state.state)
        self.sums: Any = self.context.state.state(ValueStateDescriptor("sum", pa.int64()))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        keys = self.context.state.keys_of(batch.records.select(KEY.names))
        for key, value in zip(keys, batch.records.column("v").to_pylist(), strict=True):
            self.context.state.set_current(key)
            self.sums.update((self.sums.value() or 0) + value)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(state=self.context.state.snapshot(checkpoint_id))

    def finish(self) -> None:
        numbers: list[Any] = [key[0] for key in self.context.state.keys("sum")]
        keys = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=KEY)
        for number, key in zip(numbers, self.context.state.keys_of(keys), strict=True):
            assert number not in self.results, "one owner for each key"
            self.context.state.set_current(key)
            self.results[number] = self.sums.value()

    def close(self) -> None:
        self.context.state.close()


def sums_of(numbers: int) -> dict[int, int]:
    """The results of `SumByKey` over 0 to numbers - 1."""
    return {key: sum(range(key, numbers, KEYS)) for key in range(KEYS)}


def numbers_graph(
    sources: int = 1,
    consumers: int | None = None,
    *,
    middle: bool = False,
    ship: Ship = Ship.HASH,
    partition: PartitionType = PartitionType.PIPELINED,
    config: Mapping[str, str] | None = None,
) -> JobGraph:
    """A graph of S and K.

    Args:
        sources: Subtasks of S, and of M.
        consumers: Subtasks of K; None: as many.
        middle: The graph has the vertex M.
        ship: Of the edge from S; the edge from M is a hash edge.
        partition: Of all edges.
        config: Options of the job.
    """
    names = "SMK" if middle else "SK"

    def vertex(name: str) -> JobVertex:
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
            parallelism=consumers or sources if name == "K" else sources,
            max_parallelism=32,
            source=NumberSource().info() if name == "S" else None,
            inputs=0 if name == "S" else 1,
        )

    def edge(source: str, target: str) -> JobEdge:
        return JobEdge(
            id=EDGES[source],
            source=VertexId(source),
            target=VertexId(target),
            ship=ship if source == "S" else Ship.HASH,
            key_columns=("k",),
            partition=partition,
        )

    return JobGraph(
        name="numbers",
        vertices=tuple(vertex(name) for name in names),
        edges=tuple(edge(source, target) for source, target in pairwise(names)),
        config=dict(config or {}),
    )


class NumberChains(dict[VertexId, Chain]):
    """Creates new operators for each task, as an artifact does."""

    def __init__(
        self, operator: Callable[[], object], middle: Callable[[], object], rows_per_poll: int
    ) -> None:
        super().__init__()
        source = NumberSource(rows_per_poll)
        watermarks = WatermarkStrategy.for_monotonous_timestamps()
        spec = SourceOperatorSpec(source=source, watermarks=watermarks)
        self._operators = {"S": lambda: spec, "M": middle, "K": operator}

    def __getitem__(self, vertex: VertexId) -> Chain:
        outputs = (EdgeOutput(edge=EDGES[vertex]),) if vertex in EDGES else ()
        operator = self._operators[vertex]()
        return Chain(
            nodes=(ChainNode(uid=OperatorUid(vertex), name=vertex, operator=operator, outputs=outputs),)
        )


def numbers_job(
    operator: Callable[[], object],
    graph: JobGraph | None = None,
    *,
    middle: Callable[[], object] = BaseOperator,
    rows_per_poll: int = ROWS_PER_POLL,
    **options: Any,
) -> TaskJob:
    """A job whose sources have no splits yet.

    Args:
        operator: Creates the operator of K, once for each subtask.
        graph: A `numbers_graph`; None: one subtask each.
        middle: Creates the operator of M.
        rows_per_poll: Rows of one batch.
        options: Of `TaskJob`.
    """
    return TaskJob(graph or numbers_graph(), NumberChains(operator, middle, rows_per_poll), **options)


def deal_numbers(job: TaskJob, rows: int, *, splits: int = 1) -> int:
    """Assigns each subtask of S its splits of `rows` numbers each, which are its last. Returns how many
    numbers there are; they begin with 0."""
    stop = 0
    for subtask in job.subtasks("S"):
        starts = range(stop, stop := stop + splits * rows, rows)
        dealt = [number_split(start, start + rows) for start in starts]
        job.assign("S", dealt, index=subtask.index, no_more=True)
    return stop


def numbers_again(
    last: TaskJob,
    operator: Callable[[], object],
    graph: JobGraph | None = None,
    *,
    rows: int,
    splits: int = 1,
) -> TaskJob:
    """A job from the newest checkpoint of `last`, or from the beginning if it has none.

    `graph`: maybe of another parallelism; None: the graph of `last`. `rows`, `splits`: as for `last`.
    """
    job = numbers_job(
        operator,
        graph or last.graph,
        restore=last.completed,
        store=last.store,
        first_checkpoint=last.next_checkpoint,
    )
    if last.completed is None:
        deal_numbers(job, rows, splits=splits)
    else:  # the rest of the splits is in the checkpoint
        for subtask in job.subtasks("S"):
            job.assign("S", [], index=subtask.index, no_more=True)
    return job


def shake(
    job: TaskJob, dice: random.Random, *, steps: int, checkpoints: float, aborts: float, sources: int = 1
) -> None:
    """Steps tasks, and takes checkpoints, in random order, while the clock advances.

    Args:
        job: The job of `numbers_job`.
        dice: Decides the order.
        steps: Each is a step of one task.
        checkpoints: Checkpoints per step.
        aborts: The share of checkpoints that is aborted at once.
        sources: How often a subtask of S is stepped for each step of one of K.
    """
    weights = [sources if subtask.vertex == "S" else 1 for subtask in job.tasks]
    for task in dice.choices(list(job.tasks.values()), weights, k=steps):
        if dice.random() < checkpoints:
            snapshot = job.trigger(SnapshotKind.CHECKPOINT)
            if dice.random() < aborts:
                job.abort(snapshot.checkpoint_id)
        job.clock.now_ms += dice.randrange(3)
        task.step()

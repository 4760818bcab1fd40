"""What operators a sink with stages and a global committer becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.ids import CheckpointId
from unistream.connector.collect import CollectSink
from unistream.model.graph import Ship
from unistream.operator.sink import SinkOperator
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    CommittableStage,
    Committer,
    Sink,
    SinkContext,
)


class Stage:
    def open(self, context: SinkContext) -> None: ...

    def process(self, checkpoint_id: CheckpointId, committables: Sequence[bytes]) -> Sequence[bytes]:
        return committables

    def close(self) -> None: ...


class Beside:
    """A committer that can stand next to others."""

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return CommitResult(CommitOutcome.COMMITTED)

    def close(self) -> None: ...


class Parallel(us.FileSink):
    """Each writer has its own committer."""

    global_committer = False  # type: ignore[assignment]

    def create_committer(self) -> Committer | None:
        return Beside()


class Whole(Parallel):
    def pre_commit_stages(self) -> Sequence[CommittableStage]:
        return [CommittableStage(name="check", create=Stage)]

    def post_commit_stages(self) -> Sequence[CommittableStage]:
        return [
            CommittableStage(name="note", create=Stage),
            CommittableStage(name="tell", create=Stage, parallel=False),
        ]

    def create_global_committer(self) -> Committer:
        return us.FileSink("x").create_committer()  # type: ignore[return-value]


class Compacted(Parallel):
    def pre_commit_stages(self) -> Sequence[CommittableStage]:
        return [CommittableStage(name="compact", create=Stage, parallel=False)]


class OnlyGlobal(us.FileSink):
    def create_committer(self) -> Committer | None:
        return None

    def create_global_committer(self) -> Committer:
        return us.FileSink("x").create_committer()  # type: ignore[return-value]


class Recording(us.FileSink):
    records_positions = True


class RecordingCompacted(Compacted):
    records_positions = True


class RecordingParallel(Parallel):
    records_positions = True


WRITER = ("files", 4, "", "s")
CASES: list[Any] = [
    pytest.param(
        us.FileSink, [WRITER, ("files committer", 1, "GLOBAL", "s")], id="one committer for all writers"
    ),
    pytest.param(
        Parallel, [WRITER, ("files committer", 4, "FORWARD", "s")], id="a committer next to each writer"
    ),
    pytest.param(
        Whole,
        [
            WRITER,
            ("files check", 4, "FORWARD", "s"),
            ("files committer", 4, "FORWARD", "s"),
            ("files note", 4, "FORWARD", "s-post-commit-note"),
            ("files tell", 1, "GLOBAL", "s-post-commit-tell"),
            ("files global committer", 1, "FORWARD", "s-global-committer"),
        ],
        id="stages before and behind it, and a global committer",
    ),
    pytest.param(
        Compacted,
        [WRITER, ("files compact", 1, "GLOBAL", "s"), ("files committer", 1, "FORWARD", "s")],
        id="what stands behind one for all is one, too",
    ),
    pytest.param(
        OnlyGlobal,
        [WRITER, ("files committer", 1, "GLOBAL", "s")],
        id="a global committer in place of committers",
    ),
]


@pytest.mark.parametrize(("make", "expected"), CASES)
def test_operators_of_a_sink(tmp_path: Path, make: type[us.FileSink], expected: list[Any]) -> None:
    env = us.Environment({"parallelism.default": "4"})
    source = us.StaticSource(pa.table({"n": [1]}), splits=4)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    sink: Sink = make(str(tmp_path))
    rows.sink_to(sink).set_parallelism(4).uid("s")
    graph = env.stream_graph("job")
    ships = {edge.target: edge.ship for edge in graph.edges}
    found = []
    for node in graph.nodes[1:]:
        assert isinstance(node.operator, SinkOperator)
        ship = ships[node.id]
        parallelism = node.parallelism if node.parallelism is not None else 4
        found.append((node.name, parallelism, ship.name if ship else "", node.operator.sink_uid))
    assert found == expected
    uids = [str(node.uid) for node in graph.nodes[1:]]
    assert len(set(uids)) == len(uids)
    assert all(isinstance(ship, Ship) or ship is None for ship in ships.values())


@pytest.mark.parametrize("sink", [us.FileSink, Parallel])
@pytest.mark.parametrize(("mode", "stored"), [("BATCH", True), ("STREAMING", False)])
def test_in_a_batch_job_the_master_keeps_what_is_prepared_before_it_is_committed(
    tmp_path: Path, mode: str, stored: bool, sink: type[us.FileSink]
) -> None:
    """A committer that runs again must not run with its writer: that would write under other names."""
    env = us.Environment({"parallelism.default": "2", "execution.runtime-mode": mode})
    numbers = env.from_source(
        us.DatagenSource({"n": us.datagen.Sequential()}, rows=9), us.WatermarkStrategy.no_watermarks(), "n"
    )
    numbers.sink_to(sink(str(tmp_path)))
    graph, _ = env.job_graph()
    of_sink = [edge for edge in graph.edges if edge.committables]
    assert [edge.partition.is_reported for edge in of_sink] == [stored] * len(of_sink)
    chained = mode == "STREAMING" and sink is Parallel
    assert len(of_sink) == (0 if chained else 1)


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        pytest.param(us.FileSink, False, id="a sink that does not"),
        pytest.param(Recording, True, id="one committer for all writers"),
        pytest.param(RecordingCompacted, True, id="behind a stage"),
        pytest.param(RecordingParallel, False, id="of several committers each has a part of the rows"),
    ],
)
def test_one_committer_may_record_the_positions_of_its_sources(
    tmp_path: Path, kind: type[us.FileSink], records: bool
) -> None:
    env = us.Environment({"parallelism.default": "4"})
    source = us.KafkaSource(bootstrap_servers="localhost:1", topic="t", format="bytes")
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "topic").uid("topic")
    rows.sink_to(kind(str(tmp_path))).uid("s")
    graph, _ = env.job_graph("job")
    found = {op.uid: op.records for vertex in graph.vertices for op in vertex.operators if op.records}
    assert found == ({"s-committer": ("topic",)} if records else {})


class FilesBeside(us.FileSink):
    global_committer = False  # type: ignore[assignment]


class FilesBehindOneStage(FilesBeside):
    def pre_commit_stages(self) -> Sequence[CommittableStage]:
        return [CommittableStage(name="compact", create=Stage, parallel=False)]


class FilesBehindParallelStage(FilesBeside):
    def pre_commit_stages(self) -> Sequence[CommittableStage]:
        return [CommittableStage(name="check", create=Stage)]


class TableBeside(us.DeltaSink):
    global_committer = False  # type: ignore[assignment]


class CollectBeside(CollectSink):
    global_committer = False  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "committer"),
    [
        pytest.param(us.FileSink, None, id="one for all writers"),
        pytest.param(Parallel, None, id="one for each writer that can stand next to others"),
        pytest.param(FilesBehindOneStage, None, id="one behind a stage of which there is one"),
        pytest.param(OnlyGlobal, None, id="a global one"),
        pytest.param(FilesBeside, "FileSinkCommitter", id="one for each writer of files"),
        pytest.param(FilesBehindParallelStage, "FileSinkCommitter", id="one behind each stage"),
        pytest.param(TableBeside, "DeltaCommitter", id="one for each writer of a table"),
        pytest.param(CollectBeside, "_CollectCommitter", id="one for each writer of collected rows"),
    ],
)
@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_a_committer_that_commits_for_all_writers_has_to_be_the_only_one(
    tmp_path: Path, mode: str, kind: Callable[[str], Sink], committer: str | None
) -> None:
    env = us.Environment({"execution.runtime-mode": mode})
    rows = env.from_source(
        us.StaticSource(pa.table({"n": [1]})), us.WatermarkStrategy.no_watermarks(), "rows"
    )
    sink = kind(str(tmp_path / "out"))
    if committer is None:
        rows.sink_to(sink)
        return
    with pytest.raises(us.ConfigError) as refused:
        rows.sink_to(sink)
    name = type(sink).__name__
    said = str(refused.value)
    assert said.startswith(f"sink_to: {name} (sink {sink.name!r}) has a committer for each writer, ")
    assert f"a {committer} commits a checkpoint for all writers" in said
    assert f"let global_committer of {name} be True" in said

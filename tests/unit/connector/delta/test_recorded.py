"""Positions of sources in the commits of real tables: what a sink records, and what a source finds there."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.catalogue import create_discovery
from unistream.connector.delta import DeltaSink, DeltaSource
from unistream.connector.delta.positions import POSITIONS_KEY
from unistream.model.elements import Batch
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer, SinkContext
from unistream.port.source import RecordedDiscovery
from unistream.testing.harness.operators import CountingMetrics

LINEAGE = LineageId("lineage-1")


def at(*offsets: int, name: str = "flights") -> SourcePositions:
    return SourcePositions(
        uid=OperatorUid("topic"),
        connector="kafka",
        name=name,
        origin="id-1",
        offsets={str(p): offset for p, offset in enumerate(offsets)},
    )


class Sink:
    """A committer of a table, and the writer before it."""

    def __init__(
        self, table: Path, uid: str = "lake", restored: int | None = None, *, allow_rewind: bool = False
    ) -> None:
        job = JobId("0" * 32)
        self._context = SinkContext(
            job=job,
            lineage=LINEAGE,
            sink_uid=OperatorUid(uid),
            attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
            index=0,
            parallelism=1,
            restored=None if restored is None else CheckpointId(restored),
            metrics=CountingMetrics(),
        )
        self._sink = DeltaSink(str(table), on_rewind="allow_duplicates" if allow_rewind else "refuse")
        self._committer = cast(Committer, self._sink.create_committer())
        self._committer.open(self._context)

    def stage(self, checkpoint: int, *rows: int) -> CommitRequest:
        writer = self._sink.create_writer()
        writer.open(self._context, ())
        writer.write(Batch(pa.record_batch({"id": pa.array(rows, pa.int64())})))
        writer.flush(end_of_input=False)
        prepared = writer.prepare_commit(CheckpointId(checkpoint))
        writer.close()
        return CommitRequest(CheckpointId(checkpoint), tuple(prepared))

    def commit(self, request: CommitRequest, *positions: SourcePositions) -> CommitResult:
        permit = CommitPermit(
            lineage=LINEAGE,
            checkpoint_id=request.checkpoint_id,
            epoch=LeaderEpoch(1),
            positions=positions,
        )
        return self._committer.commit(permit, request)

    def write(self, checkpoint: int, *positions: SourcePositions) -> None:
        assert self.commit(self.stage(checkpoint, checkpoint), *positions).outcome is CommitOutcome.COMMITTED


def found(
    table: Path, version: int | None = None, name: str = "flights"
) -> tuple[FoundSplits, SourcePositions]:
    discovery = create_discovery(DeltaSource(str(table), version=version).info())
    assert isinstance(discovery, RecordedDiscovery)
    return discovery.find_recorded("kafka", name)


def append(table: Path, *rows: int) -> None:
    write_deltalake(str(table), pa.table({"id": pa.array(rows, pa.int64())}), mode="append")


def test_a_source_finds_what_the_sink_has_recorded_of_the_version_that_it_reads(table: Path) -> None:
    sink = Sink(table)
    sink.write(1, at(5, 6))
    sink.write(2, at(9, 8), at(1, name="other"))
    splits, newest = found(table)
    assert newest == at(9, 8)
    assert len(splits.splits) == 2
    assert found(table, name="other")[1] == at(1, name="other")
    splits, older = found(table, version=1)
    assert older == at(5, 6)
    assert len(splits.splits) == 1, "rows of later versions are those behind the positions"


def test_a_commit_that_is_repeated_leaves_the_positions_of_the_first(table: Path) -> None:
    first = Sink(table)
    request = first.stage(1, 1)
    first.commit(request, at(5))
    assert Sink(table, restored=1).commit(request, at(5)).outcome is CommitOutcome.ALREADY_COMMITTED
    assert [POSITIONS_KEY in entry for entry in DeltaTable(str(table)).history()] == [True, False]
    assert found(table)[1] == at(5)


def test_maintenance_and_a_cleaned_log_do_not_hide_positions(table: Path) -> None:
    sink = Sink(table)
    for checkpoint in range(1, 6):
        sink.write(checkpoint, at(checkpoint))
    DeltaTable(str(table)).optimize.compact()
    lake = DeltaTable(str(table))
    lake.create_checkpoint()
    for version in range(5):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    splits, positions = found(table)
    assert positions == at(5)
    assert len(splits.splits) == 1


def test_positions_that_were_cleaned_up_from_the_log_are_refused(table: Path) -> None:
    sink = Sink(table)
    sink.write(1, at(1))
    sink.write(2, at(2))
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ConfigError, match="since the log of the last rows was cleaned up; use a fence"):
        found(table)


def test_rows_of_another_writer_after_the_positions_are_refused_unless_an_older_version_is_read(
    table: Path,
) -> None:
    Sink(table).write(1, at(7))
    append(table, 100)
    with pytest.raises(ConfigError, match=r"version 2, WRITE\) is by another writer .* \(version=1 of the"):
        found(table)
    assert found(table, version=1)[1] == at(7)


def test_rows_of_another_writer_before_the_positions_are_history(table: Path) -> None:
    append(table, 100)
    Sink(table).write(1, at(7))
    splits, positions = found(table)
    assert positions == at(7)
    assert len(splits.splits) == 2


def test_a_commit_with_rows_in_flight_hides_the_positions_until_the_next(table: Path) -> None:
    sink = Sink(table)
    sink.write(1, at(1))
    sink.write(2)
    with pytest.raises(ConfigError, match="by sink 'lake' of a job and has no positions"):
        found(table)
    sink.write(3, at(3))
    assert found(table)[1] == at(3)


@pytest.mark.parametrize("order", [("a", "b"), ("a", "b", "a")], ids=["one after the other", "in turn"])
def test_two_sinks_with_positions_of_one_topic_are_refused(table: Path, order: tuple[str, ...]) -> None:
    for checkpoint, uid in enumerate(order, start=1):
        Sink(table, uid, restored=checkpoint - 1).write(checkpoint, at(checkpoint))
    with pytest.raises(ConfigError, match="several sinks have written rows of kafka 'flights' to it"):
        found(table)


def test_two_sinks_with_positions_of_two_topics_do_not_know_what_the_other_has(table: Path) -> None:
    Sink(table, "a").write(1, at(1))
    Sink(table, "b").write(1, at(2, name="other"))
    assert found(table, name="other")[1] == at(2, name="other")
    with pytest.raises(ConfigError, match="has positions of kafka 'other', not of kafka 'flights'"):
        found(table)


def test_after_a_rewind_that_allows_duplicates_nothing_is_recorded(table: Path) -> None:
    """The table has rows from behind the positions of the new branch."""
    sink = Sink(table)
    sink.write(1, at(1))
    sink.write(2, at(2))
    Sink(table, restored=1, allow_rewind=True).write(2, at(2))
    with pytest.raises(
        ConfigError, match=r"has no positions of kafka 'flights'.* \(version=2 of the history"
    ):
        found(table)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"

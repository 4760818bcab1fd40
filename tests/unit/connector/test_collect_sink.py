"""The collect sink's own rules; what all sinks have in common is in tests/contract."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.collect import CollectSink, read_collected
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, SinkContext


class Counters:
    def add(self, name: str, amount: int) -> None:
        """Not looked at here."""


def collect(folder: str, checkpoint: int, *values: int, lineage: str = "l") -> None:
    job, sink = JobId("0" * 32), CollectSink(folder)
    context = SinkContext(
        job=job,
        lineage=LineageId(lineage),
        sink_uid=OperatorUid("out/put"),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=CheckpointId(checkpoint),
        metrics=Counters(),
    )
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    writer.open(context, ())
    committer.open(context)
    writer.write(Batch(pa.RecordBatch.from_pydict({"n": values})))
    writer.flush(end_of_input=True)
    prepared = tuple(writer.prepare_commit(CheckpointId(checkpoint)))
    permit = CommitPermit(
        lineage=LineageId(lineage), checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1)
    )
    committer.commit(permit, CommitRequest(CheckpointId(checkpoint), prepared))
    writer.close()
    committer.close()


def test_rows_come_in_the_order_of_their_commits(tmp_path: Path) -> None:
    for checkpoint, values in ((2, [5, 4]), (10, [3]), (11, [9])):
        collect(str(tmp_path), checkpoint, *values)
    collect(f"file://{tmp_path}", 1, 7, lineage="a later job")
    assert read_collected(str(tmp_path)).column("n").to_pylist() == [5, 4, 3, 9, 7]


@pytest.mark.parametrize("folder", ["s3://bucket/x", "", "file://"])
def test_only_local_folders_will_do(folder: str) -> None:
    with pytest.raises(ConfigError, match="collect sink"):
        CollectSink(folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        CollectSink(str(tmp_path / "file")).check(None)


def test_a_folder_without_commits_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rows were ever committed"):
        read_collected(str(tmp_path))


@pytest.mark.parametrize(("pattern", "what"), [("*.arrow", "committed rows in"), ("*.json", "commit .* in")])
def test_damaged_files_are_not_skipped(tmp_path: Path, pattern: str, what: str) -> None:
    collect(str(tmp_path), 1, 1, 2, 3)
    [path] = tmp_path.rglob(pattern)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptSnapshot, match=what):
        read_collected(str(tmp_path))

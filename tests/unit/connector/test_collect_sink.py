"""The collect sink's own rules; what all sinks have in common is in tests/contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.collect import CollectSink, read_collected
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, Committer, SinkContext, SinkWriter
from unistream.testing.harness.operators import CountingMetrics

FullDisk = Callable[[int], AbstractContextManager[None]]


def opened(folder: str, checkpoint: int, lineage: str = "l") -> tuple[SinkWriter, Committer]:
    job, sink = JobId("0" * 32), CollectSink(folder)
    context = SinkContext(
        job=job,
        lineage=LineageId(lineage),
        sink_uid=OperatorUid("out/put"),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=CheckpointId(checkpoint),
        metrics=CountingMetrics(),
    )
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    writer.open(context, ())
    committer.open(context)
    return writer, committer


def numbers(*values: int) -> Batch:
    return Batch(pa.RecordBatch.from_pydict({"n": values}))


def commit(committer: Committer, checkpoint: int, prepared: Sequence[bytes], lineage: str = "l") -> None:
    permit = CommitPermit(
        lineage=LineageId(lineage), checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1)
    )
    committer.commit(permit, CommitRequest(CheckpointId(checkpoint), tuple(prepared)))


def collect(folder: str, checkpoint: int, *values: int, lineage: str = "l") -> None:
    writer, committer = opened(folder, checkpoint, lineage)
    writer.write(numbers(*values))
    writer.flush(end_of_input=True)
    commit(committer, checkpoint, writer.prepare_commit(CheckpointId(checkpoint)), lineage)
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


def test_a_full_disk_is_no_error_of_the_pipeline_and_leaves_nothing(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    writer, _ = opened(str(tmp_path), 1)
    with full_disk(100), pytest.raises(Unreachable, match=r"could not write in .*staged"):
        writer.write(numbers(*range(1_000)))
    writer.close()
    assert list((tmp_path / "staged").iterdir()) == []


def test_a_commit_that_a_full_disk_cuts_off_leaves_nothing_and_is_repeated(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    writer, committer = opened(str(tmp_path), 1)
    writer.write(numbers(7))
    writer.flush(end_of_input=False)
    prepared = writer.prepare_commit(CheckpointId(1))
    with full_disk(10), pytest.raises(Unreachable, match=r"could not write in .*commits"):
        commit(committer, 1, prepared)
    assert list((tmp_path / "commits").iterdir()) == []
    commit(committer, 1, prepared)
    assert read_collected(str(tmp_path)).column("n").to_pylist() == [7]

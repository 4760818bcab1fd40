"""Which job was the last one to write to targets that do not say so, by the history of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.client.stored_snapshots import JOB, LINE, Stored
from unistream.base import process_mark
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import CheckpointId, ClusterId, JobId, LeaderEpoch, LineageId, OperatorUid
from unistream.client.job.last_job import ASKED_MAX
from unistream.client.job.resume import StillRuns, latest_snapshot
from unistream.client.machine import home
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.graph import JobGraph
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.line import LineCommit
from unistream.port.metadata import ClusterRecord, CommitRecord, JobRecord

CONFIG = Configuration()
TOPIC, UID = "kafka://broker:9092/out", OperatorUid("topic")
LATER = JobId("b" * 32)
EPOCH = LeaderEpoch(1)


class History:
    """The database of this machine."""

    def __init__(self) -> None:
        url = home.metadata_url(CONFIG)
        ensure(url)
        self.store = SqlMetadataStore(url)

    def job(self, job: JobId = JOB, at_ms: int = 1, writes: str = TOPIC, **changes: Any) -> None:
        graph = JobGraph(name="copy", vertices=(), edges=(), writes={UID: (writes,)} if writes else {})
        given = {
            "job": job,
            "name": "copy",
            "lineage": LINE,
            "state": "FINISHED",
            "target": "local",
            "submitted_ms": at_ms,
            "ended_ms": at_ms + 1,
            "graph_json": msgspec.json.encode(graph).decode(),
        }
        self.store.add_job(JobRecord(**{**given, **changes}), EPOCH)

    def snapshot(
        self, checkpoint: int, path: str, kind: SnapshotKind = SnapshotKind.SUSPEND, job: JobId = JOB
    ) -> None:
        figures = CheckpointFigures(
            checkpoint_id=CheckpointId(checkpoint),
            kind=kind,
            status=SnapshotStatus.COMPLETED,
            timestamp_ms=checkpoint,
            duration_ms=1,
            path=path,
        )
        self.store.record_checkpoint(job, figures, EPOCH)

    def commit(self, checkpoint: int, job: JobId = JOB) -> None:
        record = CommitRecord(job=job, sink_uid=UID, checkpoint_id=CheckpointId(checkpoint), at_ms=1, rows=5)
        self.store.record_commit(record, EPOCH)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    history = History()
    yield history
    history.store.close()


def found(name: str = "copy", uri: str = TOPIC) -> str:
    directory = latest_snapshot(
        [], {UID: (uri,)}, config=CONFIG, target="local", name=name, without_line=[UID]
    )
    return (directory or "").removeprefix("file://")


def test_a_topic_is_continued_by_what_the_history_knows(tmp_path: Path, history: History) -> None:
    savepoint = Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path)
    history.job()
    history.commit(3)
    history.snapshot(3, savepoint)
    assert found() == savepoint


@pytest.mark.parametrize(
    ("name", "uri"), [("other", TOPIC), ("copy", "kafka://broker:9092/in")], ids=["name", "target"]
)
def test_a_job_of_another_name_or_target_is_none_of_the_pipeline(
    tmp_path: Path, history: History, name: str, uri: str
) -> None:
    history.job()
    history.snapshot(3, Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path))
    assert found(name, uri) == ""


def test_a_later_job_that_has_completed_nothing_is_passed_over(tmp_path: Path, history: History) -> None:
    savepoint = Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path)
    history.job()
    history.snapshot(3, savepoint)
    history.job(LATER, at_ms=9, state="FAILED")
    assert found() == savepoint


def test_the_last_job_counts_and_no_earlier_one_though_only_that_has_left_a_snapshot(
    tmp_path: Path, history: History
) -> None:
    history.job()
    history.snapshot(3, Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path))
    history.job(LATER, at_ms=9, lineage=LineageId("other"))
    history.snapshot(2, f"{tmp_path}/sp/two", job=LATER)
    with pytest.raises(ConfigError, match=rf"job {LATER} \(copy\).*/sp/two is gone.*resume='none'"):
        found()


def test_an_older_checkpoint_would_repeat_what_was_committed_since(tmp_path: Path, history: History) -> None:
    history.job(state="CANCELED")
    history.snapshot(2, Stored(f"{JOB}/chk-2", 2).write(tmp_path), SnapshotKind.CHECKPOINT)
    history.commit(3)
    with pytest.raises(ConfigError, match=r"/chk-2\) is from before its last commit \(checkpoint 3\)"):
        found()


def test_a_job_that_has_read_everything_is_not_repeated_unasked(history: History) -> None:
    history.job()
    history.commit(3)
    with pytest.raises(ConfigError, match="it has read all of its input; nothing was started"):
        found()


def test_a_job_that_runs_in_another_process_is_named(history: History) -> None:
    cluster = ClusterId("c" * 32)
    history.store.record_cluster(
        ClusterRecord(
            cluster=cluster,
            target="local",
            goes_on="",
            process="here",
            mark=process_mark.own(),
            started_ms=1,
            heartbeat_ms=1,
        )
    )
    history.job(state="RUNNING", ended_ms=None, cluster=cluster)
    with pytest.raises(StillRuns, match=rf"job {JOB} \(copy\) is RUNNING"):
        found()


def test_a_job_whose_targets_are_lost_is_not_passed_over(history: History) -> None:
    history.job(graph_json="")
    history.commit(3)
    with pytest.raises(Unreachable, match=rf"which targets job {JOB} \(copy\) wrote is not known"):
        found()


def test_a_name_that_many_pipelines_share_hides_none(tmp_path: Path, history: History) -> None:
    savepoint = Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path)
    history.job()
    history.snapshot(3, savepoint)
    for number in range(ASKED_MAX + 1):
        history.job(JobId(f"{number:032x}"), at_ms=9 + number, writes=f"kafka://broker:9092/{number}")
    assert found() == savepoint


def test_too_many_jobs_that_have_left_nothing_are_refused(history: History) -> None:
    for number in range(ASKED_MAX + 1):
        history.job(JobId(f"{number:032x}"), at_ms=number, state="FAILED")
    with pytest.raises(ConfigError, match=rf"more than {ASKED_MAX} jobs are named 'copy'"):
        found()


TABLE = "file:///lake/per_day"


def of_table(uid: OperatorUid = UID, name: str = "copy", uri: str = TABLE) -> str:
    """Where the table has no commit."""
    directory = latest_snapshot([], {uid: (uri,)}, config=CONFIG, target="local", name=name)
    return (directory or "").removeprefix("file://")


@pytest.mark.parametrize(
    ("place", "kind", "state"),
    [
        ("sp/one", SnapshotKind.SUSPEND, "FINISHED"),
        (f"{JOB}/chk-3", SnapshotKind.CHECKPOINT, "SUSPENDED"),
        (f"{JOB}/chk-3", SnapshotKind.CHECKPOINT, "FAILED"),
    ],
    ids=["stopped with a savepoint", "killed", "failed, its checkpoints are kept"],
)
def test_a_job_that_ended_before_the_first_commit_of_its_table_is_continued(
    tmp_path: Path, history: History, place: str, kind: SnapshotKind, state: str
) -> None:
    snapshot = Stored(place, 3, kind).write(tmp_path)
    history.job(writes=TABLE, state=state)
    history.snapshot(3, snapshot, kind)
    assert of_table() == snapshot
    assert of_table(OperatorUid("another sink")) == ""
    assert of_table(uri="file:///lake/another") == ""
    assert of_table(name="another") == ""


def test_the_newest_of_the_jobs_before_the_first_commit_counts(tmp_path: Path, history: History) -> None:
    for number, job in enumerate([JOB, LATER], start=3):
        history.job(job, at_ms=number, writes=TABLE)
        savepoint = Stored(f"sp/{number}", number, SnapshotKind.SUSPEND, job=job).write(tmp_path)
        history.snapshot(number, savepoint, job=job)
    assert of_table() == savepoint


def test_a_table_that_was_removed_is_written_from_the_beginning(tmp_path: Path, history: History) -> None:
    history.job(writes=TABLE)
    history.commit(3)
    history.snapshot(3, Stored("sp/one", 3, SnapshotKind.SUSPEND).write(tmp_path))
    assert of_table() == ""


def test_a_failed_job_whose_checkpoints_were_removed_as_configured_is_begun_anew(
    tmp_path: Path, history: History
) -> None:
    history.job(writes=TABLE, state="FAILED")
    history.snapshot(3, f"{tmp_path}/{JOB}/chk-3", SnapshotKind.CHECKPOINT)
    assert of_table() == ""


def test_a_savepoint_that_somebody_removed_is_missed(tmp_path: Path, history: History) -> None:
    history.job(writes=TABLE)
    history.snapshot(3, f"{tmp_path}/sp/one")
    with pytest.raises(ConfigError, match=r"/sp/one is gone.*resume='none'"):
        of_table()


def test_a_bounded_job_that_had_nothing_to_write_is_run_again(history: History) -> None:
    history.job(writes=TABLE)
    assert of_table() == ""


def test_a_sink_that_names_no_target_begins(history: History) -> None:
    history.job(writes="")
    history.commit(3)
    assert latest_snapshot([], {}, config=CONFIG, target="local", name="copy", without_line=[UID]) is None


def with_commit(snapshot: str, uri: str = TABLE, without_line: Sequence[OperatorUid] = ()) -> str:
    """Where a table has commit 5 of `JOB`. `uri`: what sink `UID` writes."""
    last = LineCommit(lineage=LINE, job=JOB, checkpoint=5, snapshot=snapshot)
    directory = latest_snapshot(
        [("table", last)],
        {UID: (uri,)},
        config=CONFIG,
        target="local",
        name="copy",
        without_line=without_line,
    )
    return (directory or "").removeprefix("file://")


@pytest.mark.parametrize(
    ("checkpoint", "changes", "goes_on"),
    [
        pytest.param(7, {}, "two", id="a savepoint"),
        pytest.param(5, {}, "two", id="of the same number, of a job that was started twice from one"),
        pytest.param(7, {"state": "FAILED"}, "two", id="it has failed behind it"),
        pytest.param(None, {"state": "FAILED"}, "one", id="it has left nothing"),
        pytest.param(7, {"lineage": LineageId("other")}, "one", id="of another line"),
        pytest.param(7, {"name": "another"}, "one", id="of another name"),
        pytest.param(7, {"at_ms": 0}, "one", id="it is older than the commit"),
        pytest.param(2, {}, "one", id="a snapshot of before the commit"),
    ],
)
def test_a_successor_that_had_nothing_to_commit_is_gone_on_from(
    tmp_path: Path, history: History, checkpoint: int | None, changes: dict[str, Any], goes_on: str
) -> None:
    line = changes.get("lineage", LINE)
    committed = Stored("one", 5, SnapshotKind.SUSPEND).write(tmp_path)
    history.job(writes=TABLE)
    history.snapshot(5, committed)
    history.job(LATER, **{"at_ms": 9, "writes": TABLE, **changes})
    if checkpoint is not None:
        later = Stored("two", checkpoint, SnapshotKind.SUSPEND, lineage=line, job=LATER).write(tmp_path)
        history.snapshot(checkpoint, later, job=LATER)
    assert with_commit(committed) == f"{tmp_path}/{goes_on}"


def test_what_a_successor_has_sent_to_a_topic_is_not_sent_twice(tmp_path: Path, history: History) -> None:
    """The table knows of its predecessor alone."""
    committed = Stored("one", 5, SnapshotKind.SUSPEND).write(tmp_path)
    history.job()
    history.snapshot(5, committed)
    history.job(LATER, at_ms=9, state="FAILED")
    history.snapshot(7, f"{tmp_path}/{LATER}/chk-7", SnapshotKind.CHECKPOINT, job=LATER)
    history.commit(7, LATER)
    with pytest.raises(ConfigError, match=rf"job {LATER} \(copy\).*is from before its last commit"):
        with_commit(committed, TOPIC, [UID])

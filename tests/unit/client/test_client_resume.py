"""Which snapshot a pipeline goes on from, by what its sinks, its last job and the folders say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from unistream.base import process_mark
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId, ClusterId, JobId, LeaderEpoch, LineageId
from unistream.client import home
from unistream.client.resume import StillRuns, latest_snapshot
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.line import LineCommit
from unistream.port.metadata import ClusterRecord, JobRecord
from unistream.storage.fs import FsCheckpointStorage

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
LINE = LineageId("line")
CONFIG = Configuration()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


@dataclass(frozen=True)
class Stored:
    """A snapshot on disk. `place`: below the folder of the test."""

    place: str
    checkpoint: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    lineage: str = LINE
    job: JobId = JOB
    resumable: str | None = None
    resumes_after: int | None = None

    def write(self, root: Path) -> str:
        folder = root / self.place
        folder.mkdir(parents=True)
        manifest = Manifest(
            job=self.job,
            job_name="numbers",
            lineage=LineageId(self.lineage),
            checkpoint_id=CheckpointId(self.checkpoint),
            kind=self.kind,
            timestamp_ms=self.checkpoint,
            resumable=self.resumable,
            resumes_after=None if self.resumes_after is None else CheckpointId(self.resumes_after),
            vertices=(),
        )
        FsCheckpointStorage(str(folder)).write_manifest(str(folder), manifest)
        return str(folder)


def commit(checkpoint: int, snapshot: str, *, job: JobId = JOB, lineage: str = LINE) -> LineCommit:
    return LineCommit(lineage=lineage, job=job, checkpoint=checkpoint, snapshot=snapshot)


def found(*commits: LineCommit) -> str | None:
    named = [(f"sink {number}", one) for number, one in enumerate(commits)]
    return latest_snapshot(named, {}, config=CONFIG, target="local")


SAVEPOINT, DRAINED = SnapshotKind.SUSPEND, SnapshotKind.TERMINATE


@pytest.mark.parametrize(
    ("stored", "named", "expected"),
    [
        pytest.param([Stored(f"{JOB}/chk-3", 3)], f"{JOB}/chk-3", f"{JOB}/chk-3", id="that of the commit"),
        pytest.param(
            [Stored(f"{JOB}/chk-3", 3), Stored(f"{JOB}/chk-4", 4)],
            f"{JOB}/chk-3",
            f"{JOB}/chk-4",
            id="a later checkpoint next to it",
        ),
        pytest.param(
            [Stored(f"{JOB}/chk-4", 4)],
            f"{JOB}/chk-3",
            f"{JOB}/chk-4",
            id="the later one alone: that of the commit was replaced by it",
        ),
        pytest.param([Stored(f"{JOB}/chk-2", 2)], f"{JOB}/chk-3", None, id="an older one would repeat rows"),
        pytest.param([], f"{JOB}/chk-3", None, id="nothing is left"),
        pytest.param([], "", None, id="nothing was ever named"),
        pytest.param(
            [Stored(f"{JOB}/chk-3", 3, lineage="foreign")], f"{JOB}/chk-3", None, id="of another line"
        ),
        pytest.param([Stored("sp/one", 3, SAVEPOINT)], "sp/one", "sp/one", id="a savepoint"),
        pytest.param(
            [
                Stored("sp/end", 4, DRAINED, resumable="half"),
                Stored("sp/half", 3, SAVEPOINT, resumes_after=4),
            ],
            "sp/end",
            "sp/half",
            id="the resumable savepoint of a drain",
        ),
    ],
)
def test_the_newest_snapshot_behind_the_last_commit(
    tmp_path: Path, stored: list[Stored], named: str, expected: str | None
) -> None:
    for one in stored:
        one.write(tmp_path)
    checkpoint = 4 if named == "sp/end" else 3
    answer = found(commit(checkpoint, f"{tmp_path}/{named}" if named else ""))
    assert (answer and answer.removeprefix("file://")) == (expected and f"{tmp_path}/{expected}")


def test_without_a_commit_a_job_begins() -> None:
    assert found() is None


def test_all_sinks_go_on_behind_the_newest_of_their_commits(tmp_path: Path) -> None:
    first, second = (Stored(f"{JOB}/chk-{n}", n).write(tmp_path) for n in (3, 4))
    assert found(commit(3, first), commit(4, second)) in (second, f"file://{second}")


def test_sinks_of_several_lines_have_no_snapshot_in_common() -> None:
    with pytest.raises(ConfigError, match=rf"sink 'sink 0' of job {JOB}.*sink 'sink 1' of job {OTHER}"):
        found(commit(3, ""), commit(3, "", job=OTHER, lineage="other"))


def test_a_damaged_snapshot_is_not_passed_over(tmp_path: Path) -> None:
    first = Stored(f"{JOB}/chk-3", 3).write(tmp_path)
    newer = Path(Stored(f"{JOB}/chk-4", 4).write(tmp_path))
    (newer / "_metadata").write_bytes(b"damaged")
    with pytest.raises(CorruptSnapshot):
        found(commit(3, first))


@pytest.fixture
def history() -> Iterator[SqlMetadataStore]:
    url = home.metadata_url(CONFIG)
    ensure(url)
    store = SqlMetadataStore(url)
    yield store
    store.close()


@pytest.mark.parametrize("state", ["RUNNING", "RECONCILING", "FINISHED"])
def test_a_job_that_nobody_leads_runs_no_more(tmp_path: Path, history: SqlMetadataStore, state: str) -> None:
    """Its process was killed: its cluster is in no database, or does not run."""
    snapshot = Stored(f"{JOB}/chk-3", 3).write(tmp_path)
    record = JobRecord(job=JOB, name="numbers", lineage=LINE, state=state, target="local", submitted_ms=1)
    history.add_job(record, LeaderEpoch(1))
    assert found(commit(3, snapshot)) in (snapshot, f"file://{snapshot}")


def test_a_job_whose_cluster_runs_is_named(tmp_path: Path, history: SqlMetadataStore) -> None:
    snapshot = Stored(f"{JOB}/chk-3", 3).write(tmp_path)
    cluster = ClusterRecord(
        cluster=ClusterId("c" * 32),
        target="local",
        goes_on="",
        process="here",
        mark=process_mark.own(),
        started_ms=1,
        heartbeat_ms=1,
    )
    history.record_cluster(cluster)
    record = JobRecord(
        job=JOB,
        name="numbers",
        lineage=LINE,
        state="RUNNING",
        target="local",
        submitted_ms=1,
        cluster=cluster.cluster,
    )
    history.add_job(record, LeaderEpoch(1))
    with pytest.raises(
        StillRuns, match=rf"job {JOB} \(numbers\) is RUNNING and writes the same output"
    ) as still:
        found(commit(3, snapshot))
    assert still.value.job == JOB

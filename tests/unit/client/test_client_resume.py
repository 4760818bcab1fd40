"""Which snapshot a pipeline goes on from, by what its sinks, its last job and the folders say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.stored_snapshots import JOB, LINE, Stored
from unistream.base import process_mark
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import ClusterId, JobId, LeaderEpoch
from unistream.client.job.resume import StillRuns, latest_snapshot
from unistream.client.machine import home
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.line import LineCommit
from unistream.port.metadata import ClusterRecord, JobRecord

OTHER = JobId("b" * 32)
CONFIG = Configuration()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


def commit(checkpoint: int, snapshot: str, *, job: JobId = JOB, lineage: str = LINE) -> LineCommit:
    return LineCommit(lineage=lineage, job=job, checkpoint=checkpoint, snapshot=snapshot)


def found(*commits: LineCommit, bounded: bool = False) -> str | None:
    named = [(f"sink {number}", one) for number, one in enumerate(commits)]
    return latest_snapshot(named, {}, config=CONFIG, target="local", bounded=bounded)


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
    tmp_path: Path, stored: list[Stored], named: str, expected: str
) -> None:
    for one in stored:
        one.write(tmp_path)
    answer = found(commit(4 if named == "sp/end" else 3, f"{tmp_path}/{named}"))
    assert (answer or "").removeprefix("file://") == f"{tmp_path}/{expected}"


@pytest.mark.parametrize(
    ("stored", "named", "why"),
    [
        pytest.param([], f"{JOB}/chk-3", r"/chk-3 is gone; nothing was started", id="nothing is left"),
        pytest.param(
            [], "", r"no snapshot of it is known \(its last checkpoint is 3\)", id="nothing was named"
        ),
        pytest.param(
            [Stored(f"{JOB}/chk-2", 2)],
            f"{JOB}/chk-3",
            r"/chk-2\) is from before its last commit \(checkpoint 3\)",
            id="an older one would repeat rows",
        ),
    ],
)
def test_where_the_last_job_has_left_nothing_no_job_starts_over_unasked(
    tmp_path: Path, stored: list[Stored], named: str, why: str
) -> None:
    for one in stored:
        one.write(tmp_path)
    with pytest.raises(ConfigError, match=rf"job {JOB} was the last to write the output.*{why}") as refused:
        found(commit(3, f"{tmp_path}/{named}" if named else ""))
    assert "remove that output" in str(refused.value)
    assert "resume='none'" in str(refused.value)


def test_a_snapshot_of_another_line_is_not_taken(tmp_path: Path) -> None:
    snapshot = Stored(f"{JOB}/chk-3", 3, lineage="foreign").write(tmp_path)
    with pytest.raises(ConfigError, match="nothing to go on from"):
        found(commit(3, snapshot))


def test_a_bounded_pipeline_whose_last_job_nobody_knows_leaves_it_to_its_sinks(tmp_path: Path) -> None:
    """It may have read all of its input, and be there to append to the table once a day."""
    assert found(commit(3, f"{tmp_path}/{JOB}/chk-3"), bounded=True) is None


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

"""What a tick tells of a stream's job and of its checks, next to the commits."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tests.unit.dagster.test_dagster_savepoints import FORGOTTEN, job
from unistream.base.ids import CheckpointId, JobId
from unistream.dagster.run.metadata import ORDER, asset_metadata
from unistream.dagster.run.seen import Complete, NoJob, NotSeen, Seen, SeenJob, state_text
from unistream.dagster.sensor.following import (
    GONE,
    REPEATED_MS,
    SILENT_MS,
    Checked,
    ReportedStream,
    changes,
    is_due,
)
from unistream.dagster.sensor.judging import RUNS, HealthLimits, judged_seen
from unistream.model.job_info import CheckpointInfo, ExceptionInfo, JobInfo, SinkInfo
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import SnapshotKind

NOW_MS = 10_000_000
A, B = JobId("a" * 32), JobId("b" * 32)
CHECKPOINT, SUSPEND, TERMINATE = SnapshotKind.CHECKPOINT, SnapshotKind.SUSPEND, SnapshotKind.TERMINATE
AWAY = NotSeen("the cluster does not answer")
NONE = NoJob("no job writes /lake")


def seen(state: str = "RUNNING", of: JobId = A) -> SeenJob:
    return SeenJob(job(state, job=of))


@pytest.mark.parametrize(
    ("reported", "now", "former", "said", "then"),
    [
        pytest.param(ReportedStream(), seen(), None, [(A, "RUNNING")], ReportedStream(A), id="the first job"),
        pytest.param(ReportedStream(A), seen(), None, [], ReportedStream(A), id="it goes on"),
        pytest.param(
            ReportedStream(A), seen("RESTARTING"), None, [], ReportedStream(A), id="a restart is no end"
        ),
        pytest.param(
            ReportedStream(A),
            seen("FAILED"),
            None,
            [(A, "FAILED")],
            ReportedStream(A, "FAILED"),
            id="it has failed",
        ),
        pytest.param(
            ReportedStream(A, "FAILED"),
            seen("FAILED"),
            None,
            [],
            ReportedStream(A, "FAILED"),
            id="reported once",
        ),
        pytest.param(
            ReportedStream(A, "SUSPENDED"),
            seen(),
            None,
            [(A, "RUNNING")],
            ReportedStream(A),
            id="its cluster is back",
        ),
        pytest.param(
            ReportedStream(A),
            seen(of=B),
            job("FINISHED", SUSPEND),
            [(A, "FINISHED"), (B, "RUNNING")],
            ReportedStream(B),
            id="replaced between two ticks",
        ),
        pytest.param(
            ReportedStream(A),
            seen(of=B),
            None,
            [(A, GONE), (B, "RUNNING")],
            ReportedStream(B),
            id="replaced, and forgotten",
        ),
        pytest.param(
            ReportedStream(A),
            seen(of=B),
            job("RUNNING"),
            [(B, "RUNNING")],
            ReportedStream(B),
            id="it writes other tables now",
        ),
        pytest.param(
            ReportedStream(A, "FAILED"),
            seen(of=B),
            None,
            [(B, "RUNNING")],
            ReportedStream(B),
            id="the next one after an end",
        ),
        pytest.param(ReportedStream(), NONE, None, [], ReportedStream(), id="never started"),
        pytest.param(ReportedStream(A), NONE, None, [(A, GONE)], ReportedStream(A, GONE), id="it has gone"),
        pytest.param(
            ReportedStream(A, "FINISHED"),
            NONE,
            None,
            [],
            ReportedStream(A, "FINISHED"),
            id="pruned after its end",
        ),
        pytest.param(
            ReportedStream(A), AWAY, None, [], ReportedStream(A, "", NOW_MS), id="who knows it is away"
        ),
        pytest.param(ReportedStream(A, "", 5), AWAY, None, [], ReportedStream(A, "", 5), id="still away"),
        pytest.param(ReportedStream(A, "", 5), seen(), None, [], ReportedStream(A), id="there again"),
    ],
)
def test_what_is_told_of_a_job(
    reported: ReportedStream,
    now: Seen,
    former: JobInfo | None,
    said: list[tuple[JobId, str]],
    then: ReportedStream,
) -> None:
    found, after = changes(reported, now, former, NOW_MS)
    assert [(one.job, one.state) for one in found] == said
    assert after == then


OLD = NOW_MS - SILENT_MS
RECENT = Checked("7", "stream_is_running=passed", NOW_MS - 1)


@pytest.mark.parametrize(
    ("before", "mark", "results", "reported", "now", "due"),
    [
        pytest.param(RECENT, "7", RECENT.results, ReportedStream(A), seen(), False, id="nothing new"),
        pytest.param(RECENT, "8", RECENT.results, ReportedStream(A), seen(), True, id="a commit"),
        pytest.param(RECENT, "90", RECENT.results, ReportedStream(A), seen(), True, id="the end of a run"),
        pytest.param(
            RECENT, "7", "…=ERROR", ReportedStream(A, "FAILED"), seen("FAILED"), True, id="it fails"
        ),
        pytest.param(
            Checked("7", RECENT.results, NOW_MS - REPEATED_MS),
            *("7", RECENT.results, ReportedStream(A), seen(), True),
            id="an hour",
        ),
        pytest.param(
            RECENT, "7", "…=WARN", ReportedStream(A, "", OLD + 1), AWAY, False, id="away for a moment"
        ),
        pytest.param(RECENT, "7", "…=WARN", ReportedStream(A, "", OLD), AWAY, True, id="not known any more"),
        pytest.param(Checked(), "", "…=WARN", ReportedStream(), NONE, False, id="never started"),
        pytest.param(Checked(), "3", "…=WARN", ReportedStream(), NONE, True, id="there are rows, and no job"),
    ],
)
def test_when_checks_are_told(  # noqa: PLR0917 - a row of the table
    before: Checked, mark: str, results: str, reported: ReportedStream, now: Seen, due: bool
) -> None:
    assert is_due(before, Checked(mark, results, NOW_MS), reported, now) is due


FAILURE = TaskFailure(kind="UserCodeError", message="operator map: no fare\nrow 7", traceback="")
LOST = ExceptionInfo(at_ms=1, kind="WorkerLost", message="no heartbeat")


@pytest.mark.parametrize(
    ("info", "result", "text"),
    [
        pytest.param(job("RUNNING"), "passed", "is RUNNING", id="runs"),
        pytest.param(job("RUNNING", restarts=2), "passed", "is RUNNING, after 2 restarts", id="again"),
        pytest.param(
            job("RESTARTING", exceptions=(LOST,)),
            "WARN",
            "is RESTARTING: WorkerLost: no heartbeat",
            id="restarts",
        ),
        pytest.param(job("CREATED"), "WARN", "is CREATED", id="waits for slots"),
        pytest.param(job("FINISHED", CHECKPOINT), "passed", "has read all of its input", id="has ended"),
        pytest.param(
            job("FINISHED", CHECKPOINT, SUSPEND),
            "WARN",
            "was stopped with a savepoint: the next run goes on from /2",
            id="stopped",
        ),
        pytest.param(
            job("FINISHED", SUSPEND, TERMINATE),
            "WARN",
            "was drained: the next run goes on from /1",
            id="drained",
        ),
        pytest.param(
            job("FINISHED", **FORGOTTEN), "WARN", "was stopped with a savepoint", id="stopped, by the history"
        ),
        pytest.param(job("CANCELED"), "WARN", "was cancelled, without a savepoint", id="cancelled"),
        pytest.param(
            job("FAILED", failure=FAILURE),
            "ERROR",
            "is FAILED: UserCodeError: operator map: no fare",
            id="failed",
        ),
        pytest.param(job("SUSPENDED"), "ERROR", "is SUSPENDED", id="its cluster has ended"),
    ],
)
def test_what_a_job_is_at(info: JobInfo, result: str, text: str) -> None:
    verdict = judged_seen(SeenJob(info), HealthLimits(), NOW_MS)[RUNS]
    assert (verdict.result, verdict.text) == (result, state_text(info))
    assert verdict.text.startswith(f"job {info.job} ")
    assert text in verdict.text
    assert "row 7" not in verdict.text, "a failure is one line"


@pytest.mark.parametrize(
    ("now", "results", "text"),
    [
        pytest.param(NONE, {"WARN"}, "the job does not run: no job writes", id="nobody has started it"),
        pytest.param(NoJob("ended", is_lost=True), {"WARN", "ERROR"}, "ended", id="its cluster has ended"),
        pytest.param(AWAY, {"WARN"}, "it is not known: the cluster does not answer", id="not known"),
    ],
)
def test_without_a_job_no_check_passes(now: Seen, results: set[str], text: str) -> None:
    found = judged_seen(now, HealthLimits(checkpoint_age_ms=1, late_rows=0), NOW_MS)
    assert {one.result for one in found.values()} == results
    assert all(text in one.text for one in found.values())


def test_of_a_job_that_has_read_everything_no_checkpoint_is_expected() -> None:
    ended = SeenJob(job("FINISHED", CHECKPOINT), Complete(CheckpointId(1), 1))
    assert judged_seen(ended, HealthLimits(checkpoint_age_ms=1), NOW_MS)["checkpoint_age"].passed


def test_what_nobody_has_counted_is_not_zero() -> None:
    forgotten = SeenJob(job("CANCELED", incomplete="its archive is gone"))
    limits = HealthLimits(restarts=0, late_rows=0, late_ratio=0.1, dead_letter_ratio=0.1, records_behind=5)
    found = judged_seen(forgotten, limits, NOW_MS)
    assert [name for name, one in found.items() if one.passed] == ["restarts"]
    assert all("not known any more" in found[name].text for name in limits.names[2:])


def figures(state: str = "RUNNING", **more: Any) -> JobInfo:
    checkpoint = CheckpointInfo(
        checkpoint_id=CheckpointId(7),
        kind=CHECKPOINT,
        state="completed",
        triggered_ms=NOW_MS - 4_000,
        path="/7",
    )
    sink = SinkInfo(rows=5, commits=2, table_version=3, table_rows=9)
    known = {
        "metrics": {"watermark": NOW_MS - 60_000, "flights.pendingRecords": 12},
        "checkpoints": (checkpoint,),
    }
    return job(state, **{**known, "sinks": {"lake": sink}, "checkpoints_completed": 7, **more})


def test_metadata_is_in_the_order_of_the_questions() -> None:
    spec = dg.AssetSpec("orders", metadata={"unistream/sink_uid": "lake"})
    found = asset_metadata(spec, figures(), NOW_MS, "http://here/ui/jobs/a")
    assert list(found) == [key for key in ORDER if key in found], "and none is without a place"
    assert [key.rpartition("/")[2] for key in found][:6] == [
        *("rows", "row_count", "records_behind", "watermark", "lag_s", "checkpoint_age_s")
    ]
    assert (found["unistream/lag_s"], found["unistream/checkpoint_age_s"]) == (60.0, 4.0)
    numbers = [key for key, value in found.items() if isinstance(value, int | float)]
    assert not any("version" in key or "checkpoints" in key or "commits" in key for key in numbers)
    assert (found["unistream/table_version"], found["unistream/checkpoints"]) == ("3", "7")


def test_of_a_job_that_has_ended_the_lag_is_that_of_its_end() -> None:
    spec = dg.AssetSpec("orders", metadata={"unistream/sink_uid": "lake"})
    ended = figures("CANCELED", ended_ms=NOW_MS - 58_000)
    assert asset_metadata(spec, ended, NOW_MS)["unistream/lag_s"] == 2.0
    unknown = asset_metadata(spec, figures(metrics={}, checkpoints=(), sinks={}), NOW_MS)
    assert not {"unistream/lag_s", "unistream/checkpoint_age_s", "unistream/rows"} & unknown.keys()

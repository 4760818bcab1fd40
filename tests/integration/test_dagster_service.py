"""Streams under a real daemon and a real webserver, on a session cluster: what people click, what is
killed, and that no row is lost or doubled by it.

One service for all tests of this file; each test has a stream and a table of its own.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.eventually import eventually
from tests.integration.dagster_service import OF_DAGSTER_MATRIX, Service

pytestmark = [OF_DAGSTER_MATRIX]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("service")
        patch.setenv("UNISTREAM_HOME", str(folder / "home"))
        with Service(folder, "dagster_streams") as service:
            service.start("cluster", "daemon", "webserver")
            yield service
        assert service.left() == []


# --- what people click ------------------------------------------------------------------------------


def test_materialize_clicked_three_times_writes_each_row_once(service: Service) -> None:
    """Two clicks at once; later a third one, after the job was stopped by somebody else."""
    ui = service.ui
    runs = [ui.materialize("clicks"), ui.materialize("clicks")]
    for run in runs:
        service.await_end(run)
    service.await_rows("clicks")
    [job] = service.jobs("clicks")
    assert {ui.tags(run)["unistream/job_id"] for run in runs} == {job.job}
    savepoint = service.stop("clicks")
    before = service.ids("clicks")
    third = ui.materialize("clicks")
    service.await_end(third)
    assert any(f"starts from {savepoint}" in line for line in service.log_of(third))
    service.await_rows("clicks", len(before))
    service.stop("clicks")
    service.assert_exact("clicks")

    def all_reported() -> bool:
        events = ui.materializations("clicks")
        newest = next((event for event in events if not event["run"]), {})
        return newest.get("unistream/table_version") == str(
            DeltaTable(str(service.lake / "clicks")).version()
        )

    service.await_that("the last commit is reported", all_reported)
    of_runs = [event for event in ui.materializations("clicks") if event["run"]]
    assert [event["run"] for event in of_runs] == [third, *reversed(runs)]
    assert of_runs[0]["dagster/row_count"] >= len(before), "rows of the table, not those of the job"
    commits = [event for event in ui.materializations("clicks") if not event["run"]]
    assert sum(event["unistream/new_rows"] for event in commits) == len(service.ids("clicks"))
    assert commits[0]["dagster/row_count"] == len(service.ids("clicks"))


@pytest.mark.parametrize("drain", [False, True], ids=["stop", "stop --drain"])
def test_a_run_that_repeats_one_whose_job_was_stopped_from_outside_goes_on(
    service: Service, drain: bool
) -> None:
    ui = service.ui
    before = len(service.ids("ended"))
    run = ui.materialize("ended")
    service.await_end(run)
    rows = service.await_rows("ended", before)
    service.stop("ended", drain=drain)
    again = ui.again(run)
    service.await_end(again)
    assert ui.tags(again)["unistream/job_id"] != ui.tags(run)["unistream/job_id"], "a copied tag is replaced"
    service.await_rows("ended", rows)
    service.stop("ended")
    service.assert_exact("ended")


@pytest.mark.parametrize("drain", [False, True], ids=["stop", "stop --drain"])
def test_an_attached_run_whose_job_was_stopped_from_outside_names_what_the_next_one_goes_on_from(
    service: Service, drain: bool
) -> None:
    ui, name = service.ui, "drained_outside" if drain else "stopped_outside"
    run = ui.materialize(name)
    rows = service.await_rows(name)
    savepoint = service.stop(name, drain=drain)
    service.await_end(run)
    left = ui.tags(run)["unistream/savepoint"]
    shown = ui.materializations(name)[0]
    assert (shown["run"], shown["unistream/savepoint"]) == (run, left)
    assert shown.get("unistream/terminal_savepoint") == (savepoint if drain else None)
    assert (left == savepoint) is not drain, "what was drained is no savepoint to go on from"
    assert any(f"goes on from {left}" in line for line in service.log_of(run))
    chosen = ui.materialize(name, resume=left)
    rows = service.await_rows(name, max(rows, len(service.ids(name))))
    assert any(f"starts from {left}" in line for line in service.log_of(chosen))
    service.stop(name, drain=drain)
    service.await_end(chosen)
    newest = ui.tags(chosen)["unistream/savepoint"]
    assert newest != left
    again = ui.again(chosen)
    service.await_that(
        "it goes on", lambda: any(f"starts from {newest}" in line for line in service.log_of(again))
    )
    service.await_rows(name, max(rows, len(service.ids(name))))
    ui.terminate(again)
    service.await_end(again, "CANCELED")
    service.assert_exact(name)


def test_a_terminated_run_leaves_a_savepoint_and_the_next_one_goes_on_from_it(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("terminated")
    rows = service.await_rows("terminated")
    ui.terminate(first)
    service.await_end(first, "CANCELED")
    savepoint = ui.tags(first)["unistream/savepoint"]
    [job] = service.jobs("terminated")
    assert job.state == "FINISHED"
    second = ui.again(first)
    service.await_that(
        "it goes on", lambda: any(f"starts from {savepoint}" in line for line in service.log_of(second))
    )
    service.await_rows("terminated", max(rows, len(service.ids("terminated"))))
    ui.terminate(second)
    service.await_end(second, "CANCELED")
    service.assert_exact("terminated")


def test_a_terminated_run_ends_its_job_by_a_drain(service: Service) -> None:
    first, _ = _terminated(service, "drained")
    [job] = service.jobs("drained")
    left = service.ui.tags(first)["unistream/savepoint"]
    assert job.state == "FINISHED"
    with service.cluster() as cluster:
        drained = cluster.info(job.job)
    assert left == drained.resumable_savepoint != drained.savepoint
    _goes_on_from(service, "drained", first, left)


def test_a_terminated_run_cancels_its_job_and_the_next_one_goes_on_from_the_newest_checkpoint(
    service: Service,
) -> None:
    first, _ = _terminated(service, "cancelled")
    [job] = service.jobs("cancelled")
    left = service.ui.tags(first)["unistream/savepoint"]
    assert (job.state, "/chk-" in left) == ("CANCELED", True)
    _goes_on_from(service, "cancelled", first, left)


def test_a_terminated_run_leaves_its_job_and_the_next_one_attaches(service: Service) -> None:
    ui = service.ui
    first, _ = _terminated(service, "left")
    [job] = service.jobs("left")
    assert job.ended_ms is None
    assert "unistream/savepoint" not in ui.tags(first)
    assert any(f"job {job.job} goes on" in line for line in service.log_of(first))
    rows = service.await_rows("left", len(service.ids("left")))
    second = ui.again(first)
    service.await_that(
        "it attaches", lambda: any(f"attached to job {job.job}" in line for line in service.log_of(second))
    )
    service.await_rows("left", rows)
    ui.terminate(second)
    service.await_end(second, "CANCELED")
    service.stop("left")
    assert [one.job for one in service.jobs("left")] == [job.job]
    service.assert_exact("left")


def test_a_job_that_cannot_be_stopped_in_time_is_cancelled(service: Service) -> None:
    """It restarts in ten minutes; the run waits for 3 s."""
    fails = service.lake / "late.fails"

    def restarts() -> bool:
        [job] = service.jobs("late")
        return job.state == "RESTARTING"

    def break_it() -> None:
        fails.touch()
        service.await_that("the job restarts", restarts)

    first, took_s = _terminated(service, "late", break_it)
    assert any("it takes longer than 3 s; it is cancelled instead" in line for line in service.log_of(first))
    assert took_s >= 3.0
    [job] = service.jobs("late")
    left = service.ui.tags(first)["unistream/savepoint"]
    assert (job.state, "/chk-" in left) == ("CANCELED", True)
    fails.unlink()
    _goes_on_from(service, "late", first, left)


def _terminated(service: Service, name: str, before: Callable[[], None] = lambda: None) -> tuple[str, float]:
    """A run that was terminated when its job had made rows visible, and how long its end took."""
    run = service.ui.materialize(name)
    service.await_rows(name)
    before()
    began_s = time.monotonic()
    service.ui.terminate(run)
    service.await_end(run, "CANCELED")
    return run, time.monotonic() - began_s


def _goes_on_from(service: Service, name: str, first: str, left: str) -> None:
    """The run again starts a job from this snapshot, and no row is missing or twice."""
    rows = len(service.ids(name))
    second = service.ui.again(first)
    service.await_that(
        "it goes on", lambda: any(f"starts from {left}" in line for line in service.log_of(second))
    )
    service.await_rows(name, rows)
    service.ui.terminate(second)
    service.await_end(second, "CANCELED")
    with service.cluster() as cluster:
        assert [job for job in cluster.jobs() if job.name == name and job.ended_ms is None] == []
    service.assert_exact(name)


def test_what_is_below_a_stream_runs_while_that_goes_on(service: Service) -> None:
    """*Materialize all* of the two, and `AutomationCondition.eager()` after each commit that is reported."""
    report = service.lake / "report.txt"
    run = service.ui.materialize("below", "report")
    service.await_end(run)
    assert report.read_text().splitlines() == ["1"], "it was not behind an endless step"
    service.await_that("it runs by itself", lambda: len(report.read_text().splitlines()) >= 2)
    [job] = service.jobs("below")
    assert job.ended_ms is None
    service.stop("below")


def test_each_hour_that_the_watermark_closes_is_computed_once(service: Service) -> None:
    summary = service.lake / "summary.txt"
    service.await_end(service.ui.materialize("days"))
    wanted = [f"2026-01-01-0{hour}:00 500" for hour in range(3)]

    def computed() -> list[str]:
        return sorted(summary.read_text().splitlines()) if summary.exists() else []

    service.await_that("all three hours are computed", lambda: len(computed()) >= 3)
    service.stop("days")
    assert computed() == wanted, "all rows of an hour, once"
    closed = Counter(event["partition"] for event in service.ui.materializations("hours"))
    assert closed == {line.split()[0]: 1 for line in wanted}


def test_a_new_version_replaces_the_job_and_a_broken_one_does_not(service: Service) -> None:
    ui, version = service.ui, service.lake / "upgraded.version"
    service.await_end(ui.materialize("upgraded"))
    rows = service.await_rows("upgraded")
    [old] = service.jobs("upgraded")
    version.write_text("two")
    upgrade = ui.materialize("upgraded")
    service.await_end(upgrade)
    new = service.jobs("upgraded")[-1]
    assert ui.tags(upgrade)["unistream/job_id"] == new.job != old.job
    rows = service.await_rows("upgraded", rows)
    version.write_text("broken")
    broken = ui.materialize("upgraded")
    service.await_end(broken, "FAILURE")
    assert any("the old one goes on from" in line for line in service.log_of(broken)), service.log_of(broken)[
        -20:
    ]
    running = [job for job in service.jobs("upgraded") if job.ended_ms is None]
    assert len(running) == 1
    service.await_rows("upgraded", rows)
    service.stop("upgraded")
    service.assert_exact("upgraded")


def test_a_wrong_sink_fails_the_run_in_one_sentence_and_writes_nothing(service: Service) -> None:
    run = service.ui.materialize("wrong")
    service.await_end(run, "FAILURE")
    assert any("'lakes'" in line and "lake" in line for line in service.log_of(run))
    assert service.ids("wrong") == []
    assert service.ui.materializations("wrong") == []


def test_a_check_fails_while_rows_fail_and_passes_when_they_do_not_any_more(service: Service) -> None:
    """Rows that an operator sends to dead letters; the check allows half of them."""
    ui, fails = service.ui, service.lake / "letters.fails"

    def dead_letters() -> tuple[str, str]:
        service.await_end(ui.check("letters", "stream_is_running", "checkpoint_age", "dead_letters"))
        assert ui.checked("letters", "stream_is_running")[0] == "SUCCEEDED"
        return ui.checked("letters", "dead_letters")

    fails.touch()
    service.await_end(ui.materialize("letters"))
    service.await_that("rows have failed", lambda: service.dead_letters("letters") > 0)
    status, said = dead_letters()
    assert (status, "operator checked: " in said) == ("FAILED", True), said
    service.await_that(  # a row is counted before its letter is
        "every row fails",
        lambda: "rows could not be processed (100.00%), allowed 50.00%" in dead_letters()[1],
    )
    fails.unlink()
    bad = service.dead_letters("letters")
    service.await_rows("letters", 2 * bad)
    service.await_that("it passes", lambda: dead_letters()[0] == "SUCCEEDED")
    service.stop("letters")


# --- who dies ---------------------------------------------------------------------------------------


def test_a_killed_run_is_retried_and_has_the_same_job(service: Service) -> None:
    """The worker of an attached run: the job goes on in its cluster, and Dagster's own retry attaches."""
    ui = service.ui
    first = ui.materialize("killed")
    rows = service.await_rows("killed")
    service.worker_of(first).send_signal(signal.SIGKILL)
    service.await_end(first, "FAILURE")
    service.await_that("the retry", lambda: len(ui.runs_of("killed")) == 2)
    [retry] = [run["runId"] for run in ui.runs_of("killed") if run["parentRunId"] == first]
    [job] = service.jobs("killed")
    service.await_attached(retry, job)
    service.await_rows("killed", rows)
    ui.terminate(retry)
    service.await_end(retry, "CANCELED")
    assert [one.job for one in service.jobs("killed")] == [job.job]
    service.assert_exact("killed")


def test_a_killed_run_with_a_cluster_of_its_own_goes_on_from_the_newest_checkpoint(service: Service) -> None:
    ui = service.ui
    first = ui.materialize("embedded")
    rows = service.await_rows("embedded", 500)
    service.worker_of(first).send_signal(signal.SIGKILL)
    service.await_end(first, "FAILURE")
    service.await_that("the retry", lambda: len(ui.runs_of("embedded")) == 2)
    [retry] = [run["runId"] for run in ui.runs_of("embedded") if run["parentRunId"] == first]
    service.await_rows("embedded", rows + 200)
    assert any("starts from " in line and "/chk-" in line for line in service.log_of(retry))
    ui.terminate(retry)
    service.await_end(retry, "CANCELED")
    service.assert_exact("embedded")


def test_a_run_whose_host_died_frees_its_pool_and_is_retried(service: Service) -> None:
    """The worker and the process that had started it, at once: nobody in Dagster notices."""
    ui = service.ui
    first = ui.materialize("lost")
    rows = service.await_rows("lost")
    worker = service.worker_of(first)
    host = worker.parent()
    assert host is not None
    for process in (host, worker):
        process.send_signal(signal.SIGKILL)
    service.await_end(first, "FAILURE")
    assert any("The process of the run is gone" in line for line in service.log_of(first))
    service.await_that("the retry", lambda: len(ui.runs_of("lost")) == 2)
    [retry] = [run["runId"] for run in ui.runs_of("lost") if run["parentRunId"] == first]
    [job] = service.jobs("lost")
    service.await_attached(retry, job)
    service.await_rows("lost", rows)
    ui.terminate(retry)
    service.await_end(retry, "CANCELED")
    [job] = service.jobs("lost")
    assert job.state == "FINISHED"
    service.assert_exact("lost")


def test_a_killed_leader_ends_no_run(service: Service) -> None:
    ui = service.ui
    run = ui.materialize("leader")
    rows = service.await_rows("leader")
    service.kill("cluster")
    service.start("cluster")
    service.await_rows("leader", rows)
    assert ui.status(run) == "STARTED"
    ui.terminate(run)
    service.await_end(run, "CANCELED")
    [job] = service.jobs("leader")
    assert job.state == "FINISHED"
    service.assert_exact("leader")


def test_a_daemon_that_is_killed_again_and_again_reports_each_row_once(service: Service) -> None:
    """Also what was committed while there was none."""
    ui = service.ui
    service.await_end(ui.materialize("daemon"))
    rows = 0
    for _ in range(4):
        rows = service.await_rows("daemon", rows + 300)
        service.kill("daemon")
        rows = service.await_rows("daemon", rows + 300)
        service.start("daemon")
        known = len(ui.materializations("daemon"))
        service.await_that("a report", lambda known=known: len(ui.materializations("daemon")) > known)
    service.stop("daemon")
    total = len(service.ids("daemon"))

    def reported() -> int:
        return sum(event["unistream/new_rows"] for event in ui.materializations("daemon") if not event["run"])

    service.await_that("all rows are reported", lambda: reported() >= total)
    assert reported() == total
    service.assert_exact("daemon")


def test_a_stream_is_fresh_by_its_commits_until_it_is_stopped(service: Service) -> None:
    """By the policy of a minute, long after the run that has started it."""
    ui = service.ui
    service.await_end(ui.materialize("fresh"))
    service.await_that("it is judged", lambda: ui.freshness("fresh") == "HEALTHY")
    until = time.monotonic() + 75
    while time.monotonic() < until:
        assert ui.freshness("fresh") == "HEALTHY"
        time.sleep(1.0)
    service.stop("fresh")
    service.await_that("it is not fresh any more", lambda: ui.freshness("fresh") == "DEGRADED")
    service.assert_exact("fresh")


# --- schedules --------------------------------------------------------------------------------------


def test_a_stream_is_stopped_in_the_evening_though_the_daemon_dies(service: Service) -> None:
    ui = service.ui
    service.await_end(ui.materialize("evening"))
    rows = service.await_rows("evening")
    schedule = "evening_stop_with_savepoint_schedule"
    service.command("schedule", "start", schedule, "-m", "dagster_streams")
    service.await_that("its run", lambda: _runs_of_job(service, "evening"))
    service.kill("daemon")
    service.start("daemon")
    service.await_that("the job is stopped", lambda: service.jobs("evening")[-1].ended_ms is not None)
    service.command("schedule", "stop", schedule, "-m", "dagster_streams")
    assert [job.state for job in service.jobs("evening")] == ["FINISHED"]
    service.await_end(ui.materialize("evening"))
    service.await_rows("evening", rows)
    service.stop("evening")
    service.assert_exact("evening")


def test_a_stream_makes_room_at_night_and_goes_on_though_the_daemon_dies(service: Service) -> None:
    service.await_end(service.ui.materialize("nightly"))
    rows = service.await_rows("nightly")
    schedule = "nightly_stop_and_resume_schedule"
    service.command("schedule", "start", schedule, "-m", "dagster_streams")
    service.await_that("its run", lambda: _runs_of_job(service, "nightly"))
    service.command("schedule", "stop", schedule, "-m", "dagster_streams")
    service.kill("daemon")
    service.start("daemon")
    service.await_that("it goes on", lambda: len(service.jobs("nightly")) == 2)
    service.await_rows("nightly", rows)
    assert (service.lake / "between.txt").read_text().splitlines() == ["1"]
    service.stop("nightly")
    service.assert_exact("nightly")


def test_a_savepoint_is_taken_once_though_its_run_and_the_daemon_are_killed(service: Service) -> None:
    """As soon as there is one: before its run has said so, or just after."""
    ui, folder = service.ui, service.lake / "saved.savepoints"
    service.await_end(ui.materialize("saved"))
    service.await_rows("saved")
    first = ui.launch("saved_savepoint")
    eventually(lambda: folder.exists() and any(folder.iterdir()), "there is a savepoint", step_s=0.01)
    worker = service.worker_of(first)
    with suppress(psutil.NoSuchProcess):  # it was quicker
        worker.send_signal(signal.SIGKILL)
    service.kill("daemon")
    service.start("daemon")
    service.await_that("the run has ended", lambda: ui.has_ended(first))

    def last() -> str:
        retries = [run for run in _runs_of_job(service, "saved_savepoint") if run != first]
        return retries[0] if retries else first

    service.await_that("a run has succeeded", lambda: ui.status(last()) == "SUCCESS")
    [taken] = folder.iterdir()
    assert ui.tags(last())["unistream/savepoint"].removeprefix("file://") == str(taken)
    assert (taken / "_metadata").exists()
    service.stop("saved")
    service.assert_exact("saved")


def test_a_maintenance_whose_host_dies_goes_on_and_nobody_writes_meanwhile(service: Service) -> None:
    """A click on *Materialize* while the step between works, the worker of that step and the process that had
    started it killed, another click before the retry: no job runs until the table is free."""
    ui, held = service.ui, service.lake / "held.txt"
    hold = service.lake / "held.by.test"
    service.await_end(ui.materialize("upkept"))
    rows = service.await_rows("upkept")
    hold.touch()
    first = ui.launch("upkept_stop_and_resume")

    def held_by() -> list[str]:
        return held.read_text().splitlines() if held.exists() else []

    def refused() -> None:
        clicked = ui.materialize("upkept")
        service.await_end(clicked, "FAILURE")
        said = [
            line for line in service.log_of(clicked) if "has stopped the stream upkept to work on" in line
        ]
        assert said, service.log_of(clicked)

    service.await_that("the step between works", lambda: held_by() == [first])
    refused()
    worker = service.worker_of(first)
    host = worker.parent()
    assert host is not None
    for process in (host, worker):
        process.send_signal(signal.SIGKILL)
    service.await_that("it is reported", lambda: ui.status(first) == "FAILURE")
    assert any("the stream upkept may be stopped" in line for line in service.log_of(first))
    service.await_that("the retry works", lambda: len(held_by()) == 2)
    refused()
    assert [job.state for job in service.jobs("upkept")] == ["FINISHED"]
    assert len(service.ids("upkept")) >= rows
    before = len(service.ids("upkept"))
    hold.unlink()
    [_, retry] = held_by()
    service.await_end(retry)
    service.await_that("the stream goes on", lambda: len(service.jobs("upkept")) == 2)
    service.await_rows("upkept", before)
    service.stop("upkept")
    service.assert_exact("upkept")


def _runs_of_job(service: Service, part: str) -> list[str]:
    """Runs of jobs with this in their name."""
    return [run.run_id for run in service.instance.get_runs(limit=20) if part in run.job_name]


# --- what cannot be loaded --------------------------------------------------------------------------


def test_partitions_of_a_stream_are_refused_where_the_definitions_are_loaded(tmp_path: Path) -> None:
    with Service(tmp_path, "dagster_streams", BROKEN="partitions") as broken:
        broken.start("webserver")
        broken.await_that("the error is shown", broken.ui.load_error)
        assert "a streaming asset takes no partitions_def" in broken.ui.load_error()

"""A run goes on from what the last one has left, however that ended, and never starts a second writer."""

import contextlib
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from deltalake import DeltaTable

import unistream as us
from tests.eventually import eventually
from tests.integration.crash_runs import in_the_gate
from tests.integration.dagster_location import (
    ROWS,
    WAIT_S,
    Location,
    ids,
    log_of,
    progressed,
    the_run,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import Unreachable
from unistream.base.ids import job_of_request
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.job.run_links import RemoteLinks, open_links
from unistream.client.machine import home
from unistream.client.remote.job_client import JobClient
from unistream.client.remote.rest_client import RestClient
from unistream.dagster import (
    UnistreamResource,
    build_drain_and_resume_schedule,
    build_savepoint_schedule,
    build_stop_with_savepoint_schedule,
    build_stream_checks,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.run.start import JobStart, request_of
from unistream.dagster.run.watching import key_of, watcher_of
from unistream.model.job_info import JobInfo
from unistream.port.run_links import SeenLink

WINDOW = timedelta(seconds=10)
FREQUENT = {"execution.checkpointing.interval": "300 ms"}


def by_kill(location: Location, child: object, _job: JobInfo) -> None:
    child.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]
    location.end(child)  # type: ignore[arg-type]


def stop(job: JobInfo, *, drain: bool = False) -> None:
    [entry] = home.clusters()
    with RestClient(entry.url) as cluster:
        cluster.client(job.job).stop(drain=drain)


def by_stop(location: Location, child: object, job: JobInfo, *, drain: bool = False) -> None:
    stop(job, drain=drain)
    assert location.end(child) == 0  # type: ignore[arg-type]
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS


def by_drain(location: Location, child: object, job: JobInfo) -> None:
    by_stop(location, child, job, drain=True)


def counted(location: Location) -> dict[tuple[int, datetime], list[int]]:
    """By key and begin of the window: the numbers of rows that it has fired with."""
    found = defaultdict(list)
    for row in DeltaTable(str(location.lake / "windows")).to_pyarrow_table().to_pylist():
        found[row["key"], row["window_start"]].append(row["n"])
    return found


@pytest.mark.parametrize("ends", in_the_gate([by_kill, by_stop, by_drain], 0), ids=lambda ends: ends.__name__)
def test_the_next_run_goes_on(locate: Callable[..., Location], ends: Callable[..., None]) -> None:
    location = locate(ROWS=str(ROWS))
    child = location.materialize()
    job = location.await_job(progressed)
    ends(location, child, job)
    assert 0 < len(ids(location)) < ROWS
    assert location.end(location.materialize()) == 0, location.log()
    second = the_run(location)
    assert second.status == dg.DagsterRunStatus.SUCCESS
    assert any("job numbers starts from " in line and "/" in line for line in log_of(location, second))
    assert ids(location) == list(range(ROWS))
    windows = counted(location)
    assert sum(map(max, windows.values())) == ROWS, "each window is there with all of its rows"
    doubled = sorted({start for (_, start), fired in windows.items() if len(fired) > 1})
    assert bool(doubled) == (ends is by_drain), "a drain fires the windows that are open"
    assert all(after - before == WINDOW for before, after in pairwise(doubled)), "and no others"
    assert location.end(location.materialize()) != 0
    assert any("on_foreign='append'" in line for line in location.log().splitlines())
    assert ids(location) == list(range(ROWS)), "it has read everything, and writes nothing a second time"


def test_a_second_run_writes_nothing_while_the_first_one_does(locate: Callable[..., Location]) -> None:
    location = locate()
    first = location.materialize()
    job = location.await_job(progressed)
    second = location.materialize()
    assert second.wait(WAIT_S) != 0
    assert f"job {job.job} (numbers) is RUNNING and writes the same output" in location.log()
    stop(job)
    assert location.end(first) == 0
    assert ids(location) == list(range(len(ids(location))))


def test_a_run_attaches_to_the_job_that_a_killed_one_has_left(
    locate: Callable[..., Location], tmp_path: Path
) -> None:
    location = locate(TARGET="remote", MODE="attached")
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        first = location.materialize()
        job = location.await_job(progressed)
        first.send_signal(signal.SIGKILL)
        location.end(first)
        second = location.materialize()
        location.await_that("the attachment", lambda: f"attached to job {job.job}" in location.log())
        by_stop(location, second, job)
        assert [one.job for one in cluster.dispatcher.jobs()] == [job.job]
    run = the_run(location)
    assert run.tags["unistream/job_id"] == job.job
    assert any(f"attached to job {job.job}" in line for line in log_of(location, run))
    assert ids(location) == list(range(len(ids(location))))


def test_a_detached_run_ends_and_its_job_goes_on(locate: Callable[..., Location], tmp_path: Path) -> None:
    location = locate(TARGET="remote")  # without end
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        assert location.end(location.materialize()) == 0, location.log()
        first = the_run(location)
        [job] = cluster.dispatcher.jobs()
        assert (job.state, job.job) == ("RUNNING", first.tags["unistream/job_id"])
        assert location.end(location.materialize()) == 0, location.log()
        assert [one.job for one in cluster.dispatcher.jobs()] == [job.job], "the second run has attached"
        with RestClient(cluster.rest_url) as client:
            savepoint = client.client(job.job).stop()
        before = len(ids(location))
        assert location.end(location.materialize()) == 0, location.log()
        third = the_run(location)
        assert any(f"starts from {savepoint}" in line for line in log_of(location, third))
        [newest, _] = cluster.dispatcher.jobs()
        with RestClient(cluster.rest_url) as client:
            client.client(newest.job).stop()
    found = ids(location)
    assert len(found) > before
    assert found == list(range(len(found)))
    event = location.instance.get_latest_materialization_event(dg.AssetKey("rows"))
    assert event is not None
    assert event.run_id == third.run_id


def test_what_outlives_its_run_needs_a_cluster(locate: Callable[..., Location]) -> None:
    location = locate(ROWS="10", ON_TERMINATE="detach")
    assert location.end(location.materialize()) != 0
    assert "on_terminate 'detach' needs a session cluster" in location.log()
    assert not location.lake.exists()


def test_a_schedule_stops_a_stream_once_and_the_next_run_goes_on(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda env: endless(env, tmp_path / "lake"))

    taken = build_savepoint_schedule(rows, "0 3 * * *", savepoint_dir=str(tmp_path / "daily"))
    stopped = build_stop_with_savepoint_schedule(rows, "0 22 * * *")
    unistream = UnistreamResource(target="remote", config=STREAMING | FREQUENT)
    with dg.DagsterInstance.ephemeral() as instance:
        common = {"resources": {"unistream": unistream}, "instance": instance}
        assert dg.materialize([rows], **common).success
        saved = taken.job.execute_in_process(**common)
        path = instance.get_run_by_id(saved.run_id).tags["unistream/savepoint"]
        assert path.removeprefix("file://").startswith(str(tmp_path / "daily"))
        [job] = cluster.dispatcher.jobs()
        assert job.state == "RUNNING"
        checks = build_stream_checks(
            rows, max_restarts=0, max_late_rows=0, max_late_ratio=0, max_dead_letter_ratio=0
        )
        checked = dg.define_asset_job("check", dg.AssetSelection.checks(checks))
        defs = dg.Definitions(
            [rows], asset_checks=[checks], jobs=[checked], resources={"unistream": unistream}
        )
        result = defs.resolve_job_def("check").execute_in_process(instance=instance)
        assert {(one.check_name, one.passed) for one in result.get_asset_check_evaluations()} == {
            (name, True) for name in ("stream_is_running", *CHECKED)
        }
        first, second = (stopped.job.execute_in_process(**common) for _ in range(2))
        assert [first.success, second.success] == [True, True]
        [job] = cluster.dispatcher.jobs()
        assert job.state == "FINISHED"
        tags = [instance.get_run_by_id(one.run_id).tags for one in (first, second)]
        assert ["unistream/savepoint" in one for one in tags] == [True, False], "there was nothing to do"
        again = dg.materialize([rows], **common)
        assert again.success
        log = [entry.user_message for entry in instance.all_logs(again.run_id)]
        assert any(f"starts from {tags[0]['unistream/savepoint']}" in line for line in log)
        assert stopped.job.execute_in_process(**common).success
    found = sorted(DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()["id"].to_pylist())
    assert found == list(range(len(found)))


CHECKED = ("checkpoint_age", "restarts", "late_rows", "late_ratio", "dead_letters")


class Dies(Exception):
    """The process of the run dies here."""


def test_a_run_that_repeats_one_that_has_died_takes_no_second_savepoint(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies when the savepoint is there, before anybody in Dagster knows it. *Re-execute* of a run that has
    succeeded takes another one; so does one that repeats a run whose savepoint has failed."""

    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda env: endless(env, tmp_path / "lake"))

    folder = tmp_path / "daily"
    job = build_savepoint_schedule(rows, "0 3 * * *", savepoint_dir=str(folder)).job
    unistream = UnistreamResource(target="remote", config=STREAMING | FREQUENT)
    with dg.DagsterInstance.ephemeral() as instance:

        def again(parent: str, root: str) -> dg.DagsterRun:
            """As Dagster's retry or *Re-execute* does: with a copy of the tags."""
            known = instance.get_run_by_id(parent)
            tags = {**known.tags, "dagster/parent_run_id": parent, "dagster/root_run_id": root}
            run = instance.create_run_for_job(
                defs.resolve_job_def(job.name), parent_run_id=parent, root_run_id=root, tags=tags
            )
            list(execute_run_iterator(InMemoryJob(defs.resolve_job_def(job.name)), run, instance))
            return instance.get_run_by_id(run.run_id)

        common = {"resources": {"unistream": unistream}, "instance": instance}
        defs = dg.Definitions([rows], jobs=[job], resources={"unistream": unistream})
        assert dg.materialize([rows], **common).success
        folder.write_text("in the way")
        refused = defs.resolve_job_def(job.name).execute_in_process(instance=instance, raise_on_error=False)
        assert not refused.success
        folder.unlink()
        assert again(refused.run_id, refused.run_id).tags["unistream/savepoint"]
        for path in folder.iterdir():
            shutil.rmtree(path)
        with monkeypatch.context() as patch:
            add = instance.add_run_tags

            def dies(run_id: str, tags: dict[str, str]) -> None:
                if "unistream/savepoint" in tags:
                    raise Dies
                add(run_id, tags)

            patch.setattr(instance, "add_run_tags", dies)
            first = defs.resolve_job_def(job.name).execute_in_process(instance=instance, raise_on_error=False)
        assert not first.success
        [taken] = folder.iterdir()
        retry = again(first.run_id, first.run_id)
        assert retry.tags["unistream/savepoint"].removeprefix("file://") == str(taken)
        assert list(folder.iterdir()) == [taken]
        clicked = again(retry.run_id, first.run_id)
        assert clicked.tags["unistream/savepoint"] != retry.tags["unistream/savepoint"]
        assert len(list(folder.iterdir())) == 2
        for one in cluster.dispatcher.jobs():
            cluster.dispatcher.cancel(one.job)


def test_a_stream_makes_room_and_goes_on(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda env: endless(env, lake))

    states: list[list[str]] = []

    def compact(_: dg.OpExecutionContext) -> None:
        clicked = dg.materialize([rows], resources=unistream, instance=instance, raise_on_error=False)
        assert not clicked.success, "nobody writes meanwhile"
        states.append([job.state for job in cluster.dispatcher.jobs()])
        DeltaTable(str(lake)).optimize.compact()

    turn = build_drain_and_resume_schedule(rows, "0 3 * * *", between=compact)
    unistream = {"unistream": UnistreamResource(target="remote", config=STREAMING | FREQUENT)}
    defs = dg.Definitions([rows], schedules=[turn.schedule], sensors=[turn.sensor], resources=unistream)
    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([rows], resources=unistream, instance=instance).success
        job = defs.resolve_job_def("rows_drain_and_resume")
        drained = job.execute_in_process(instance=instance)
        assert states == [["FINISHED"]]
        before = len(DeltaTable(str(lake)).to_pyarrow_table())
        run = instance.get_run_by_id(drained.run_id)
        context = dg.build_run_status_sensor_context(
            sensor_name=turn.sensor.name,
            dagster_event=drained.get_run_success_event(),
            dagster_instance=instance,
            dagster_run=run,
        )
        request = turn.sensor(context)
        resumed = defs.resolve_job_def("rows_drain_and_resume_assets")
        again = resumed.execute_in_process(instance=instance, tags=request.tags)
        log = [entry.user_message for entry in instance.all_logs(again.run_id)]
        assert any(f"starts from {run.tags['unistream/savepoint']}" in line for line in log)
        repeated = job.execute_in_process(instance=instance, tags=dict(run.tags))
        assert instance.get_run_by_id(repeated.run_id).tags["unistream/stage"] == "nothing"
        assert len(states) == 1
        assert sorted(job.state for job in cluster.dispatcher.jobs()) == ["FINISHED", "RUNNING"]
        assert (
            build_stop_with_savepoint_schedule(rows, "0 22 * * *")
            .job.execute_in_process(instance=instance, resources=unistream)
            .success
        )
    found = sorted(DeltaTable(str(lake)).to_pyarrow_table()["id"].to_pylist())
    assert len(found) > before > 0
    assert found == list(range(len(found)))


def test_a_schedule_without_a_cluster_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))

    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, lambda env: endless(env, tmp_path / "lake"))

    drained = build_stop_with_savepoint_schedule(rows, "0 22 * * *", drain=True)
    assert (drained.name, drained.job_name) == ("rows_drain_schedule", "rows_drain")
    resources = {"unistream": UnistreamResource(target="remote")}
    assert drained.job.execute_in_process(resources=resources).success


def endless(env: us.Environment, lake: Path) -> None:
    source = us.DatagenSource(
        {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=1_000
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.sink_to(us.DeltaSink(str(lake))).uid("lake")


def test_a_failure_that_the_job_survives_is_in_the_log_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    flag = tmp_path / "failed"

    def fails_once(row: dict[str, int]) -> dict[str, int]:
        if row["id"] == 2_000 and not flag.exists():
            flag.touch()
            raise ValueError("row 2000 is too much")
        return row

    def build(env: us.Environment) -> None:
        source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=4_000, rows_per_second=1_000)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        checked = rows.map(fails_once, returns={"id": pa.int64()}).name("checked").uid("checked")
        checked.sink_to(us.DeltaSink(str(tmp_path / "lake"))).uid("lake")

    @unistream_assets(specs=[sink_asset("rows", sink_uid="lake")], name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):
        yield from unistream.run(context, build)

    unistream = UnistreamResource(target="local", config=STREAMING | FREQUENT)
    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([rows], resources={"unistream": unistream}, instance=instance)
        log = [entry.user_message for entry in instance.all_logs(run.run_id)]
    [line] = [line for line in log if "the job has recovered from" in line]
    assert "checked" in line
    assert "row 2000 is too much" in line
    found = sorted(DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()["id"].to_pylist())
    assert found == list(range(4_000))


class Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tags: dict[str, str] = {}

    def note(self, text: str, *, is_error: bool) -> None:
        self.texts.append(text)

    def tag(self, tags: Mapping[str, str]) -> None:
        self.tags.update(tags)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


def come_to(
    lake: Path, run: dg.DagsterRun, *repeated: dg.DagsterRun, name: str = "rows"
) -> tuple[JobClient, str]:
    """The job that a run comes to, and how, as its log says it. `repeated`: what Dagster knows of the runs
    that it repeats."""
    env, notes = us.Environment(STREAMING, target="remote"), Notes()
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=3_000, rows_per_second=1_000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.sink_to(us.DeltaSink(str(lake), on_foreign="append")).uid("lake")
    start = JobStart(
        environment=env,
        target="remote",
        run=run,
        step=name,
        name=name,
        resume="none",
        log=notes,
        repeated=repeated,
    )
    return start(), notes.texts[-1]


def watches(run: dg.DagsterRun, job: JobClient) -> None:
    """As the first heartbeat of a run that has come to a job, which its tag names then."""
    key, watcher = key_of(run, "rows"), watcher_of(run, "rows")
    with contextlib.closing(open_links(Configuration(), "remote", timeout_s=WAIT_S)) as links:
        links.take_over(key, watcher, silent_ms=0)
        assert links.attach(key, job.job_id, watcher).is_of(watcher)


def repeat_of(run_id: str, **tags: str) -> dg.DagsterRun:
    return dg.DagsterRun("job", root_run_id=run_id, parent_run_id=run_id, tags=tags)


def test_a_run_that_repeats_another_one_submits_nothing_a_second_time(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    first = dg.DagsterRun("job")
    lake, again, retry = tmp_path / "lake", repeat_of(first.run_id), {"dagster/retry_number": "1"}
    job, _ = come_to(lake, first)
    with job:
        for run in (again, repeat_of(first.run_id, **retry)):
            same, how = come_to(lake, run)
            same.close()
            assert (same.job_id, how.split(",")[0]) == (job.job_id, f"attached to job {job.job_id}")
        assert job.result(WAIT_S).state == "FINISHED"
    result, _ = come_to(lake, repeat_of(first.run_id, **retry))
    with result:
        assert result.job_id == job.job_id, "what has finished is not done again by a retry"
    other, how = come_to(lake, again)
    with other:
        assert other.job_id != job.job_id
        assert how == "job rows starts from the beginning of its sources"
        assert other.job_id == job_of_request(request_of(again.run_id, "rows"))
        assert other.result(WAIT_S).state == "FINISHED"
    further, _ = come_to(lake, repeat_of(again.run_id, **retry, **{"unistream/job_id": str(job.job_id)}))
    with further:
        assert further.job_id == other.job_id
    assert len(cluster.dispatcher.jobs()) == 2


def test_a_job_is_found_though_runs_in_between_have_died_before_they_had_it(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The first one died before it could say which job it had submitted."""
    lake, retry = tmp_path / "lake", {"dagster/retry_number": "1"}
    first = dg.DagsterRun("job")
    second = repeat_of(first.run_id, **retry)

    def third(**tags: str) -> dg.DagsterRun:
        return dg.DagsterRun("job", root_run_id=first.run_id, parent_run_id=second.run_id, tags=tags)

    job, _ = come_to(lake, first)
    with job:
        for repeated in ([second, first], []):  # also if Dagster does not know them any more
            same, how = come_to(lake, third(**retry), *repeated)
            same.close()
            assert (same.job_id, how.split(",")[0]) == (job.job_id, f"attached to job {job.job_id}")
        assert job.result(WAIT_S).state == "FINISHED"
    result, _ = come_to(lake, third(**retry), second, first)
    with result:
        assert result.job_id == job.job_id, "what has finished is not done again by a retry of a retry"
    other, how = come_to(lake, third(), second, first)
    with other:
        assert other.job_id != job.job_id, "somebody has executed it again"
        assert other.result(WAIT_S).state == "FINISHED"
    again = repeat_of(first.run_id)
    fourth = dg.DagsterRun("job", root_run_id=first.run_id, parent_run_id=again.run_id, tags=retry)
    new, how = come_to(lake, fourth, again, first)
    with new:
        assert new.job_id not in (job.job_id, other.job_id), "the retry of what was executed again"
        assert new.result(WAIT_S).state == "FINISHED"
    assert len(cluster.dispatcher.jobs()) == 3


RETRY = {"dagster/retry_number": "1"}


def repeat(root: dg.DagsterRun, parent: dg.DagsterRun, job: JobClient, **tags: str) -> dg.DagsterRun:
    """With the tags of the run that it repeats, as Dagster copies them."""
    copied = {"unistream/job_id": str(job.job_id)}
    return dg.DagsterRun("job", root_run_id=root.run_id, parent_run_id=parent.run_id, tags={**copied, **tags})


def test_a_retry_takes_the_result_of_a_job_to_which_the_run_that_died_had_attached(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """And not that of a job which only its copied tag names: then nothing has been done yet."""
    lake, first = tmp_path / "lake", dg.DagsterRun("job")
    job, _ = come_to(lake, first)
    with job:
        watches(first, job)
        second = repeat(first, first, job)
        third = repeat(first, second, job, **RETRY)
        eventually(lambda: job.status().state == "RUNNING", "the job runs", WAIT_S)
        job.stop()
        assert job.result(WAIT_S).state == "FINISHED"
        new, how = come_to(lake, third, second, first)
        with new:
            assert new.job_id != job.job_id, "the second one was to go on, and had no job when it died"
            assert how == "job rows starts from the beginning of its sources", "as its resource says"
            assert new.result(WAIT_S).state == "FINISHED"
        watches(second, job)  # a story in which it had come to the job before that was stopped
        cluster_jobs = len(cluster.dispatcher.jobs())
        fourth = repeat(first, second, job, **RETRY)
        with come_to(lake, fourth, second, first)[0] as same:
            assert same.job_id == job.job_id
        assert len(cluster.dispatcher.jobs()) == cluster_jobs


@pytest.mark.parametrize("is_known", [True, False], ids=["heartbeats", "no answer"])
def test_the_job_of_another_step_of_the_run_is_not_that_of_this_one(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """*Materialize all* of two streams that run: the tag of the run names the job of the last step."""
    first = dg.DagsterRun("job")
    rows, _ = come_to(tmp_path / "rows", dg.DagsterRun("job"))
    others, _ = come_to(tmp_path / "others", dg.DagsterRun("job"), name="others")
    with rows, others:
        watches(first, rows)
        if not is_known:

            def no_answer(links: RemoteLinks, key: str) -> SeenLink:
                raise Unreachable("the metadata database does not answer")

            monkeypatch.setattr(RemoteLinks, "find", no_answer)
        last = others if is_known else rows
        with come_to(tmp_path / "rows", repeat(first, first, last), first)[0] as same:
            assert same.job_id == rows.job_id
        unknown = dg.DagsterRun("job")
        with come_to(tmp_path / "new", repeat(unknown, unknown, others), unknown)[0] as new:
            assert new.job_id not in (rows.job_id, others.job_id)
        assert not others.status().is_terminal
    assert len(cluster.dispatcher.jobs()) == 3

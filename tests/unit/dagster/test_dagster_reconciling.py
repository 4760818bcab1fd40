"""What ticks of the reconciling sensor do in a real instance: a step of a run ticks while it is STARTED."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.metadata_rows import create_database
from tests.unit.dagster.test_dagster_attached import JOB, FakeJob, policy
from unistream.base.config import METADATA_URL
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.client.job.run_links import LinkStore, LocalLinks
from unistream.dagster import (
    UnistreamResource,
    build_drain_and_resume_schedule,
    build_reconciling_sensor,
    build_savepoint_schedule,
    build_stop_with_savepoint_schedule,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.run.attached import OnTerminate
from unistream.dagster.run.metadata import BACKFILL_METADATA
from unistream.dagster.run.watching import RunWatch, key_of, mark_of, operation_key_of, watcher_of
from unistream.dagster.sensor.reconciling import ended
from unistream.metadata.store import SqlMetadataStore
from unistream.port.run_links import RunLink, SeenLink, Watcher

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE
CANCELED = dg.DagsterRunStatus.CANCELED
SILENT_S = 0.003  # of the sensor: with heartbeats every ms
LONG_S = 10_000.0
INSTANCES: list[dg.DagsterInstance] = []  # of the test that runs last
LOCKED: list[str] = []  # the key of the run of which Dagster takes no event now


class World:
    """A Dagster instance, a database of links, and the sensor."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.url = f"sqlite:///{folder / 'metadata.db'}"
        create_database(self.url)
        self.instance = instance
        self.links = LocalLinks(SqlMetadataStore(self.url))
        self.cursor: str | None = None
        self.later_s = 0.0
        self.resource: type[UnistreamResource] = UnistreamResource
        self.others: list[dg.AssetsDefinition] = []
        self.operations: list[Any] = []

    def materialize(self, inside: Callable[[dg.DagsterRun], None], *, name: str = "orders") -> None:
        """A run that calls `inside` while its step runs."""

        @unistream_assets(specs=[sink_asset(f"{name}_table", sink_uid="lake")], name=name)
        def step(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
            inside(context.run)
            yield dg.MaterializeResult(asset_key=f"{name}_table")

        dg.materialize([step], instance=self.instance)

    def tick(self, *, dies: bool = False, silent_after_s: float = SILENT_S, url: str = "") -> str:
        """`dies`: the daemon does, before it has stored the cursor."""

        @unistream_assets(specs=[sink_asset("orders_table", sink_uid="lake")])
        def orders():  # type: ignore[no-untyped-def]
            yield

        sensor = build_reconciling_sensor(
            [orders, *self.others],
            operations=self.operations,
            silent_after_s=silent_after_s,
            unlinked_after_s=60,
            clock=lambda: time.time() + self.later_s,
        )
        unistream = self.resource(
            target="local", config={METADATA_URL.key: url or self.url}, heartbeat_interval_s=0.001
        )
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"unistream": unistream}
        ) as context:
            result = sensor.evaluate_tick(context)
        assert result.run_requests == []
        if not dies:
            self.cursor = result.cursor
        return result.skip_message or ""

    def attach(self, run: dg.DagsterRun) -> None:
        self.links.attach(key_of(run, "orders"), JOB, watcher_of(run, "orders"))

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status

    def wait(self) -> None:
        """Until a heartbeat of now is too old."""
        begin_ms = self.links.find("none").now_ms
        while self.links.find("none").now_ms < begin_ms + 1_000 * SILENT_S + 1:
            pass

    def said(self, run: dg.DagsterRun) -> str:
        return "\n".join(entry.message for entry in self.instance.all_logs(run.run_id))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(tmp_path, instance)
        yield world
        world.links.close()


def test_a_silent_run_is_reported_once(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        assert world.tick().startswith(f"run {run.run_id}: step orders, which watched job {JOB}, has sent no")
        assert world.status(run) is STARTED
        world.wait()
        assert world.tick() == f"run {run.run_id} is reported as failed"
        assert world.status(run) is FAILURE
        assert world.tick() == "no run of these assets is under way"
        assert world.said(run).count("The process of the run is gone") == 1
        assert "Its job has ended with it: the next run goes on from its newest checkpoint." in world.said(
            run
        )
        assert not world.links.heartbeat(key_of(run, "orders"), watcher_of(run, "orders")), (
            "should it wake up"
        )

    world.materialize(inside)


def test_a_run_whose_heartbeats_come_is_left_alone(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        for _ in range(3):
            world.wait()
            world.tick()
            assert world.links.heartbeat(key_of(run, "orders"), watcher_of(run, "orders"))
        assert world.tick(silent_after_s=LONG_S) == "1 runs of these assets are under way"
        assert world.status(run) is STARTED

    world.materialize(inside)


def test_after_an_outage_a_run_is_suspected_again(world: World, tmp_path: Path) -> None:
    """Its heartbeats could not come either."""

    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        assert "has sent no heartbeat" in world.tick()
        world.wait()
        (tmp_path / "no_database").mkdir()
        assert "the heartbeats are not known now" in world.tick(url=f"sqlite:///{tmp_path / 'no_database'}")
        assert "has sent no heartbeat" in world.tick()
        assert world.status(run) is STARTED

    world.materialize(inside)


def test_a_daemon_that_dies_before_the_report_has_it_made_by_the_next_one(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        own = watcher_of(run, "orders")
        assert world.links.take_over(key_of(run, "orders"), mark_of(own), silent_ms=0) is not None
        assert world.tick() == f"run {run.run_id} is reported as failed"
        assert "step orders was found silent by an earlier tick" in world.said(run)

    world.materialize(inside)


def test_a_daemon_that_dies_after_the_report_repeats_nothing(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        world.tick()
        world.wait()
        assert world.tick(dies=True) == f"run {run.run_id} is reported as failed"
        assert world.tick() == "no run of these assets is under way"
        assert world.said(run).count("The process of the run is gone") == 1

    world.materialize(inside)


def test_a_heartbeat_between_two_ticks_saves_the_run(world: World) -> None:

    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        world.tick()
        assert world.links.heartbeat(key_of(run, "orders"), watcher_of(run, "orders"))
        world.tick()
        assert world.status(run) is STARTED
        assert world.links.heartbeat(key_of(run, "orders"), watcher_of(run, "orders"))

    world.materialize(inside)


class WakingLinks(LocalLinks):
    """The run wakes up when the sensor has decided, before it takes the link."""

    def take_over(self, key: str, watcher: Watcher, *, silent_ms: int) -> RunLink | None:
        link = self.find(key).link
        assert link is not None
        assert self.heartbeat(key, link.watcher)
        return super().take_over(key, watcher, silent_ms=60_000)


class WakingResource(UnistreamResource):
    def links(self) -> LinkStore:
        return WakingLinks(SqlMetadataStore(self.config[METADATA_URL.key]))


def test_a_heartbeat_between_the_decision_and_the_report_saves_the_run(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.resource = WakingResource
        world.wait()
        world.tick()
        world.wait()
        assert world.tick() == "1 runs of these assets are under way"
        assert world.status(run) is STARTED
        assert world.links.heartbeat(key_of(run, "orders"), watcher_of(run, "orders"))

    world.materialize(inside)


def test_a_run_that_dagster_has_not_retried_is_reported_again(world: World) -> None:
    """Its retries have read the event of the failure before the status of the run."""

    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        world.tick()
        world.wait()
        world.tick()
        world.wait()
        assert world.tick() == "no run of these assets is under way", "it is not to be retried"
        world.instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
        assert world.tick() == f"run {run.run_id} was not retried, and is reported as failed again"
        world.instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
        world.instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": "77aa"})
        assert world.tick() == "no run of these assets is under way"

    world.materialize(inside)


class TerminatingResource(UnistreamResource):
    """A user terminates the run when the sensor has decided."""

    def links(self) -> LinkStore:
        instance, store = INSTANCES[-1], SqlMetadataStore(self.config[METADATA_URL.key])

        class TerminatingLinks(LocalLinks):
            def take_over(self, key: str, watcher: Watcher, *, silent_ms: int) -> RunLink | None:
                [run] = instance.get_runs()
                instance.report_run_canceling(run)
                return super().take_over(key, watcher, silent_ms=silent_ms)

        return TerminatingLinks(store)


def test_a_run_that_is_terminated_between_the_decision_and_the_report_is_no_failure(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        INSTANCES.append(world.instance)
        world.resource = TerminatingResource
        world.wait()
        world.tick()
        world.wait()
        assert world.tick() == "1 runs of these assets are under way"
        assert world.tick() == f"run {run.run_id} is reported as canceled"

    world.materialize(inside)


def test_a_step_that_has_not_begun_is_waited_for(world: World) -> None:
    """Another step of the run computes for hours, and reports nothing."""

    @dg.asset
    def before() -> None:
        world.later_s = LONG_S
        for _ in range(3):
            assert world.tick() == "1 runs of these assets are under way"
            world.wait()
        world.later_s = 0

    @unistream_assets(specs=[sink_asset("orders_table", sink_uid="lake", deps=[before])], name="orders")
    def orders() -> Iterator[dg.MaterializeResult[Any]]:
        yield dg.MaterializeResult(asset_key="orders_table")

    assert dg.materialize([before, orders], instance=world.instance).success


def test_a_backfill_whose_host_has_died_is_repeated_and_the_job_is_left_alone(world: World) -> None:
    """Also one that was being terminated. Without a job to be watched it may compute for hours."""
    spec = dg.AssetSpec("days", metadata={BACKFILL_METADATA: "orders"})
    ends: list[str] = []

    def inside(run: dg.DagsterRun, *, terminated: bool) -> None:
        world.later_s = LONG_S
        for _ in range(3):
            assert world.tick() == "1 runs of these assets are under way"
        world.later_s = 0
        world.links.attach(key_of(run, "days"), JOB, watcher_of(run, "days"))
        if terminated:
            world.instance.report_run_canceling(run)
        world.wait()
        assert world.tick().startswith(f"run {run.run_id}: step days, which watched job {JOB}, has sent no")
        world.wait()
        ends.append(world.tick().removeprefix(f"run {run.run_id} "))
        assert "The process of the run is gone: step days" in world.said(run)
        assert "the same run again goes on, and so does 'unistream backfill orders'" in world.said(run)

    cases = [False, True]

    @dg.multi_asset(specs=[spec], name="days")
    def days(context: dg.AssetExecutionContext):  # type: ignore[no-untyped-def]
        inside(context.run, terminated=cases.pop(0))

    world.others = [days]
    while cases:
        dg.materialize([days], instance=world.instance, raise_on_error=False)
    assert ends == ["is reported as failed", "is reported as canceled"]


def orders_asset() -> dg.AssetsDefinition:
    @unistream_assets(specs=[sink_asset("orders_table", sink_uid="lake")], name="orders")
    def orders() -> Iterator[dg.MaterializeResult[Any]]:
        yield dg.MaterializeResult(asset_key="orders_table")

    return orders


@pytest.mark.parametrize("terminated", [False, True], ids=["started", "being terminated"])
def test_a_maintenance_whose_host_has_died_is_reported_and_says_what_it_leaves(
    world: World, terminated: bool
) -> None:
    """The step between takes its time; the job that it has stopped is left alone."""
    ends: list[str] = []

    def between(context: dg.OpExecutionContext) -> None:
        run, step = context.run, "orders_drain_and_resume_op"
        if terminated:
            world.instance.report_run_canceling(run)
        own = watcher_of(run, step)
        deadline_s = time.monotonic() + 20
        while not (link := world.links.find(operation_key_of(run, step)).link):
            assert time.monotonic() < deadline_s, "it sends heartbeats"
        assert (link.job, link.watcher) == ("one", own)
        assert world.links.take_over(operation_key_of(run, step), mark_of(own), silent_ms=0) is not None
        ends.append(world.tick())
        assert "The process of the run is gone" in world.said(run)
        assert "the stream orders may be stopped" in world.said(run)

    turn = build_drain_and_resume_schedule(orders_asset(), "0 3 * * *", between=between)
    world.operations = [turn]
    resource = UnistreamResource(
        target="local", config={METADATA_URL.key: world.url}, heartbeat_interval_s=3_600
    )
    result = turn.schedule.job.execute_in_process(
        instance=world.instance,
        resources={"unistream": resource},
        tags={"unistream/stage": "drained", "unistream/stops": "one"},
        raise_on_error=False,
    )
    assert ends == [f"run {result.run_id} is reported as {'canceled' if terminated else 'failed'}"]
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["unistream/stage"] == "drained", "a process that wakes up goes no further"
    assert run.status is (CANCELED if terminated else FAILURE)


def test_an_operation_keeps_no_job_from_its_end(world: World) -> None:
    """While a savepoint is taken, the run of the job is forced to be CANCELED."""

    def inside(run: dg.DagsterRun) -> None:
        watch = RunWatch(
            *(key_of(run, "orders"), watcher_of(run, "orders")),
            open_links=lambda: LocalLinks(SqlMetadataStore(world.url)),
            status=lambda: None if world.later_s == 0 else CANCELED,
            every_s=3_600,
        )
        watch.begin(JOB)
        assert watch.ask() is None
        other = dg.DagsterRun("orders_savepoint")
        world.links.attach(operation_key_of(other, "op"), JOB, watcher_of(other, "op"))
        world.later_s = 1
        lost = watch.ask()
        watch.close()
        assert lost is not None
        assert lost.is_to_end

    world.materialize(inside)


def test_a_schedule_that_does_nothing_with_a_stream_is_refused() -> None:
    job = dg.define_asset_job("plain", dg.AssetSelection.assets("orders_table"))
    with pytest.raises(ConfigError, match="schedule plain_schedule does nothing with a stream"):
        build_reconciling_sensor([], operations=[dg.ScheduleDefinition(job=job, cron_schedule="0 3 * * *")])
    taken = build_savepoint_schedule(orders_asset(), "0 3 * * *")
    stopped = build_stop_with_savepoint_schedule(orders_asset(), "0 3 * * *")
    assert build_reconciling_sensor([], operations=[taken, stopped]).name == "unistream_reconciling"


class LockedLinks(LocalLinks):
    """As if Dagster's events of the first run were locked."""

    def find(self, key: str) -> SeenLink:
        if key == LOCKED[0]:
            raise OSError("database is locked")
        return super().find(key)


class LockedResource(UnistreamResource):
    def links(self) -> LinkStore:
        return LockedLinks(SqlMetadataStore(self.config[METADATA_URL.key]))


def test_a_run_that_cannot_be_looked_at_hides_no_other(world: World) -> None:
    def second(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.wait()
        world.tick()
        world.wait()
        assert world.tick().endswith(f"database is locked; run {run.run_id} is reported as failed")

    def first(run: dg.DagsterRun) -> None:
        LOCKED[:] = [key_of(run, "orders")]
        world.resource = LockedResource
        world.materialize(second)
        assert world.status(run) is STARTED

    world.materialize(first)


def test_a_run_without_a_link_has_a_generous_time(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        for _ in range(3):
            assert world.tick() == "1 runs of these assets are under way"
            world.wait()
        world.later_s = 61
        assert "step orders has begun, watches no job, and has reported nothing for 6" in world.tick()
        world.wait()
        assert world.tick() == f"run {run.run_id} is reported as failed"
        assert world.status(run) is FAILURE

    world.materialize(inside)


def test_runs_of_other_assets_are_left_alone(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.later_s = LONG_S
        assert world.tick() == "no run of these assets is under way"

    world.materialize(inside, name="others")


def test_a_run_that_was_being_terminated_is_reported_as_canceled(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        world.instance.report_run_canceling(run)
        world.wait()
        world.tick()
        world.wait()
        assert world.tick() == f"run {run.run_id} is reported as canceled"
        assert world.status(run) is CANCELED
        assert f"and job {JOB} has ended with it" in world.said(run)

    world.materialize(inside)


def test_a_released_link_says_nothing_against_a_run(world: World) -> None:
    def inside(run: dg.DagsterRun) -> None:
        world.attach(run)
        assert world.links.release(key_of(run, "orders"), watcher_of(run, "orders"))
        for _ in range(3):
            world.wait()
            assert world.tick() == "1 runs of these assets are under way"

    world.materialize(inside)


# --- the job of a run that was being terminated -----------------------------------------------------


@pytest.mark.parametrize(
    ("on_terminate", "waited_s", "calls", "text"),
    [
        ("stop_with_savepoint", 0, ["stop drain=False target=None"], "was stopped with savepoint"),
        ("drain", 0, ["stop drain=True target=None"], "was stopped with savepoint"),
        ("cancel", 0, ["cancel"], "is cancelled"),
        ("detach", 0, [], "goes on"),
        ("stop_with_savepoint", 20.1, ["cancel"], "is cancelled"),
    ],
)
def test_its_job_is_ended_by_the_policy(
    on_terminate: OnTerminate, waited_s: float, calls: list[str], text: str
) -> None:
    job = FakeJob()
    said = ended(job, policy(on_terminate, timeout_s=20), waited_s)
    assert said is not None
    assert text in said
    assert job.calls == calls


@pytest.mark.parametrize("on_terminate", ["stop_with_savepoint", "drain", "cancel", "detach"])
def test_a_job_that_has_ended_is_not_ended_again(on_terminate: OnTerminate) -> None:
    job = FakeJob()
    job.end("FINISHED")
    assert ended(job, policy(on_terminate), 0) == f"job {JOB} has ended as FINISHED"
    assert job.calls == []


def test_a_job_that_takes_its_time_is_left_to_the_next_tick() -> None:
    job = FakeJob()
    job.restarting = 1_000
    assert ended(job, policy(), 0, within_s=0.1) is None
    assert job.calls == []


@pytest.mark.parametrize(
    ("failure", "calls", "said"),
    [
        (Unreachable("away"), ["stop drain=False target=None"], None),
        (UnistreamError("no space"), ["stop drain=False target=None", "cancel"], "no space"),
    ],
)
def test_a_stop_that_fails(failure: Exception, calls: list[str], said: str | None) -> None:
    job = FakeJob()
    job.stop_fails = failure
    text = ended(job, policy(), 0)
    assert job.calls == calls
    assert (text is None) == (said is None)
    assert said is None or said in (text or "")


def test_a_batch_job_is_cancelled() -> None:
    job = FakeJob()
    job.job_type = "BATCH"
    ended(job, policy(), 0)
    assert job.calls == ["cancel"]


# --- what is refused --------------------------------------------------------------------------------


def test_an_asset_of_no_sink_is_refused() -> None:
    @dg.asset
    def plain() -> None: ...

    with pytest.raises(ConfigError, match="asset plain is of no sink"):
        build_reconciling_sensor([plain])


@pytest.mark.parametrize("durations", [{"silent_after_s": 0}, {"unlinked_after_s": -1}])
def test_a_duration_is_above_0(durations: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        build_reconciling_sensor([], **durations)


def test_it_runs_unless_it_is_stopped() -> None:
    assert build_reconciling_sensor([]).default_status is dg.DefaultSensorStatus.RUNNING

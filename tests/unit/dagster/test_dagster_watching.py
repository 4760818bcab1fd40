"""The heartbeats of a run: on a database of its own, with a clock and a Dagster that the test sets."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import dagster as dg
import pytest

from tests.eventually import eventually
from tests.metadata_rows import create_database
from tests.unit.dagster.test_dagster_attached import JOB, FakeJob, Story, policy
from unistream.base.errors import Unreachable
from unistream.base.ids import JobId
from unistream.client.job.run_links import LinkStore, LocalLinks
from unistream.dagster.run.attached import POLL_S, run_step
from unistream.dagster.run.watching import LeftToAnother, RunWatch, key_of, mark_of, watcher_of
from unistream.metadata.store import SqlMetadataStore
from unistream.port.run_links import RunLink

EVERY_S = 0.02
RUN = dg.DagsterRun("job", run_id="5f0c")
RETRY = dg.DagsterRun("job", run_id="77aa", root_run_id="5f0c", parent_run_id="5f0c")
OTHER = dg.DagsterRun("job", run_id="0b1e")
STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE
CANCELED = dg.DagsterRunStatus.CANCELED
KEY = key_of(RUN, "orders")


class World:
    """A database of links that can be away, and the status of runs in Dagster."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'metadata.db'}"
        create_database(self.url)
        self.is_away = False
        self.opened = 0
        self.statuses: dict[str, dg.DagsterRunStatus] = {}
        self.dagster_is_away = False
        self.links = LocalLinks(SqlMetadataStore(self.url))

    def open(self) -> LinkStore:
        self.opened += 1
        if self.is_away:
            raise Unreachable("the database does not answer")
        return LocalLinks(SqlMetadataStore(self.url))

    def watch(self, run: dg.DagsterRun, every_s: float = EVERY_S) -> RunWatch:
        def status() -> dg.DagsterRunStatus:
            if self.dagster_is_away:
                raise OSError("database is locked")
            return self.statuses.get(run.run_id, STARTED)

        return RunWatch(
            key_of(run, "orders"),
            watcher_of(run, "orders"),
            open_links=self.open,
            status=status,
            every_s=every_s,
        )

    def link(self, key: str = KEY) -> RunLink | None:
        return self.links.find(key).link

    def is_of(self, run: dg.DagsterRun) -> bool:
        link = self.link(key_of(run, "orders"))
        return link is not None and link.is_of(watcher_of(run, "orders"))

    def beats(self, more: int = 3) -> None:
        """Waits for some more heartbeats."""
        before = self.link()
        assert before is not None
        eventually(lambda: _version(self.link()) >= before.version + more, "heartbeats")


def _version(link: RunLink | None) -> int:
    return -1 if link is None else link.version


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.links.close()


def await_link(world: World, run: dg.DagsterRun) -> None:
    eventually(lambda: world.is_of(run), "it has the link")


def ends(job: FakeJob) -> None:
    job.end("FINISHED")


def interrupt(_job: FakeJob) -> None:
    raise dg.DagsterExecutionInterruptedError


def fail(_job: FakeJob) -> None:
    raise ZeroDivisionError


def checkpoint(job: FakeJob) -> None:
    def complete() -> None:
        job.checkpoints += 1

    threading.Timer(2 * POLL_S, complete).start()


@pytest.mark.parametrize(
    ("while_waiting", "detaches"),
    [
        pytest.param(ends, False, id="its job has ended"),
        pytest.param(interrupt, False, id="it is terminated"),
        pytest.param(fail, False, id="the step fails"),
        pytest.param(checkpoint, True, id="it detaches"),
    ],
)
def test_a_run_has_its_link_until_it_ends(
    world: World, while_waiting: Callable[[FakeJob], None], detaches: bool
) -> None:
    def then(job: FakeJob) -> None:
        await_link(world, RUN)
        world.beats()
        while_waiting(job)

    job = FakeJob(then)
    watch = world.watch(RUN)
    with suppress(dg.DagsterExecutionInterruptedError, ZeroDivisionError):
        run_step(lambda: job, policy(), Story(), detaches=detaches, watch=watch)
    link = world.link()
    assert link is not None
    assert link.released_ms is not None
    assert (link.job, link.watcher) == (JOB, watcher_of(RUN, "orders"))
    assert watch.lost is None


def test_a_database_that_is_away_ends_nothing(world: World) -> None:
    def outage(job: FakeJob) -> None:
        world.dagster_is_away = True
        eventually(lambda: world.opened >= 3, "it tries again")
        assert world.link() is None
        world.is_away = False
        await_link(world, RUN)
        world.beats()
        job.end("FINISHED")

    world.is_away = True
    job = FakeJob(outage)
    watch = world.watch(RUN)
    assert run_step(lambda: job, policy(), Story(), watch=watch).state == "FINISHED"
    assert job.calls == ["close"]
    assert watch.lost is None


def test_a_database_that_does_not_come_back_ends_nothing(world: World) -> None:
    world.is_away = True
    job = FakeJob(interrupt)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, policy(), Story(), watch=world.watch(RUN))
    assert job.calls == ["stop drain=False target=None", "close"], "it ends its job as ever"


def test_a_database_that_was_made_again_gets_the_link_again(world: World) -> None:
    watch = world.watch(RUN)
    watch.begin(JOB)
    await_link(world, RUN)
    with closing(sqlite3.connect(world.url.removeprefix("sqlite:///"))) as connection, connection:
        assert connection.execute("DELETE FROM unistream_run_links").rowcount == 1
    await_link(world, RUN)
    watch.close()
    assert watch.lost is None


def reported(world: World) -> str:
    """As the sensor does before it reports a run."""
    mark = mark_of(watcher_of(RUN, "orders"))

    def is_taken() -> bool:  # not if a heartbeat came in the same millisecond
        taken = world.links.take_over(KEY, mark, silent_ms=0)
        return taken is not None and taken.watcher == mark

    eventually(is_taken, "the sensor has the link")
    return "run 5f0c was silent for too long, and is reported as ended"


def retried(world: World) -> str:
    retry = world.watch(RETRY)
    retry.begin(JOB)
    await_link(world, RETRY)
    retry.close()
    return "run 77aa watches job"


def failed(world: World) -> str:
    world.statuses["5f0c"] = FAILURE
    return "run 5f0c has ended as FAILURE in Dagster"


def replaced(world: World) -> str:
    """It was forced to be CANCELED, and the next materialisation has attached."""
    world.watch(OTHER, every_s=60).begin(JOB)
    await_link(world, OTHER)
    world.statuses["5f0c"] = CANCELED
    return "run 5f0c has ended as CANCELED in Dagster"


@pytest.mark.parametrize("lose", [reported, retried, failed, replaced], ids=lambda lose: lose.__name__)
def test_a_run_that_is_no_longer_its_jobs_leaves_it(world: World, lose: Callable[[World], str]) -> None:
    said: list[str] = []

    def then(_job: FakeJob) -> None:
        await_link(world, RUN)
        said.append(lose(world))

    job, story = FakeJob(then), Story()
    with pytest.raises(LeftToAnother) as left:
        run_step(lambda: job, policy(), story, watch=world.watch(RUN))
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])
    assert said[0] in str(left.value)
    assert story.notes == [f"{left.value}: this run leaves the job as it is"]
    assert left.value.lost.is_canceled == (lose is replaced)


@pytest.mark.parametrize("lose", [reported, retried, failed, replaced], ids=lambda lose: lose.__name__)
def test_it_does_not_end_the_job_when_it_is_interrupted_before_its_next_heartbeat(
    world: World, lose: Callable[[World], str]
) -> None:
    """As a paused process that gets SIGTERM and then wakes up."""

    def then(_job: FakeJob) -> None:
        await_link(world, RUN)
        lose(world)
        os.kill(os.getpid(), signal.SIGTERM)

    job = FakeJob(then)
    with dg.raise_execution_interrupts(), pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, policy(), Story(), watch=world.watch(RUN, every_s=60))
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])


def test_it_takes_no_result_of_another_run(world: World) -> None:
    def then(job: FakeJob) -> None:
        await_link(world, RUN)
        reported(world)
        job.end("FINISHED")

    with pytest.raises(LeftToAnother):
        run_step(lambda: FakeJob(then), policy(), Story(), watch=world.watch(RUN, every_s=60))


@pytest.mark.parametrize("signalled", [False, True])
def test_a_run_that_was_forced_to_be_canceled_ends_its_job(world: World, signalled: bool) -> None:
    def then(_job: FakeJob) -> None:
        await_link(world, RUN)
        world.statuses["5f0c"] = CANCELED
        if signalled:
            raise dg.DagsterExecutionInterruptedError

    job = FakeJob(then)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, policy(), Story(), watch=world.watch(RUN, every_s=60 if signalled else EVERY_S))
    assert job.calls == ["stop drain=False target=None", "close"]


def test_a_late_attachment_takes_no_link_from_a_newer_run(world: World) -> None:
    """The first run comes to the database when its retry has the link already."""
    world.is_away = True
    first = world.watch(RUN)
    first.begin(JOB)
    eventually(lambda: world.opened >= 2, "it tries again")
    world.links.attach(KEY, JobId("b" * 32), watcher_of(RETRY, "orders"))
    world.is_away = False
    tries = world.opened
    eventually(lambda: world.links.heartbeat(KEY, watcher_of(RETRY, "orders")), "the retry's heartbeat")
    eventually(lambda: world.opened > tries, "it comes to the database")
    assert world.is_of(RETRY)
    first.close()


def test_a_run_that_ended_before_it_had_its_job_takes_no_link_from_its_retry(world: World) -> None:
    """It was paused for so long while it started."""
    world.statuses["5f0c"] = FAILURE
    world.links.attach(KEY, JOB, watcher_of(RETRY, "orders"))
    job = FakeJob()
    with pytest.raises(LeftToAnother):
        run_step(lambda: job, policy(), Story(), watch=world.watch(RUN, every_s=1))
    assert world.is_of(RETRY)
    assert job.calls == ["close"]

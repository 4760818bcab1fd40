"""Partitions of a stream's table are computed again from the history, as Dagster's dialog starts it."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

from tests.eventually import eventually
from tests.integration.backfilled import killing
from tests.integration.dagster_location import PIPELINES, WAIT_S, Location, log_of
from tests.integration.dagster_minutes import (
    ALL,
    FIRST,
    KEYS,
    LATER,
    RANGE,
    TWO_MINUTES,
    Row,
    rows_of,
    send,
    settings,
    truth,
    write_history,
)
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient
from unistream.dagster.run.watching import key_of

pytestmark = [pytest.mark.kafka]

START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


class Stream:
    """The topic, the table and the code location of one test."""

    def __init__(self, location: Location, module: ModuleType, kafka: str, topic: str, folder: Path) -> None:
        self.location, self.module = location, module
        self._kafka, self._topic, self._folder = kafka, topic, folder

    def send(self, first: int, end: int) -> None:
        send(self._kafka, self._topic, first, end)

    def materialize(self, asset: dg.AssetsDefinition, *partitions: str) -> dg.ExecuteInProcessResult:
        """In this process, as the dialog launches a run for a range."""
        tags = {START: partitions[0], END: partitions[-1]} if partitions else {}
        return dg.materialize(
            [asset],
            instance=self.location.instance,
            resources={"unistream": self.module.resource()},
            raise_on_error=False,
            tags=tags,
        )

    def launch(self, *partitions: str) -> Any:
        """In a process of its own."""
        module = ("dagster", "asset", "materialize", "-m", self.module.__name__)
        range_ = f"{partitions[0]}...{partitions[-1]}"
        return self.location.start(*module, "--select", "minutes", "--partition-range", range_)

    def said(self) -> list[str]:
        """What is in the log of the newest run of a process."""
        runs = self.location.instance.get_runs(limit=1)
        return log_of(self.location, runs[0]) if runs else []

    def heartbeats(self) -> int:
        """When the newest run of a process, which computes, has sent the last one; ms since 1970."""
        [run] = self.location.instance.get_runs(limit=1)
        links = self.module.resource().links()
        assert links is not None
        with closing(links):
            link = links.find(key_of(run, "minutes")).link
        assert link is not None
        assert link.released_ms is None
        return int(link.heartbeat_ms)

    def assert_exact(self, wanted: list[Row]) -> None:
        eventually(lambda: len(rows_of(self._folder)) >= len(wanted), f"{len(wanted)} rows", WAIT_S, 0.2)
        assert rows_of(self._folder) == wanted


@pytest.fixture
def source(kafka: str, topic: str) -> tuple[str, str]:
    return kafka, topic


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestClient]:
    """A session cluster that knows the watermark of its jobs at once."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    often = Configuration({"heartbeat.interval": "200 ms"})
    with (
        EmbeddedCluster("local", often, workdir=tmp_path / "cluster") as running,
        RestClient(running.rest_url) as client,
    ):
        yield client


@pytest.fixture
def stream(
    session: RestClient,
    locate: Callable[..., Location],
    source: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stream]:
    """It runs on a session cluster, and all that it has finished is wrong."""
    kafka, topic = source
    for name, value in settings(kafka, topic, tmp_path).items():
        monkeypatch.setenv(name, value)
    write_history(tmp_path)
    monkeypatch.syspath_prepend(str(PIPELINES))
    monkeypatch.delitem(sys.modules, "dagster_backfill", raising=False)
    made = Stream(locate(), importlib.import_module("dagster_backfill"), kafka, topic, tmp_path)
    made.send(0, FIRST)
    assert made.materialize(made.module.flights).success
    made.assert_exact(truth(FIRST))
    yield made
    for job in session.jobs():
        if job.ended_ms is None:
            session.client(JobId(job.job)).cancel()


def running(session: RestClient) -> str:
    [job] = [job.job for job in session.jobs() if job.ended_ms is None]
    return job


def why(result: dg.ExecuteInProcessResult, step: str = "minutes") -> str:
    failure = result.failure_data_for_node(step)
    assert failure is not None
    assert failure.user_failure_data is not None
    return failure.user_failure_data.description or ""


def test_a_range_of_partitions_is_replaced_and_the_stream_goes_on(
    stream: Stream, session: RestClient
) -> None:
    minutes, before = stream.module.minutes, running(session)
    early = stream.materialize(minutes, RANGE[0], LATER)
    assert "the stream has finished its results only before 1970-01-01T00:19:50Z" in why(early)
    assert running(session) == before, "what is refused stops nothing"

    for _ in range(2):
        result = stream.materialize(minutes, *RANGE)
        assert result.success, why(result)
        stream.assert_exact(truth(FIRST, TWO_MINUTES))
        events = result.get_asset_materialization_events()
        assert [event.partition for event in events] == list(RANGE)
        figures = {name: value.value for name, value in events[0].materialization.metadata.items()}
        rows = 12 * KEYS
        assert (figures["unistream/rows_removed"], figures["unistream/rows_added"]) == (rows, rows)
        version = figures["unistream/table_version"]
        assert int(version) == int(figures["unistream/fence_version"]) + 1
        assert events[0].materialization.tags["dagster/data_version"] == version
        assert running(session) == figures["unistream/job_id"] != before
    lines = "\n".join(log_of(stream.location, result.dagster_run))
    assert all(word in lines for word in ("stopped: ", "staged: ", "replaced: ", "resumed: "))

    again = stream.materialize(stream.module.flights)
    assert again.success
    assert running(session) == figures["unistream/job_id"], "it is the version of the stream that runs"
    stream.send(FIRST, ALL)
    stream.assert_exact(truth(ALL, TWO_MINUTES))


def test_a_run_that_was_terminated_or_killed_goes_on_when_it_is_repeated(
    stream: Stream, session: RestClient, tmp_path: Path
) -> None:
    location, marks = stream.location, tmp_path / "marks"
    marks.mkdir()
    first = stream.launch(*RANGE)
    location.await_that("it computes", lambda: any(line.startswith("computing") for line in stream.said()))
    first.send_signal(signal.SIGINT)
    assert location.end(first) != 0
    said = "\n".join(stream.said())
    assert "error: interrupted; the backfill is unfinished (done: " in said
    assert "Re-execute this run: a backfill that has begun goes on where it stopped" in said
    other = stream.materialize(stream.module.minutes, RANGE[0])
    assert "has an unfinished backfill of another range" in why(other)

    still = {**killing(marks, "backfill.recorded:2"), "UNISTREAM_CRASH_SIGNAL": "STOP"}
    location.environment.update(still)  # it computes once more, and then stands still
    second = stream.launch(*RANGE)
    location.await_that("the command stands still", lambda: list(marks.iterdir()))
    assert stream.heartbeats() > 0, "the run is alive"
    second.kill()
    assert location.end(second) == -signal.SIGKILL, "the command has ended with its run"
    assert [job.job for job in session.jobs() if job.ended_ms is None] == []
    early = stream.materialize(stream.module.flights)
    assert "a backfill of job flights has not ended, and the job is stopped for it" in why(early, "flights")

    result = stream.materialize(stream.module.minutes, *RANGE)
    assert result.success, why(result)
    stream.send(FIRST, ALL)
    stream.assert_exact(truth(ALL, TWO_MINUTES))
    assert running(session)

"""Pages that stay open while their job ends or is upgraded, and what others say of a job there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from msgspec import structs

import unistream as us
from tests.asking import as_owner
from tests.browser.web_ui import check_case, missing, running_case, windows
from tests.eventually import WAIT_S
from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_cluster_sessions import await_checkpoints, begin
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient
from unistream.model.elements import Batch
from unistream.model.procedures import ProcedureKind, ProcedureReport, ProcedureState
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = pytest.mark.timeout(900)

DAGSTER = "http://dagster.example:3000"
CONFIG = {
    "web.dagster-url": DAGSTER,
    "heartbeat.interval": "500 ms",
    "security.rest.authentication": "token",
}
COUNTS = """
import unistream as us

def counts(env):
    columns = {
        "key": us.datagen.RandomInt(0, 50),
        "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=100),
    }
    source = us.DatagenSource(columns, rows=None, bounded=False, seed=7, rows_per_second=500, splits=4)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, "flights").uid("flights").key_by("key")
    counted = rows.window(us.TumblingEventTimeWindows.of("1 d")).aggregate(n=us.count())
    counted.uid("windows").sink_to(us.FileSink("out")).uid("out")
"""
"""A module of a user. Its one window never fires, so that its state is all that was ever read."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    if why := missing():
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(CONFIG), workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def flights(cluster: EmbeddedCluster, tmp_path: Path) -> Callable[..., JobId]:
    """Starts a job, and says its id."""

    def start(**config: str) -> JobId:
        graph, code = windows(tmp_path, 2).job_graph("flights")
        return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config)).job_id

    return start


def test_each_tab_says_that_its_job_has_ended(
    cluster: EmbeddedCluster, flights: Callable[..., JobId]
) -> None:
    check_case("changes", "ends", cluster.rest_url, job=str(flights()))


def test_what_is_no_number_is_shown_as_unknown(
    cluster: EmbeddedCluster, flights: Callable[..., JobId]
) -> None:
    check_case("changes", "noNumbers", cluster.rest_url, job=str(flights()))


def test_each_tab_of_a_job_that_is_not_known_leads_to_others(cluster: EmbeddedCluster) -> None:
    check_case("changes", "isGone", cluster.rest_url, job="b" * 32)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Command]]:
    if why := missing():
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))  # of its commands, for the owner's token
    (tmp_path / "counting.py").write_text(COUNTS)
    with commands_in(tmp_path) as start:
        yield start


def _run(start: Callable[..., Command], *words: str) -> None:
    command = start(*words)
    assert command.wait() == 0, command.err


def _submitted(start: Callable[..., Command], url: str) -> JobId:
    """A job of a program of its own."""
    words = ("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=1s")
    where = ("-t", "remote", "-D", f"rest.port={url.rpartition(':')[2]}")
    _run(start, "run", "counting:counts", "-d", "--name", "counts", "-p", "2", *where, *words)
    with RestClient(url) as client:
        [job] = [one.job for one in client.jobs() if one.name == "counts"]
    return JobId(job)


def test_a_job_of_a_program_is_upgraded_in_the_page_and_has_its_state(start: Callable[..., Command]) -> None:
    _, facts = begin(start)
    url = facts["url"]
    job = _submitted(start, url)
    with RestClient(url) as client:
        await_checkpoints(url, job)
        check_case("upgrades", "withState", url, job=str(job))
        [after] = [one for one in client.jobs() if one.name == "counts" and one.state == "RUNNING"]
        assert after.job != job
        assert client.info(job).savepoint is not None


def test_each_tab_of_a_job_that_a_command_upgrades_leads_to_the_new_one(
    start: Callable[..., Command],
) -> None:
    _, facts = begin(start)
    url = facts["url"]
    job = _submitted(start, url)
    with running_case("changes", "isUpgraded", url, job=str(job)) as await_word:
        await_word("ready")
        other = ("-D", "execution.checkpointing.interval=2s")
        _run(start, "upgrade", str(job), "counting:counts", "-m", url.removeprefix("http://"), *other)
    with RestClient(url) as client:
        assert client.info(job).is_terminal


def test_runs_and_assets_of_dagster_are_links(
    cluster: EmbeddedCluster, flights: Callable[..., JobId]
) -> None:
    job = flights(**{"dagster.assets": '[["lake", "orders 1"]]'})
    watcher = {"root_run": "run-7", "run": "run-7", "step": "orders", "attempt": 0}
    with httpx.Client(
        base_url=cluster.rest_url, headers=as_owner(str(cluster.rest_url)), trust_env=False
    ) as http:
        body = {"key": "orders", "job": str(job), "watcher": watcher}
        answer = http.post("/unistream/run-links/attach", json=body)
        assert answer.status_code == 200, answer.text
    given = {"run": "run-7", "asset": "lake/orders%201", "base": DAGSTER}
    check_case("notices", "dagster", cluster.rest_url, job=str(job), **given)


def test_an_unfinished_backfill_says_the_command_that_goes_on(
    cluster: EmbeddedCluster, flights: Callable[..., JobId]
) -> None:
    job, command = flights(), "unistream backfill resume b-7"
    report = ProcedureReport(
        id="b-7",
        kind=ProcedureKind.BACKFILL,
        job_name="flights",
        job=job,
        steps=("stop the job with a savepoint", "compute the range again", "replace it in one transaction"),
        done=2,
        state=ProcedureState.INTERRUPTED,
        text="the cluster does not answer",
        goes_on=command,
    )
    cluster.dispatcher.procedures.report(structs.replace(report, done=1, state=ProcedureState.RUNS))
    cluster.dispatcher.procedures.report(report)
    check_case("notices", "procedures", cluster.rest_url, job=str(job), command=command)


def _slow(folder: Path) -> us.TwoPhaseCommitSink[str]:
    """Its commits take longer than a checkpoint. (Made here, so that it travels by value.)"""
    go = str(folder / "go")

    class SlowCommits(us.TwoPhaseCommitSink[str]):
        name = "slow"

        def begin_transaction(self) -> str:
            import uuid

            return uuid.uuid4().hex

        def invoke(self, transaction: str, batch: Batch) -> None:
            pass

        def commit(self, transaction: str) -> None:
            import os

            while not os.path.exists(go):
                time.sleep(0.1)

        def abort(self, transaction: str) -> None:
            pass

    return SlowCommits()


def test_a_sink_that_waits_for_its_commits_is_named(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    env = us.Environment({**STREAMING, "parallelism.default": "1", "execution.checkpointing.interval": "1 s"})
    numbers = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=100)
    rows = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows.sink_to(_slow(tmp_path)).uid("slow").name("slow")
    graph, code = env.job_graph("slow")
    job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={}))
    job.wait_for(lambda info: info.checkpoints_completed >= 4, WAIT_S)
    check_case("notices", "slowCommits", cluster.rest_url, job=str(job.job_id), sink="slow")
    (tmp_path / "go").touch()

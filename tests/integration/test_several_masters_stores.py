"""Several masters whose database is stopped, or whose storage is full."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.copied_topic import Flow
from tests.integration.several_masters import (
    OF_HA_MATRIX,
    WAIT_S,
    Takeover,
    await_job,
    is_running,
    masters_in,
)
from tests.metadata_rows import rows
from tests.postgres import PostgresServer
from tests.small_disk import may_mount
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.client.remote.rest_client import RestClient
from unistream.master.cluster.job_views import DATABASE_AWAY
from unistream.metadata import tables
from unistream.metadata.schema import ensure

pytestmark = [pytest.mark.kafka, OF_HA_MATRIX]

AWAY_S = 30.0
DISK = "8m"


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server that this test stops."""
    server = PostgresServer()
    yield server
    server.close()


def test_a_database_that_is_away_holds_up_no_job(
    tmp_path: Path, zookeeper: str, flow: Flow, database: PostgresServer
) -> None:
    url = database.new_database()
    ensure(url)
    with (
        masters_in(tmp_path, zookeeper, options={"metadata.url": url}) as cluster,
        cluster.client() as client,
    ):
        first, second = cluster.pair()
        past = client.submit(flow.copy("past").request("past")).job_id
        await_job(client, past, is_running, "a job of before runs")
        client.client(past).cancel()
        await_job(client, past, lambda info: info.is_terminal, "it ends")
        job = client.submit(flow.request()).job_id
        flow.await_commits()
        before = client.info(job).checkpoints_completed
        database.stop()
        away_s = time.monotonic()
        flow.await_commits(10)
        takeover = Takeover(cluster, flow, "without the database")
        first.end(9)
        takeover.of(second, job)
        with RestClient(second.urls[-1], timeout_s=3.0) as at_second:
            assert at_second.info(job).state == "RUNNING"
            ended = at_second.info(past)
            assert (ended.state, ended.incomplete) == ("CANCELED", DATABASE_AWAY), "as the HA store knows it"
            with pytest.raises(Unreachable, match="database"):
                at_second.request("GET", f"/jobs/{past}/exceptions")
        eventually(lambda: time.monotonic() > away_s + AWAY_S, "it was away for long enough")
        during = client.info(job).checkpoints_completed
        assert during > before
        newest = client.client(job).checkpoints().latest_completed
        assert newest is not None
        database.start()
        eventually(
            lambda: newest.checkpoint_id in written(url, job),
            "checkpoints of the outage are written",
            WAIT_S,
            0.5,
        )
        eventually(lambda: client.info(past).state == "CANCELED", "the database answers again", WAIT_S, 0.5)
        flow.assert_exact()
        client.client(job).cancel()
        await_job(client, job, lambda info: info.is_terminal, "it ends")
        eventually(lambda: states(url)[job] == "CANCELED", "its end is written", WAIT_S, 0.5)
        epochs = [epoch for (epoch,) in rows(url, tables.leader_epochs, "epoch")]
        assert len(epochs) == 2


def written(url: str, job: str) -> set[int]:
    """The ids of its checkpoints in the database."""
    found = rows(url, tables.checkpoints, "job", "checkpoint_id")
    return {checkpoint_id for of, checkpoint_id in found if of == job}


def states(url: str) -> dict[str, str]:
    return dict(rows(url, tables.jobs, "job", "state"))  # type: ignore[arg-type]


# --- a full disk --------------------------------------------------------------------------------------


@pytest.mark.skipif(not may_mount(), reason="no mount namespaces here")
def test_a_full_disk_refuses_what_is_new_and_a_job_goes_on_when_there_is_space(
    tmp_path: Path, zookeeper: str, flow: Flow
) -> None:
    disk = tmp_path / "ha"
    disk.mkdir()
    tolerant = {"execution_checkpointing_tolerable-failed-checkpoints": "1000"}
    with masters_in(tmp_path, zookeeper, disk=DISK) as cluster, cluster.client(20.0) as client:
        master = cluster.start("first")
        cluster.await_leader(master)
        inside = Path(f"/proc/{master.process.pid}/root{disk}")
        job = client.submit(flow.request(**tolerant)).job_id
        flow.await_commits()
        before = sorted(inside.rglob("artifacts/*"))
        fill(inside / "ballast")
        failed = client.info(job).checkpoints_failed
        eventually(lambda: client.info(job).checkpoints_failed >= failed + 3, "they fail", WAIT_S, 0.2)
        version, passed = flow.version, flow.passed
        with pytest.raises(UnistreamError) as refused:
            client.submit(flow.copy("other").request("another"))
        assert not isinstance(refused.value, ConfigError)
        assert "No space left on device" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert sorted(inside.rglob("artifacts/*")) == before, "nothing is half written"
        assert [path for path in cluster.stored() if path.count("/") == 2 and "/jobs/" in path] == [
            f"/jobs/{job}"
        ]
        eventually(lambda: flow.passed > passed, "rows are processed", WAIT_S)
        assert flow.version == version
        (inside / "ballast").unlink()
        flow.await_commits()
        assert client.info(job).restarts == 0
        flow.assert_exact()
        another = client.submit(flow.copy("third").request("another")).job_id
        await_job(client, another, is_running, "what was refused is accepted")


def fill(file: Path) -> None:
    """Until there is no space at all."""
    with file.open("wb", buffering=0) as out:
        size = 1 << 20
        while size:
            try:
                out.write(b"x" * size)
            except OSError:
                size //= 2

"""A cluster of another version than the client: nothing is submitted, stopped or replaced."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.modes import STREAMING
from tests.own_access import access_in
from unistream.api.upgrade import upgraded
from unistream.base.clock import SystemClock
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.job_client import JobClient
from unistream.dagster import UnistreamResource, unistream_assets
from unistream.rest.app import create_app
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.rest.triggers import Triggers

OTHER, PATCH = "0.2.0", "0.1.99"
REFUSED = (
    rf"runs unistream {OTHER}, and this client is {us.__version__}: major and minor number must be the same"
)

At = Callable[[str], dict[str, str]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def at(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[At]:
    """Options that name the same cluster, by a REST server that answers everybody with the version."""
    access = access_in(tmp_path / "access", required=False)
    with ExitStack() as stack:

        def serve(version: str) -> dict[str, str]:
            app = create_app(
                cluster.dispatcher,
                clock=SystemClock(),
                version=version,
                triggers=Triggers(lambda: uuid.uuid4().hex),
                on_shutdown=lambda: None,
                access=access,
            )
            server = RestServer(app, Listener("127.0.0.1", 0))
            stack.callback(server.close)
            return {"rest.port": str(urlsplit(server.url).port), **STREAMING}

        yield serve


def numbers(env: us.Environment, lake: Path, step: int = 1) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=500)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.filter(lambda row: row["id"] % step == 0).uid("some").sink_to(us.DeltaSink(str(lake))).uid("lake")


def pipeline(options: dict[str, str], lake: Path, step: int = 1) -> us.Environment:
    env = us.Environment(options, target="remote")
    numbers(env, lake, step)
    return env


@pytest.fixture
def running(at: At, tmp_path: Path) -> Iterator[JobClient]:
    """A job that was submitted by a client of another patch version."""
    with pipeline(at(PATCH), tmp_path / "lake").execute_async("rows") as job:
        eventually(lambda: job.status().all_tasks_run, "its tasks run", WAIT_S)
        yield job
        job.cancel()
        job.wait(WAIT_S)


def test_a_job_is_not_submitted(at: At, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    for savepoint in (None, "latest"):
        with pytest.raises(us.ConfigError, match=REFUSED):
            pipeline(at(OTHER), tmp_path / "lake").execute_async("rows", savepoint=savepoint)
    assert list(cluster.dispatcher.jobs()) == []
    assert not (tmp_path / "lake").exists()


def test_a_job_is_not_stopped_to_be_replaced(running: JobClient, at: At, tmp_path: Path) -> None:
    with pytest.raises(us.ConfigError, match=REFUSED):
        upgraded(
            pipeline(at(OTHER), tmp_path / "lake", 2), running.job_id, name="rows", request_id="an upgrade"
        )
    assert running.status().state == "RUNNING"
    assert running.status().savepoint is None


def test_a_run_of_dagster_fails_in_one_sentence(
    running: JobClient, at: At, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    @unistream_assets(lambda env: numbers(env, tmp_path / "lake", 2), name="rows")
    def rows(context: dg.AssetExecutionContext, unistream: UnistreamResource):  # type: ignore[no-untyped-def]
        yield from unistream.run(context, lambda env: numbers(env, tmp_path / "lake", 2))

    resource = UnistreamResource(target="remote", config=at(OTHER))
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [rows], instance=instance, resources={"unistream": resource}, raise_on_error=False
        )
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.user_failure_data is not None
    assert f"runs unistream {OTHER}, and this client is" in (failure.user_failure_data.description or "")
    [job] = cluster.dispatcher.jobs()
    assert (job.job, job.state) == (running.job_id, "RUNNING")

"""How long commands, and the ends of jobs and clusters, take: see `benchmarks.bounds`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.integration import test_cluster_sessions as of_sessions
from tests.integration.crash_runs import Command, await_info, commands_in, job_of
from tests.integration.test_batch_on_spark import SPARK, slow_job
from tests.integration.test_clusters_away import PIPELINES, Cluster, submit
from tests.integration.test_object_store_outages import RESTARTING, Lake, running
from tests.s3_server import S3Server
from tests.unit.cli.test_cli_robust import HUNG, Hung
from unistream.base.errors import UnistreamError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient
from unistream.testing.devtools.object_store import make_bucket

Start = Callable[..., Command]


def _timed(start: Start, code: int, *words: str) -> float:
    """Seconds of a command that ends with `code`."""
    began_s = time.monotonic()
    return _ended(start(*words), code, began_s)


def _ended(command: Command, code: int, began_s: float) -> float:
    found = command.wait()
    took_s = time.monotonic() - began_s
    if found != code:
        raise SystemExit(f"{command.process.args} ended with exit code {found}, not {code}: {command.err}")
    return took_s


def commands(folder: Path) -> dict[str, float]:
    (folder / "away_pipelines.py").write_text(PIPELINES)
    with commands_in(folder) as start:
        return {
            "list --all next to ten clusters that hang": _next_to_those_that_hang(start),
            **_next_to_one_that_stands_still(start),
            **_where_the_only_one_is_away(start),
        }


def _next_to_those_that_hang(start: Start) -> float:
    with closing(Hung()) as hung:
        entries = [
            home.register(f"{number:032x}", url=hung.url, target="local", now_ms=0) for number in range(HUNG)
        ]
        try:
            return _timed(start, 0, "list", "--all")
        finally:
            for entry in entries:
                entry.unlink()


@contextmanager
def _standing_still(cluster: Cluster) -> Iterator[None]:
    cluster.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal(signal.SIGCONT)


def _next_to_one_that_stands_still(start: Start) -> dict[str, float]:
    well, hung = Cluster(start), Cluster(start)
    job, away = submit(start, well, "endless"), submit(start, hung, "endless")
    with _standing_still(hung):
        times = {
            "list next to a cluster that stands still": _timed(start, 0, "list"),
            "info next to a cluster that stands still": _timed(start, 2, "info", away),
            "cancel next to a cluster that stands still": _timed(start, 0, "cancel", job),
        }
    for cluster in (well, hung):
        cluster.kill()
    return times


def _where_the_only_one_is_away(start: Start) -> dict[str, float]:
    cluster = Cluster(start)
    words = ("-D", "client.timeout=2 s", "-D", f"rest.port={cluster.port}")
    job = submit(start, cluster, "endless")
    with _standing_still(cluster):
        info_s = _timed(start, 3, "info", job, *words)
    mode = ("-D", "execution.runtime-mode=STREAMING")
    run = start("run", "away_pipelines:endless", "-t", "remote", *words, *mode)
    with RestClient(cluster.url) as client:
        await_info(client, job_of(run.line()), lambda info: info.state == "RUNNING")
    began_s = time.monotonic()
    cluster.kill()
    return {
        "info, client.timeout 2 s, where the only cluster stands still": info_s,
        "a run, client.timeout 2 s, whose cluster was killed": _ended(run, 3, began_s),
    }


def sessions(folder: Path) -> dict[str, float]:
    (folder / "session_pipelines.py").write_text(of_sessions.PIPELINES)
    with commands_in(folder) as start:
        cluster, facts = of_sessions.begin(start)
        job = of_sessions.submit(start, facts["url"], "stuck")
        with RestClient(facts["url"]) as client:
            await_info(client, job, lambda info: info.state == "RUNNING")
        of_sessions.begin_shutdown(cluster, facts["url"], signal.SIGTERM)
        began_s = time.monotonic()
        cluster.process.send_signal(signal.SIGTERM)
        return {"a second signal ends a session cluster": _ended(cluster, 143, began_s)}


def spark(folder: Path) -> dict[str, float]:
    with EmbeddedCluster("spark", SPARK, workdir=folder / "cluster", rest=False) as cluster:
        job = slow_job(cluster, folder)
        began_s = time.monotonic()
        job.cancel()
        if job.wait().state != "CANCELED":
            raise SystemExit("it was to be cancelled")
        return {"a BATCH job on Spark is cancelled": time.monotonic() - began_s}


def store(folder: Path) -> dict[str, float]:
    with S3Server(folder / "s3") as server:
        make_bucket(server.address, "unistream")
        lake = Lake(server.address, folder)
        with running(lake, folder, server.address, RESTARTING, rows_per_second=1_000) as job:
            server.kill()
            began_s = time.monotonic()
            with suppress(UnistreamError):
                job.stop(target=f"{lake.url}/savepoints")
                raise SystemExit("it was to be refused")
            stop_s = time.monotonic() - began_s
            server.start()
            job.cancel()
        return {"a stop without the object store is refused": stop_s}

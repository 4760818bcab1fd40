"""How fast do the pages of a cluster with a long history answer?

    python -m benchmarks.history                          SQLite and PostgreSQL
    python -m benchmarks.history --database sqlite --rows 600000

A master with 20 running jobs (their workers are scripted) over a database with ended jobs and `--rows`
checkpoints of one of them, not pruned; a client in a process of its own sends 50 requests in a second. One
JSON line for each page: p50 and p99 in ms of the times that the client sees.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Final

import httpx

from benchmarks.metadata import EPOCH, NOW_MS, fill_checkpoints, fill_commits, job, job_id
from tests.asking import as_owner
from tests.postgres import PostgresServer
from tests.unit.master.conftest import Cluster, graph, request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import JobId
from unistream.master.service import ClusterServices
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.port.metadata import ArchiveRecord
from unistream.port.retention import DAY_MS, MetadataRetention

RUNNING: Final = 20
PER_S: Final = 50
SECONDS: Final = 10
WAIT_S: Final = 30.0


class Measured(Cluster):
    """On a database that is there already."""

    def __init__(self, root: Path, url: str) -> None:
        self.given = url
        config = {"heartbeat.timeout": "1 h"}  # scripted workers send none
        super().__init__(root=root, workers=ScriptedWorkers(ends=False), config=config)

    def services(self) -> ClusterServices:
        """Nothing is pruned."""
        self.url = self.given
        return replace(
            super().services(), retention=MetadataRetention(age_ms=10**6 * DAY_MS, checkpoints=10**9)
        )


def fill(url: str, rows: int, ended: int) -> None:
    """Ended jobs, one of which took `rows` checkpoints and whose archive is missing."""
    store = SqlMetadataStore(url)
    store.add_job(job(1, state="FINISHED", ended_ms=NOW_MS), EPOCH)
    for number in range(2, 2 + ended):
        store.add_job(job(number, state="FINISHED", ended_ms=NOW_MS - number), EPOCH)
        store.record_archive(
            ArchiveRecord(
                job=job_id(number),
                format=1,
                ended_ms=NOW_MS - number,
                tasks={"FINISHED": 8},
                content=json.dumps({"padding": "x" * 50_000}),
            ),
            EPOCH,
        )
    store.close()
    fill_checkpoints(url, 1, rows, NOW_MS - rows * 1_000, step_ms=1_000)
    fill_commits(url, 1_000)


def pages(running: JobId) -> dict[str, str]:
    long = job_id(1)
    return {
        "/jobs/overview": "/jobs/overview",
        "list of the command line": "/unistream/jobs",
        "a running job": f"/jobs/{running}",
        "checkpoints of a running job": f"/jobs/{running}/checkpoints",
        "an ended job with many checkpoints": f"/jobs/{long}",
        "its checkpoints": f"/jobs/{long}/checkpoints",
        "its exceptions": f"/jobs/{long}/exceptions",
        "its plan": f"/jobs/{long}/plan",
    }


def ask(url: str, seconds: int) -> None:
    """The client: prints the figures of one page."""
    times = []
    with httpx.Client(headers=as_owner(url), trust_env=False, timeout=WAIT_S) as http:
        for _ in range(PER_S):  # the first ones after a start
            http.get(url)
        begin = time.perf_counter()
        for number in range(PER_S * seconds):
            time.sleep(max(0.0, begin + number / PER_S - time.perf_counter()))
            sent = time.perf_counter()
            answer = http.get(url)
            times.append((time.perf_counter() - sent) * 1_000)
            assert answer.status_code == 200, answer.text
    cuts = quantiles(times, n=100)
    print(
        json.dumps({"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2), "bytes": len(answer.content)})
    )


def measure(url: str, folder: Path, rows: int, ended: int) -> None:
    ensure(url)
    fill(url, rows, ended)
    cluster = Measured(folder, url)
    jobs = [cluster.dispatcher.submit(request(graph(f"job {n}", parallelism=4))) for n in range(RUNNING)]
    for one in jobs:
        cluster.dispatcher.wait_for(one, lambda info: info.state == "RUNNING", WAIT_S)
    api = Api(cluster)
    try:
        for name, path in pages(jobs[0]).items():
            command = [sys.executable, "-m", "benchmarks.history", "--ask", f"{api.server.url}{path}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            kind = url.partition(":")[0]
            facts = {"database": kind, "page": name, "ended_jobs": ended, "checkpoints": rows}
            print(json.dumps(facts | json.loads(done.stdout)), flush=True)
    finally:
        api.close()
        cluster.dispatcher.close()


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", choices=["sqlite", "postgresql"])
    parser.add_argument("--rows", type=int, default=600_000, help="checkpoints of one job, not pruned")
    parser.add_argument("--ended", type=int, default=100, help="jobs that have ended")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        ask(given.ask, SECONDS)
        return
    if given.database != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            measure(f"sqlite:///{folder}/metadata.db", Path(folder), given.rows, given.ended)
    if given.database != "sqlite":
        server = PostgresServer()
        try:
            with tempfile.TemporaryDirectory() as folder:
                measure(server.new_database(), Path(folder), given.rows, given.ended)
        finally:
            server.close()


if __name__ == "__main__":
    main()

"""Six incidents on real clusters: what an operator finds in the web UI while something has failed.

Each is a context: from its beginning to its end the job is as the incident leaves it, so that nobody has to
be quick. `INCIDENTS` has them by name; docs/guide/incidents.md tells them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

import unistream as us
from tests.browser.web_ui import check_case, windows
from tests.eventually import WAIT_S
from tests.integration.kafka_rows import fill, source
from tests.modes import STREAMING
from tests.small_disk import fill_up, small_disk
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.stack import LocalStack
from unistream.worker.code import pack

CLUSTER: Final = {"heartbeat.interval": "500 ms"}
JOB: Final = {**STREAMING, "parallelism.default": "2", "pipeline.max-parallelism": "8"}
CHECKPOINTS: Final = {"execution.checkpointing.interval": "1 s"}
LATER: Final = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "20 min",
}
"""A job stays as its failure has left it, for as long as anybody looks at it."""
NUMBERS: Final = pa.schema([("n", pa.int64()), ("key", pa.int64())])
RATE: Final = r"\d\S*/s"
PICTURE: Final = {"width": 1240, "height": 820}
SLOW_KEY: Final = 3


@dataclass(frozen=True)
class Page:
    """`says`: regular expressions of texts. `picture`: its name in the documentation."""

    path: str
    says: tuple[str, ...]
    picture: str | None = None


@dataclass(frozen=True)
class Scene:
    """A cluster and a job with which something is wrong, and what its pages say of that."""

    url: str
    job: JobId
    pages: tuple[Page, ...]

    def check(self, folder: Path | None = None) -> None:
        """Looks at them. `folder`: takes the pictures of the documentation."""
        given: dict[str, object] = {"pages": [asdict(page) for page in self.pages]}
        if folder is not None:
            given |= {"folder": str(folder), "size": PICTURE}
        check_case("incidents", "said", self.url, **given)

    def pictures(self, folder: Path) -> list[Path]:
        """Those of `check`."""
        return [folder / f"{page.picture}.png" for page in self.pages if page.picture]


Incident = Callable[[Path], AbstractContextManager[Scene]]


def _numbers(env: us.Environment, rows_per_second: int = 200) -> us.DataStream:
    columns = {"n": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, 8)}
    numbers = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=rows_per_second, seed=7)
    return env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "fares").uid("fares")


@contextmanager
def _running(
    folder: Path, env: us.Environment, name: str, *, begun: Callable[[JobInfo], bool], **config: str
) -> Iterator[tuple[str, EmbeddedJobClient]]:
    """The address of a new cluster and its job, once it is as `begun` says."""
    with EmbeddedCluster("local", Configuration(CLUSTER), workdir=folder / "cluster") as cluster:
        graph, code = env.job_graph(name)
        given = {**CHECKPOINTS, **LATER, **config}
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=given))
        job.wait_for(begun, WAIT_S)
        assert cluster.rest_url is not None
        yield cluster.rest_url, job


def _saved(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.checkpoints_completed >= 2


def _restarts(info: JobInfo) -> bool:
    return info.state == "RESTARTING"


@contextmanager
def worker_died(folder: Path) -> Iterator[Scene]:
    """The process of a worker was killed."""
    with _running(folder, windows(folder, 2), "flights", begun=_saved) as (url, job):
        [worker, *_] = job.status().task_managers
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        job.wait_for(_restarts, WAIT_S)
        lost = rf"TaskManagerLost: TaskManager {worker.id} .* was killed by SIGKILL; its log is "
        again = r"starts again by itself, from checkpoint \d+\..*Next try: "
        yield Scene(
            url,
            job.job_id,
            (
                Page("/", (lost,)),
                Page(f"/jobs/{job.job_id}", (lost, again), "worker-died"),
                Page(f"/jobs/{job.job_id}/exceptions", (lost, f"worker {worker.id}")),
            ),
        )


@contextmanager
def kafka_away(folder: Path) -> Iterator[Scene]:
    """The broker that a job reads from has ended."""
    with LocalStack(folder / "kafka", ["kafka"]) as stack:
        servers = stack.address("kafka")
        create_topic(servers, "rides", partitions=2)
        fill(servers, "rides", range(2_000))
        env = us.Environment(JOB)
        rides = env.from_source(
            source(servers, "rides", bounded=False), us.WatermarkStrategy.no_watermarks(), "rides"
        ).uid("rides")
        rides.sink_to(us.FileSink(str(folder / "out"))).uid("files")
        with _running(folder, env, "rides", begun=_saved) as (url, job):
            job.wait_for(lambda info: info.metrics.get("records_in", 0) >= 2_000, WAIT_S)
            stack.close()
            silent = r"Source rides has had no answer for \d+"
            reads = rf"{silent}.* \(2 of 2 subtasks\)\. The job reads kafka://{servers}/rides"
            yield Scene(
                url,
                job.job_id,
                (
                    Page("/", (silent,)),
                    Page(
                        f"/jobs/{job.job_id}",
                        (reads, "none is lost; the job goes on by itself"),
                        "kafka-away",
                    ),
                ),
            )


@contextmanager
def sink_refuses(folder: Path) -> Iterator[Scene]:
    """Somebody has replaced the columns of the table that a job writes."""
    table = folder / "lake" / "fares"
    env = us.Environment(JOB)
    _numbers(env).sink_to(us.DeltaSink(str(table))).uid("lake").name("lake")
    with _running(folder, env, "fares", begun=_saved) as (url, job):
        other = pa.table({"n": ["text"], "tip": [1.5]})
        write_deltalake(str(table), other, mode="overwrite", schema_mode="overwrite")
        job.wait_for(lambda info: bool(info.exceptions), WAIT_S)
        refused = rf"ConfigError: table {table}: column 'n' is string, the stream's is int64"
        where = r"lake committer \(1/1\)"
        yield Scene(
            url,
            job.job_id,
            (
                Page("/", (refused,)),
                Page(
                    f"/jobs/{job.job_id}", (refused, where, "does not start again by itself"), "sink-refuses"
                ),
                Page(f"/jobs/{job.job_id}/exceptions", (refused, where, "What had failed")),
            ),
        )


FARES: Final = """
def fare_of(row):
    text = "free" if row["n"] == 300 else str(row["n"])
    return {"n": int(text), "key": row["key"]}
"""
"""A module of a user; it fails for row 300."""


def _fare_of(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Its function, which travels by value."""
    path, names = folder / "fares.py", dict[str, Any]()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FARES)
    exec(compile(FARES, str(path), "exec"), names)
    found: Callable[[dict[str, Any]], dict[str, Any]] = names["fare_of"]
    return found


@contextmanager
def function_fails(folder: Path) -> Iterator[Scene]:
    """A function of the user fails for a row."""
    env = us.Environment(JOB)
    fares = _numbers(env).map(_fare_of(folder), returns=NUMBERS).uid("fare").name("fare")
    fares.sink_to(us.FileSink(str(folder / "out"))).uid("files")
    with _running(folder, env, "fares", begun=lambda info: bool(info.exceptions)) as (url, job):
        job.wait_for(_restarts, WAIT_S)
        failed = r"function 'fare_of' raised ValueError: .*'free' at row \d+ of the batch: {'n': 300, 'key'"
        where = r"fares -> fare -> files \([12]/2\)"
        yield Scene(
            url,
            job.job_id,
            (
                Page("/", ("UserCodeError: operator 'fare'",)),
                Page(f"/jobs/{job.job_id}", (failed, where, "go to the dead letters"), "function-fails"),
                Page(
                    f"/jobs/{job.job_id}/exceptions",
                    (failed, r"/fares\.py:4", r'"n": int\(text\)'),
                    "function-fails-where",
                ),
            ),
        )


class Slow(us.KeyedProcessFunction):
    """Takes long for one key."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        if row["key"] == SLOW_KEY:
            time.sleep(0.5)
        context.state(self.seen).update(row["n"])
        out.emit(row)


@contextmanager
def checkpoint_timed_out(folder: Path) -> Iterator[Scene]:
    """One subtask is too slow for its checkpoint."""
    env = us.Environment(JOB)
    looked_up = _numbers(env, 2_000).key_by("key").process(Slow(), returns=NUMBERS).uid("look up")
    looked_up.name("look up").sink_to(us.FileSink(str(folder / "out"))).uid("files")
    given = {"execution.checkpointing.timeout": "3 s"}
    with _running(folder, env, "look-ups", begun=lambda info: bool(info.exceptions), **given) as (url, job):
        expired = r"CHECKPOINT_EXPIRED: checkpoint \d+ failed: it took longer than"
        where = r"look up -> files \([12]\)"
        yield Scene(
            url,
            job.job_id,
            (
                Page("/", (expired,)),
                Page(f"/jobs/{job.job_id}", (expired, "which subtask was slow")),
                Page(
                    f"/jobs/{job.job_id}/checkpoints",
                    (expired, "These had not acknowledged it", where),
                    "checkpoint-timed-out",
                ),
            ),
        )


@contextmanager
def checkpoints_full(folder: Path) -> Iterator[Scene]:
    """The disk that checkpoints are stored on is full."""
    with small_disk(folder / "checkpoints") as disk:
        given = {"execution.checkpointing.dir": disk.as_uri()}
        with _running(folder, windows(folder, 2), "flights", begun=_saved, **given) as (url, job):
            fill_up(disk)
            job.wait_for(_restarts, WAIT_S)
            full = rf"checkpoint \d+ failed: .*{disk.as_uri()}/{job.job_id}/.*No space left on device"
            yield Scene(
                url,
                job.job_id,
                (
                    Page("/", (full,)),
                    Page(
                        f"/jobs/{job.job_id}",
                        (full, r"from checkpoint \d+\. .*is full: make room there.*Next try: "),
                        "checkpoints-full",
                    ),
                    Page(f"/jobs/{job.job_id}/checkpoints", ("No space left on device",)),
                ),
            )


@contextmanager
def running_well(folder: Path) -> Iterator[Scene]:
    """No incident: a job keeps up, for comparison."""
    env = us.Environment(JOB)
    columns = {
        "key": us.datagen.RandomInt(0, 50),
        "at": us.datagen.EventTime(start_ms=int(time.time() * 1_000), step_ms=1, disorder_ms=500),
    }
    rows = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=1_000, splits=2, seed=7)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    flights = env.from_source(rows, watermarks, "flights").uid("flights").key_by("key")
    counted = flights.window(us.TumblingEventTimeWindows.of("1 s")).aggregate(n=us.count()).uid("windows")
    counted.sink_to(us.DeltaSink(str(folder / "lake" / "flights"))).uid("lake").name("lake")
    begun = 20  # checkpoints, so that the strip and the timeline have something to show
    with _running(folder, env, "flights", begun=lambda info: info.checkpoints_completed >= begun) as (
        url,
        job,
    ):
        yield Scene(
            url,
            job.job_id,
            (
                Page("/", ("RUNNING", RATE), "ui-overview"),
                Page(f"/jobs/{job.job_id}", (RATE,), "ui-job"),
                Page(f"/jobs/{job.job_id}/checkpoints", ("subtasks have acknowledged",), "ui-checkpoints"),
                Page(f"/jobs/{job.job_id}/timeline", ("Checkpoints",), "ui-timeline"),
            ),
        )


INCIDENTS: Final[Mapping[str, Incident]] = {
    "worker-died": worker_died,
    "kafka-away": kafka_away,
    "sink-refuses": sink_refuses,
    "function-fails": function_fails,
    "checkpoint-timed-out": checkpoint_timed_out,
    "checkpoints-full": checkpoints_full,
}

"""A job that no machine of a developer has room for, behind the REST API: a real master, scripted workers."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.unit.master.conftest import Cluster, request, vertex
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId
from unistream.connector.static import StaticSource
from unistream.model import messages as msg
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship

WAIT_S: Final = 300.0
BEAT_S: Final = 5.0
LANES: Final = 10  # that rows flow through side by side


def wide_graph(vertices: int, parallelism: int) -> JobGraph:
    """Some lanes of vertices; every third vertex also reads the lane beside it."""
    import pyarrow as pa

    info = StaticSource(pa.table({"k": [1]}), splits=1).info()
    reads = {
        number: [number - LANES, *([number - LANES - 1] if number % 3 == 0 and number % LANES else [])]
        for number in range(LANES, vertices)
    }
    made: list[JobVertex] = [
        vertex(f"vertex {number}", parallelism, source=info)
        if number < LANES
        else vertex(f"vertex {number}", parallelism, inputs=len(reads[number]))
        for number in range(vertices)
    ]
    edges = tuple(
        JobEdge(
            id=EdgeId(f"{source}-{number}"),
            source=made[source].id,
            target=made[number].id,
            input_index=index,
            ship=Ship.HASH,
            key_columns=("k",),
        )
        for number, sources in reads.items()
        for index, source in enumerate(sources)
    )
    return JobGraph(name="wide", vertices=tuple(made), edges=edges)


@contextmanager
def served(vertices: int, parallelism: int) -> Iterator[tuple[str, JobId]]:
    """Its address, and the job, all tasks of which run and count rows."""
    config = {"heartbeat.timeout": "1 h", "taskmanager.numberOfTaskSlots": str(parallelism)}
    workers = ScriptedWorkers(ends=False)
    with tempfile.TemporaryDirectory(prefix="unistream-web-ui-") as folder:
        cluster = Cluster(root=Path(folder), workers=workers, config=config)
        api = Api(cluster)
        stop = threading.Event()
        try:
            job = cluster.dispatcher.submit(request(wide_graph(vertices, parallelism)))
            cluster.dispatcher.wait_for(
                job,
                lambda info: info.state == "RUNNING" and all(s.state == "RUNNING" for s in info.subtasks),
                WAIT_S,
            )
            threading.Thread(target=_beat, args=(workers, stop), daemon=True).start()
            yield api.server.url, job
        finally:
            stop.set()
            api.close()
            cluster.dispatcher.close()


def _beat(workers: ScriptedWorkers, stop: threading.Event) -> None:
    """Counters of all tasks, which grow."""
    found: dict[TaskManagerId, list[AttemptId]] = {}
    for worker, message in list(workers.received):
        if isinstance(message, msg.DeployTask):
            found.setdefault(worker, []).append(message.deployment.attempt)
    began = time.monotonic()
    while not stop.wait(BEAT_S):
        rows = int(1_000 * (time.monotonic() - began))
        for worker, attempts in found.items():
            metrics = tuple((attempt, _metrics(rows, number)) for number, attempt in enumerate(attempts))
            workers.call_master(msg.Heartbeat(task_manager=worker, metrics=metrics))


def _metrics(rows: int, number: int) -> msg.TaskMetrics:
    return msg.TaskMetrics(
        records_in=rows + number, records_out=rows, busy_ms=rows, busy_per_s=(rows + number) % 1_000
    )

"""How long does a cluster take: to start a job in slots that are there, and to get over the loss of a worker?

python -m benchmarks.scheduling schedule                   4 vertices of 64 subtasks, slots there
python -m benchmarks.scheduling recovery                   SIGKILL and SIGSTOP of a local worker
python -m benchmarks.scheduling recovery --target spark    the same of a worker in a Spark task
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import unistream as us
from unistream.base.config import Configuration
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.testing.mini_cluster import MiniCluster
from unistream.worker.code import pack

WAIT_S: Final = 120.0
POLL_S: Final = 0.001
WIDTH: Final = 64
VERTICES: Final = 4
RUNS: Final = 3
EXCHANGES: Final = ("forward", "rebalance")
FAULTS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
MANY_CHANNELS: Final = {  # 16 tasks of a worker that read 48 others each: more than the default can promise
    "taskmanager.memory.process.size": "4 gb",
    "taskmanager.memory.network.min": "1 gb",
    "taskmanager.memory.network.max": "1 gb",
}
HEARTBEATS: Final = {"heartbeat.interval": "100 ms", "heartbeat.timeout": "1 s"}
RESTARTS: Final = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 ms",
    "execution.checkpointing.interval": "1 s",
}


def line_of(exchange: str, width: int, **config: str) -> SubmitRequest:
    """An endless source and three vertices behind it."""
    env = us.Environment({"parallelism.default": str(width), "pipeline.operator-chaining.enabled": "false"})
    source = us.DatagenSource(
        {"n": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=width, splits=width
    )
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "source").uid("source")
    for place in range(1, VERTICES - 1):
        stream = stream if exchange == "forward" else stream.rebalance()
        stream = stream.map_batches(lambda batch: batch, returns=source.schema).uid(f"map-{place}")
    stream = stream if exchange == "forward" else stream.rebalance()
    stream.sink_to(us.BlackholeSink()).uid("sink")
    graph, code = env.job_graph(exchange)
    return SubmitRequest(graph=graph, artifact=pack(code), config=config)


def is_scheduled(info: JobInfo) -> bool:
    """Every task has its slot, and its deployment is under way or has arrived."""
    return bool(info.subtasks) and not any(s.state in ("CREATED", "SCHEDULED") for s in info.subtasks)


def runs(info: JobInfo) -> bool:
    return info.state == "RUNNING"


def _end(job: EmbeddedJobClient) -> None:
    job.cancel()
    job.wait(WAIT_S)


def schedule(options: argparse.Namespace) -> None:
    """Seconds from the submission until all tasks are scheduled, and until all are RUNNING: the first time
    with new workers, then with their slots free."""
    exchange = options.exchange
    request = line_of(exchange, options.width)
    config = MANY_CHANNELS if exchange == "rebalance" else {}
    with MiniCluster(task_managers=4, slots=-(-options.width // 4), config=config) as cluster:
        scheduled, seconds = [], []
        for _ in range(RUNS + 1):
            began = time.perf_counter()
            job = cluster.submit(request.graph, request.artifact)
            job.wait_for(is_scheduled, WAIT_S)
            scheduled.append(round(time.perf_counter() - began, 3))
            info = job.wait_for(runs, WAIT_S)
            seconds.append(round(time.perf_counter() - began, 3))
            _end(job)
    line = {
        "benchmark": "scheduling",
        "part": "schedule",
        "exchange": exchange,
        "vertices": len(request.graph.vertices),
        "subtasks": len(info.subtasks),
        "with_new_workers_s": seconds[0],
        "scheduled_s": min(scheduled[1:]),
        "running_s": min(seconds[1:]),
        "runs_s": seconds[1:],
    }
    print(json.dumps(line), flush=True)


def recovery(options: argparse.Namespace) -> None:
    """Milliseconds from the fault to its detection, and to all tasks RUNNING again."""
    with tempfile.TemporaryDirectory(prefix="unistream-recovery-") as folder:
        config = Configuration({**HEARTBEATS, **RESTARTS})
        with EmbeddedCluster(options.target, config, workdir=Path(folder), rest=False) as cluster:
            for fault, number in FAULTS.items():
                times = [_recover(cluster, number) for _ in range(RUNS)]
                line = {
                    "benchmark": "scheduling",
                    "part": "recovery",
                    "target": options.target,
                    "fault": fault,
                    "heartbeat_timeout_ms": 1_000,
                    "detected_ms": min(detected for detected, _ in times),
                    "running_ms": min(running for _, running in times),
                    "runs_ms": times,
                }
                print(json.dumps(line), flush=True)


def _recover(cluster: EmbeddedCluster, number: signal.Signals) -> tuple[int, int]:
    """(detected, running) in ms."""
    job = cluster.submit(line_of("rebalance", 2))
    info = job.wait_for(lambda i: runs(i) and i.checkpoints_completed >= 1, WAIT_S)
    victim = info.task_managers[0]
    assert victim.pid is not None
    try:
        began = time.perf_counter()
        os.kill(victim.pid, number)
        detected_ms = _await(lambda: not _knows(cluster, victim.id), began)
        job.wait_for(lambda i: runs(i) and i.restarts > info.restarts and _all_run(i), WAIT_S)
        running_ms = round((time.perf_counter() - began) * 1000)
    finally:
        if number == signal.SIGSTOP:
            _continue(victim.pid)
        _end(job)
    return detected_ms, running_ms


def _all_run(info: JobInfo) -> bool:
    return all(subtask.state == "RUNNING" for subtask in info.subtasks)


def _knows(cluster: EmbeddedCluster, worker: TaskManagerId) -> bool:
    return any(known.id == worker for known in cluster.dispatcher.task_managers())


def _await(condition: Callable[[], bool], began: float) -> int:
    """ms since `began` when it holds."""
    while not condition():
        if time.perf_counter() - began > WAIT_S:
            raise SystemExit(f"the loss of the worker was not noticed in {WAIT_S} s")
        time.sleep(POLL_S)
    return round((time.perf_counter() - began) * 1000)


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # its host has killed it by now

"""A fast source before a slow sink, in real processes: memory stays bounded, and the source slows down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.limits import MIB
from unistream.client.remote.job_client import JobClient
from unistream.client.remote.rest_client import Poll
from unistream.connector.datagen import DatagenSource, RandomInt, Sequential
from unistream.model.job_info import JobInfo

SAMPLES = 12
GROWTH_MAX = 200 * MIB  # a source without backpressure makes that in less than a second
CONFIG = {
    "parallelism.default": "2",
    "heartbeat.interval": "300 ms",
    "taskmanager.memory.network.max": "64 mb",
}


@dataclass(frozen=True)
class Slow:
    """A sink's work: so long for each batch."""

    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        threading.Event().wait(self.seconds)
        return batch.slice(0, 0)


@dataclass(frozen=True)
class Inflate:
    """One huge batch out of each."""

    width: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("wide", pa.array([bytes(self.width)] * batch.num_rows))


@dataclass(frozen=True)
class Shred:
    """Rows one by one: what a source with tiny batches sends."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, 1)


class RowByRow(us.KeyedProcessFunction):
    """Slow for each row, by waiting: one that computes would take the interpreter from the source in its
    process, which is then slow by itself and never waits for room."""

    def process_element(self, row: us.Row, context: us.ProcessContext, out: us.Collector) -> None:
        """Keeps nothing."""
        if row["n"] % 1_000 == 0:
            threading.Event().wait(0.05)


def _rows(env: us.Environment, keys: int) -> us.DataStream:
    source = DatagenSource({"n": Sequential(), "key": RandomInt(0, keys)}, rows=None, bounded=False, splits=2)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "fast").uid("fast")


def _slow(rows: us.DataStream, seconds: float) -> None:
    rows.map_batches(Slow(seconds)).uid("slow").sink_to(us.BlackholeSink()).uid("out")


def _plain(env: us.Environment) -> None:
    between = _rows(env, 1_000).rebalance().map_batches(_same).uid("between")
    _slow(between.rescale().map_batches(_same).uid("after").rebalance(), 0.1)


def _one_hot_key(env: us.Environment) -> None:
    _rows(env, 1).key_by("key").process(RowByRow()).uid("slow").sink_to(us.BlackholeSink()).uid("out")


def _huge(env: us.Environment) -> None:
    _slow(_rows(env, 1_000).map_batches(Inflate(500)).uid("inflate").rebalance(), 0.2)


def _tiny(env: us.Environment) -> None:
    _slow(_rows(env, 1_000).map_batches(Shred()).uid("shred").rebalance(), 0.02)


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@contextmanager
def _running(config: dict[str, str], build: object) -> Iterator[JobClient]:
    env = us.Environment({**STREAMING, **CONFIG, **config}, target="local")
    build(env)  # type: ignore[operator]
    with env.execute_async("backpressure") as job:
        try:
            yield job
        finally:
            job.cancel()


def _await(job: JobClient, condition: object) -> JobInfo:
    poll = Poll(WAIT_S)
    while poll.next():
        info = job.status()
        assert info.state in ("CREATED", "INITIALIZING", "RUNNING"), info.exceptions
        if condition(info):  # type: ignore[operator]
            return info
    raise AssertionError(f"did not come: {info.metrics}")


def _sources(info: JobInfo) -> list:
    return [s.metrics for s in info.subtasks if "fast" in s.vertex_name]


def _backpressured(info: JobInfo) -> bool:
    return bool(_sources(info)) and all(m.backpressured_per_s > 500 for m in _sources(info))


def _heard(info: JobInfo) -> int:
    """When the last heartbeat came."""
    return max(worker.heartbeat_ms or 0 for worker in info.task_managers)


def _heard_after(before: int, info: JobInfo) -> bool:
    return _heard(info) > before


def _resident(info: JobInfo) -> int:
    """Bytes of all worker processes."""
    return sum(psutil.Process(pid).memory_info().rss for pid in {w.pid for w in info.task_managers} if pid)


@pytest.mark.parametrize("slots", ["1", "2"], ids=["across processes", "in one process"])
@pytest.mark.parametrize("build", [_plain, _one_hot_key, _huge, _tiny])
def test_memory_is_bounded_and_the_source_waits(build: object, slots: str) -> None:
    with _running({"taskmanager.numberOfTaskSlots": slots}, build) as job:
        first = _await(job, _backpressured)
        heard = _heard(first)
        least = most = _resident(first)
        for _ in range(SAMPLES):
            info = _await(job, partial(_heard_after, heard))
            heard = _heard(info)
            least, most = min(least, _resident(info)), max(most, _resident(info))
            for subtask in info.subtasks:
                metrics = subtask.metrics
                assert metrics.in_pool_used <= max(metrics.in_pool_size, 20 * MIB)
                assert metrics.out_pool_used <= metrics.out_pool_size + 64 * MIB
        info = _await(
            job, _backpressured
        )  # a machine that is busy elsewhere may slow the source for a second
        assert most - least < GROWTH_MAX, f"{least >> 20} to {most >> 20} MiB"
        made = sum(m.records_out for m in _sources(info)) - sum(m.records_out for m in _sources(first))
        assert made < 20_000_000, "the source went on as fast as it can"

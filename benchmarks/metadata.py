"""How fast are the metadata of a job that runs for years: writes, and every read of a page?

    python -m benchmarks.metadata                         SQLite and PostgreSQL, a pruned year
    python -m benchmarks.metadata --database sqlite --rows 600000 --unpruned

One JSON line for each question: p50 and p99 of each read in ms and the rows that it returns, with a writer at
work next to it; writes of each kind in a second, with what the numbers of the outbox cost next to a sequence;
how long pruning takes, and its longest step, which is how long it can hold up a write.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from sqlalchemy import create_engine, text

from tests.postgres import PostgresServer
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, VertexId
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.metadata.upkeep import vacuum
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import AttemptChange, CommitRecord, ExceptionRecord, JobRecord
from unistream.port.retention import DAY_MS, MetadataRetention
from unistream.port.run_links import Line, LineKind, Watcher

EPOCH: Final = LeaderEpoch(1)
NOW_MS: Final = 20_000 * DAY_MS
READS: Final = 300
WRITES: Final = 1_000
WRITERS: Final = 4
WATCHER: Final = Watcher(root_run="r", run="r", step="s")
YEAR: Final = ((365, 320, DAY_MS), (320, 32, 3_600_000), (32, 2, 60_000), (2, 0, 1_000))
"""From and to, in days ago, and the ms between two rows: a year of seconds that was pruned each day."""


def job_id(number: int) -> JobId:
    return JobId(f"{number:032x}")


def job(number: int, **changes: Any) -> JobRecord:
    given: dict[str, Any] = {
        "job": job_id(number),
        "name": f"job {number % 50}",
        "lineage": LineageId(f"l{number % 50}"),
        "state": "RUNNING",
        "target": "local",
        "submitted_ms": NOW_MS - number,
        "changed_ms": NOW_MS,
    }
    return JobRecord(**{**given, **changes})


def checkpoint(number: int, state: SnapshotStatus = SnapshotStatus.COMPLETED) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        status=state,
        timestamp_ms=NOW_MS,
        duration_ms=5,
        path="/chk",
        recorded_bytes=10_000,
    )


def commit(number: int, of: int = 1) -> CommitRecord:
    return CommitRecord(
        job=job_id(of), sink_uid="out", checkpoint_id=CheckpointId(number), at_ms=NOW_MS, rows=1
    )


def fill(url: str, table: str, columns: str, values: str, count: int, **given: int) -> None:
    """`values`: SQL over n, from 0 to `count`."""
    numbers = "generate_series(0, CAST(:last AS bigint)) AS g(n)"
    if url.startswith("sqlite"):
        counting = "SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < :last"
        numbers = f"(WITH RECURSIVE g(n) AS ({counting}) SELECT n FROM g)"
    engine = create_engine(url)
    with engine.begin() as connection:
        insert = text(f"INSERT INTO unistream_{table} ({columns}) SELECT {values} FROM {numbers}")
        connection.execute(insert, {"last": count - 1, **given})
    engine.dispose()


def fill_checkpoints(url: str, first: int, count: int, begin_ms: int, *, step_ms: int) -> int:
    """Returns the next id."""
    fill(
        url,
        "checkpoints",
        "job, checkpoint_id, kind, state, triggered_ms, duration_ms, state_bytes, path",
        f"'{job_id(1)}', n + :first, 'checkpoint', 'completed', :begin + n * :step, 5, 9, '/chk-1'",
        count,
        first=first,
        begin=begin_ms,
        step=step_ms,
    )
    return first + count


def fill_commits(url: str, count: int) -> None:
    columns = "sink_uid, checkpoint_id, at_ms, rows"
    fill(url, "commits", f"job, {columns}", f"'{job_id(1)}', 'out', n, :now - n, 1", count, now=NOW_MS)
    fill(
        url,
        "outbox",
        f"seq, job, job_name, lineage, leader_epoch, {columns}",
        f"n, '{job_id(1)}', 'job 1', 'l1', 1, 'out', n, :now - :last * 1000 + n * 1000, 1",
        count,
        now=NOW_MS,
    )


def fill_history(store: SqlMetadataStore, url: str, rows: int | None) -> None:
    """A year of checkpoints and commits each second of one job, and a thousand ended jobs."""
    store.add_job(job(1), EPOCH)
    for number in range(2, 1_002):
        store.add_job(job(number, ended_ms=NOW_MS - number, state="FINISHED"), EPOCH)
    next_id = 1
    if rows is not None:
        next_id = fill_checkpoints(url, 1, rows, NOW_MS - rows * 1_000, step_ms=1_000)
    for from_days, to_days, step_ms in YEAR if rows is None else ():
        count = (from_days - to_days) * DAY_MS // step_ms
        next_id = fill_checkpoints(url, next_id, count, NOW_MS - from_days * DAY_MS, step_ms=step_ms)
    fill_commits(url, rows or 500_000)
    for number in range(1_000):
        failure = ExceptionRecord(
            job=job_id(1), at_ms=number, attempt=None, task_manager=None, kind="K", message="m" * 200
        )
        store.record_exception(failure, EPOCH)
    store.links.attach("key", job_id(1), WATCHER, NOW_MS)


def reads(store: SqlMetadataStore, last_seq: int) -> dict[str, Callable[[], Any]]:
    of = job_id(1)
    return {
        "job": lambda: store.job(of),
        "jobs": lambda: store.jobs(limit=100),
        "checkpoints (50, of the job's page)": lambda: store.checkpoints(of, limit=50),
        "checkpoints (1000, for a summary)": lambda: store.checkpoints(of),
        "checkpoint_totals": lambda: [store.checkpoint_totals(of)],
        "exceptions": lambda: store.exceptions(of, limit=100),
        "events": lambda: store.events(job=of),
        "sinks": lambda: store.sinks(of),
        "outbox (100 after the last but 100)": lambda: store.outbox(after=last_seq - 100, limit=100),
        "job_of_key": lambda: [store.links.job_of_key("key")],
        "last_snapshot_of_line": lambda: [store.links.last_snapshot_of_line(Line(LineKind.NAME, "job 1"))],
    }


@contextmanager
def writing(store: SqlMetadataStore) -> Iterator[None]:
    """A job that records a checkpoint and a commit every 20 ms."""
    ended = threading.Event()

    def write() -> None:
        number = 100_000_000
        while not ended.wait(0.02):
            number += 1
            store.record_checkpoint(job_id(1), checkpoint(number), EPOCH)
            store.record_commit(commit(number), EPOCH)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield
        finally:
            ended.set()
            done.result()


def time_reads(store: SqlMetadataStore) -> dict[str, dict[str, float]]:
    last = store.record_commit(commit(50_000_000), EPOCH) or 0
    found = {}
    with writing(store):
        for name, read in reads(store, last).items():
            times, returned = [], read()
            for _ in range(READS):
                begin = time.perf_counter()
                read()
                times.append((time.perf_counter() - begin) * 1_000)
            cuts = quantiles(times, n=100)
            size = len(returned) if hasattr(returned, "__len__") else 1
            found[name] = {"rows": size, "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}
    return found


def time_writes(store: SqlMetadataStore) -> dict[str, float]:
    attempts = [
        AttemptChange(
            attempt=AttemptId(job_id(1), VertexId("v"), n, 0),
            vertex_name="v",
            state="RUNNING",
            task_manager="tm",
            at_ms=1,
        )
        for n in range(WRITES)
    ]
    kinds: dict[str, Callable[[int], object]] = {
        "checkpoint": lambda n: store.record_checkpoint(job_id(1), checkpoint(200_000_000 + n), EPOCH),
        "commit with its number in the outbox": lambda n: store.record_commit(commit(200_000_000 + n), EPOCH),
        "heartbeat": lambda n: store.links.heartbeat("key", WATCHER, NOW_MS + n),
    }
    found = {}
    for name, write in kinds.items():
        begin = time.perf_counter()
        for n in range(WRITES):
            write(n)
        found[name] = round(WRITES / (time.perf_counter() - begin))
    begin = time.perf_counter()
    store.record_attempts(attempts, EPOCH)
    found[f"attempts, {WRITES} together"] = round(WRITES / (time.perf_counter() - begin))
    with ThreadPoolExecutor(WRITERS) as pool:
        begin = time.perf_counter()
        list(
            pool.map(
                lambda n: store.record_commit(commit(300_000_000 + n, 2 + n % WRITERS), EPOCH), range(WRITES)
            )
        )
        found[f"commits of {WRITERS} writers"] = round(WRITES / (time.perf_counter() - begin))
    return found


def time_numbers(url: str) -> dict[str, float]:
    """Transactions of four writers that insert one row, numbered by a sequence and by a locked row."""
    engine = create_engine(url, pool_size=WRITERS)
    with engine.begin() as connection:
        connection.execute(text("CREATE SEQUENCE bench_seq"))
        connection.execute(text("CREATE TABLE bench_rows (seq bigint PRIMARY KEY, note text)"))
        connection.execute(text("CREATE TABLE bench_counter (value bigint)"))
        connection.execute(text("INSERT INTO bench_counter VALUES (1000000)"))
    ways = {
        "sequence": "SELECT nextval('bench_seq')",
        "locked row": "UPDATE bench_counter SET value = value + 1 RETURNING value",
    }
    found = {}
    for name, statement in ways.items():

        def write(_number: int, statement: str = statement) -> None:
            with engine.begin() as connection:
                seq = connection.execute(text(statement)).scalar_one()
                connection.execute(text("INSERT INTO bench_rows VALUES (:seq, 'n')"), {"seq": seq})

        with ThreadPoolExecutor(WRITERS) as pool:
            begin = time.perf_counter()
            list(pool.map(write, range(WRITES)))
            found[name] = round(WRITES / (time.perf_counter() - begin))
    engine.dispose()
    return found


def time_pruning(store: SqlMetadataStore) -> dict[str, float]:
    rows, longest, steps = 0, 0.0, 0
    begin = last = time.perf_counter()
    for step in store.prune(MetadataRetention(), NOW_MS, EPOCH):
        now = time.perf_counter()
        rows, longest, steps, last = rows + step.rows, max(longest, now - last), steps + 1, now
    return {
        "rows": rows,
        "steps": steps,
        "seconds": round(time.perf_counter() - begin, 2),
        "longest_step_ms": round(longest * 1_000, 1),
    }


def measure(url: str, rows: int | None, *, pruned: bool) -> None:
    kind = url.partition(":")[0]
    ensure(url)
    store = SqlMetadataStore(url)
    try:
        fill_history(store, url, rows)
        if pruned:
            print(json.dumps({"database": kind, "pruning": time_pruning(store)}), flush=True)
            vacuum(url)  # as PostgreSQL's autovacuum does by itself, within a minute
        print(json.dumps({"database": kind, "pruned": pruned, "reads": time_reads(store)}), flush=True)
        print(json.dumps({"database": kind, "writes_per_s": time_writes(store)}), flush=True)
        if kind != "sqlite":
            print(json.dumps({"database": kind, "numbers_per_s": time_numbers(url)}), flush=True)
    finally:
        store.close()


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", choices=["sqlite", "postgresql"])
    parser.add_argument(
        "--rows", type=int, help="checkpoints, one each second; unset: a year, as pruning leaves it"
    )
    parser.add_argument(
        "--unpruned", action="store_true", help="measure the reads before anything is removed"
    )
    given = parser.parse_args()
    if given.database != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'metadata.db'}"
            measure(url, given.rows, pruned=not given.unpruned)
    if given.database != "sqlite":
        server = PostgresServer()
        try:
            measure(server.new_database(), given.rows, pruned=not given.unpruned)
        finally:
            server.close()


if __name__ == "__main__":
    main()

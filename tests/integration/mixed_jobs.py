"""A stream that is joined with an aggregate of unsorted files, and the result that plain Python gives.

    files ─ key_by ─ 10 s windows ─ key_by ─ 1 h windows ─┐ the bounded part
    facts (no end) ───────────────────────────────────────┴─ join ─ sink

A note for each batch of the files shows how often they were read. `lake` is such a job whose files are those
of a Delta table, whose facts come from Kafka, and whose result is a Delta table.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import unistream as us
from tests.bounded_pipeline import KEYS, ROWS, TIMES, rows, write_rows
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.datagen import generate
from unistream.model.job_info import JobInfo
from unistream.port.source import Source

OFFLOAD = {"execution.batch.offload-bounded-regions": "true"}
FACTS = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, KEYS)}
FACT_ROWS = 2_000
SEED = 3

Joined = tuple[int, int, int, int]  # id of the fact, key, rows and total of the key


class Noted:
    """Passes rows on and notes each batch, which takes `pause_s`; raises at the row with number `fail_at`."""

    def __init__(self, folder: Path, *, pause_s: float = 0.0, fail_at: int | None = None) -> None:
        self._folder = str(folder)
        self._pause_s = pause_s
        self._fail_at = fail_at

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import time

        with open(os.path.join(self._folder, f"{os.getpid()}-{uuid.uuid4().hex}"), "x"):
            time.sleep(self._pause_s)
        if self._fail_at is not None and self._fail_at in batch.column("n").to_pylist():
            raise ValueError(f"row {self._fail_at} is not good")
        return batch


def prepare(folder: Path) -> None:
    """The files, and a place for notes."""
    write_rows(folder)
    (folder / "notes").mkdir()


def notes(folder: Path) -> list[int]:
    """The process of each batch that was read of the files."""
    return [int(path.name.partition("-")[0]) for path in (folder / "notes").iterdir()]


def latest_note(folder: Path) -> int:
    """The process that has begun a batch just now."""
    latest = max((folder / "notes").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return int(latest.name.partition("-")[0])


def pipeline(
    env: us.Environment,
    folder: Path,
    *,
    pause_s: float = 0.0,
    fail_at: int | None = None,
    rate: int | None = 1_000,
    fact_rows: int = FACT_ROWS,
) -> None:
    noted = Noted(folder / "notes", pause_s=pause_s, fail_at=fail_at)
    facts = us.DatagenSource(FACTS, rows=fact_rows, bounded=False, seed=SEED, rows_per_second=rate, splits=2)
    joined = _joined(env, us.FileSource(str(folder / "in")), noted, facts)
    joined.sink_to(CollectSink(str(folder / "out"))).uid("out")


def _joined(
    env: us.Environment, table: us.FileSource | us.DeltaSource, noted: Noted, facts: Source
) -> us.DataStream:
    files = env.from_source(table, TIMES, "files").uid("files")
    windows = files.map_batches(noted, returns=table.schema).uid("noted").name("noted").key_by("key")
    slots = windows.window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count(), sum=us.sum("n"))
    keys = slots.uid("slots").name("slots").key_by("key").window(us.TumblingEventTimeWindows.of("1 h"))
    totals = keys.aggregate(rows=us.sum("n"), total=us.sum("sum"))
    stream = env.from_source(facts, us.WatermarkStrategy.no_watermarks(), "facts").uid("facts")
    return stream.join(totals.uid("totals").name("totals"), on="key").uid("join").name("join")


def prepare_lake(folder: Path) -> None:
    """The rows as a Delta table of two versions, and a place for notes."""
    for half in (rows().slice(0, ROWS // 2), rows().slice(ROWS // 2)):
        write_deltalake(str(folder / "table"), half, mode="append")
    (folder / "notes").mkdir()


def lake(env: us.Environment, folder: Path, kafka: str, topic: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("key", pa.int64())])
    facts = us.KafkaSource(bootstrap_servers=kafka, topic=topic, schema=schema)
    joined = _joined(env, us.DeltaSource(str(folder / "table")), Noted(folder / "notes"), facts)
    joined.sink_to(us.DeltaSink(str(folder / "joined"))).uid("out")


def fact_values(ids: Iterable[int]) -> list[bytes]:
    """Facts as records of Kafka."""
    return [json.dumps({"id": i, "key": i * 7 % KEYS}).encode() for i in ids]


def lake_truth(ids: Iterable[int]) -> Counter[Joined]:
    """What is to be in the table when these facts were read."""
    keys = _of_keys()
    return Counter((i, i * 7 % KEYS, *keys[i * 7 % KEYS]) for i in ids)


def lake_found(folder: Path) -> Counter[Joined]:
    """The rows of the table."""
    table = DeltaTable(str(folder / "joined")).to_pyarrow_table().to_pylist()
    return Counter((row["id"], row["key"], row["rows"], row["total"]) for row in table)


def truth(fact_rows: int = FACT_ROWS) -> Counter[Joined]:
    """What is to be there when all facts were read."""
    of_keys = _of_keys()
    facts = generate(FACTS, SEED, np.arange(fact_rows, dtype=np.int64))
    ids, keys = facts.column("id").to_pylist(), facts.column("key").to_pylist()
    return Counter((fact, key, *of_keys[key]) for fact, key in zip(ids, keys, strict=True))


def _of_keys() -> dict[int, tuple[int, int]]:
    """Rows and total of each key."""
    table = rows()
    counts: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for n, key in zip(table.column("n").to_pylist(), table.column("key").to_pylist(), strict=True):
        counts[key] += 1
        totals[key] += n
    assert counts.total() == ROWS
    return {key: (count, totals[key]) for key, count in counts.items()}


def found(folder: Path) -> Counter[Joined]:
    """The rows that are visible."""
    try:
        table = read_collected(str(folder / "out")).to_pylist()
    except us.ConfigError:  # nothing was committed yet
        return Counter()
    return Counter((row["id"], row["key"], row["rows"], row["total"]) for row in table)


def part(info: JobInfo) -> dict[str, set[tuple[str, int]]]:
    """State and attempt of the subtasks of each vertex of the bounded part."""
    result: dict[str, set[tuple[str, int]]] = {}
    for task in info.subtasks:
        if any(name in task.vertex_name for name in ("files", "slots", "totals")):
            result.setdefault(task.vertex_name, set()).add((task.state, task.attempt))
    return result


def part_finished(info: JobInfo) -> bool:
    """And the stream runs."""
    states = {state for tasks in part(info).values() for state, _ in tasks}
    others = {task.state for task in info.subtasks} - states
    return states == {"FINISHED"} and others == {"RUNNING"} and info.state == "RUNNING"

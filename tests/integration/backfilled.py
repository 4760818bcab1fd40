"""A stream whose rows came wrong from its topic and right from its history, and the table of its windows.

    history: rows 0 … HISTORY, right ─┐
                                      ├─ HybridSource (all history is behind its fence) ─ 10 s windows ─ Delta
    topic: rows 0 … , value + 1 ──────┘

So each window shows from which of the two it was computed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.integration.cli_terminal import Terminal
from tests.support.servers.kafka_tools import produce_values

BEGIN_MS = 1_000_000
STEP_MS = 20
WINDOW_MS = 10_000
KEYS = 7
HISTORY = 6_000
FIRST = 3_000  # rows in the topic before the backfill
ALL = 5_000
RANGE = (BEGIN_MS + WINDOW_MS, BEGIN_MS + 3 * WINDOW_MS)
NAME = "flights"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms"))]
)
OPTIONS = ("-D", "execution.checkpointing.interval=300 ms", "-D", "parallelism.default=2")

PIPELINE = """
import pyarrow as pa
import unistream as us

SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms"))]
)

def build(env):
    live = us.KafkaSource(bootstrap_servers="KAFKA", topic="TOPIC", schema=SCHEMA)
    history = us.FileSource("FOLDER/history", split_bytes=1)
    source = us.HybridSource(history, live, fence=BEGIN, timestamp_column="at")
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, times, "rows").uid("rows")
    windows = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s"))
    windows.aggregate(n=us.count(), total=us.sum("value")).uid("window").sink_to(
        us.DeltaSink("FOLDER/lake")
    ).uid("lake")
"""


def rows(numbers: range) -> pa.Table:
    return pa.table(
        {
            "id": list(numbers),
            "key": [i % KEYS for i in numbers],
            "value": [i * 3 for i in numbers],
            "at": [BEGIN_MS + i * STEP_MS for i in numbers],
        },
        schema=SCHEMA,
    )


def truth(count: int, *, backfilled: bool) -> set[tuple[int, int, int, int]]:
    """(window, key, n, total) of the windows that are closed after `count` rows of the topic."""
    watermark = BEGIN_MS + (count - 1) * STEP_MS - 501
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(count):
        start = (BEGIN_MS + i * STEP_MS) // WINDOW_MS * WINDOW_MS
        if start + WINDOW_MS - 1 <= watermark:
            right = backfilled and RANGE[0] <= start < RANGE[1]
            n, total = found.get((start, i % KEYS), (0, 0))
            found[start, i % KEYS] = n + 1, total + i * 3 + (not right)
    return {(start, key, n, total) for (start, key), (n, total) in found.items()}


class Place:
    """A folder with the history, the table, the user's home and the pipeline."""

    def __init__(self, folder: Path, kafka: str, topic: str) -> None:
        self.folder = folder
        self._kafka, self._topic = kafka, topic
        history = folder / "history"
        history.mkdir()
        for part in range(3):
            numbers = range(HISTORY * part // 3, HISTORY * (part + 1) // 3)
            pq.write_table(rows(numbers).select(["at", "value", "key", "id"]), history / f"{part}.parquet")
        values = {"KAFKA": kafka, "TOPIC": topic, "FOLDER": str(folder), "BEGIN": str(BEGIN_MS)}
        pipeline = PIPELINE
        for name, value in values.items():
            pipeline = pipeline.replace(name, value)
        self.terminal = Terminal(folder, pipeline)

    def send(self, first: int, end: int) -> None:
        values = [
            json.dumps({"id": i, "key": i % KEYS, "value": i * 3 + 1, "at": BEGIN_MS + i * STEP_MS}).encode()
            for i in range(first, end)
        ]
        produce_values(self._kafka, self._topic, values, partitions=[i % 2 for i in range(first, end)])

    def start(self, target: str) -> Any:
        """The stream, on the session cluster ("remote") or on one of its own."""
        stream = ("-t", target, "--name", NAME, "--detached", *OPTIONS)
        return self.terminal.json("run", "pipeline:build", *stream)

    def backfill(self, *words: str, code: int | None = 0, **environment: str) -> Any:
        """What the command says on stdout as JSON, if it says anything."""
        times = [f"{_text(at)}" for at in RANGE]
        command = ("backfill", NAME, "--pipeline", "pipeline:build", "--from", times[0], "--to", times[1])
        more = ("-t", "local", *OPTIONS, "--json", *words)
        done = self.terminal(*command, *more, code=code, **environment)
        return json.loads(done.stdout) if done.stdout else done

    def table(self) -> DeltaTable:
        return DeltaTable(str(self.folder / "lake"))

    def found(self) -> list[tuple[int, int, int, int]]:
        if not DeltaTable.is_deltatable(str(self.folder / "lake")):
            return []
        return sorted(
            (int(row["window_start"].timestamp() * 1000), row["key"], row["n"], row["total"])
            for row in self.table().to_pyarrow_table().to_pylist()
        )

    def until_rows(self, count: int) -> None:
        self.terminal.until(lambda: len(self.found()) >= count, f"{count} rows, not {len(self.found())}")

    def assert_exact(self, count: int, *, backfilled: bool = True) -> None:
        wanted = sorted(truth(count, backfilled=backfilled))
        self.until_rows(len(wanted))
        assert self.found() == wanted

    def jobs(self) -> list[Any]:
        return [one["job"] for one in self.terminal.json("list")["jobs"]]


def _text(at_ms: int) -> str:
    seconds = at_ms // 1000
    return f"1970-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"


def killing(marks: Path, point: str) -> dict[str, str]:
    """The environment of a command that dies there."""
    marks.mkdir(exist_ok=True)
    return {
        "UNISTREAM_CRASH_POINTS": point,
        "UNISTREAM_CRASH_DIR": str(marks),
        "UNISTREAM_TESTING": "1",
        "PATH": os.environ["PATH"],
    }

"""Rows of `pipelines/dagster_backfill`, and what its table must have: by 10 s windows and keys, wrong from
the topic and right from the history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.support.servers.kafka_tools import produce_values

BEGIN_MS: Final = 1_000_000  # 00:16:40
STEP_MS: Final = 200
WINDOW_MS: Final = 10_000
KEYS: Final = 7
HISTORY: Final = 1_800  # 6 min
FIRST: Final = 1_000  # rows in the topic before the backfill: to 00:20:00
ALL: Final = 1_500
RANGE: Final = ("1970-01-01T00:17", "1970-01-01T00:18")
LATER: Final = "1970-01-01T00:19"  # its last windows are open

Row = tuple[int, int, int, int]


def at_ms(number: int) -> int:
    return BEGIN_MS + number * STEP_MS


def minute(number: int) -> int:
    return number * 60_000


TWO_MINUTES: Final = range(minute(17), minute(19))


def truth(count: int, right: range = range(0)) -> list[Row]:
    """(window, key, n, total) of the windows that are closed after `count` rows of the topic. `right`: times
    of windows that were computed from the history, ms."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(count):
        start = at_ms(i) // WINDOW_MS * WINDOW_MS
        if start + WINDOW_MS - 1 <= at_ms(count - 1) - 501:
            n, total = found.get((start, i % KEYS), (0, 0))
            found[start, i % KEYS] = n + 1, total + i * 3 + (start not in right)
    return sorted((start, key, n, total) for (start, key), (n, total) in found.items())


def settings(kafka: str, topic: str, folder: Path) -> dict[str, str]:
    """The environment of the code location."""
    return {"KAFKA": kafka, "TOPIC": topic, "FOLDER": str(folder), "BEGIN_MS": str(BEGIN_MS)}


def write_history(folder: Path) -> None:
    (folder / "history").mkdir()
    numbers = range(HISTORY)
    rows = {"id": numbers, "key": [i % KEYS for i in numbers], "value": [i * 3 for i in numbers]}
    times = pa.array([at_ms(i) for i in numbers], pa.timestamp("ms"))
    pq.write_table(pa.table({**rows, "at": times}), folder / "history" / "rows.parquet", row_group_size=200)


def send(kafka: str, topic: str, first: int, end: int) -> None:
    rows = ({"id": i, "key": i % KEYS, "value": i * 3 + 1, "at": at_ms(i)} for i in range(first, end))
    values = [json.dumps(row).encode() for row in rows]
    produce_values(kafka, topic, values, partitions=[i % 2 for i in range(first, end)])


def rows_of(folder: Path) -> list[Row]:
    """What the table has; nothing before there is one."""
    lake = str(folder / "lake")
    if not DeltaTable.is_deltatable(lake):
        return []
    return sorted(
        (int(row["window_start"].timestamp() * 1000), row["key"], row["n"], row["total"])
        for row in DeltaTable(lake).to_pyarrow_table().to_pylist()
    )

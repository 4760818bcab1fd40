"""A pipeline whose bounded side input ends while its facts go on, and the comparison of what it leaves.

    names (one file, ends) ─┐
    facts (never end) ──────┴─ join ─┬─ key_by ─ 10 s windows ─ Delta "windows"
                                     └───────────────────────── files "rows"

Was the side input read again? Two things would show it: a note for each batch that was read of it, and its
file, which `spoil` replaces by one with other teams once it was read. But no more is given out of a file that
was read, so tasks that are begun again although they had finished find nothing to read and end once more. A
note for each function that is opened shows them. Did a window fire before its time? Then what came later for
it was dropped as late, and its count is too small.

`build` is for `unistream run` in a process of its own, whose folder is the working directory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

import unistream as us
from unistream.model.job_info import JobInfo
from unistream.port.source import Source

KEYS = 40
RATE = 4_000  # rows/s
SPLITS = 4
DISORDER_MS = 500
TEAMS = ("red", "green", "blue")
FACTS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=DISORDER_MS),
}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms", "UTC"))]
)
CONFIG = {
    "execution.checkpointing.interval": "200 ms",
    "execution.checkpointing.num-retained": "3",
    "heartbeat.interval": "100 ms",
}
ONLY_THE_DRAIN = {**CONFIG, "execution.checkpointing.min-pause": "1 h"}  # no snapshot but those of a drain
BOOTSTRAP, TOPIC = "TEST_KAFKA", "TEST_TOPIC"  # of `build`: facts come from Kafka


def team_of(key: int) -> str:
    return TEAMS[key % len(TEAMS)]


def prepare(folder: Path) -> None:
    """The side input as it is to be read."""
    (folder / "names_read").mkdir()
    _write(folder, [team_of(key) for key in range(KEYS)])


def spoil(folder: Path) -> None:
    """The side input as nobody is to read it."""
    _write(folder, ["wrong"] * KEYS)


def names_read(folder: Path) -> int:
    """Functions that were opened for the side input, and batches that they read, of all attempts."""
    return len(list((folder / "names_read").iterdir()))


def _write(folder: Path, teams: Sequence[str]) -> None:
    pq.write_table(pa.table({"key": range(KEYS), "team": teams}), folder / "new.parquet")
    (folder / "new.parquet").rename(folder / "names.parquet")


def generated() -> us.DatagenSource:
    return us.DatagenSource(FACTS, rows=None, bounded=False, seed=7, rows_per_second=RATE, splits=SPLITS)


def published(bootstrap: str, topic: str) -> us.KafkaSource:
    return us.KafkaSource(bootstrap_servers=bootstrap, topic=topic, schema=SCHEMA)


def values(numbers: Iterable[int]) -> list[bytes]:
    """Facts as records of Kafka; their times go back and forth by less than the allowed disorder."""
    rows = (
        {"id": i, "key": i * 7 % KEYS, "value": i % 1000, "at": 1_000_000 + 10 * i - i * 37 % DISORDER_MS}
        for i in numbers
    )
    return [json.dumps(row).encode() for row in rows]


def build(env: us.Environment) -> None:
    topic = os.environ.get(TOPIC)
    pipeline(env, Path.cwd(), published(os.environ[BOOTSTRAP], topic) if topic else generated())


def pipeline(env: us.Environment, folder: Path, facts: Source) -> None:
    notes = str(folder / "names_read")

    def note() -> None:
        import os
        import uuid

        with open(os.path.join(notes, uuid.uuid4().hex), "x"):
            return

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        note()
        return batch

    class Opened(us.ProcessFunction):
        def open(self, context: us.FunctionContext) -> None:
            note()

        def process_element(
            self, row: dict[str, Any], context: us.FunctionContext, out: us.Collector
        ) -> None:
            out.emit(row)

    names = us.FileSource(str(folder / "names.parquet"))
    teams = env.from_source(names, us.WatermarkStrategy.no_watermarks(), "names").uid("names")
    teams = teams.map_batches(noted, returns=names.schema).uid("noted")
    teams = teams.process(Opened(), returns=names.schema).uid("opened")
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS).with_timestamp_column("at")
    rows = env.from_source(facts, times, "facts").uid("facts").join(teams, "key").uid("join")
    rows.key_by("key", "team").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").sink_to(us.DeltaSink(str(folder / "windows"))).uid("windows")
    rows.sink_to(us.FileSink(str(folder / "rows"), target_file_bytes=20_000)).uid("rows")


def rows_of(folder: Path) -> pa.Table:
    """As every reader does: what is hidden is passed over."""
    return pa.concat_tables([pq.ParquetFile(path).read() for path in _visible(folder)])


def rows_visible(folder: Path) -> int:
    return sum(pq.ParquetFile(path).metadata.num_rows for path in _visible(folder))


def _visible(folder: Path) -> list[Path]:
    return sorted((folder / "rows").rglob("part-*.parquet"))


def side_input_ended(info: JobInfo) -> bool:
    tasks = [task for task in info.subtasks if task.vertex_name.startswith("names")]
    return info.state == "RUNNING" and {task.state for task in tasks} == {"FINISHED"}


def watermarks(info: JobInfo) -> list[int]:
    """Of the tasks that run, as far as they have one."""
    found = [task.metrics.watermark for task in info.subtasks if task.state == "RUNNING"]
    return [watermark for watermark in found if watermark is not None]


def watermark_passed(info: JobInfo, at_ms: int) -> bool:
    """By all tasks that make windows: with a side input that is for ever behind, they never come."""
    tasks = [task for task in info.subtasks if "window" in task.vertex_name]
    assert tasks, "no task makes windows"
    return all(
        task.state == "RUNNING" and task.metrics.watermark is not None and task.metrics.watermark > at_ms
        for task in tasks
    )


def latest_ms(rows: pa.Table) -> int:
    """The latest time of all rows: no watermark is ahead of it while facts go on."""
    return max(int(at.timestamp() * 1000) for at in rows["at"].to_pylist())


def read_before(savepoint: str) -> list[int]:
    """Ids of the generated facts that were read before it."""
    ids: list[int] = []
    positions = [one for one in us.read_savepoint(savepoint).positions if one.uid == "facts"]
    assert len(positions) == SPLITS
    for one in positions:
        assert isinstance(one.position, dict)
        index = one.position["index"]
        ids += range(index % SPLITS, index, SPLITS)
    return sorted(ids)


Window = tuple[int, str, int, int, int]  # key, team, slot of 10 s, n, total


def windows_of(folder: Path) -> pa.Table:
    return DeltaTable(str(folder / "windows")).to_pyarrow_table()


def assert_exact(folder: Path, ids: Sequence[int]) -> pa.Table:
    """These facts once each, with the right team, and of them every window, once and right."""
    rows = _exact_rows(folder, ids)
    missing, too_many = _differences(rows, windows_of(folder))
    assert (missing, too_many) == ([], [])
    return rows


def assert_resumed(
    folder: Path, ids: Sequence[int], drained: Sequence[int], in_addition: Sequence[Window] = ()
) -> list[Window]:
    """So it is after a drain of a job that went on from the resumable savepoint of another, but windows that
    were open at the former one are there as they were then, too.

    `drained`: ids of that one. `in_addition`: what was there of earlier ones; returned for the next.
    """
    rows = _exact_rows(folder, ids)
    missing, found = _differences(rows, windows_of(folder))
    assert missing == [], "the windows that were open have fired whole"
    assert Counter(found) >= Counter(in_addition)
    early = list((Counter(found) - Counter(in_addition)).elements())
    assert early, "windows were open, and the drain has fired them"
    open_from = min(slot for _, _, slot, *_ in early)
    fired, _ = _differences(
        rows.filter(pc.is_in(rows["id"], pa.array(drained))), windows_of(folder).slice(0, 0)
    )
    assert sorted(early) == sorted(one for one in fired if one[2] >= open_from)
    return found


def _exact_rows(folder: Path, ids: Sequence[int]) -> pa.Table:
    rows = rows_of(folder)
    assert sorted(rows["id"].to_pylist()) == list(ids)
    pairs = sorted(set(zip(rows["key"].to_pylist(), rows["team"].to_pylist(), strict=True)))
    assert pairs == [(key, team_of(key)) for key, _ in groupby(pairs, key=lambda pair: pair[0])]
    return rows


def _differences(rows: pa.Table, windows: pa.Table) -> tuple[list[Window], list[Window]]:
    """Windows of `rows` that are not there, and those that are there in_addition."""
    with duckdb.connect() as connection:
        connection.register("rows_", rows)
        connection.register("windows_", windows)
        connection.execute(
            """
            CREATE TEMP TABLE truth AS
                SELECT key, team, epoch_ms("at") // 10000 AS slot, count(*) AS n, sum(value)::BIGINT AS total
                FROM rows_ GROUP BY ALL;
            CREATE TEMP TABLE written AS
                SELECT key, team, epoch_ms(window_start) // 10000 AS slot, n, total FROM windows_
            """
        )
        missing = connection.sql("FROM truth EXCEPT ALL FROM written").fetchall()
        return missing, connection.sql("FROM written EXCEPT ALL FROM truth").fetchall()

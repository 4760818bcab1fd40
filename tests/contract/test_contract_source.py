"""What every source has to do, whatever happens to its readers: each row once, in any restart."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import cloudpickle
import msgspec
import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake
from pyiceberg.table import Table

from tests.iceberg_lake import TABLE, Lake
from tests.support.servers.kafka_tools import produce_values
from tests.unit.connector.iceberg.source_tables import delete_equal, delete_positions, paths
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.object_stores import file_system
from unistream.connector.catalogue import create_discovery
from unistream.connector.datagen import Choice, DatagenSource, EventTime, RandomInt, Sequential
from unistream.connector.delta import DeltaSource
from unistream.connector.file import FileSource
from unistream.connector.hybrid import HybridSource
from unistream.connector.iceberg import IcebergSource
from unistream.connector.kafka import KafkaSource
from unistream.connector.simple import PollingSource
from unistream.connector.sql import SqlSource
from unistream.connector.static import StaticSource
from unistream.model.graph import HISTORY, SourceInfo
from unistream.model.messages import Split
from unistream.port.source import (
    Exhausted,
    Idle,
    PhasedReader,
    Polled,
    ReaderContext,
    Rows,
    Source,
    SourceReader,
    SplitFinished,
)
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.harness.operators import CountingMetrics

ROWS = 5_000


class Driver:
    """One subtask and the master's side of it; splits live in exactly one of the two."""

    def __init__(self, source: Source, unassigned: list[Split]) -> None:
        self.source = source
        self.unassigned = unassigned
        self.awake = threading.Event()
        self.switch: tuple[int, int | None] | None = None
        self.reader = self.start([])

    def start(self, restored: list[Split]) -> SourceReader:
        self.wanted = 0
        self.reported = False
        self.phase = HISTORY
        reader = self.source.create_reader()
        context = ReaderContext(
            index=0,
            parallelism=1,
            wake=self.awake.set,
            request_split=self.request,
            metrics=CountingMetrics(),
            request_phase=self.request_phase,
        )
        reader.open(context)
        if restored:
            reader.add_splits(restored)
        if not self.of_phase.pull:
            self.assign_all(reader)
        return reader

    @property
    def of_phase(self) -> SourceInfo:
        info = self.source.info()
        return info.phases[self.phase] if info.phases else info

    def assign_all(self, reader: SourceReader) -> None:
        reader.add_splits([split for split in self.unassigned if split.phase == self.phase])
        self.unassigned = [split for split in self.unassigned if split.phase != self.phase]
        reader.no_more_splits()

    def request(self) -> None:
        self.wanted += 1

    def request_phase(self, phase: int, newest: int | None) -> None:
        """The driver has one subtask, so that is the switch; a reader of restored live splits says it too."""
        assert not [split for split in self.unassigned if split.phase < phase], "history comes first"
        self.switch = (phase, newest)

    def poll(self) -> Polled:
        """Never Idle, for bounded sources."""
        while True:
            polled = self.reader.poll()
            self.begin_phase()
            while self.wanted:
                self.wanted -= 1
                self.assign()
            if not isinstance(polled, Idle):
                return polled
            waited = 60 if polled.retry_ms is None else polled.retry_ms / 1000
            assert self.awake.wait(waited) or polled.retry_ms is not None, "the reader never woke its task"
            self.awake.clear()

    def begin_phase(self) -> None:
        if self.switch is not None:
            (self.phase, newest), self.switch = self.switch, None
            self.reported = False
            assert isinstance(self.reader, PhasedReader)
            self.reader.begin_phase(self.phase, newest)
            if not self.of_phase.pull:
                self.assign_all(self.reader)
            self.awake.set()

    def assign(self) -> None:
        if self.unassigned and self.unassigned[0].phase == self.phase:
            self.reader.add_splits([self.unassigned.pop(0)])
        elif not self.reported:
            self.reported = True
            self.reader.no_more_splits()

    def restart(self) -> list[Split]:
        """As after a checkpoint and a crash."""
        snapshot = list(self.reader.snapshot())
        self.reader.close()
        self.reader = self.start(snapshot)
        return snapshot


def drive(source: Source, polls_between_restarts: int | None) -> tuple[list[pa.RecordBatch], int]:
    """All rows and the number of restarts."""
    driver = Driver(source, list(create_discovery(source.info()).discover()))
    batches: list[pa.RecordBatch] = []
    polls = restarts = 0
    try:
        while not isinstance(polled := driver.poll(), Exhausted):
            if isinstance(polled, Rows):
                assert 0 < polled.records.num_rows <= 65_536
                batches.append(polled.records)
            polls += 1
            if polls_between_restarts and polls % polls_between_restarts == 0:
                driver.restart()
                restarts += 1
        assert list(driver.reader.snapshot()) == []
    finally:
        driver.reader.close()
    return batches, restarts


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "name": pa.array([f"row {i}" if i % 7 else None for i in range(ROWS)]),
        }
    )


def parquet(folder: Path) -> Source:
    for part in range(3):
        pq.write_table(table().slice(part * 2000, 2000), folder / f"{part}.parquet", row_group_size=300)
    return FileSource(str(folder), split_bytes=4000)


def json_lines(folder: Path) -> Source:
    with open(folder / "a.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in table().to_pylist())
    return FileSource(
        str(folder / "a.jsonl"), format="json", schema=table().schema, split_bytes=10_000, block_bytes=3_000
    )


def csv_whole(folder: Path) -> Source:
    pa_csv.write_csv(table(), folder / "a.csv")
    return FileSource(str(folder / "a.csv"), format="csv", block_bytes=4_000)


def csv_ranges(folder: Path) -> Source:
    pa_csv.write_csv(table(), folder / "a.csv")
    return FileSource(str(folder / "*.csv"), format="csv", quoted_newlines=False, split_bytes=10_000)


def datagen(_: Path) -> Source:
    columns = {"id": Sequential(), "k": RandomInt(-3, 3), "c": Choice(("a", "b")), "at": EventTime(0, 5, 20)}
    return DatagenSource(columns, rows=ROWS, seed=3, splits=3)


def datagen_limited(_: Path) -> Source:
    return DatagenSource({"id": Sequential()}, rows=ROWS, splits=2, rows_per_second=50_000)


def static(_: Path) -> Source:
    return StaticSource(table(), splits=4)


class Pages(PollingSource):
    """Of an author: pages of a split, which begins at the row of its name and has 2,000 at most."""

    schema = table().schema
    bounded = True

    def __init__(self, *firsts: int) -> None:
        self.firsts = firsts

    def splits(self) -> list[str]:
        return [str(first) for first in self.firsts]

    def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
        first = int(split) if position is None else position
        end = min(int(split) + 2_000, ROWS)
        page = table().slice(first, min(300, end - first)).combine_chunks().to_batches()[0]
        return page, first + 300 if first + 300 < end else None


def polling(_: Path) -> Source:
    return Pages(0, 2000, 4000)


def delta(folder: Path) -> Source:
    for part in range(3):
        write_deltalake(
            str(folder / "table"),
            table().slice(part * 2000, 2000),
            mode="append",
            writer_properties=WriterProperties(max_row_group_size=300),
        )
    return DeltaSource(str(folder / "table"), split_bytes=4000)


def delta_filtered(folder: Path) -> Source:
    rows = table().append_column("part", pa.array([str(i % 3) for i in range(ROWS)]))
    others = rows.set_column(0, "id", pa.array([-1] * ROWS, pa.int64()))
    write_deltalake(str(folder / "table"), pa.concat_tables([rows, others]), partition_by=["part"])
    return DeltaSource(str(folder / "table"), columns=["name", "part", "id"], filter=[("id", ">=", 0)])


def iceberg(folder: Path) -> Source:
    lake = Lake(folder)
    lake.create(table().schema, properties={"write.parquet.row-group-limit": "300"})
    for part in range(3):
        rows = table().slice(part * 2000, 2000)
        lake.change(lambda held, rows=rows: held.append(rows))  # type: ignore[misc]
    return IcebergSource(TABLE, catalog_properties=lake.properties, split_bytes=4000)


def iceberg_deleted(folder: Path) -> Source:
    """Other rows among them that were deleted, by position and by equality; columns that were renamed."""
    lake = Lake(folder)
    others = pa.table({"id": pa.array([-1, -2] * 500, pa.int64()), "was": pa.array(["x"] * 1000)})
    rows = pa.concat_tables([others, table().rename_columns(["id", "was"])])
    lake.create(rows.schema, properties={"write.parquet.row-group-limit": "300"})
    lake.change(lambda held: held.append(rows))
    lake.change(lambda held: delete_positions(held, paths(held)[0], *range(0, 1000, 2)))
    lake.change(lambda held: delete_equal(held, pa.table({"id": pa.array([-2], pa.int64())}), 1))
    lake.change(_rename)
    return IcebergSource(TABLE, catalog_properties=lake.properties, columns=["name", "id"], split_bytes=4000)


def _rename(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("was", "name")


def hybrid_pulled(folder: Path) -> Source:
    """Files, and then files."""
    (folder / "live").mkdir()
    pq.write_table(table().slice(3000), folder / "live" / "a.parquet", row_group_size=300)
    history = table().slice(0, 3000).select(["name", "id"])
    pq.write_table(history, folder / "0.parquet", row_group_size=300)
    return HybridSource(
        FileSource(str(folder / "0.parquet"), split_bytes=4000),
        FileSource(str(folder / "live"), split_bytes=4000),
    )


def hybrid_pushed(_: Path) -> Source:
    """Both have the rows around the fence."""
    columns = {"id": Sequential(), "at": EventTime(0, 1, 0)}
    history = DatagenSource(columns, rows=ROWS, splits=3)
    return HybridSource(history, history, fence=3_000, timestamp_column="at")


def hybrid_derived(_: Path) -> Source:
    """The history ends somewhere."""
    columns = {"id": Sequential(), "at": EventTime(0, 1, 0)}
    return HybridSource(
        DatagenSource(columns, rows=2_000, splits=2),
        DatagenSource(columns, rows=ROWS, splits=3),
        switch="last-event-time",
        timestamp_column="at",
    )


def hybrid_polling(_: Path) -> Source:
    """Pages, and then pages."""
    return HybridSource(Pages(0, 2000), Pages(4000))


def on_s3(folder: Path) -> str:
    """URL of a copy on the server that the fixture `s3` has started."""
    url = f"s3://unistream/sources/{uuid4().hex}"
    system, path = file_system(url)
    for file in folder.rglob("*"):
        if file.is_file():
            system.pipe_file(f"{path}/{file.relative_to(folder)}", file.read_bytes())
    return url


def parquet_on_s3(folder: Path) -> Source:
    parquet(folder)
    return FileSource(on_s3(folder), split_bytes=4000)


def csv_on_s3(folder: Path) -> Source:
    csv_ranges(folder)
    url = on_s3(folder)
    return FileSource(f"{url}/*.csv", format="csv", quoted_newlines=False, split_bytes=10_000)


def delta_on_s3(folder: Path) -> Source:
    delta(folder)
    return DeltaSource(f"{on_s3(folder)}/table", split_bytes=4000)


ON_S3 = [parquet_on_s3, csv_on_s3, delta_on_s3]


def sql_table(folder: Path) -> Source:
    """With a key, in ranges of it."""
    with closing(sqlite3.connect(folder / "rows.db")) as db, db:
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)")
        rows = zip(*(column.to_pylist() for column in table().columns), strict=True)
        db.executemany("INSERT INTO rows VALUES (?, ?)", rows)
    return SqlSource(f"sqlite:///{folder / 'rows.db'}", "rows", rows_per_split=700)


def sql_query(folder: Path) -> Source:
    """Without a key, in ranges of a column that has one value in many rows, and none in others."""
    sql_table(folder)
    query = "SELECT id, name, nullif(id / 1500, 0) AS part FROM rows -- in no order"
    types = {"part": pa.int64()}
    return SqlSource(f"sqlite:///{folder / 'rows.db'}", query=query, types=types, split_by="part", splits=3)


def sql_increasing(folder: Path) -> Source:
    sql_table(folder)
    return SqlSource(f"sqlite:///{folder / 'rows.db'}", "rows", increasing="id", rows_per_split=600)


def sql_postgres(url: str) -> Source:
    """Ordered by two columns, of which one is no key."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as db:
        db.execute("CREATE TABLE rows (id bigint PRIMARY KEY, name text, at timestamptz)")
        with db.cursor().copy("COPY rows (id, name, at) FROM STDIN") as copy:
            for id, name in zip(*(column.to_pylist() for column in table().columns), strict=True):
                copy.write_row((id, name, None if id % 5 == 0 else f"2026-01-01 00:00:{id % 4:02}+00"))
    return SqlSource(url, "rows", split_by="at", rows_per_split=700)


def kafka_topics(kafka: str) -> Source:
    """Two topics, keys and metadata; fetched in small parts."""
    names = [f"contract-{uuid4().hex[:12]}" for _ in range(2)]
    for name in names:
        create_topic(kafka, name, partitions=2)
    for name, rows in zip(names, (table().slice(0, 3000), table().slice(3000)), strict=True):
        ids = rows.column("id").to_pylist()
        values = [json.dumps({"name": name}).encode() for name in rows.column("name").to_pylist()]
        keys = [json.dumps({"id": id}).encode() for id in ids]
        produce_values(kafka, name, values, keys=keys, partitions=[id % 2 for id in ids])
    return KafkaSource(
        bootstrap_servers=kafka,
        topic=names,
        schema=pa.schema([("name", pa.string()), ("id", pa.int64())]),
        key_format="json",
        key_fields=["id"],
        metadata={"from": "topic", "at": "offset"},
        stopping_offsets="latest",
        properties={"max.partition.fetch.bytes": "40000"},
    )


HYBRID = [hybrid_pulled, hybrid_pushed, hybrid_derived, hybrid_polling]
DELTA = [delta, delta_filtered]
FILES = [parquet, json_lines, csv_whole, csv_ranges]
ICEBERG = [iceberg, iceberg_deleted]
SQL = [sql_query, sql_increasing]
MAKERS = [*FILES, *DELTA, *ICEBERG, *ON_S3, *SQL, datagen, datagen_limited, static, polling, *HYBRID]


@pytest.fixture(params=[*MAKERS, kafka_topics, sql_postgres], ids=lambda make: make.__name__)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param is sql_postgres:
        return sql_postgres(request.getfixturevalue("postgres").new_database())
    if request.param is kafka_topics:
        return kafka_topics(request.getfixturevalue("kafka"))
    make: Callable[[Path], Source] = request.param
    if make in ON_S3:
        request.getfixturevalue("s3")
    return make(tmp_path)


@pytest.mark.parametrize("every", [None, 1, 2, 5], ids=lambda every: f"restart every {every}")
def test_every_row_comes_exactly_once(source: Source, every: int | None) -> None:
    batches, restarts = drive(source, every)
    ids = sorted(id for batch in batches for id in batch.column("id").to_pylist())
    assert ids == list(range(ROWS))
    assert (restarts > 0) == (every is not None)


def test_rows_have_the_schema_that_the_source_tells(source: Source) -> None:
    batches, _ = drive(source, None)
    assert all(batch.schema.equals(source.schema) for batch in batches)


def test_rows_are_the_same_after_restarts(source: Source) -> None:
    straight, _ = drive(source, None)
    restarted, _ = drive(source, 1)
    by_id = [pa.Table.from_batches(batches).sort_by("id") for batches in (straight, restarted)]
    assert by_id[0].equals(by_id[1])


def test_discovery_lists_the_same_splits_again(source: Source) -> None:
    first = list(create_discovery(source.info()).discover())
    assert first == list(create_discovery(source.info()).discover())
    assert len({split.id for split in first}) == len(first)


def test_the_id_of_a_split_does_not_change_as_it_is_read(source: Source) -> None:
    splits = {split.id for split in create_discovery(source.info()).discover()}
    driver = Driver(source, list(create_discovery(source.info()).discover()))
    finished = set()
    while not isinstance(polled := driver.poll(), Exhausted):
        held = {split.id for split in driver.reader.snapshot()}
        assert {name for name in held if not name.startswith("history-end:")} <= splits
        if isinstance(polled, SplitFinished):
            finished.add(polled.split_id)
            assert polled.split_id not in held
    driver.reader.close()
    assert finished == splits


def test_options_are_json_and_enough_for_the_master(source: Source) -> None:
    info = msgspec.json.decode(msgspec.json.encode(source.info()), type=SourceInfo)
    assert list(create_discovery(info).discover()) == list(create_discovery(source.info()).discover())


def test_unknown_options_are_refused(source: Source) -> None:
    info = SourceInfo(connector=source.info().connector, options={"nonsense": 1}, bounded=True, pull=True)
    with pytest.raises(ConfigError, match="options of a"):
        create_discovery(info)


def test_a_damaged_split_is_refused(source: Source) -> None:
    reader = source.create_reader()
    context = ReaderContext(
        index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=CountingMetrics()
    )
    reader.open(context)
    try:
        with pytest.raises(CorruptSnapshot, match="broken-split"):
            reader.add_splits([Split(id="broken-split", data=b"\xc1")])
    finally:
        reader.close()


def test_a_source_travels_to_its_workers(source: Source) -> None:
    schema = source.schema
    arrived: Source = cloudpickle.loads(cloudpickle.dumps(source))
    assert (arrived.info(), arrived.schema) == (source.info(), schema)
    batches, _ = drive(arrived, None)
    assert sum(batch.num_rows for batch in batches) == ROWS


def test_close_is_fine_before_open_and_twice(source: Source) -> None:
    reader = source.create_reader()
    reader.close()
    reader.close()
    batches, _ = drive(source, None)
    assert sum(batch.num_rows for batch in batches) == ROWS, "it took nothing from the source"

"""What every sink with a committer has to do: nothing is seen before its commit, all of it once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from tests.contract.sinks.case import Case, batch, permit, request
from tests.integration.crash_runs import OF_MATRIX, in_the_gate
from tests.support.servers.kafka_tools import open_transactions, read_committed
from unistream.base.errors import ConfigError, CorruptSnapshot, ProtocolError
from unistream.base.ids import CheckpointId, LineageId
from unistream.base.object_stores import delta_options, file_system
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.delta import DeltaSink
from unistream.connector.file import FileSink
from unistream.connector.iceberg import IcebergSink
from unistream.connector.kafka import KafkaSink
from unistream.connector.sql import SqlSink
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    JointCommitter,
    VisibleRows,
)
from unistream.testing.devtools.kafka_tools import create_topic


def _delta(folder: Path, partition_by: tuple[str, ...], **options: Any) -> Case:
    def read() -> list[int]:
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("id").to_pylist())

    sink = DeltaSink(str(folder), partition_by=partition_by, **options)
    return Case(sink, read, lambda: len(list(folder.rglob("*.parquet"))))


def delta(folder: Path, **options: Any) -> Case:
    return _delta(folder / "table", (), **options)


def delta_partitioned(folder: Path, **options: Any) -> Case:
    return _delta(folder / "table", ("name",), **options)


def delta_upsert(folder: Path, **options: Any) -> Case:
    return _delta(folder / "table", ("name",), mode="upsert", key="id", **options)


def collect(folder: Path) -> Case:
    def read() -> list[int]:
        try:
            return sorted(read_collected(str(folder)).column("id").to_pylist())
        except ConfigError:
            return []

    return Case(CollectSink(str(folder)), read, lambda: len(list(folder.rglob("*.arrow"))))


def _files(sink: FileSink, folder: Path, suffix: str) -> Case:
    """Readers pass over hidden files and folders."""

    def read() -> list[int]:
        if not folder.exists():
            return []
        found = [path for path in folder.rglob(f"part-*{suffix}")]
        if suffix == ".parquet":
            return sorted(id for path in found for id in pq.read_table(path)["id"].to_pylist())
        return sorted(json.loads(line)["id"] for path in found for line in path.read_text().splitlines())

    def files() -> int:
        return len([path for path in folder.rglob("*") if path.suffix in (suffix, ".staged")])

    return Case(sink, read, files)


def files(folder: Path, **options: Any) -> Case:
    return _files(FileSink(str(folder / "out"), **options), folder / "out", ".parquet")


def files_partitioned(folder: Path, **options: Any) -> Case:
    sink = FileSink(str(folder / "out"), partition_by=["name"], target_file_bytes=1, **options)
    return _files(sink, folder / "out", ".parquet")


def files_json(folder: Path, **options: Any) -> Case:
    return _files(FileSink(str(folder / "out"), format="json", **options), folder / "out", ".jsonl")


def sqlite(folder: Path, **options: Any) -> Case:
    return _sql(f"sqlite:///{folder / 'rows.db'}", **options)


def sqlite_upsert(folder: Path, **options: Any) -> Case:
    deletes = {"key": "id", "delete_when": pc.field("name") == "deleted"}
    return sqlite(folder, mode="upsert", **deletes, **options)


def _sql(url: str, table: str = "rows", **options: Any) -> Case:
    engine = create_engine(url, poolclass=NullPool)

    def query(sql: str) -> list[Any]:
        with engine.connect() as connection:
            return [row[0] for row in connection.execute(text(sql))]

    def has(name: str) -> bool:
        return inspect(engine).has_table(name)

    def read() -> list[int]:
        return sorted(query(f"SELECT id FROM {table}")) if has(table) else []

    def staged() -> int:
        names = [name for name in inspect(engine).get_table_names() if name.startswith("unistream_stage_")]
        return sum(query(f"SELECT COUNT(*) FROM {name}")[0] for name in names)

    return Case(SqlSink(url, table, **options), read, lambda: len(read()) + staged())


def on_s3(make: str) -> Case:
    """On the server that the fixture `s3` has started. Staged files are multipart uploads."""
    url = f"s3://unistream/sinks/{uuid4().hex}"
    system, path = file_system(url)

    def objects() -> list[str]:
        return [one for one in system.find(path) if one.endswith(".parquet")]

    def files_of() -> list[int]:
        found = [pq.read_table(system.open(one, "rb"))["id"].to_pylist() for one in objects()]
        return sorted(id for ids in found for id in ids)

    def table() -> list[int]:
        options = delta_options(url, {})
        if not DeltaTable.is_deltatable(url, options):
            return []
        return sorted(DeltaTable(url, storage_options=options).to_pyarrow_table().column("id").to_pylist())

    match make:
        case "delta on s3":
            return Case(
                DeltaSink(url), table, lambda: len(objects()), lose=lambda: system.rm_file(objects()[0])
            )
        case _:
            bucketed = {"partition_by": ["name"], "target_file_bytes": 1}
            sink = FileSink(url, **(bucketed if "partitioned" in make else {}))  # type: ignore[arg-type]
            return Case(
                sink,
                files_of,
                lambda: len([*objects(), *system.uploads(path)]),
                lose=lambda: system.abort_upload(next(system.uploads(path))),
            )


ON_S3 = ["delta on s3", "files on s3", "files on s3, partitioned"]


def iceberg(folder: Path, **options: Any) -> Case:
    return _iceberg(folder, f"sqlite:///{folder / 'catalog.db'}", **options)


def iceberg_partitioned(folder: Path, **options: Any) -> Case:
    return iceberg(folder, partition_by=["name", "bucket(2, id)"], **options)


def iceberg_upsert(folder: Path, **options: Any) -> Case:
    return iceberg(folder, partition_by=["name"], mode="upsert", key="id", **options)


def _iceberg(folder: Path, uri: str, **options: Any) -> Case:
    properties = {"type": "sql", "uri": uri, "warehouse": str(folder / "lake")}

    def read() -> list[int]:
        catalog = load_catalog("default", **properties)
        try:
            return sorted(catalog.load_table("sinks.rows").scan().to_arrow()["id"].to_pylist())
        except NoSuchTableError:
            return []
        finally:
            catalog.close()

    sink = IcebergSink("sinks.rows", catalog_properties=properties, **options)
    return Case(sink, read, lambda: len(list(folder.rglob("*.parquet"))))


def iceberg_growing(folder: Path) -> Case:
    """A table that lacks a column of the stream, which the first row adds."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": str(folder / "lake"),
    }
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("sinks")
    catalog.create_table("sinks.rows", pa.schema([("id", pa.int64())]))
    catalog.close()
    return iceberg(folder, schema_evolution="add")


SINKS = [delta, iceberg, collect, files, sqlite]
VARIANTS = [
    *(
        delta_upsert,
        delta_partitioned,
        iceberg_growing,
        iceberg_partitioned,
        iceberg_upsert,
        files_partitioned,
        files_json,
        sqlite_upsert,
    ),
    *("files on s3, partitioned", "iceberg-postgresql"),
]
"""Of sinks that are here anyway; ways of writing are dimensions of `test_sink_dimensions`."""


@pytest.fixture(
    params=[
        *SINKS,
        *ON_S3[:2],
        "postgresql",
        *(pytest.param(one, marks=OF_MATRIX) for one in VARIANTS),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
    ids=lambda make: getattr(make, "__name__", make),
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "kafka":
        made = kafka_topic(request.getfixturevalue("kafka"))
    elif request.param in ON_S3:
        request.getfixturevalue("s3")
        made = on_s3(request.param)
    elif request.param == "postgresql":
        made = _sql(request.getfixturevalue("postgres").new_database())
    elif request.param == "iceberg-postgresql":
        made = _iceberg(tmp_path, request.getfixturevalue("postgres").new_database())
    else:
        made = request.param(tmp_path)
    made.sink.check(batch(1).records.schema)
    yield made
    for one in made.made:
        one.close()


def kafka_topic(servers: str, *, seeing_all: bool = False, **options: Any) -> Case:
    """A topic; of its transactions those count that are not ended. `seeing_all`: reads what is committed
    also behind transactions that are open."""
    from tests.kafka_log import committed_values  # kafka-python, which a conftest must not import: it warns

    read = committed_values if seeing_all else read_committed
    name = f"sink-{uuid4().hex[:12]}"
    create_topic(servers, name, partitions=2)
    sink = KafkaSink(bootstrap_servers=servers, topic=name, transactional_id_prefix=name, **options)
    return Case(
        sink,
        lambda: sorted(json.loads(value)["id"] for value in read(servers, name, name)),
        lambda: len(open_transactions(servers, name)),
    )


def test_checking_writes_nothing(case: Case) -> None:
    assert case.read() == []
    assert case.files() == 0


def test_a_sink_travels_to_its_workers(case: Case) -> None:
    case.sink = cloudpickle.loads(cloudpickle.dumps(case.sink))
    case.committer().commit(permit(1), request(1, *case.stage(1, 1)))
    assert case.read() == [1]


def test_nothing_is_visible_before_the_commit(case: Case) -> None:
    prepared = case.stage(1, 1, 2, 3)
    assert case.read() == []
    result = case.committer().commit(permit(1), request(1, *prepared))
    assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, 3)
    assert case.read() == [1, 2, 3]


def test_a_later_permit_covers_earlier_checkpoints_in_order(case: Case) -> None:
    first, second = case.stage(1, 1), case.stage(2, 2)
    committer = case.committer()
    outcomes = [
        committer.commit(permit(2), request(n, *made)).outcome for n, made in ((1, first), (2, second))
    ]
    assert outcomes == [CommitOutcome.COMMITTED] * 2
    assert case.read() == [1, 2]


def test_all_writers_of_a_checkpoint_become_visible_together(case: Case) -> None:
    prepared = case.stage(1, 1, 2) + case.stage(1, 3, 4, index=1)
    assert case.committer().commit(permit(1), request(1, *prepared)).rows == 4
    assert case.read() == [1, 2, 3, 4]


def test_an_earlier_permit_covers_nothing_later(case: Case) -> None:
    prepared = case.stage(2, 1)
    with pytest.raises(ProtocolError):
        case.committer().commit(permit(1), request(2, *prepared))
    assert case.read() == []


def test_the_permit_of_another_lineage_covers_nothing(case: Case) -> None:
    prepared = case.stage(1, 1)
    with pytest.raises(ProtocolError):
        case.committer().commit(permit(1, LineageId("other")), request(1, *prepared))
    assert case.read() == []


def test_an_empty_checkpoint_prepares_nothing(case: Case) -> None:
    writer = case.writer()
    writer.flush(end_of_input=False)
    assert list(writer.prepare_commit(CheckpointId(1))) == []
    assert case.committer().commit(permit(1), request(1)) == CommitResult(CommitOutcome.COMMITTED)
    writer.close()


def test_close_drops_what_was_not_prepared_and_nothing_else(case: Case) -> None:
    prepared = case.stage(1, 1, 2, 3)
    kept = case.files()
    writer = case.writer(index=1)
    writer.write(batch(4))
    writer.flush(end_of_input=False)
    writer.write(batch(5))
    assert case.files() > kept
    writer.close()
    assert case.files() == kept
    case.committer().commit(permit(1), request(1, *prepared))
    assert case.read() == [1, 2, 3]


def test_close_is_fine_before_open_and_twice(case: Case) -> None:
    writer, committer = case.sink.create_writer(), case.sink.create_committer()
    assert committer is not None
    for _ in range(2):
        writer.close()
        committer.close()


def test_collected_rows_are_those_of_all_jobs(tmp_path: Path) -> None:
    case = collect(tmp_path)
    case.committer().commit(permit(5), request(5, *case.stage(5, 1)))
    other = LineageId("lineage-2")
    committer = case.committer(lineage=other)
    assert committer.commit(permit(1, other), request(1, *case.stage(1, 2))).rows == 1
    assert case.read() == [1, 2]


@pytest.mark.parametrize("index", [0, 1], ids=["of the first subtask", "of another one"])
def test_a_rewind_is_refused(case: Case, index: int) -> None:
    case.committer().commit(permit(2), request(2, *case.stage(2, 1, index=index)))
    with pytest.raises(ConfigError, match=r"checkpoint 2\b.*restored from checkpoint 1"):
        case.committer(restored=1)
    assert case.read() == [1]


@pytest.fixture
def rewinding(case_of: Callable[..., Case]) -> Case:
    return case_of(on_rewind="allow_duplicates")


@pytest.fixture(
    params=[
        delta,
        delta_upsert,
        iceberg,
        iceberg_upsert,
        sqlite,
        files,
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
    ids=lambda make: getattr(make, "__name__", make),
)
def case_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Case]]:
    """Makes a case, with options of its sink."""
    made: list[Case] = []

    def make(**options: Any) -> Case:
        if request.param == "kafka":
            made.append(kafka_topic(request.getfixturevalue("kafka"), **options))
        else:
            made.append(request.param(tmp_path, **options))
        return made[-1]

    yield make
    for case in made:
        for one in case.made:
            one.close()


def test_rows_behind_an_allowed_rewind_are_committed_whenever_the_job_dies(rewinding: Case) -> None:
    """Ids of checkpoints come again behind a rewind: what has the id of a former one is not done."""
    case = rewinding
    committer = case.committer()
    for checkpoint in (1, 2, 3):
        committer.commit(permit(checkpoint), request(checkpoint, *case.stage(checkpoint, checkpoint)))
    case.committer(restored=1)
    case.staging[0] = case.writer(restored=1)
    prepared = case.stage(2, 20)
    case.committer(restored=1, attempt=1)  # it died, and began from the same one again
    later = case.committer(restored=2, attempt=2)  # it died again, when checkpoint 2 was complete
    assert later.commit(permit(2), request(2, *prepared)).rows == 1
    assert case.committer(restored=2, attempt=3).commit(permit(2), request(2, *prepared)).rows == 0
    assert later.commit(permit(3), request(3, *case.stage(3, 30))).rows == 1
    assert case.read() == [1, 2, 3, 20, 30]


@pytest.mark.parametrize("attempts", [1, 2], ids=["once", "and begins again"])
def test_what_was_committed_before_an_allowed_rewind_is_not_missed_by_it(
    rewinding: Case, attempts: int
) -> None:
    """A snapshot lists what its own checkpoint has staged, also when that was committed right after it."""
    case = rewinding
    first = [request(checkpoint, *case.stage(checkpoint, checkpoint)) for checkpoint in (1, 2, 3)]
    committer = case.committer()
    for checkpoint, one in enumerate(first, 1):
        committer.commit(permit(checkpoint), one)
    for attempt in range(attempts):
        back = case.committer(restored=2, attempt=attempt)
        assert back.commit(permit(2), first[1]).outcome is CommitOutcome.ALREADY_COMMITTED
    assert back.commit(permit(3), request(3, *case.stage(3, 30))).rows == 1
    assert case.read() == [1, 2, 3, 30]


@pytest.mark.parametrize("make", [delta_upsert, iceberg_upsert], ids=lambda make: make.__name__)
def test_an_upsert_behind_an_allowed_rewind_is_not_taken_for_one_of_before(
    make: Callable[..., Case], tmp_path: Path
) -> None:
    """Its staged file is gone, and the former branch has a commit of the same checkpoint."""
    case = make(tmp_path, on_rewind="allow_duplicates")
    committer = case.committer()
    for checkpoint in (1, 2, 3):
        committer.commit(permit(checkpoint), request(checkpoint, *case.stage(checkpoint, checkpoint)))
    case.committer(restored=1)
    before = set(tmp_path.rglob("*.parquet"))
    prepared = case.stage(2, 20)
    (staged,) = set(tmp_path.rglob("*.parquet")) - before
    staged.unlink()
    with pytest.raises(CorruptSnapshot, match="missing"):
        case.committer(restored=2).commit(permit(2), request(2, *prepared))
    assert case.read() == [1, 2, 3]


@pytest.mark.parametrize("restored", [None, 3])
def test_without_checkpoints_a_commit_that_nobody_heard_of_is_found_by_the_next_attempt(
    case: Case, restored: int | None
) -> None:
    last = (restored or 0) + 1
    if restored is not None:
        case.committer().commit(permit(restored), request(restored, *case.stage(restored, 9)))
    outcomes = []
    for attempt in (0, 1):
        committer = case.committer(restored, attempt=attempt, checkpointing=False)
        outcomes.append(committer.commit(permit(last), request(last, *case.stage(last, 1, 2))).outcome)
    assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED]
    assert case.read() == ([1, 2] if restored is None else [1, 2, 9])


def test_a_rewind_is_refused_without_checkpoints_too(case: Case) -> None:
    case.committer().commit(permit(4), request(4, *case.stage(4, 1)))
    with pytest.raises(ConfigError):
        case.committer(3, checkpointing=False)


def test_a_damaged_committable_is_refused(case: Case) -> None:
    with pytest.raises(CorruptSnapshot):
        case.committer().commit(permit(1), request(1, b"\xc1"))
    assert case.read() == []


def test_a_missing_staged_file_is_named_and_nothing_is_committed(case: Case, tmp_path: Path) -> None:
    prepared = case.stage(1, 1, 2, 3)
    if isinstance(case.sink, KafkaSink | SqlSink):
        pytest.skip("stages no files; see test_kafka_sink.py and test_sql_sink.py")
    if case.lose is not None:
        case.lose()
    else:
        next(
            path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".arrow", ".staged")
        ).unlink()
    with pytest.raises(CorruptSnapshot, match="missing"):
        case.committer().commit(permit(1), request(1, *prepared))
    assert case.read() == []


@dataclass
class Durable:
    """What the last completed checkpoint holds: its id, the next row, and what was not yet committed."""

    checkpoint: int = 0
    position: int = 0
    pending: tuple[CommitRequest, ...] = ()
    writer: tuple[bytes, ...] = ()


class Job:
    """A source of rows 0, 1, 2, …, one writer and one committer, with checkpoints that complete or
    abort, and crashes at any moment."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.durable = Durable()
        self.position, self.pending, self.next_id, self.attempt = 0, (), 1, 0
        self.writer, self.committer = case.writer(), case.committer()

    def write(self) -> None:
        rows = self.rng.randint(1, 4)
        self.writer.write(batch(*range(self.position, self.position + rows)))
        self.position += rows

    def checkpoint(self) -> None:
        self.abort()
        state = tuple(self.writer.snapshot_state(CheckpointId(self.next_id - 1)))
        self.durable = Durable(self.next_id - 1, self.position, self.pending, state)

    def abort(self) -> None:
        """Prepared, but the checkpoint did not complete: it stays pending for the next one."""
        self.writer.flush(end_of_input=False)
        made = self.writer.prepare_commit(CheckpointId(self.next_id))
        self.pending = (*self.pending, request(self.next_id, *made))
        self.next_id += 1

    def commit(self) -> None:
        self.commit_again()
        self.pending = tuple(one for one in self.pending if one.checkpoint_id > self.durable.checkpoint)

    def commit_again(self) -> None:
        """Without taking note of it, as if the process died right afterwards."""
        for due in self.pending:
            if due.checkpoint_id <= self.durable.checkpoint:
                self.committer.commit(permit(self.durable.checkpoint), due)

    def crash(self) -> None:
        """A killed writer leaves its files; one that fails removes them."""
        if self.rng.random() < 0.5:
            self.writer.close()
        self.attempt += 1
        self.position, self.pending = self.durable.position, self.durable.pending
        restored = self.durable.checkpoint or None
        self.committer = self.case.committer(restored=restored)
        self.commit_again()
        self.writer = self.case.writer(self.durable.writer, attempt=self.attempt, restored=restored)


@pytest.mark.parametrize("seed", in_the_gate(range(8), 0, 1))
def test_any_order_of_crashes_and_repeats_commits_each_row_once(case: Case, seed: int) -> None:
    job = Job(case, random.Random(seed))
    steps = [job.write, job.write, job.checkpoint, job.abort, job.commit, job.commit_again, job.crash]
    for _ in range(40):
        job.rng.choice(steps)()
    job.crash()
    assert case.read() == list(range(job.durable.position))


def test_a_notice_for_several_checkpoints_is_one_commit(case: Case) -> None:
    first, second = case.stage(1, 1, 2), case.stage(2, 3)
    committer = case.committer()
    if not isinstance(committer, JointCommitter):
        pytest.skip("commits one checkpoint after the other")
    together = [request(1, *first), request(2, *second)]
    assert committer.commit_all(permit(2), together).rows == 3
    assert case.read() == [1, 2, 3]
    assert committer.commit_all(permit(2), together).outcome is CommitOutcome.ALREADY_COMMITTED
    later = [*together, request(3, *case.stage(3, 4))]
    assert committer.commit_all(permit(3), later).outcome is CommitOutcome.COMMITTED
    assert case.read() == [1, 2, 3, 4]


def test_visible_rows_are_reported_whichever_attempt_committed_them(case: Case) -> None:
    """An attempt that has committed may die before it says so; the next one finds its commit."""
    first = request(1, *case.stage(1, 1, 2))
    visible = VisibleRows(CheckpointId(1), 2)
    assert case.committer().commit(permit(1), first).visible == (visible,)
    again = case.committer(restored=1).commit(permit(1), first)
    assert again.visible == (replace(visible, already=True),)


def test_rows_of_several_checkpoints_are_reported_by_checkpoint(case: Case) -> None:
    first, second = request(1, *case.stage(1, 1, 2)), request(2, *case.stage(2, 3))
    committer = case.committer()
    committer.commit(permit(1), first)
    if isinstance(committer, JointCommitter):
        visible = committer.commit_all(permit(2), [first, second]).visible
    else:
        visible = tuple(one for each in (first, second) for one in committer.commit(permit(2), each).visible)
    assert visible == (VisibleRows(CheckpointId(1), 2, already=True), VisibleRows(CheckpointId(2), 1))


def test_what_a_killed_writer_has_left_is_removed_by_its_successor_alone(case: Case) -> None:
    if not isinstance(case.sink, FileSink):
        pytest.skip("leaves it to VACUUM, or to nobody")
    prepared, other = case.stage(1, 1), case.stage(1, 2, index=1)
    writer = case.writer()
    writer.write(batch(1))
    writer.flush(end_of_input=False)
    kept_state = writer.snapshot_state(CheckpointId(1))
    known = list(writer.prepare_commit(CheckpointId(1)))
    writer.write(batch(9))
    writer.flush(end_of_input=False)  # killed here
    before = case.files()
    restored = case.writer(kept_state, attempt=1, restored=1)
    assert case.files() == before - 1
    restored.close()
    case.committer(restored=1).commit(permit(1), request(1, *prepared, *known, *other))
    assert case.read() == [1, 1, 2]

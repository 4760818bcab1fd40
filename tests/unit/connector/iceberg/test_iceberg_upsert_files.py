"""Rows that replace others by key: which files are read and written again, keys of every type, and what
others have made of the table."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from tests.contract.sinks.case import permit, request
from tests.eventually import WAIT_S
from tests.iceberg_lake import TABLE, Lake
from tests.unit.connector.iceberg.parts import Parts, answerless, between, rows
from tests.unit.connector.iceberg.source_tables import (
    append,
    commit_files,
    data_file,
    delete_equal,
    delete_positions,
    paths,
    source,
    values,
)
from unistream.base.crash_points import passing
from unistream.base.errors import ConfigError
from unistream.base.ids import LineageId
from unistream.connector.iceberg.catalog import checked_address
from unistream.connector.iceberg.source_rows import read_rows
from unistream.port.sink import CommitOutcome

KEYED: dict[str, Any] = {"mode": "upsert", "key": "i", "on_foreign": "append"}
TWO_IDS = [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, uuid.UUID(int=3).bytes]
KEYS: dict[str, pa.Array[Any]] = {
    "boolean": pa.array([True, False]),
    "int": pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
    "long": pa.array([-(2**63), 0, 2**63 - 1]),
    "decimal": pa.array([Decimal("-0.01"), Decimal("0.00"), Decimal("9" * 36 + ".99")], pa.decimal128(38, 2)),
    "text": pa.array(["", "a b/ä€😀=c%20", "null", "\0", "l" * 300, "l" * 301, "a'\"b\n"]),
    "dictionary": pa.array(["a", "b", "c"]).dictionary_encode(),
    "bytes": pa.array([b"", b"\0", b"\xff\x00/", b"x" * 100]),
    "fixed": pa.array([b"abc", b"\0\0\0", b"\xff\xff\xff"], pa.binary(3)),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "time": pa.array([0, 1, 86_399_999_999], pa.time64("us")),
    "timestamp": pa.array([-1, 0, 253_402_300_799_999_999], pa.timestamp("us")),
    "timestamp with a zone": pa.array([-1, 0, 1], pa.timestamp("us", "Europe/Berlin")),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(TWO_IDS, pa.binary(16))),
}


def data(*rows: tuple[int, int]) -> pa.Table:
    """(i, n)."""
    return pa.table({"i": [i for i, _ in rows], "n": [n for _, n in rows]})


def numbered(lake: Lake) -> list[tuple[int, int]]:
    found = read_rows(checked_address("default", TABLE, lake.properties)).to_pylist()
    return sorted((row["i"], row["n"]) for row in found)


def files(lake: Lake) -> set[str]:
    """Data files of the head."""
    with lake.table() as table:
        return set(paths(table))


@pytest.fixture
def thirds(lake: Lake) -> Lake:
    """Three files: 0 to 9, 10 to 19, 20 to 29."""
    lake.create(data((0, 0)).schema)
    for first in (0, 10, 20):
        append(lake, data(*((i, 0) for i in range(first, first + 10))))
    return lake


@pytest.mark.parametrize("place", ["in no partition", "in its own"])
@pytest.mark.parametrize("kind", list(KEYS))
def test_keys_of_every_type(lake: Lake, parts: Parts, kind: str, place: str) -> None:
    keys = KEYS[kind]
    sink = parts.sink(**{**KEYED, "key": "k", "partition_by": ["k"] if place == "in its own" else []})
    sink.check(pa.schema([("k", keys.type), ("n", pa.int64())]))
    parts.add(1, rows(k=keys, n=[1] * len(keys)), sink)
    again = keys.slice(0, len(keys) - 1)
    twice = pa.chunked_array([again, again]).combine_chunks()
    parts.add(2, rows(k=twice, n=[0] * len(again) + [2] * len(again)), sink, restored=1)
    with lake.table() as table:
        found = table.scan().to_arrow().to_pylist()
    wanted = [{"k": k, "n": 2 if place < len(again) else 1} for place, k in enumerate(keys.to_pylist())]
    shown = sorted(map(repr, found))
    if kind == "timestamp with a zone":
        wanted = [{**one, "k": one["k"].astimezone(dt.UTC)} for one in wanted]
        shown = sorted(repr({**one, "k": one["k"].astimezone(dt.UTC)}) for one in found)
    assert shown == sorted(map(repr, wanted))
    assert read_rows(checked_address("default", TABLE, lake.properties)).num_rows == len(keys)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("others", [0, 300], ids=["alone", "in a range of keys"])
def test_the_least_integers_are_found_in_partitions_of_prefixes_that_wrap(
    lake: Lake, parts: Parts, kind: pa.DataType, others: int
) -> None:
    sink = parts.sink(**{**KEYED, "partition_by": ["truncate(10, i)"]})
    least = -(2 ** (kind.bit_width - 1))
    keys = [*range(least, least + 4), *range(others)]
    for n in (1, 2):
        parts.add(n, rows(i=pa.array(keys, kind), n=[n] * len(keys)), sink, restored=n - 1 or None)
    assert numbered(lake) == [(i, 2) for i in keys]
    assert values(source(lake, filter=[("i", "<=", least + 1)]), column="i") == keys[:2]


@pytest.mark.parametrize("kind", [pa.float32(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_what_is_no_key(parts: Parts, kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="rows of an Iceberg table cannot be found by column 'i', which is"):
        parts.sink(**KEYED).check(pa.schema([("i", kind)]))


# --- which files ----------------------------------------------------------------------------------


def test_files_without_any_of_the_keys_stay_and_are_not_opened(thirds: Lake, parts: Parts) -> None:
    before = files(thirds)
    [*others, _] = sorted(before, key=lambda path: path not in _with(thirds, 0, 20))
    for path in others:
        os.rename(path.removeprefix("file://"), path.removeprefix("file://") + ".away")
    parts.add(1, rows(i=[15, 11], n=[1, 1]), parts.sink(**KEYED))
    for path in others:
        os.rename(path.removeprefix("file://") + ".away", path.removeprefix("file://"))
    assert len(files(thirds) & before) == 2
    assert [n for i, n in numbered(thirds) if i in (11, 15)] == [1, 1]
    assert len(numbered(thirds)) == 30


def _with(lake: Lake, *ids: int) -> set[str]:
    """Data files that have one of these."""
    with lake.table() as table:
        return {task.file.file_path for i in ids for task in table.scan(row_filter=f"i == {i}").plan_files()}


def test_a_file_whose_bounds_have_a_key_and_whose_rows_have_not_stays(lake: Lake, parts: Parts) -> None:
    lake.create(data((0, 0)).schema)
    lake.change(lambda table: table.append(data((0, 0), (10, 0))))
    lake.change(lambda table: table.append(data((5, 0))))
    [wide] = _with(lake, 0)
    parts.add(1, rows(i=[5], n=[1]), parts.sink(**KEYED))
    assert wide in files(lake)
    assert numbered(lake) == [(0, 0), (5, 1), (10, 0)]


def test_small_files_with_keys_become_one_and_manifests_of_others_stay(thirds: Lake, parts: Parts) -> None:
    parts.add(1, rows(i=[1, 11], n=[1, 1]), parts.sink(**KEYED))
    assert len(files(thirds)) == 2
    with thirds.table() as table:
        [summary] = [one.summary for one in table.snapshots()[-1:]]
    assert summary is not None
    assert (summary.operation.value, summary["total-records"]) == ("overwrite", "30")
    assert (summary["deleted-data-files"], summary["added-data-files"]) == ("2", "1")


def test_more_keys_than_are_compared_one_by_one(thirds: Lake, parts: Parts) -> None:
    ids = [*range(5, 15), *range(1_000, 1_300)]
    parts.add(1, rows(i=ids, n=[1] * len(ids)), parts.sink(**KEYED))
    assert sum(n for _, n in numbered(thirds)) == len(ids)
    assert len(numbered(thirds)) == 30 + 300


@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_of_both_versions(lake: Lake, parts: Parts, version: str) -> None:
    sink = parts.sink(**KEYED, table_properties={"format-version": version})
    parts.add(1, rows(i=[1, 2], n=[1, 1]), sink)
    parts.add(2, rows(i=[2, 3], n=[2, 2]), sink, restored=1)
    parts.add(3, rows(i=[1], n=[3]), sink, restored=2)
    assert numbered(lake) == [(1, 3), (2, 2), (3, 2)]
    assert lake.rows("SELECT i, n FROM t ORDER BY i") == [(1, 3), (2, 2), (3, 2)]


def test_a_large_table_is_read_and_written_in_pieces(lake: Lake, parts: Parts) -> None:
    """A million rows of some 100 bytes, in ten files, one of which has keys."""
    text = pa.array(["x" * 80] * 100_000)
    lake.create(pa.schema([("i", pa.int64()), ("n", pa.int64()), ("s", pa.string())]))
    for first in range(0, 1_000_000, 100_000):
        i = pa.array(range(first, first + 100_000))
        made = pa.table({"i": i, "n": pa.nulls(100_000, pa.int64()), "s": text})
        append(lake, made)
    before = files(lake)
    pool = pa.default_memory_pool()
    proxy = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(proxy)
    try:
        parts.add(1, rows(i=[450_000, 2_000_000], n=[1, 1], s=["a", "b"]), parts.sink(**KEYED))
    finally:
        pa.set_memory_pool(pool)
    assert len(files(lake) & before) == 9
    assert lake.rows("SELECT count(*), sum(n) FROM t") == [(1_000_001, 2)]
    assert proxy.max_memory() < 64 << 20, "a file is some 10 MB of rows, the table 100"


# --- what others have made of the table -----------------------------------------------------------


def positions(table: Table) -> None:
    delete_positions(table, paths(table)[0], 1)


def equal(table: Table) -> None:
    delete_equal(table, pa.table({"i": [1, 12]}), 1)


def all_deletes(table: Table) -> None:
    positions(table)
    equal(table)


@pytest.mark.parametrize("delete", [positions, equal, all_deletes])
def test_rows_that_were_deleted_by_delete_files_do_not_come_back(
    thirds: Lake, parts: Parts, delete: Callable[[Table], None]
) -> None:
    thirds.change(delete)
    gone = {i for i in range(30)} - {i for i, _ in numbered(thirds)}
    assert gone
    back = min(gone)
    new = [(back, 1), (0, 1), (29, 1)]
    parts.add(1, rows(i=[i for i, _ in new], n=[1] * 3), parts.sink(**KEYED))
    expected = {i: 0 for i in range(30) if i not in gone} | dict(new)
    assert numbered(thirds) == sorted(expected.items())
    assert thirds.rows("SELECT i, n FROM t ORDER BY i") == sorted(expected.items())


def test_an_equality_delete_that_comes_between_is_seen_and_what_was_written_goes(
    thirds: Lake, parts: Parts
) -> None:
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    committer = parts.committer(sink, tables=between(lambda: thirds.change(equal)))
    assert committer.commit(permit(1), request(1, *staged)).outcome is CommitOutcome.COMMITTED
    assert numbered(thirds) == [(i, int(i == 3)) for i in range(30) if i not in (1, 12)]
    assert _unused(thirds) == set()


def test_what_was_written_is_used_again_if_others_have_changed_other_files(
    thirds: Lake, parts: Parts
) -> None:
    sink, seen = parts.sink(**KEYED), list[set[Path]]()
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    foreign = between(lambda: thirds.change(lambda table: table.append(data((99, 0)))))

    def look(point: str) -> None:
        if point == "iceberg.rewritten":
            seen.append({path for path in thirds.files() if "-keyed-" in path.name})

    with passing(look):
        parts.committer(sink, tables=foreign).commit(permit(1), request(1, *staged))
    first, second = seen
    assert first == second
    assert numbered(thirds) == [*((i, int(i == 3)) for i in range(30)), (99, 0)]


@pytest.mark.parametrize("happens", [True, False], ids=["it happened", "it did not"])
def test_an_answer_that_does_not_come_is_asked_for(thirds: Lake, parts: Parts, happens: bool) -> None:
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    committer = parts.committer(sink, tables=answerless(happens=happens, times=1))
    result = committer.commit(permit(1), request(1, *staged))
    assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, 1)
    assert numbered(thirds) == [(i, int(i == 3)) for i in range(30)]
    again = parts.committer(sink, restored=1).commit(permit(1), request(1, *staged))
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED


def test_a_commit_that_loses_every_race_leaves_no_files_when_it_is_given_up(
    thirds: Lake, parts: Parts
) -> None:
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    foreign = between(lambda: thirds.change(lambda table: table.append(data((99, 0)))), times=9)
    committer = parts.committer(sink, tables=foreign, attempts=2)
    assert committer.commit(permit(1), request(1, *staged)).outcome is CommitOutcome.RETRY
    committer.close()
    assert {path for path in _unused(thirds) if "-keyed-" in path.name} == set()
    done = parts.committer(sink).commit(permit(1), request(1, *staged))
    assert done.outcome is CommitOutcome.COMMITTED
    assert (3, 1) in numbered(thirds)


def test_lines_of_jobs_that_replace_rows_of_the_same_files_at_once(thirds: Lake, parts: Parts) -> None:
    sink, commits = parts.sink(**KEYED), 5

    def line(number: int) -> None:
        """Rows of its own, in files that all have; each commit twice."""
        lineage = LineageId(f"line {number}")
        writer = parts.writer(sink, lineage=lineage)
        committer = parts.committer(sink, lineage=lineage, attempts=20)
        for checkpoint in range(1, commits + 1):
            made = rows(i=[number, 10 + number, 20 + number], n=[checkpoint] * 3)
            given = request(checkpoint, *parts.staged(checkpoint, made, writer))
            for _ in range(2):
                while committer.commit(permit(checkpoint, lineage), given).outcome is CommitOutcome.RETRY:
                    pass

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(line, number) for number in (1, 2, 3)]:
            done.result(WAIT_S)
    assert numbered(thirds) == [(i, commits if i % 10 in (1, 2, 3) else 0) for i in range(30)]


def _unused(lake: Lake) -> set[Path]:
    """Data files on the disk that no snapshot has."""
    with lake.table() as table:
        used = {
            entry.data_file.file_path.removeprefix("file://")
            for snapshot in table.snapshots()
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }
    return {path for path in lake.files() if str(path) not in used}


def test_keys_that_others_have_added_several_times_are_there_once_behind_the_next_row(
    thirds: Lake, parts: Parts
) -> None:
    thirds.change(lambda table: table.append(data((3, 8), (3, 9), (13, 9))))
    parts.add(1, rows(i=[3], n=[1]), parts.sink(**KEYED))
    found = numbered(thirds)
    assert [row for row in found if row[0] in (3, 13)] == [(3, 1), (13, 0), (13, 9)]


def _renamed(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("i", "id")


def test_a_key_that_is_renamed_between_staging_and_commit_is_found_by_its_id(
    thirds: Lake, parts: Parts
) -> None:
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    thirds.change(_renamed)
    parts.committer(sink).commit(permit(1), request(1, *staged))
    assert thirds.rows("SELECT id, n FROM t WHERE n > 0") == [(3, 1)]
    assert thirds.rows("SELECT count(*) FROM t") == [(30,)]


def test_a_key_that_is_dropped_between_staging_and_commit_is_named(thirds: Lake, parts: Parts) -> None:
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))

    def drop(table: Table) -> None:
        with table.update_schema() as update:
            update.delete_column("i")

    thirds.change(drop)
    with pytest.raises(ConfigError, match="replace others by column 'i', which somebody has dropped"):
        parts.committer(sink).commit(permit(1), request(1, *staged))


def test_columns_and_partitions_that_change_between_staging_and_commit(thirds: Lake, parts: Parts) -> None:
    """The row does not have the new column; others keep theirs."""
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))

    def change(table: Table) -> None:
        with table.update_schema() as update:
            update.add_column("more", StringType())
        with table.update_spec() as update_spec:
            update_spec.add_field("i", BucketTransform(2), "i_bucket")

    def add(table: Table) -> None:
        table.append(pa.table({"i": [3, 31], "n": [7, 7], "more": ["x", "y"]}))

    thirds.change(change)
    thirds.change(add)
    parts.committer(sink).commit(permit(1), request(1, *staged))
    found = thirds.rows("SELECT i, n, more FROM t WHERE i IN (3, 4, 31) ORDER BY i")
    assert found == [(3, 1, None), (4, 0, None), (31, 7, "y")]
    assert thirds.rows("SELECT count(*) FROM t") == [(31,)]


def _without_partitions(table: Table) -> None:
    """And without the column that they were of."""
    with table.update_spec() as update_spec:
        update_spec.remove_field("n")
    with table.update_schema() as update:
        update.delete_column("n")


def test_rows_of_partitions_by_a_column_that_somebody_has_dropped(lake: Lake, parts: Parts) -> None:
    parts.add(1, rows(i=[1, 2, 3], n=[1, 1, 2]), parts.sink(**KEYED, partition_by=["n"]))
    lake.change(_without_partitions)
    parts.add(2, rows(i=[2, 4]), parts.sink(**KEYED), restored=1)
    assert [row[0] for row in lake.rows("SELECT i FROM t ORDER BY i")] == [1, 2, 3, 4]
    with lake.table() as table:
        assert sorted(table.scan().to_arrow()["i"].to_pylist()) == [1, 2, 3, 4]


def test_partitions_of_a_column_that_no_schema_has_any_more_are_named(lake: Lake, parts: Parts) -> None:
    parts.add(1, rows(i=[1, 2, 3], n=[1, 1, 2]), parts.sink(**KEYED, partition_by=["n"]))
    lake.change(_without_partitions)
    sink = parts.sink(**KEYED)
    staged = parts.staged(2, rows(i=[2, 4]), parts.writer(sink))

    def forget(table: Table) -> None:
        old = [one.schema_id for one in table.schemas().values() if one.schema_id != table.schema().schema_id]
        table.catalog.commit_table(table, (), (RemoveSchemasUpdate(schema_ids=old),))

    lake.change(forget)
    with pytest.raises(
        ConfigError, match="in files of partition spec 0, whose columns no schema of the table"
    ):
        parts.committer(sink, restored=1).commit(permit(2), request(2, *staged))
    with lake.table() as table:
        assert len(table.snapshots()) == 1


def test_columns_are_added_and_widened_by_the_sink_and_older_rows_are_still_found(
    lake: Lake, parts: Parts
) -> None:
    lake.create(pa.schema([("i", pa.int32()), ("n", pa.int64())]))
    lake.change(lambda table: table.append(data((1, 0), (2, 0)).cast(table.schema().as_arrow())))
    sink = parts.sink(**KEYED, schema_evolution="add")
    made = rows(i=pa.array([2, 2**40]), n=[1, 1], more=["x", "y"])
    parts.add(1, made, sink)
    found = lake.rows("SELECT i, n, more FROM t ORDER BY i")
    assert found == [(1, 0, None), (2, 1, "x"), (2**40, 1, "y")]


def test_columns_that_the_stream_does_not_have_keep_their_values_in_other_rows(
    lake: Lake, parts: Parts
) -> None:
    nested = {"s": [{"a": 1, "b": ["x"]}] * 3, "m": [[("k", 1)], [], None], "l": [[1, None], [], None]}
    kinds = [
        pa.field("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
        pa.field("l", pa.list_(pa.int64())),
    ]
    schema = pa.schema([("i", pa.int64()), ("n", pa.int64()), *kinds])
    made = pa.table({"i": [1, 2, 3], "n": [0, 0, 0], **nested}, schema=schema)
    lake.create(schema)
    lake.change(lambda table: table.append(made))
    parts.add(1, rows(i=[2], n=[1]), parts.sink(**KEYED))
    with lake.table() as table:
        found = {row.pop("i"): row for row in table.scan().to_arrow().to_pylist()}
    assert found[2] == {"n": 1, "s": None, "m": None, "l": None}
    for place, i in ((0, 1), (2, 3)):
        assert found[i] == {"n": 0, **{name: values[place] for name, values in nested.items()}}


def test_branches_and_tags_keep_their_rows(thirds: Lake, parts: Parts) -> None:
    def tag(table: Table) -> None:
        head = table.metadata.current_snapshot_id
        assert head is not None
        with table.manage_snapshots() as manage:
            manage.create_tag(head, "before").create_branch(head, "other")

    thirds.change(tag)
    parts.add(1, rows(i=[3], n=[1]), parts.sink(**KEYED))
    for ref in ("before", "other"):
        assert values(source(thirds, ref=ref)) == list(range(30))
        with thirds.table() as table:
            old = table.scan(snapshot_id=table.refs()[ref].snapshot_id).to_arrow()
        assert set(old["n"].to_pylist()) == {0}


def test_a_file_that_cannot_be_written_again_is_named(thirds: Lake, parts: Parts) -> None:
    def add_orc(table: Table) -> None:
        file = data_file(table, paths(table)[0], file_format=FileFormat.ORC)
        commit_files(table, adds=[file], operation=Operation.APPEND)

    thirds.change(add_orc)
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=[3], n=[1]), parts.writer(sink))
    with pytest.raises(ConfigError, match="rows in ORC, and unistream reads Parquet"):
        parts.committer(sink).commit(permit(1), request(1, *staged))


def test_a_stream_follows_what_is_added_and_refuses_what_is_replaced(thirds: Lake, parts: Parts) -> None:
    parts.add(1, rows(i=[40], n=[1]), parts.sink(**KEYED))
    parts.add(2, rows(i=[40], n=[2]), parts.sink(**KEYED), restored=1)
    parts.add(3, rows(i=[40], n=[3]), parts.sink(**KEYED, delete_when=pc.field("n") == 3), restored=2)
    with thirds.table() as table:
        operations = [one.summary.operation.value for one in table.snapshots()[-3:] if one.summary]
    assert operations == ["append", "overwrite", "delete"]


# --- a sink that is changed -----------------------------------------------------------------------


def test_output_of_a_former_mode_and_key_is_committed_before_that_of_the_new_one(
    lake: Lake, parts: Parts
) -> None:
    """A snapshot may list what several checkpoints have staged, and the sink is another one since."""
    appending, keyed = parts.sink(), parts.sink(**KEYED)
    by_n = parts.sink(**{**KEYED, "key": "n"})
    committer = parts.committer(keyed)
    staged = [
        parts.staged(1, rows(i=[1, 1, 2], n=[1, 2, 3]), parts.writer(appending)),
        parts.staged(2, rows(i=[1], n=[4]), parts.writer(keyed)),
        parts.staged(3, rows(i=[9], n=[3]), parts.writer(by_n)),
    ]
    together = [one for each in staged for one in each]
    result = committer.commit_all(permit(3), [request(3, *reversed(together))])
    assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, 5)
    assert numbered(lake) == [(1, 4), (9, 3)]
    again = parts.committer(keyed, restored=3).commit(permit(3), request(3, *together))
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED


def test_a_column_of_the_table_without_a_form_is_named_before_anything_starts(lake: Lake) -> None:
    from unistream.connector.iceberg.upsert import check_rewritable

    with pytest.raises(ConfigError, match="column 'g' is geometry, which unistream does not read, so the"):
        check_rewritable("table t", {"g": "geometry"})


def test_a_name_of_the_sink_is_refused(parts: Parts) -> None:
    schema = pa.schema([("i", pa.int64()), ("_unistream_deleted", pa.bool_())])
    with pytest.raises(ConfigError, match="a column cannot be called '_unistream_deleted'"):
        parts.sink(**KEYED).check(schema)


def test_widened_types_of_a_key_compare(lake: Lake, parts: Parts) -> None:
    """Rows of before are an int in their files, and a long in the table."""
    lake.create(pa.schema([("i", pa.int32()), ("n", pa.int64())]))
    sink = parts.sink(**KEYED)
    staged = parts.staged(1, rows(i=pa.array([1, 2], pa.int32()), n=[1, 1]), parts.writer(sink))

    def widen(table: Table) -> None:
        table.append(data((2, 0), (3, 0)).cast(table.schema().as_arrow()))
        with table.update_schema() as update:
            update.update_column("i", field_type=LongType())

    lake.change(widen)
    parts.committer(sink).commit(permit(1), request(1, *staged))
    assert numbered(lake) == [(1, 1), (2, 1), (3, 0)]

"""A Delta table that grows, changes, is set back or replaced while it is read."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.connector.delta.delta_tables import (
    actions_of,
    after,
    append,
    commit,
    find,
    numbers,
    of_row_groups,
    parts,
    read,
    rewrite,
    values,
)
from unistream.base.errors import ConfigError
from unistream.connector.delta import DeltaSource, read_table
from unistream.connector.delta.source_split import encode_split
from unistream.connector.delta.table import DeltaSinkTable
from unistream.model.splits import FoundSplits, KnownSplits

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version n has the rows 0 to n; it was written at noon plus n minutes."""
    path = tmp_path / "table"
    for n in range(3):
        append(path, numbers(n))
        at_s = (NOON + dt.timedelta(minutes=n)).timestamp()
        os.utime(path / "_delta_log" / f"{n:020d}.json", (at_s, at_s))
    return path


def growing(table: Path, **options: Any) -> DeltaSource:
    return DeltaSource(str(table), bounded=False, **options)


def position(found: FoundSplits) -> int:
    return int(json.loads(found.position)["next"])


# --- where it begins ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "first", "following"),
    [
        pytest.param({}, [0, 1, 2], 3, id="the newest version"),
        pytest.param({"version": 1}, [0, 1], 2, id="an older version"),
        pytest.param({"timestamp": "2026-01-01T12:00:30Z"}, [0], 1, id="the version of a time"),
        pytest.param({"starting_version": "latest"}, [], 3, id="what is added from now on"),
        pytest.param({"starting_version": 0}, [0, 1, 2], 3, id="all that was added"),
        pytest.param({"starting_version": 2}, [2], 3, id="what was added by a version and later"),
        pytest.param({"starting_timestamp": "2026-01-01T12:01:00Z"}, [1, 2], 3, id="since a commit"),
        pytest.param({"starting_timestamp": "2026-01-01T12:01:00.001Z"}, [2], 3, id="since after it"),
        pytest.param(
            {"starting_timestamp": "2026-01-01T11:00:00Z"}, [0, 1, 2], 3, id="since before the table"
        ),
        pytest.param({"starting_timestamp": "2026-01-02T00:00:00Z"}, [], 3, id="since after the last"),
    ],
)
def test_where_a_new_job_begins_and_what_follows(
    table: Path, given: dict[str, Any], first: list[int], following: int
) -> None:
    source = growing(table, **given)
    found = find(source)
    assert values(source, found.splits) == first
    assert found.origin == str(DeltaTable(str(table)).metadata().id)
    assert position(found) == following
    append(table, numbers(3))
    assert values(source, find(source, after(found)).splits) == list(range(following, 4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"starting_version": 3}, "has no version 3; its newest is 2", id="a version to come"),
        pytest.param({"version": 3}, "has no version 3; its newest is 2", id="a snapshot to come"),
        pytest.param({"columns": ["j"]}, "has no column 'j'", id="a column"),
    ],
)
def test_a_start_that_is_not_there_is_named_on_the_client(
    table: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"table {table}.* {message}"):
        _ = growing(table, **given).schema


def test_a_start_whose_log_was_cleaned_up_is_named(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(ConfigError, match=r"version 0 was cleaned up from its log before it was read"):
        find(growing(table, starting_version=0))
    with pytest.raises(
        ConfigError, match=r"committed since 2026-01-01T11.*first version in its log is 1 of 2026"
    ):
        find(growing(table, starting_timestamp="2026-01-01T11:00:00Z"))
    assert values(growing(table, starting_version=1)) == [1, 2]


def test_an_empty_table_is_read_from_its_first_rows_on(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), numbers().schema)
    source = growing(tmp_path / "t")
    found = find(source)
    assert found.splits == ()
    append(tmp_path / "t", numbers(1))
    assert values(source, find(source, after(found)).splits) == [1]


def test_a_job_that_read_one_version_can_go_on_with_those_that_follow(table: Path) -> None:
    """From its savepoint, with bounded=False."""
    found = find(DeltaSource(str(table), version=1))
    assert values(DeltaSource(str(table)), found.splits) == [0, 1]
    append(table, numbers(3))
    assert values(growing(table), find(growing(table), after(found)).splits) == [2, 3]


# --- what follows -------------------------------------------------------------------------------------


def test_without_a_new_version_nothing_is_found_and_the_position_stays(table: Path) -> None:
    source = growing(table)
    found = find(source)
    again = find(source, after(found))
    assert (again.splits, again.position, again.origin) == ((), found.position, found.origin)


@pytest.mark.parametrize("seed", range(12))
def test_each_added_row_is_found_once_whatever_happens_in_between(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = tmp_path / "t"
    append(table, numbers(0))
    source = growing(table, split_bytes=rng.choice([1, 10**9]))
    found = find(source)
    splits = list(found.splits)
    kept: list[Callable[[DeltaTable], object]] = [
        lambda lake: lake.optimize.compact(),
        lambda lake: lake.create_checkpoint(),
        lambda lake: lake.alter.set_table_properties({"delta.appendOnly": "false"}),
    ]
    total = 1
    for _ in range(25):
        match rng.randrange(4):
            case 0 | 1:
                count = rng.randrange(1, 4)
                append(table, numbers(*range(total, total + count)))
                total += count
            case 2:
                rng.choice(kept)(DeltaTable(str(table)))
            case 3:
                found = find(source, after(found))
                splits += found.splits
    splits += find(source, after(found)).splits
    assert len({split.id for split in splits}) == len(splits)
    assert values(source, splits) == list(range(total))


def test_files_that_the_filter_rules_out_are_no_splits(table: Path) -> None:
    source = growing(table, filter=[("i", ">=", 4)])
    found = find(source)
    assert found.splits == ()
    append(table, numbers(3))
    append(table, numbers(4, 5))
    append(table, numbers(2, 6))
    splits = find(source, after(found)).splits
    assert [part.version for part in parts(splits)] == [4, 5]
    assert values(source, splits) == [4, 5, 6]


def test_event_times_of_added_files_are_in_the_log_or_in_the_footer(table: Path) -> None:
    source = growing(table)
    found = find(source, column="i")
    append(table, numbers(50, 40))
    append(table, numbers(60, 30))
    rewrite(table, 4, {"add": {"stats": None}})
    splits = find(source, after(found), column="i").splits
    assert [split.min_timestamp for split in splits] == [40, 30]


def update(table: Path) -> None:
    DeltaTable(str(table)).update(updates={"i": "i + 100"}, predicate="i = 1")


def overwrite(table: Path) -> None:
    write_deltalake(str(table), numbers(7), mode="overwrite")


def delete(table: Path) -> None:
    DeltaTable(str(table)).delete("i = 1")


IGNORE_DELETES, IGNORE_CHANGES = {"ignore_deletes": True}, {"ignore_changes": True}


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        pytest.param(delete, {}, r"version 3 \(DELETE\) deletes rows.*ignore_deletes=True", id="a delete"),
        pytest.param(update, {}, r"version 3 \(UPDATE\) rewrites rows.*ignore_changes=True", id="an update"),
        pytest.param(overwrite, {}, r"version 3 \(WRITE\) rewrites rows", id="an overwrite"),
        pytest.param(delete, IGNORE_DELETES, [8], id="a delete is passed"),
        pytest.param(delete, IGNORE_CHANGES, [8], id="a delete is a change"),
        pytest.param(
            update, IGNORE_DELETES, r"version 3 \(UPDATE\) rewrites rows", id="an update is no delete"
        ),
        pytest.param(update, IGNORE_CHANGES, [8, 101], id="rows of an updated file are read"),
        pytest.param(overwrite, IGNORE_CHANGES, [7, 8], id="rows of an overwrite are read"),
    ],
)
def test_versions_that_delete_or_rewrite_rows(
    table: Path, change: Callable[[Path], None], options: dict[str, Any], expected: Any
) -> None:
    source = growing(table, **options)
    found = find(source)
    change(table)
    append(table, numbers(8))
    if isinstance(expected, list):
        assert values(source, find(source, after(found)).splits) == expected
    else:
        with pytest.raises(ConfigError, match=rf"table {table}, {expected}"):
            find(source, after(found))


def test_a_rewrite_of_part_of_a_file_reads_its_other_rows_again(tmp_path: Path) -> None:
    """As Delta's own source does with ignoreChanges."""
    append(tmp_path / "t", numbers(1, 2, 3))
    source = growing(tmp_path / "t", ignore_changes=True)
    found = find(source)
    DeltaTable(str(tmp_path / "t")).delete("i = 2")
    assert values(source, find(source, after(found)).splits) == [1, 3]


def test_files_that_were_vacuumed_before_they_were_read_are_named(table: Path) -> None:
    source = growing(table)
    splits = find(source).splits
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(ConfigError, match=r"of version 2 does not exist: VACUUM"):
        values(source, splits)


# --- deletion vectors ---------------------------------------------------------------------------------

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(*rows: int) -> dict[str, Any]:
    """Inline, as in the Delta protocol: a roaring bitmap of 64 bits in base 85."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    bitmap += b"".join(struct.pack("<H", row) for row in rows)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = content + b"\0" * (-len(content) % 4)
    text = ""
    for at in range(0, len(padded), 4):
        number = int.from_bytes(padded[at : at + 4], "big")
        text += "".join(Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": len(rows)}


def with_deletion_vector(table: Path, rows: pa.Table, *deleted: int, **options: Any) -> None:
    """Version 0 has the rows, version 1 not all of them."""
    append(table, rows, **options)
    needed = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    rewrite(table, 0, {"protocol": needed | features})
    add = next(action["add"] for action in actions_of(table, 0) if "add" in action)
    removed = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    commit(table, 1, [{"remove": removed}, {"add": add | {"deletionVector": deletion_vector(*deleted)}}])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [1, 3, 5], id="bounded"),
        pytest.param({"bounded": False}, [1, 3, 5], id="a snapshot first"),
        pytest.param({"version": 0}, [1, 2, 3, 4, 5], id="the version before"),
        pytest.param({"split_bytes": 1}, [1, 3, 5], id="by row groups"),
        pytest.param({"filter": [("i", ">", 2)]}, [3, 5], id="filtered"),
        pytest.param({"columns": ["part"]}, ["a b/%"] * 3, id="columns of the partition only"),
    ],
)
def test_deleted_rows_of_a_deletion_vector_are_not_read(
    tmp_path: Path, options: dict[str, Any], expected: list[Any]
) -> None:
    """As deltalake has it."""
    table = tmp_path / "t x"
    rows = numbers(1, 2, 3, 4, 5).append_column("part", pa.array(["a b/%"] * 5))
    with_deletion_vector(table, rows, 1, 3, partition_by=["part"], **of_row_groups(2))
    by_deltalake = read_table(str(table), {})
    assert sorted(by_deltalake.column("i").to_pylist()) == [1, 3, 5]
    lake = DeltaSinkTable.open(str(table), {})
    assert lake is not None
    assert lake.row_count() == 3
    column = options.get("columns", ["i"])[0]
    assert values(DeltaSource(str(table), **options), column=column) == expected


def marked_again(table: Path, version: int, *deleted: int, operation: str = "DELETE") -> None:
    """A later version, in which other rows of the same file are deleted."""
    [add] = [action["add"] for action in actions_of(table, version - 1) if "add" in action]
    other = add | {"deletionVector": deletion_vector(*deleted) if deleted else None}
    changed = [{"remove": removal(add)}, {"add": other}]
    commit(table, version, [{"commitInfo": {"operation": operation}}, *changed])


def removal(add: dict[str, Any]) -> dict[str, Any]:
    """Of the file with its deletion vector, which are one for the protocol."""
    names = ("path", "deletionVector")
    return {name: add.get(name) for name in names} | {"dataChange": True, "deletionTimestamp": 1}


def test_a_version_that_only_deletes_by_a_deletion_vector_adds_nothing(tmp_path: Path) -> None:
    table = tmp_path / "t x"
    rows = numbers(1, 2, 3, 4).append_column("part", pa.array(["a b/%"] * 4))
    with_deletion_vector(table, rows, 1, partition_by=["part"])
    marked_again(table, 2, 1, 3)
    for version in (1, 2):
        with pytest.raises(ConfigError, match=rf"version {version} .* deletes rows.*ignore_deletes=True"):
            find(growing(table, starting_version=version))
        for ignoring in ("ignore_deletes", "ignore_changes"):
            assert find(growing(table, starting_version=version, **{ignoring: True})).splits == ()


def test_rows_that_come_back_by_a_smaller_deletion_vector_are_a_change(tmp_path: Path) -> None:
    """As `RESTORE` makes it: one is there again, another one is not any more."""
    table = tmp_path / "t"
    with_deletion_vector(table, numbers(1, 2, 3, 4), 1)
    marked_again(table, 2, 0, 2, 3, operation="RESTORE")
    marked_again(table, 3, operation="RESTORE")
    for version, left in ((2, [2]), (3, [1, 2, 3, 4])):
        with pytest.raises(ConfigError, match=rf"version {version} .RESTORE. rewrites rows"):
            find(growing(table, starting_version=version, ignore_deletes=True))
        source = growing(table, starting_version=version, ignore_changes=True)
        found = [one for one in parts(find(source).splits) if one.version == version]
        assert values(source, [encode_split(one) for one in found]) == left


def test_of_an_update_by_a_deletion_vector_the_new_file_is_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    with_deletion_vector(table, numbers(1, 2, 3), 1)
    append(table, numbers(2))
    [new] = [action["add"] for action in actions_of(table, 2) if "add" in action]
    [old] = [action["add"] for action in actions_of(table, 1) if "add" in action]
    marked = old | {"deletionVector": deletion_vector(0, 1)}
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    commit(table, 2, [{"remove": removal(old)}, {"add": marked}, {"add": new}])
    with pytest.raises(ConfigError, match=r"version 2 .* rewrites rows"):
        find(growing(table, starting_version=2, ignore_deletes=True))
    assert values(growing(table, starting_version=2, ignore_changes=True)) == [2]


# --- columns that change ------------------------------------------------------------------------------


def test_a_column_that_is_added_later_is_not_read_and_one_that_came_since_the_start_is_null(
    table: Path,
) -> None:
    source = growing(table)
    found = find(source)
    append(table, pa.table({"i": [3], "j": ["new"]}), schema_mode="merge")
    assert values(source, find(source, after(found)).splits) == [3]
    later = growing(table, starting_version=1)
    rows = sorted(read(later), key=lambda row: row["i"])
    assert rows == [{"i": 1, "j": None}, {"i": 2, "j": None}, {"i": 3, "j": "new"}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(
            pa.table({"i": ["text"]}), r"version 3: column 'i' is string now, and was int64", id="type"
        ),
        pytest.param(pa.table({"j": [1]}), r"version 3 has no column 'i'; there are j", id="removed"),
    ],
)
def test_a_column_that_changes_its_type_or_goes_is_named(table: Path, rows: pa.Table, message: str) -> None:
    source = growing(table, ignore_changes=True)
    found = find(source)
    write_deltalake(str(table), rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConfigError, match=rf"table {table}, {message}"):
        find(source, after(found))


def test_a_feature_that_is_not_known_and_comes_later_is_refused(table: Path) -> None:
    source = growing(table)
    found = find(source)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["rowsInTheMoon"]}
    commit(table, 3, [{"protocol": protocol | {"writerFeatures": ["rowsInTheMoon"]}}])
    with pytest.raises(ConfigError, match=rf"table {table} needs readers that know rowsInTheMoon"):
        find(source, after(found))


def test_a_column_that_came_after_the_first_version_is_null_in_it(table: Path) -> None:
    append(table, pa.table({"i": [3], "j": ["new"]}), schema_mode="merge")
    source = growing(table, version=0, filter=[[("j", "is", None)], [("j", "=", "new")]])
    found = find(source)
    assert read(source, found.splits) == [{"i": 0, "j": None}]
    assert {row["j"] for row in read(source, find(source, after(found)).splits)} == {None, "new"}


@pytest.mark.parametrize(
    "given",
    [{"version": 0}, {"starting_version": 0}, {"starting_timestamp": NOON}, {"timestamp": NOON}],
    ids=lambda given: next(iter(given)),
)
def test_a_restored_job_does_not_need_the_log_where_it_once_began(table: Path, given: dict[str, Any]) -> None:
    found = find(growing(table, **given))
    found = find(growing(table, **given), after(found))
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    append(table, numbers(3))
    again = growing(table, **given)  # the program runs again
    assert 3 in values(again, find(again, after(found)).splits)


# --- another table, or an older one -------------------------------------------------------------------


def recreate(versions: int) -> Callable[[Path], None]:
    def perform(table: Path) -> None:
        shutil.rmtree(table)
        for n in range(versions):
            append(table, numbers(100 + n))

    return perform


def replace_table(table: Path) -> None:
    """CREATE OR REPLACE TABLE: one log, another id."""
    schema = next(a["metaData"] for a in actions_of(table, 0) if "metaData" in a)
    commit(table, 3, [{"metaData": schema | {"id": "another"}}])


def set_back(table: Path) -> None:
    (table / "_delta_log" / f"{2:020d}.json").unlink()


def set_back_and_written(table: Path) -> None:
    """The same id, and as many versions as before, but not the same ones."""
    set_back(table)
    append(table, numbers(100))
    append(table, numbers(101))


def clean_up(*versions: int) -> Callable[[Path], None]:
    def perform(table: Path) -> None:
        append(table, numbers(3))
        append(table, numbers(4))
        DeltaTable(str(table)).create_checkpoint()
        for version in versions:
            (table / "_delta_log" / f"{version:020d}.json").unlink()

    return perform


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(shutil.rmtree, r" was removed since the job began to read it", id="it is gone"),
        pytest.param(recreate(1), r" was replaced since the job began to read it \(its id was", id="fewer"),
        pytest.param(recreate(2), r" was replaced since", id="another table, one version fewer"),
        pytest.param(recreate(3), r": version 2 is not the one that the job has read", id="as many"),
        pytest.param(recreate(4), r": version 2 is not the one that the job has read", id="another, longer"),
        pytest.param(replace_table, r": version 3 is of another table \(its id is another", id="replaced"),
        pytest.param(set_back, r" is at version 1, but the job has read up to version 2", id="a backup"),
        pytest.param(
            set_back_and_written, r": version 2 is not the one that the job has read", id="a backup, written"
        ),
        pytest.param(
            clean_up(0, 1, 2, 3),
            r": version 3 was cleaned up from its log before it was read",
            id="cleaned up",
        ),
    ],
)
def test_what_does_not_continue_the_table_is_refused(
    table: Path, change: Callable[[Path], None], message: str
) -> None:
    source = growing(table)
    found = find(source)
    change(table)
    with pytest.raises(ConfigError, match=rf"table {table}{message}.*without the checkpoint.*another uid"):
        find(source, after(found))


@pytest.mark.parametrize(
    "versions", [(0, 1), (0, 1, 2)], ids=["before the last", "also the last that was read"]
)
def test_a_log_that_was_cleaned_up_before_the_position_is_read_on(
    table: Path, versions: Sequence[int]
) -> None:
    source = growing(table)
    found = find(source)
    clean_up(*versions)(table)
    again = find(source, after(found))
    assert values(source, again.splits) == [3, 4]
    (table / "_delta_log" / f"{3:020d}.json").unlink()
    (table / "_delta_log" / f"{4:020d}.json").unlink()
    assert find(source, after(again)).splits == ()


def test_a_log_that_was_copied_is_the_same(table: Path, tmp_path: Path) -> None:
    """Its files have other times."""
    source = growing(table)
    found = find(source)
    shutil.copytree(table, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(table)
    (tmp_path / "copy").rename(table)
    again = find(source, after(found))
    assert again.splits == ()
    append(table, numbers(3))
    assert values(source, find(source, after(again)).splits) == [3]


@pytest.mark.parametrize("content", ["", "{not json", '{"add": 5}', '"text"'])
def test_a_damaged_log_is_named(table: Path, content: str) -> None:
    source = growing(table)
    found = find(source)
    (table / "_delta_log" / f"{3:020d}.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"table {table}: the log of version 3 is unreadable"):
        find(source, after(found))


def test_a_damaged_position_is_refused(table: Path) -> None:
    with pytest.raises(ConfigError, match="the position of a Delta source is unreadable"):
        find(growing(table), KnownSplits(ids=frozenset(), origin="", position="{"))

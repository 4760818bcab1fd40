"""An Iceberg table that grows, changes, expires, is set back or replaced while it is read."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, StringType

from tests.iceberg_lake import TABLE, Lake
from tests.unit.connector.iceberg.source_tables import (
    after,
    append,
    commit_files,
    compact,
    data_file,
    delete_positions,
    find,
    growing,
    head,
    numbers,
    parts,
    paths,
    read,
    source,
    values,
    with_ids,
    write_parquet,
)
from unistream.base.errors import ConfigError


@pytest.fixture
def table(lake: Lake) -> Lake:
    """Three snapshots: 0; 1, 2; 3."""
    lake.create(numbers().schema)
    for rows in ([0], [1, 2], [3]):
        append(lake, numbers(*rows))
    return lake


def snapshots(lake: Lake) -> list[Any]:
    with lake.table() as table:
        return table.snapshots()


def test_where_a_new_job_begins_and_what_follows(table: Lake) -> None:
    first, second, third = snapshots(table)
    begins = [
        ({}, [0, 1, 2, 3]),
        ({"snapshot_id": second.snapshot_id}, [0, 1, 2]),
        ({"starting_snapshot": "latest"}, []),
        ({"starting_snapshot": "earliest"}, [0, 1, 2, 3]),
        ({"starting_snapshot": second.snapshot_id}, [1, 2, 3]),
        ({"after_snapshot": second.snapshot_id}, [3]),
        ({"starting_timestamp": _time(second.timestamp_ms)}, [1, 2, 3]),
        ({"starting_timestamp": _time(first.timestamp_ms - 1)}, [0, 1, 2, 3]),
        ({"starting_timestamp": _time(third.timestamp_ms + 1)}, []),
    ]
    found = [find(growing(table, **given)) for given, _ in begins]
    assert [values(growing(table), one.splits) for one in found] == [rows for _, rows in begins]
    append(table, numbers(4))
    for (given, rows), one in zip(begins, found, strict=True):
        missed = [3, 4] if given == {"snapshot_id": second.snapshot_id} else [4]
        assert values(growing(table), find(growing(table, **given), after(one)).splits) == missed, (
            given,
            rows,
        )


def _time(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat()


def test_an_empty_table_is_read_from_its_first_rows_on(lake: Lake) -> None:
    lake.create(numbers().schema)
    for given in ({}, {"starting_snapshot": "latest"}, {"starting_snapshot": "earliest"}):
        assert find(growing(lake, **given)).splits == ()
    found = find(growing(lake))
    append(lake, numbers(1))
    assert values(growing(lake), find(growing(lake), after(found)).splits) == [1]


def test_a_branch_is_followed_and_a_tag_is_not(table: Lake) -> None:
    [_, second, _] = snapshots(table)
    table.change(lambda now: now.manage_snapshots().create_branch(second.snapshot_id, "b").commit())
    table.change(lambda now: now.manage_snapshots().create_tag(second.snapshot_id, "t").commit())
    given = growing(table, ref="b")
    found = find(given)
    assert values(given, found.splits) == [0, 1, 2]
    append(table, numbers(9))
    table.change(lambda now: now.append(numbers(4), branch="b"))
    assert values(given, find(given, after(found)).splits) == [4]
    with pytest.raises(ConfigError, match="'t' is a tag, which gets no new rows"):
        find(growing(table, ref="t"))


def test_without_a_new_snapshot_nothing_is_found_and_the_position_stays(table: Lake) -> None:
    found = find(growing(table))
    again = find(growing(table), after(found))
    assert (again.splits, again.position, again.origin) == ((), found.position, found.origin)
    assert json.loads(found.position) == {"snapshot": head(table)}


@pytest.mark.parametrize("seed", range(4))
def test_each_added_row_is_found_once_whatever_happens_in_between(lake: Lake, seed: int) -> None:
    """Or the position is refused, and never in silence: rows that were expired unread, or set back."""
    rng = random.Random(seed)
    lake.create(numbers().schema)
    append(lake, numbers(0))
    given = growing(lake, split_bytes=rng.choice([1, 10**9]))
    found = find(given)
    splits, total, read_up_to = list(found.splits), 1, head(lake)
    for _ in range(14):
        match rng.randrange(6):
            case 0 | 1:
                count = rng.randrange(1, 4)
                append(lake, numbers(*range(total, total + count)))
                total += count
            case 2:
                lake.change(compact)
            case 3:
                lake.change(lambda table: table.transaction().set_properties(x="1").commit_transaction())
            case 4:
                _expire(lake, read_up_to)
            case _:
                found = find(given, after(found))
                splits, read_up_to = splits + list(found.splits), head(lake)
    splits += find(given, after(found)).splits
    assert len({split.id for split in splits}) == len(splits)
    assert values(given, splits) == list(range(total))


def _expire(lake: Lake, read_up_to: int) -> None:
    """What was read."""

    def expire(table: Table) -> None:
        chain = [one.snapshot_id for one in table.snapshots()]
        old = chain[: chain.index(read_up_to)]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    lake.change(expire)


def test_snapshots_that_expired_before_they_were_read_are_named(table: Lake) -> None:
    found = find(growing(table))
    unread = append(table, numbers(4))
    append(table, numbers(5))
    table.change(
        lambda now: now.maintenance.expire_snapshots().by_ids([unread, *_old(table, unread)]).commit()
    )
    with pytest.raises(
        ConfigError, match=r"has expired, and others behind it may have expired before they were read"
    ):
        find(growing(table), after(found))
    with pytest.raises(ConfigError, match="its first snapshots have expired, the oldest that is left is"):
        find(growing(table, starting_snapshot="earliest"))
    assert values(growing(table)) == [0, 1, 2, 3, 4, 5], "a new job reads the snapshot that is left"


def test_rows_of_expired_snapshots_are_not_passed_with_the_compaction_that_has_them(table: Lake) -> None:
    table.change(compact)
    newest = head(table)
    table.change(lambda now: now.maintenance.expire_snapshots().by_ids(_old(table, newest)).commit())
    append(table, numbers(4))
    with pytest.raises(ConfigError, match=rf"its first snapshots have expired, .* left is {newest} of"):
        find(growing(table, starting_snapshot="earliest"))
    named = growing(table, starting_snapshot=newest)
    assert values(named, find(named).splits) == [4], "which says so itself"


def _old(lake: Lake, until: int) -> list[int]:
    found = [one.snapshot_id for one in snapshots(lake)]
    return found[: found.index(until)]


def test_a_table_that_was_set_back_is_named_also_when_it_was_written_again(table: Lake) -> None:
    [_, second, _] = snapshots(table)
    found = find(growing(table))
    table.change(lambda now: now.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit())
    for again in (False, True):
        if again:
            append(table, numbers(7))
        with pytest.raises(ConfigError, match=rf"table {TABLE}.* the branch was set back or replaced"):
            find(growing(table), after(found))


def test_a_table_that_was_dropped_or_replaced_is_named(table: Lake) -> None:
    found = find(growing(table))
    given = growing(table)
    _ = given.schema
    table.drop()
    with pytest.raises(ConfigError, match="was removed since the job began to read it"):
        find(given, after(found))
    table.create(numbers().schema)
    append(table, numbers(9))
    with pytest.raises(ConfigError, match=r"was replaced since the job began to read it \(its id was"):
        find(given, after(found))


# --- snapshots that change rows -------------------------------------------------------------------


def delete(table: Table) -> None:
    table.delete("i < 1")


def delete_some(table: Table) -> None:
    table.delete("i = 1")


def delete_by_position(table: Table) -> None:
    delete_positions(table, paths(table)[0], 0)


def update(table: Table) -> None:
    """As MERGE and UPDATE are: files are removed, and others added."""
    [path, *_] = paths(table)
    made = write_parquet(table, "updated", with_ids(numbers(100), 1))
    commit_files(
        table,
        adds=[data_file(table, made)],
        removes=lambda file: file.file_path == path,
        operation=Operation.OVERWRITE,
    )


def overwrite_nothing(table: Table) -> None:
    made = write_parquet(table, "into-nothing", with_ids(numbers(7), 1))
    commit_files(table, adds=[data_file(table, made)], operation=Operation.OVERWRITE)


IGNORE_DELETES, IGNORE_CHANGES = {"ignore_deletes": True}, {"ignore_changes": True}


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        pytest.param(delete, {}, r"\(delete\) deletes rows.*ignore_deletes=True", id="a delete"),
        pytest.param(delete_by_position, {}, r"\(delete\) deletes rows", id="a delete by position"),
        pytest.param(delete_some, IGNORE_DELETES, r"\(overwrite\) rewrites rows", id="a file is rewritten"),
        pytest.param(update, {}, r"\(overwrite\) rewrites rows.*ignore_changes=True", id="an update"),
        pytest.param(delete, IGNORE_DELETES, [8], id="a delete is passed"),
        pytest.param(delete_by_position, IGNORE_DELETES, [8], id="a delete by position is passed"),
        pytest.param(delete, IGNORE_CHANGES, [8], id="a delete is a change"),
        pytest.param(update, IGNORE_CHANGES, [8, 100], id="rows of an update are read"),
        pytest.param(overwrite_nothing, {}, [7, 8], id="an overwrite that removes nothing adds rows"),
        pytest.param(compact, {}, [8], id="compaction is passed"),
    ],
)
def test_snapshots_that_delete_or_rewrite_rows(
    table: Lake, change: Callable[[Table], None], options: dict[str, Any], expected: Any
) -> None:
    given = growing(table, **options)
    found = find(given)
    begin = head(table)
    table.change(change)
    append(table, numbers(8))
    bounded = source(table, after_snapshot=begin, **options)
    if isinstance(expected, list):
        assert values(given, find(given, after(found)).splits) == expected
        assert values(bounded) == expected
        return
    for one, known in ((given, after(found)), (bounded, None)):
        with pytest.raises(ConfigError, match=rf"table {TABLE}.*, snapshot \d+ {expected}"):
            find(one, known)


def test_files_that_the_filter_rules_out_are_no_splits(table: Lake) -> None:
    given = growing(table, filter=[("i", ">=", 4)])
    found = find(given)
    assert found.splits == ()
    for rows in ([3], [4, 5], [2, 6]):
        append(table, numbers(*rows))
    splits = find(given, after(found)).splits
    assert len(parts(splits)) == 2
    assert values(given, splits) == [4, 5, 6]


# --- columns that change --------------------------------------------------------------------------


def test_columns_are_followed_by_their_ids(table: Lake) -> None:
    """Renamed: read under the job's name. Added: not read by a job that runs."""
    given = growing(table)
    found = find(given)

    def evolve(now: Table) -> None:
        with now.update_schema() as update:
            update.rename_column("i", "n").add_column("new", StringType())

    table.change(evolve)
    append(table, pa.table({"n": pa.array([4], pa.int64()), "new": ["x"]}))
    assert read(given, find(given, after(found)).splits) == [{"i": 4}]
    later = growing(table, starting_snapshot="earliest")
    assert sorted(row["n"] for row in read(later)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda update: update.update_column("small", field_type=LongType()),
            "column 'small' is int64 now, and was int32",
            id="type",
        ),
        pytest.param(
            lambda update: update.delete_column("small"), "has no column 'small' any more", id="removed"
        ),
    ],
)
def test_a_column_that_changes_its_type_or_goes_is_named(
    lake: Lake, change: Callable[[Any], Any], message: str
) -> None:
    lake.create(pa.schema([("i", pa.int64()), ("small", pa.int32())]))
    given, bounded = growing(lake), source(lake)
    found = find(given)
    _ = bounded.schema

    def evolve(now: Table) -> None:
        with now.update_schema(allow_incompatible_changes=True) as update:
            change(update)

    lake.change(evolve)
    append(lake, numbers(1))
    for one, known in ((given, after(found)), (bounded, None)):
        with pytest.raises(ConfigError, match=rf"table {TABLE}.*{message}.*start the job again"):
            find(one, known)


MERGED = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"format-version": "1"}, id="version 1"),
        pytest.param(MERGED, id="merged manifests"),
    ],
)
def test_each_snapshot_has_added_its_own_files_only(lake: Lake, properties: dict[str, str]) -> None:
    """Manifests of merged appends have files of earlier ones, too."""
    lake.create(numbers().schema, properties=properties)
    added = {append(lake, numbers(n)): n for n in range(5)}
    given = growing(lake, starting_snapshot="earliest")
    splits = find(given).splits
    assert {part.snapshot: values(given, [one]) for part, one in zip(parts(splits), splits, strict=True)} == {
        snapshot: [n] for snapshot, n in added.items()
    }
    assert values(source(lake)) == [0, 1, 2, 3, 4]
    lake.change(lambda table: table.delete("i = 3"))
    with pytest.raises(ConfigError, match=r"\(\w+\) (deletes|rewrites) rows"):
        find(given)

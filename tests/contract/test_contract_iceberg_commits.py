"""Every commit to an Iceberg table against every one that others make by pyiceberg at the same time, in both
orders: each row is there once afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.types import LongType

import unistream as us
from tests.contract.sink_runs import SinkRun
from tests.iceberg_lake import TABLE, Lake
from unistream.connector.iceberg.committer import IcebergCommitter
from unistream.connector.iceberg.table import LakeTable

Rows = dict[int, int]
"""id -> n."""
FILES = 3
BEFORE: Rows = dict.fromkeys(range(FILES), 0)


def rows(n: int, *ids: int, **more: Any) -> pa.RecordBatch:
    columns = {"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())}
    return pa.record_batch({**columns, **more})


def add_column(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("theirs", LongType())


def expire(table: Any) -> None:
    [first, *_] = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()


def set_property(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})


def tag(table: Any) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "t").commit()


FOREIGN: dict[str, tuple[Callable[[Any], Any], Callable[[Rows], Rows]]] = {
    "append": (lambda table: table.append(pa.table(rows(2, 50))), lambda held: held | {50: 2}),
    "delete": (
        lambda table: table.delete("id = 2"),
        lambda held: {id_: n for id_, n in held.items() if id_ != 2},
    ),
    "overwrite": (lambda table: table.overwrite(pa.table(rows(2, 60))), lambda _: {60: 2}),
    "upsert": (
        lambda table: table.upsert(pa.table(rows(2, 1)), join_cols=["id"]),
        lambda held: held | {1: 2},
    ),
    "new column": (add_column, dict),
    "expire": (expire, dict),
    "properties": (set_property, dict),
    "tag": (tag, dict),
}
"""What it does, and what that makes of the rows."""

OWN: dict[str, tuple[dict[str, Any], pa.RecordBatch, Callable[[Rows], Rows]]] = {
    "overwrite": ({"mode": "overwrite-partitions"}, rows(1, 100), lambda _: {100: 1}),
    "append with a new column": (
        {"schema_evolution": "add"},
        rows(1, 100, ours=pa.array([7], pa.int64())),
        lambda held: held | {100: 1},
    ),
}


def made(folder: Path) -> Lake:
    lake = Lake(folder)
    lake.create(rows(0, 1).schema)

    def fill(table: Any) -> None:
        for number in range(FILES):
            table.append(pa.table(rows(0, number)))

    lake.change(fill)
    return lake


def held(lake: Lake) -> Rows:
    with lake.table() as table:
        found = table.scan().to_arrow().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "each row once"
    return {one["id"]: one["n"] for one in found}


def act(lake: Lake, own: str, between: Callable[[], Any] | None = None) -> None:
    left = [between] if between else []

    class Interfered(LakeTable):
        def commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
            while left:
                left.pop()()
            super().commit(updates, requirements)

    options, batch, _ = OWN[own]
    sink = us.IcebergSink(TABLE, catalog_properties=lake.properties, on_foreign="append", **options)
    with SinkRun(sink, checkpointing="mode" not in options) as run:
        assert isinstance(run.committer, IcebergCommitter)
        assert run.committer._lake is not None
        run.committer._lake.__class__ = Interfered
        run.commit(1, batch)


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("own", OWN)
def test_a_commit_of_others_between_look_and_commit(tmp_path: Path, own: str, foreign: str) -> None:
    lake = made(tmp_path)
    (_, _, ours), (theirs, then) = OWN[own], FOREIGN[foreign]
    act(lake, own, lambda: lake.change(theirs))
    assert held(lake) == ours(then(BEFORE))


@pytest.mark.parametrize(
    ("own", "foreign"), [(list(OWN)[at % len(OWN)], foreign) for at, foreign in enumerate(FOREIGN)]
)
def test_others_that_began_before_the_commit_and_end_after_it(tmp_path: Path, own: str, foreign: str) -> None:
    """They may fail, as pyiceberg decides; what they do, they do to the rows that are there."""
    lake = made(tmp_path)
    (_, _, ours), (theirs, then) = OWN[own], FOREIGN[foreign]
    with lake.table() as stale:
        act(lake, own)
        assert held(lake) == ours(BEFORE)
        try:
            theirs(stale)
        except (CommitFailedException, ValidationException):
            assert held(lake) == ours(BEFORE)
        else:
            assert held(lake) in (then(ours(BEFORE)), ours(then(BEFORE)))

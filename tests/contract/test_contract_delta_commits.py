"""Every commit to a Delta table against every one that others make at the same time, in both orders: each row
is there once afterwards, whatever deltalake promises of its own operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tests.contract.sink_runs import SinkRun
from unistream.connector.common import StageFiles
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.committer import DeltaCommitter
from unistream.connector.delta.compaction import Compactor
from unistream.connector.delta.table import LakeTable

FILES = 6
Rows = dict[int, int]
"""id -> n."""


def rows(n: int, *ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


def merge(table: DeltaTable) -> None:
    merging = table.merge(pa.table(rows(2, 4)), "t.id = s.id", source_alias="s", target_alias="t")
    merging.when_matched_update_all().execute()


def add_column(table: DeltaTable) -> None:
    table.alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.int64())])).fields)


FOREIGN: dict[str, tuple[Callable[[DeltaTable], Any], Callable[[Rows], Rows]]] = {
    "append": (
        lambda table: write_deltalake(table, pa.table(rows(2, 50)), mode="append"),
        lambda held: held | {50: 2},
    ),
    "delete": (
        lambda table: table.delete("id = 5"),
        lambda held: {id_: n for id_, n in held.items() if id_ != 5},
    ),
    "merge": (merge, lambda held: held | ({4: 2} if 4 in held else {})),
    "optimize": (lambda table: table.optimize.compact(), dict),
    "z-order": (lambda table: table.optimize.z_order(["id"]), dict),
    "overwrite": (
        lambda table: write_deltalake(table, pa.table(rows(2, 60)), mode="overwrite"),
        lambda _: {60: 2},
    ),
    "new column": (add_column, dict),
    "vacuum": (lambda table: table.vacuum(dry_run=False), dict),
    "checkpoint": (lambda table: table.create_checkpoint(), dict),
    "restore": (lambda table: table.restore(2), lambda _: {0: 0, 1: 0, 2: 0}),
    "properties": (
        lambda table: table.alter.set_table_properties({"delta.checkpointInterval": "50"}),
        dict,
    ),
}
"""What it does, and what that makes of the rows."""


def append(table: Path, tables: type[LakeTable]) -> None:
    commit(DeltaSink(str(table), on_foreign="append"), tables, rows(1, 100))


def upsert(table: Path, tables: type[LakeTable]) -> None:
    commit(DeltaSink(str(table), on_foreign="append", mode="upsert", key="id"), tables, rows(1, 0, 100))


def overwrite(table: Path, tables: type[LakeTable]) -> None:
    sink = DeltaSink(str(table), on_foreign="append", mode="overwrite-partitions")
    commit(sink, tables, rows(1, 100), checkpointing=False)


def commit(sink: DeltaSink, tables: type[LakeTable], batch: pa.RecordBatch, **where: Any) -> None:
    with SinkRun(sink, **where) as run:
        assert isinstance(run.committer, DeltaCommitter)
        run.committer._tables = tables
        run.committer._table = None  # opened again, as one of these
        run.commit(1, batch)


def compact(table: Path, tables: type[LakeTable]) -> None:
    compactor = Compactor(str(table), {}, StageFiles(str(table), {}, "the table"), 2, tables)
    compactor.committed(2)
    compactor.wait()


OWN: dict[str, tuple[Callable[[Path, type[LakeTable]], None], Callable[[Rows], Rows]]] = {
    "append": (append, lambda held: held | {100: 1}),
    "upsert": (upsert, lambda held: held | {0: 1, 100: 1}),
    "overwrite": (overwrite, lambda _: {100: 1}),
    "compaction": (compact, dict),
}


def between(act: Callable[[], Any]) -> type[LakeTable]:
    """A table to which somebody else commits, once, between the look and the commit."""
    left = [act]

    def interfered(name: str) -> Any:
        def method(self: LakeTable, *arguments: Any) -> None:
            while left:
                left.pop()()
            getattr(LakeTable, name)(self, *arguments)

        return method

    return type(
        "Interfered", (LakeTable,), {n: interfered(n) for n in ("append", "merge", "overwrite", "rewrite")}
    )


def made(folder: Path) -> Path:
    """A table of as many files as rows."""
    for number in range(FILES):
        write_deltalake(folder, pa.table(rows(0, number)), mode="append")
    return folder


def made_by_one_sink(folder: Path) -> Path:
    with SinkRun(DeltaSink(str(folder))) as run:
        for number in range(FILES):
            run.commit(number + 1, rows(0, number))
    return folder


BEFORE: Rows = dict.fromkeys(range(FILES), 0)


def held(table: Path) -> Rows:
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert len({one["id"] for one in found}) == len(found), "each row once"
    return {one["id"]: one["n"] for one in found}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("own", OWN)
def test_a_commit_of_others_between_look_and_commit(tmp_path: Path, own: str, foreign: str) -> None:
    table = made(tmp_path / "t")
    (act, ours), (theirs, then) = OWN[own], FOREIGN[foreign]
    act(table, between(lambda: theirs(DeltaTable(table))))
    assert held(table) == ours(then(BEFORE))


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("own", OWN)
def test_others_that_began_before_the_commit_and_end_after_it(tmp_path: Path, own: str, foreign: str) -> None:
    """They may fail, as deltalake decides; what they do, they do to the rows that are there."""
    table = made(tmp_path / "t")
    (act, ours), (theirs, then) = OWN[own], FOREIGN[foreign]
    stale = DeltaTable(table)
    act(table, LakeTable)
    assert held(table) == ours(BEFORE)
    try:
        theirs(stale)
    except (CommitFailedError, DeltaError):
        assert held(table) == ours(BEFORE)
    else:
        if own == "compaction":
            act(table, LakeTable)  # the next one, of an attempt that knows of the first by the log only
        assert held(table) in (then(ours(BEFORE)), ours(then(BEFORE)))


@pytest.mark.parametrize("foreign", FOREIGN)
def test_others_that_began_before_a_compaction_of_the_only_sink(tmp_path: Path, foreign: str) -> None:
    """Each row is there once, without a further commit of the sink, which may have ended."""
    table = made_by_one_sink(tmp_path / "t")
    theirs, then = FOREIGN[foreign]
    stale = DeltaTable(table)
    compact(table, LakeTable)
    assert len(DeltaTable(table).file_uris()) == 1
    try:
        theirs(stale)
    except (CommitFailedError, DeltaError):
        assert held(table) == BEFORE
    else:
        assert held(table) == then(BEFORE)


@pytest.mark.parametrize("foreign", ["optimize", "z-order", "overwrite"])
def test_others_between_a_compaction_and_its_seal_are_noticed_at_once(tmp_path: Path, foreign: str) -> None:
    table = made_by_one_sink(tmp_path / "t")
    theirs, then = FOREIGN[foreign]
    waiting = [DeltaTable(table)]

    class Interfered(LakeTable):
        def seal(self, note: str) -> None:
            while waiting:
                theirs(waiting.pop())
            super().seal(note)

    compact(table, Interfered)
    assert not waiting
    assert held(table) == then(BEFORE)

"""A compaction of the only sink of a Delta table is sealed: what others began before it is refused at once,
so that each row is there once without a further commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tests.contract.sinks.run import SinkRun
from unistream.connector.common import StageFiles
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.compaction import Compactor
from unistream.connector.delta.table import DeltaSinkTable

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


def compact(table: Path, tables: type[DeltaSinkTable]) -> None:
    compactor = Compactor(str(table), {}, StageFiles(str(table), {}, "the table"), 2, tables)
    compactor.committed(2)
    compactor.wait()


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
def test_others_that_began_before_a_compaction_of_the_only_sink(tmp_path: Path, foreign: str) -> None:
    """Each row is there once, without a further commit of the sink, which may have ended."""
    table = made_by_one_sink(tmp_path / "t")
    theirs, then = FOREIGN[foreign]
    stale = DeltaTable(table)
    compact(table, DeltaSinkTable)
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

    class Interfered(DeltaSinkTable):
        def seal(self, note: str) -> None:
            while waiting:
                theirs(waiting.pop())
            super().seal(note)

    compact(table, Interfered)
    assert not waiting
    assert held(table) == then(BEFORE)

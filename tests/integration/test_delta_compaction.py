"""A stream whose Delta table is compacted while it runs, with kills in the middle of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from unistream.connector.delta.table import COMPACTION_KEY

OFTEN = {"execution.checkpointing.interval": "200 ms", **RECOVERING}


def into_one_table(env: us.Environment, lake: Path) -> None:
    sink = us.DeltaSink(str(lake / "rows"), auto_compact_files=4)
    rows_of(env, 12_000).sink_to(sink).uid("table")


KILLS = {
    "before it": ("compaction.begins",),
    "before its commit": ("compaction.written",),
    "behind it": ("compaction.done",),
    "twice": ("compaction.begins:2", "compaction.done"),
}


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 2))
def test_no_row_is_lost_or_doubled(tmp_path: Path, crashes: Crashes, what: str) -> None:
    crashes.arm(*KILLS[what])
    run_to_end(tmp_path, crashes, into_one_table, OFTEN)
    table = DeltaTable(str(tmp_path / "lake" / "rows"))
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(ROWS))
    assert any(COMPACTION_KEY in entry for entry in table.history())

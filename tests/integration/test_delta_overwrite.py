"""Partitions of a Delta table that a bounded job replaces: kills around the commit, and the second click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end

BATCH = {"execution.runtime-mode": "BATCH", **RECOVERING}
DIVISIONS = 4
REPLACED = 1

Pipeline = Callable[[us.Environment, Path], None]


def divided(made_by: str, only: int | None = None) -> Pipeline:
    """Rows in partitions by their key, all of them or those of one."""

    def pipeline(env: us.Environment, lake: Path) -> None:
        part = us.col("key") - us.col("key") // DIVISIONS * DIVISIONS
        rows = rows_of(env, None).with_columns(part=part, made_by=us.lit(made_by))
        rows = rows if only is None else rows.filter(us.col("part") == only)
        sink = us.DeltaSink(
            str(lake / "rows"), mode="overwrite-partitions", partition_by="part", on_foreign="append"
        )
        rows.sink_to(sink).uid("table")

    return pipeline


def found_in(lake: Path) -> dict[tuple[int, str], int]:
    """Rows by partition, and by what has made them; each id is there once."""
    table = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    assert pc.count_distinct(table["id"]).as_py() == table.num_rows == ROWS
    counted = table.group_by(["part", "made_by"]).aggregate([("id", "count")]).to_pylist()
    return {(one["part"], one["made_by"]): one["id_count"] for one in counted}


KILLS = {
    "with rows staged": ("delta.staged",),
    "before the commit": ("delta.before_append",),
    "behind the commit": ("delta.appended",),
}


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 2))
def test_one_partition_is_replaced_once_and_the_others_stay(
    tmp_path: Path, crashes: Crashes, what: str
) -> None:
    run_to_end(tmp_path, None, divided("first"), BATCH)
    before = found_in(tmp_path / "lake")
    crashes.arm(*KILLS[what])
    run_to_end(tmp_path, crashes, divided("second", REPLACED), BATCH)
    wanted = {(part, "second" if part == REPLACED else by): rows for (part, by), rows in before.items()}
    assert found_in(tmp_path / "lake") == wanted
    crashes.disarm()
    version = DeltaTable(str(tmp_path / "lake" / "rows")).version()
    run_to_end(tmp_path, None, divided("second", REPLACED), BATCH)
    assert found_in(tmp_path / "lake") == wanted, "the second click"
    assert DeltaTable(str(tmp_path / "lake" / "rows")).version() == version + 1


@pytest.mark.spark
def test_the_same_on_sparks_engine(tmp_path: Path) -> None:
    run_to_end(tmp_path, None, divided("first"), BATCH)
    before = found_in(tmp_path / "lake")
    run_to_end(tmp_path, None, divided("second", REPLACED), BATCH, target="spark")
    after = found_in(tmp_path / "lake")
    assert after.pop((REPLACED, "second")) == before.pop((REPLACED, "first"))
    assert after == before


def test_a_stream_that_would_overwrite_is_refused_before_its_first_row(tmp_path: Path) -> None:
    with pytest.raises(us.ConfigError, match="this job takes checkpoints"):
        run_to_end(tmp_path, None, divided("first"), {"execution.checkpointing.interval": "1 s"})
    assert not (tmp_path / "lake").exists()

"""Partitions of a bounded pipeline as Dagster's: each run replaces what it computes, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from unistream.dagster import UnistreamResource

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
ROWS = 3_000  # of each day, but that of day n has n more
USERS = 7


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKE", str(tmp_path))
    (tmp_path / "in").mkdir()
    for n, day in enumerate(DAYS):
        users = [i % USERS for i in range(ROWS + n)]
        pq.write_table(
            pa.table({"day": [day] * len(users), "user": users}), tmp_path / "in" / f"{day}.parquet"
        )
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def counted(lake: Path) -> Counter[tuple[str, int]]:
    """What the table has; each row of it once."""
    rows = DeltaTable(str(lake / "out")).to_pyarrow_table().to_pylist()
    found = Counter({(row["day"], row["user"]): row["rows"] for row in rows})
    assert len(found) == len(rows)
    return found


def expected(*days: str) -> Counter[tuple[str, int]]:
    return Counter((day, i % USERS) for day in days for i in range(ROWS + DAYS.index(day)))


def materialize(instance: dg.DagsterInstance, target: str, days: tuple[str, ...]) -> None:
    """One run over these days, the first to the last."""
    from tests.integration.pipelines.dagster_partitions import totals

    tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
    ran = dg.materialize(
        [totals],
        resources={"unistream": UnistreamResource(target=target, config={"parallelism.default": "2"})},
        instance=instance,
        **({"partition_key": days[0]} if len(days) == 1 else {"tags": tags}),
    )
    assert ran.success
    assert len(ran.get_asset_materialization_events()) == len(days)


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_partition_is_there_once_however_often_it_is_materialised(
    instance: dg.DagsterInstance, target: str, tmp_path: Path
) -> None:
    for days in (DAYS[1:2], DAYS[0:3]):
        materialize(instance, target, days)
        assert counted(tmp_path) == expected(*days)
    key = dg.AssetKey("totals")
    assert instance.get_materialized_partitions(key) == set(DAYS[:3])
    lines = [entry.user_message for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    assert any(line.startswith("stage 1 of ") for line in lines) is (target == "spark"), lines

"""The tour through a stream in Dagster, typed to its end as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.guide_page import GUIDE, reader, steps_of
from tests.integration.dagster_service import OF_DAGSTER_MATRIX

pytestmark = [OF_DAGSTER_MATRIX, pytest.mark.kafka]

SWITCH_ON = re.compile(r"`(dagster schedule start [^`]+)`")


@pytest.mark.own_network
def test_the_tour_is_as_it_says(tmp_path: Path) -> None:
    page = (GUIDE / "tour.md").read_text(encoding="utf-8")
    with reader(tmp_path) as typist:
        typist.assert_as_said(steps_of(page))
        jobs = [line.split()[1:3] for line in typist.printed.splitlines() if " orders " in line]
        assert jobs == [["orders", "FINISHED"]] * 3, (
            "one was stopped by the schedule, one replaced, one stopped"
        )
        [switch_on] = SWITCH_ON.findall(page)
        code, printed = typist.run(f"mkdir stays; DAGSTER_HOME=$PWD/stays {switch_on}")
        assert code == 0, printed
        table = pq.read_table(DeltaTable(str(typist.folder / "lake" / "orders_per_minute")).file_uris())
    windows = list(zip(table["shop"].to_pylist(), table["window_start"].to_pylist(), strict=True))
    assert len(set(windows)) == len(windows), "no minute twice"

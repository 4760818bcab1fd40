"""A hybrid source in a simulated cluster: each row once, and history first, whatever happens."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.simulation.reached_by import seeds

ROWS, KEYS, BOTH, LIVE = 120, 5, 20, 1_000


class Order(us.KeyedProcessFunction):
    """Whether a live row of the key came before."""

    live = us.ValueStateDescriptor("live", pa.bool_())

    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        live = context.state(self.live)
        out.emit({"id": row["id"], "after_live": bool(live.value())})
        live.update(bool(live.value()) or row["id"] >= LIVE)


def rows(first: int, times: range) -> us.StaticSource:
    columns = {"id": range(first, first + ROWS), "key": [i % KEYS for i in range(ROWS)], "at": times}
    table = pa.table({name: pa.array(list(values), pa.int64()) for name, values in columns.items()})
    return us.StaticSource(table, splits=4)


def pipeline(options: dict[str, str], env: us.Environment) -> None:
    """The last rows of the history and the first ones of the live source have the same times."""
    history, live = rows(0, range(ROWS)), rows(LIVE, range(ROWS - BOTH, 2 * ROWS - BOTH))
    env.set_parallelism(2)
    source = us.HybridSource(history, live, **options)
    read = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")
    ordered = read.key_by("key").process(Order(), returns={"id": pa.int64(), "after_live": pa.bool_()})
    ordered.sink_to(us.CollectSink("out")).uid("out")


def check(live: range, outputs: dict[str, pa.Table]) -> None:
    [out] = outputs.values()
    assert sorted(out["id"].to_pylist()) == [*range(ROWS), *live]
    late = [row["id"] for row in out.to_pylist() if row["after_live"] and row["id"] < LIVE]
    assert late == [], "history after a live row of its key"


@pytest.mark.parametrize("rescale", [False, True], ids=["", "rescaled"])
@pytest.mark.parametrize(
    ("options", "live"),
    [
        ({}, range(LIVE, LIVE + ROWS)),
        (
            {"switch": "last-event-time", "timestamp_column": "at"},
            range(LIVE + BOTH, LIVE + ROWS),
        ),
    ],
    ids=["fixed", "last event time"],
)
def test_each_row_comes_once_and_history_first(options: dict[str, str], live: range, rescale: bool) -> None:
    report = us.testing.simulate(
        lambda env: pipeline(options, env),
        seeds=seeds(5, 25),
        rescale=rescale,
        check=lambda outputs: check(live, dict(outputs)),
    )
    report.raise_for_failures()

"""How fast are the operators, on one core and without exchange or sources? One JSON line per case.

    python benchmarks/operators.py [--rows 8000000] [--case NAME ...]

`rows_per_s` counts input rows; keys, times and values are int64 columns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.elements import Batch
from unistream.operator.common import BaseOperator, MapRows
from unistream.operator.join import BroadcastLookupJoin, JoinKind
from unistream.operator.stateless import FilterBatches, Project
from unistream.operator.window import (
    AggregatePlan,
    LocalWindowAggregate,
    TumblingEventTimeWindows,
    WindowAggregate,
)
from unistream.operator.window import aggregates as agg
from unistream.testing.harness import OperatorHarness

WINDOW_MS = 10_000
WATERMARK_EVERY = 8  # batches


def batches(rows: int, keys: int, rows_per_window: int, disorder_ms: int = 0) -> list[Batch]:
    """Rows in order of time, disturbed by up to `disorder_ms`."""
    random = np.random.default_rng(7)
    made = []
    for start in range(0, rows, BATCH_ROWS_MAX):
        count = min(BATCH_ROWS_MAX, rows - start)
        times = (np.arange(start, start + count) * WINDOW_MS) // rows_per_window
        if disorder_ms:
            times = times - random.integers(0, disorder_ms, count)
        records = pa.RecordBatch.from_arrays(
            [
                pa.array(random.integers(0, keys, count)),
                pa.array(times),
                pa.array(random.integers(0, 1000, count)),
            ],
            names=["key", "at", "value"],
        )
        made.append(Batch(records, pa.array(times)))
    return made


def plan() -> AggregatePlan:
    return AggregatePlan(["key"], {"count": agg.count(), "total": agg.sum("value")})


def one(operator: BaseOperator, rows: list[Batch]) -> int:
    """The operator alone; returns rows out."""
    harness = OperatorHarness(operator)
    with harness:
        for number, batch in enumerate(rows):
            operator.process_batch(batch, 0)
            if number % WATERMARK_EVERY == WATERMARK_EVERY - 1 and batch.timestamps is not None:
                harness.watermark(batch.timestamps[-1].as_py() - 1000)
        harness.end()
    return sum(batch.num_rows for batch in harness.batches())


def two(rows: list[Batch]) -> int:
    """Local pre-aggregation, then the window operator, by calls."""
    windows = TumblingEventTimeWindows.of(WINDOW_MS)
    local, window = LocalWindowAggregate(plan(), windows), WindowAggregate(plan(), windows)
    first, second = OperatorHarness(local), OperatorHarness(window)

    def hand_over() -> None:
        for batch in first.batches():
            window.process_batch(batch, 0)
        first.clear()

    with first, second:
        for number, batch in enumerate(rows):
            local.process_batch(batch, 0)
            if number % WATERMARK_EVERY == WATERMARK_EVERY - 1 and batch.timestamps is not None:
                watermark = batch.timestamps[-1].as_py() - 1000
                first.watermark(watermark)
                hand_over()
                second.watermark(watermark)
            else:
                hand_over()
        first.end()
        hand_over()
        second.end()
    return sum(batch.num_rows for batch in second.batches())


def join(data: list[Batch]) -> int:
    dimension = pa.RecordBatch.from_pydict(
        {"key": list(range(10_000)), "name": [str(n) for n in range(10_000)]}
    )
    operator = BroadcastLookupJoin([("key", "key")], dimension.schema, JoinKind.INNER)
    harness = OperatorHarness(operator)
    with harness:
        operator.process_batch(Batch(dimension), 1)
        operator.end_input(1)
        for batch in data:
            operator.process_batch(batch, 0)
    return sum(batch.num_rows for batch in harness.batches())


def grow(row: dict[str, int]) -> dict[str, int]:
    return {**row, "double": row["value"] * 2}


def cases(rows: int) -> Iterator[tuple[str, Callable[[], list[Batch]], Callable[[list[Batch]], int]]]:
    windows = TumblingEventTimeWindows.of(WINDOW_MS)
    for keys in (10_000, 1_000_000):
        window_rows = max(2_000_000, keys * 3)
        name = f"{keys // 1000}k keys"
        yield (
            f"local {name}",
            lambda k=keys, w=window_rows: batches(rows, k, w),
            lambda d: one(LocalWindowAggregate(plan(), windows), d),
        )
        yield (
            f"window {name}",
            lambda k=keys, w=window_rows: batches(rows, k, w),
            lambda d: one(WindowAggregate(plan(), windows, pre_aggregated=False), d),
        )
        yield f"local+window {name}", lambda k=keys, w=window_rows: batches(rows, k, w), two
    yield "local+window 10k keys, disorder 5 s", lambda: batches(rows, 10_000, 2_000_000, 5_000), two
    yield "local+window 10k keys, 20k rows per window", lambda: batches(rows, 10_000, 20_000), two
    few = min(rows, 8_000_000)
    yield (
        "filter expression",
        lambda: batches(few, 10_000, 2_000_000),
        lambda d: one(FilterBatches((pc.field("value") > 500) & (pc.field("key") > 10)), d),
    )
    yield (
        "with_columns",
        lambda: batches(few, 10_000, 2_000_000),
        lambda d: one(Project({"x": pc.field("value") * 2 + pc.field("key")}, keep=True), d),
    )
    yield "join 10k dimension rows", lambda: batches(few, 10_000, 2_000_000), join
    yield (
        "map per record",
        lambda: batches(min(rows, 500_000), 10_000, 2_000_000),
        lambda d: one(MapRows(grow), d),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--case", action="append", help="part of a case's name; may be repeated")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    for name, make, run in cases(options.rows):
        if options.case and not any(part in name for part in options.case):
            continue
        data = make()
        count = sum(batch.num_rows for batch in data)
        run(data[:4])
        started = time.perf_counter()
        out = run(data)
        seconds = time.perf_counter() - started
        line = {
            "benchmark": "operators",
            "case": name,
            "rows": count,
            "rows_out": out,
            "rows_per_s": round(count / seconds),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""What does `on_error` cost, on one core: while nothing fails, and when some rows do? One JSON line per case.

    python -m benchmarks.on_error [--rows 2000000] [--case NAME ...]

`bad_of_1000`: of 1000 rows so many fail. `rows_per_s` counts input rows: int64 columns and one of text.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.elements import Batch
from unistream.model.state import ValueStateDescriptor
from unistream.operator.common import BaseOperator, FlatMapRows, MapRows
from unistream.operator.process import KeyedProcessFunction, KeyedProcessOperator
from unistream.operator.stateless import FilterBatches, Project
from unistream.port.dead_letters import OnError
from unistream.testing.harness import OperatorHarness

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("text", pa.string())])
NUMBER = pc.field("text").cast(pa.int64())


def batches(rows: int, bad_of_1000: int) -> list[Batch]:
    random = np.random.default_rng(7)
    made = []
    for start in range(0, rows, BATCH_ROWS_MAX):
        size = min(BATCH_ROWS_MAX, rows - start)
        values = random.integers(0, 1000, size)
        texts = np.where(values < bad_of_1000, "free", values.astype(str))
        keys = random.integers(0, 10_000, size)
        columns = [pa.array(keys), pa.array(values), pa.array(texts)]
        made.append(Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), pa.array(np.arange(size))))
    return made


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["key"], "value": int(row["text"]) * 2, "text": row["text"]}


class Sums(KeyedProcessFunction):
    total = ValueStateDescriptor("total", pa.int64())

    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        total = context.state(self.total)
        total.update((total.value() or 0) + int(row["text"]))
        out.emit({"key": row["key"], "value": total.value(), "text": row["text"]})


def cases(on_error: OnError) -> Iterator[tuple[str, int, Callable[[], BaseOperator]]]:
    """Name, share of the rows, operator."""
    yield "filter expression", 1, lambda: FilterBatches(NUMBER > 500, on_error=on_error)
    yield "with_columns", 1, lambda: Project({"n": NUMBER * 2}, keep=True, on_error=on_error)
    yield "map per record", 4, lambda: MapRows(doubled, returns=SCHEMA, on_error=on_error)
    yield (
        "flat_map per record",
        4,
        lambda: FlatMapRows(lambda row: [doubled(row)], returns=SCHEMA, on_error=on_error),
    )
    yield (
        "keyed process",
        8,
        lambda: KeyedProcessOperator(Sums(), ["key"], returns=SCHEMA, on_error=on_error),
    )


def measured(operator: BaseOperator, data: list[Batch]) -> float:
    """Seconds of the processor: others may use the machine, too."""
    with OperatorHarness(operator) as harness:
        started = time.process_time()
        for batch in data:
            harness.operator.process_batch(batch, 0)
            harness.clear()
        return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--case", action="append", help="part of a case's name; may be repeated")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest run counts")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    runs: list[tuple[OnError, int]] = [("fail", 0), ("dead-letter", 0), ("dead-letter", 1), ("skip", 10)]
    for on_error, bad in runs:
        for name, share, make in cases(on_error):
            if options.case and not any(part in name for part in options.case):
                continue
            data = batches(options.rows // share // (4 if bad else 1), bad)
            count = sum(batch.num_rows for batch in data)
            seconds = min(measured(make(), data) for _ in range(options.repeat))
            line = {
                "benchmark": "on_error",
                "case": name,
                "on_error": on_error,
                "bad_of_1000": bad,
                "rows": count,
                "rows_per_s": round(count / seconds),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

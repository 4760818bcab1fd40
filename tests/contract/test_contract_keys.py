"""What is equal as a key: one table, to which everybody who tells keys apart is held.

    hash partitioning      equal keys come to one subtask, whatever the parallelism
    a function per row     on every backend
    a function per batch   on every backend, a batch at a time and row by row
    a window               pre-aggregated in front of the exchange, or not

Each says of every row which row was the first with its key.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId
from unistream.base.limits import MIB
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch
from unistream.model.graph import Ship
from unistream.operator.common import BaseOperator
from unistream.operator.process import KeyedBatchOperator, KeyedProcessOperator
from unistream.operator.window import AggregatePlan, LocalWindowAggregate, WindowAggregate
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.testing.harness import OperatorHarness
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange.shipping import Router

MAX_PARALLELISM = 128
BACKENDS = ("hashmap", "rocksdb")
FIRST = us.ValueStateDescriptor("first", pa.int64())


def floats(*bits: int, width: int = 8) -> pa.Array:
    """Numbers by their bits."""
    raw = np.array(bits, f"u{width}")
    return pa.array(raw.view(f"f{width}"))


def moments(*texts: str | None, unit: str, tz: str | None = None) -> pa.Array:
    zone = None if tz is None else datetime.UTC
    values = [None if t is None else datetime.datetime.fromisoformat(t).replace(tzinfo=zone) for t in texts]
    return pa.array(values, pa.timestamp(unit, tz))


@dataclass(frozen=True)
class Keys:
    """Rows of key columns, and for each row the first one with an equal key."""

    columns: list[pa.Array]
    first: list[int]

    @property
    def names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.columns))]

    @property
    def rows(self) -> pa.RecordBatch:
        numbers = pa.array(range(len(self.first)), pa.int64())
        return pa.RecordBatch.from_arrays([*self.columns, numbers], names=[*self.names, "n"])


NAN, MINUS_NAN, OTHER_NAN = 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1
CASES = [
    pytest.param(Keys([pa.array([0.0, -0.0, 1.0, -1.0])], [0, 0, 2, 3]), id="-0.0 is 0.0"),
    pytest.param(
        Keys([pa.array([-0.0, 0.0, -0.0], pa.float32())], [0, 0, 0]), id="-0.0 is 0.0, in 32 bits, too"
    ),
    pytest.param(Keys([floats(NAN, MINUS_NAN, OTHER_NAN)], [0, 0, 0]), id="NaN is NaN, whatever its bits"),
    pytest.param(
        Keys([floats(0x7FC00000, 0xFFC00000, 0x7FC00001, width=4)], [0, 0, 0]), id="NaN in 32 bits, too"
    ),
    pytest.param(Keys([pa.array([float("nan"), None, 0.0, None])], [0, 1, 2, 1]), id="NaN is not null"),
    pytest.param(Keys([pa.array([float("inf"), float("-inf"), float("inf")])], [0, 1, 0]), id="infinities"),
    pytest.param(Keys([pa.array([0.1 + 0.2, 0.3, 0.30000000000000004])], [0, 1, 0]), id="nothing is rounded"),
    pytest.param(Keys([pa.array([None, 0, None, 1], pa.int64())], [0, 1, 0, 3]), id="null is a key"),
    pytest.param(Keys([pa.array([None, "", None])], [0, 1, 0]), id="null is not the empty text"),
    pytest.param(Keys([pa.array([None, False, True, None])], [0, 1, 2, 0]), id="null is not false"),
    pytest.param(Keys([pa.nulls(3)], [0, 0, 0]), id="only nulls"),
    pytest.param(
        Keys([pa.array([1, None, None, 1]), pa.array([None, 1, 1, None])], [0, 1, 1, 0]),
        id="null in one of two columns",
    ),
    pytest.param(
        Keys([pa.array(["a", "ab", "a"]), pa.array(["bc", "c", "bc"])], [0, 1, 0]),
        id="columns are not run together",
    ),
    pytest.param(
        Keys([pa.array([0.0, -0.0, -0.0]), pa.array(["x", "x", None])], [0, 0, 2]), id="-0.0 next to a text"
    ),
    pytest.param(
        Keys([pa.array(["é", "e\u0301", "É", "é"])], [0, 1, 2, 0]), id="texts are equal by code point"
    ),
    pytest.param(Keys([pa.array(["a", "a ", "a\0", "a"])], [0, 1, 2, 0]), id="nothing is stripped"),
    pytest.param(
        Keys([pa.array(["x" * 40, "x" * 41, "x" * 40], pa.large_string())], [0, 1, 0]), id="long texts"
    ),
    pytest.param(
        Keys([pa.array(["b", "a", "b", None]).dictionary_encode()], [0, 1, 0, 3]), id="dictionaries"
    ),
    pytest.param(
        Keys(
            [pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array([0.0, -0.0, None]))],
            [0, 0, 2, 2],
        ),
        id="a dictionary counts as its values",
    ),
    pytest.param(
        Keys([pa.array([0, 2**63, 2**64 - 1, 2**63], pa.uint64())], [0, 1, 2, 1]), id="unsigned numbers"
    ),
    pytest.param(
        Keys([moments("2026-01-01", "2026-01-01T00:00:00.001", "2026-01-01", None, unit="ms")], [0, 1, 0, 3]),
        id="moments",
    ),
    pytest.param(
        Keys([moments("1960-01-01", "1960-01-01", unit="us", tz="Europe/Berlin")], [0, 0]),
        id="moments with a zone",
    ),
    pytest.param(Keys([pa.array([1, 60, 1], pa.duration("s"))], [0, 1, 0]), id="lengths of time"),
    pytest.param(
        Keys([pa.array([datetime.date(1969, 12, 31), None, datetime.date(1969, 12, 31)])], [0, 1, 0]),
        id="dates",
    ),
]
every_case = pytest.mark.parametrize("keys", CASES)


def exchange(keys: Keys, consumers: int) -> Router:
    """What stands behind `key_by`."""
    descriptor = PartitionDescriptor(
        edge=EdgeId("e"),
        ship=Ship.HASH,
        consumers=tuple(range(consumers)),
        consumer_parallelism=consumers,
        consumer_max_parallelism=MAX_PARALLELISM,
        key_columns=tuple(keys.names),
    )
    return Router(descriptor, 0)


def shipped(keys: Keys, consumers: int = 1) -> list[list[pa.RecordBatch]]:
    """The rows as each consumer behind `key_by` gets them, one at a time."""
    router = exchange(keys, consumers)
    found: list[list[pa.RecordBatch]] = [[] for _ in range(consumers)]
    for row in range(len(keys.first)):
        for target, batch in router.divide(Batch(keys.rows.slice(row, 1), None)):
            found[target].append(batch.records)
    return found


@every_case
@pytest.mark.parametrize("consumers", [1, 2, MAX_PARALLELISM])
def test_equal_keys_come_to_one_subtask(keys: Keys, consumers: int) -> None:
    targets = {}
    for target, batches in enumerate(shipped(keys, consumers)):
        targets.update({row: target for batch in batches for row in batch.column("n").to_pylist()})
    assert len(targets) == len(keys.first)
    assert [targets[row] for row in range(len(targets))] == [targets[first] for first in keys.first]


class ByRow(us.KeyedProcessFunction):
    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        first = context.state(FIRST)
        if first.value() is None:
            first.update(row["n"])
        out.emit({"n": row["n"], "first": first.value()})


class ByBatch(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        column = context.column(FIRST)
        numbers = batch.records.column("n").to_numpy()
        first = np.full(batch.keys.num_rows, np.iinfo(np.int64).max)
        np.minimum.at(first, batch.groups, numbers)
        column.put(pa.array(np.minimum(first, column.get().fill_null(np.iinfo(np.int64).max).to_numpy())))
        found = column.get().take(pa.array(batch.groups))
        out.emit(pa.record_batch({"n": batch.records.column("n"), "first": found}))


@every_case
@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("whole", [False, True], ids=["row by row", "at once"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda names: KeyedProcessOperator(ByRow(), names), id="per row"),
        pytest.param(lambda names: KeyedBatchOperator(ByBatch(), names), id="per batch"),
    ],
)
def test_state_belongs_to_equal_keys(
    keys: Keys, kind: str, whole: bool, make: Callable[[list[str]], BaseOperator], tmp_path: Path
) -> None:
    with OperatorHarness(make(keys.names), backend=backend(kind, tmp_path)) as harness:
        for batch in [keys.rows] if whole else shipped(keys)[0]:
            harness.process(batch)
        found = {row["n"]: row["first"] for row in harness.rows()}
    assert [found[row] for row in range(len(found))] == keys.first


def backend(kind: str, folder: Path) -> KeyedStateBackend:
    return make_backend(
        kind,
        key_groups=(0, MAX_PARALLELISM - 1),
        max_parallelism=MAX_PARALLELISM,
        folder=folder / "state",
        clock=ManualClock(),
        memory_bytes=16 * MIB,
        allow_pickled=False,
    )


@every_case
@pytest.mark.parametrize("pre_aggregated", [False, True])
def test_windows_count_equal_keys_together(keys: Keys, pre_aggregated: bool) -> None:
    """In front of the exchange a key may still come in two forms; behind it, it has one."""
    windows = us.TumblingEventTimeWindows.of(10)
    plan = AggregatePlan(keys.names, {"rows": us.count(), "first": us.min("n")})
    if pre_aggregated:
        with OperatorHarness(LocalWindowAggregate(plan, windows)) as local:
            local.process(keys.rows, [5] * len(keys.first))
            local.end_input()
            partial = local.batches()
        batches = [exchange(keys, 1).divide(batch)[0][1] for batch in partial]
    else:
        batches = [Batch(batch, pa.array([5], pa.int64())) for batch in shipped(keys)[0]]
    with OperatorHarness(WindowAggregate(plan, windows, pre_aggregated=pre_aggregated)) as harness:
        for batch in batches:
            harness.operator.process_batch(batch, 0)
        harness.end_input()
        found = sorted((row["first"], row["rows"]) for row in harness.rows())
    assert found == sorted({(first, keys.first.count(first)) for first in keys.first})


# --- what is no key, and what is another one ---------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([Decimal("1.0")]), id="decimal"),
        pytest.param(pa.array([b"x"]), id="bytes"),
        pytest.param(pa.array([[1]]), id="list"),
        pytest.param(pa.array([{"a": 1}]), id="struct"),
        pytest.param(pa.array([1.0], pa.float16()), id="half"),
    ],
)
def test_what_cannot_be_a_key_is_refused_when_the_pipeline_is_written(column: pa.Array) -> None:
    env = us.Environment()
    source = us.StaticSource(pa.table({"k": column}))
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")
    with pytest.raises(ConfigError, match=r"column 'k' of type .* cannot be a key; cast it"):
        rows.key_by("k")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(pa.array([1], pa.int32()), pa.array([1], pa.int64()), id="numbers of unlike widths"),
        pytest.param(pa.array([1]), pa.array([1.0]), id="whole numbers and others"),
        pytest.param(
            moments("2026-01-01", unit="ms"), moments("2026-01-01", unit="us"), id="moments of unlike units"
        ),
        pytest.param(
            moments("2026-01-01", unit="ms", tz="UTC"), moments("2026-01-01", unit="ms"), id="with a zone"
        ),
        pytest.param(pa.array([1], pa.date32()), pa.array(["1970-01-02"]), id="dates and texts"),
    ],
)
@pytest.mark.parametrize("kind", BACKENDS)
def test_values_of_unlike_types_are_not_compared(
    kind: str, one: pa.Array, other: pa.Array, tmp_path: Path
) -> None:
    reported = r"the key columns are \(k .*\), but the state is keyed by"
    with OperatorHarness(KeyedProcessOperator(ByRow(), ["k"]), backend=backend(kind, tmp_path)) as harness:
        harness.process(pa.record_batch({"k": one, "n": [0]}))
        with pytest.raises(ConfigError, match=reported):
            harness.process(pa.record_batch({"k": other, "n": [1]}))

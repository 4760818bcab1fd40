"""The static source's own rules; what all sources have in common is in tests/contract."""

from __future__ import annotations

from collections.abc import Sequence

import cloudpickle
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.connector.static import INLINE_BYTES_MAX, STATIC_BYTES_MAX, StaticSource
from unistream.model.messages import Split
from unistream.port.source import Exhausted, ReaderContext, Rows
from unistream.testing.harness.operators import CountingMetrics


def test_a_table_that_is_too_large_is_refused_with_what_to_do() -> None:
    table = pa.table({"n": pa.nulls(STATIC_BYTES_MAX // 8, pa.int64())})
    with pytest.raises(
        ConfigError, match="holds at most 256 MiB, this table has 260 MiB: write it to a Parquet"
    ):
        StaticSource(table)


@pytest.mark.parametrize(
    ("table", "splits"), [(pa.table({"n": [1]}), 0), ([1, 2], 1)], ids=["splits", "no table"]
)
def test_bad_arguments_are_refused(table: object, splits: int) -> None:
    with pytest.raises(ConfigError):
        StaticSource(table, splits=splits)


@pytest.mark.parametrize("splits", [1, 3])
def test_a_table_without_rows_has_empty_splits(splits: int) -> None:
    source = StaticSource(pa.table({"n": pa.array([], pa.int64())}), splits=splits)
    assert len(create_discovery(source.info()).discover()) == splits
    assert source.schema == pa.schema([("n", pa.int64())])


def test_a_large_table_travels_with_the_code_and_not_in_splits() -> None:
    table = pa.table({"n": pa.array(range(INLINE_BYTES_MAX // 4), pa.int64())})
    source = StaticSource(table, splits=3)
    splits = create_discovery(source.info()).discover()
    assert sum(len(split.data) for split in splits) < 1_000
    assert [
        row for split in splits for row in read(cloudpickle.loads(cloudpickle.dumps(source)), [split])
    ] == list(range(table.num_rows))
    small = StaticSource(pa.table({"n": [1, 2]}))
    assert read(StaticSource(pa.table({"n": [9]})), create_discovery(small.info()).discover()) == [1, 2]


def test_other_rows_than_a_job_was_begun_with_are_refused() -> None:
    source, other = (
        StaticSource(pa.table({"n": pa.array(range(start, start + INLINE_BYTES_MAX // 4))}))
        for start in (0, 1)
    )
    splits = create_discovery(source.info()).discover()
    with pytest.raises(ConfigError, match=r"'static-0' .* begun with other rows than this program has"):
        read(other, splits)


def read(source: StaticSource, splits: Sequence[Split]) -> list[int]:
    reader = source.create_reader()
    reader.open(
        ReaderContext(
            index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=CountingMetrics()
        )
    )
    reader.add_splits(splits)
    reader.no_more_splits()
    found: list[int] = []
    while not isinstance(polled := reader.poll(), Exhausted):
        if isinstance(polled, Rows):
            found.extend(polled.records.column("n").to_pylist())
    return found

"""The static source's own rules; what all sources have in common is in tests/contract."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.registry import create_discovery
from unistream.connector.static import STATIC_BYTES_MAX, StaticSource


def test_a_table_that_is_too_large_is_refused_with_what_to_do() -> None:
    table = pa.table({"n": pa.array(range(STATIC_BYTES_MAX // 8), pa.int64())})
    with pytest.raises(
        ConfigError, match=r"holds at most 1048576 B, this table has \d+ B: write it to a Parquet"
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

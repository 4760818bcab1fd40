"""What a reader of files says is left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from tests.support.harness.source_driver import SourceDriver
from unistream.connector.catalogue import create_discovery
from unistream.connector.file import FileSource
from unistream.model.metric_names import (
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
)

COMPILES_WITHIN_S = 60.0  # who reads JSON first may have to compile its loops


@pytest.mark.parametrize(
    ("options", "rows", "fractions"),
    [
        pytest.param({"format": "parquet"}, [6, 4, 2, 0, 0], [3, 2, 1, 0, 0], id="rows are in the footer"),
        pytest.param({"format": "orc"}, [None, None, 0], [1, 0, 0], id="stripes"),
        pytest.param({"format": "json"}, [None, None, None, None, 0], [3, 2, 1, 0, 0], id="lines"),
        pytest.param({"format": "csv"}, [None, None, 0], [1, None, 0], id="one stream of text"),
    ],
)
def test_a_reader_says_what_is_left_as_far_as_it_knows(
    tmp_path: Path, options: dict[str, Any], rows: list[int | None], fractions: list[int | None]
) -> None:
    """What has begun and does not show how far it is, is unknown."""
    table, path = pa.table({"n": range(6)}), tmp_path / "a"
    match options["format"]:
        case "parquet":
            pq.write_table(table, path, row_group_size=2)
        case "orc":
            pa_orc.write_table(table, path)
        case "json":
            path.write_text("".join(f'{{"n": {n}}}\n' for n in range(6)))
        case _:
            path.write_text("n\n" + "".join(f"{n}\n" for n in range(6)))
    source = FileSource(str(path), schema=table.schema, block_bytes=18, **options)
    [split] = create_discovery(source.info()).discover()
    assert split.rows == rows[0]
    with SourceDriver(source, [split], COMPILES_WITHIN_S) as driver:
        seen = [dict(driver.counters), *(dict(driver.counters) for _ in driver.polled())][:-1]
    assert [None if one[PENDING_UNKNOWN] else one[PENDING_RECORDS] for one in seen] == rows
    assert [None if one[PENDING_BYTES_UNKNOWN] else one[PENDING_BYTES] for one in seen] == [
        None if part is None else part * split.size // (fractions[0] or 1) for part in fractions
    ]


def test_what_was_read_of_a_restored_split_is_not_left(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(6)}), tmp_path / "a", row_group_size=2)
    source = FileSource(str(tmp_path / "a"))
    with SourceDriver(source, create_discovery(source.info()).discover(), COMPILES_WITHIN_S) as driver:
        next(driver.polled())
        [split] = driver.reader.snapshot()
    assert split.rows == 4
    with SourceDriver(source, [split], COMPILES_WITHIN_S) as driver:
        assert driver.counters[PENDING_RECORDS] == 4

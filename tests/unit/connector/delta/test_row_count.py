"""How many rows a Delta table has, from the statistics of its files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.port.sink import CountsRows


@pytest.mark.parametrize("batches", [[], [0], [3], [3, 4]], ids=str)
def test_the_rows_of_all_files(tmp_path: Path, batches: list[int]) -> None:
    sink = us.DeltaSink(str(tmp_path / "table"))
    assert isinstance(sink, CountsRows)
    for rows in batches:
        write_deltalake(str(tmp_path / "table"), pa.table({"id": range(rows)}), mode="append")
    assert sink.row_count() == (sum(batches) if batches else None)

"""What a Delta table says of itself: columns, and rows from the statistics of its files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.port.sink import DescribesTable


@pytest.mark.parametrize("batches", [[], [0], [3], [3, 4]], ids=str)
def test_the_rows_of_all_files(tmp_path: Path, batches: list[int]) -> None:
    sink = us.DeltaSink(str(tmp_path / "table"))
    assert isinstance(sink, DescribesTable)
    for rows in batches:
        write_deltalake(str(tmp_path / "table"), pa.table({"id": range(rows)}), mode="append")
    found = sink.description()
    if not batches:
        assert found is None
        return
    assert found is not None
    assert (found.rows, found.schema.names) == (sum(batches), ["id"])

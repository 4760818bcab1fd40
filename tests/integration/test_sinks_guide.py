"""The guide to sinks says what is true: its code is run."""

from __future__ import annotations

import contextlib
import io
import re
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sinks.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {"__name__": "guide"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL), 1):
            exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert printed.getvalue().splitlines() == ["FINISHED", "[('LGA', -1), ('JFK', 2), ('JFK', 40)]"]
    with contextlib.closing(sqlite3.connect("flights.db")) as database:
        assert database.execute("SELECT * FROM latest ORDER BY origin").fetchall() == [
            ("JFK", 40),
            ("LGA", -1),
        ]
    merged = DeltaTable(str(tmp_path / "latest-by-origin")).to_pyarrow_table().to_pylist()
    assert merged == [{"origin": "JFK", "delay": 40}], "the row of LGA says that it is gone"
    replaced = DeltaTable(str(tmp_path / "lake-by-origin"))
    assert (replaced.metadata().partition_columns, replaced.version()) == (["origin"], 1)
    assert replaced.to_pyarrow_table().num_rows == 3
    files = sorted((tmp_path / "flights-by-origin").rglob("part-*.parquet"))
    assert [path.parent.name for path in files] == ["origin=JFK", "origin=LGA"]
    assert pq.ParquetFile(files[0]).read().to_pydict() == {"delay": [2, 40]}

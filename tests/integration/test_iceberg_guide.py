"""The guide to Iceberg tables says what is true: its code is run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "iceberg.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {"__name__": "guide"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL), 1):
            exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert printed.getvalue().splitlines() == ["FINISHED", "[-1, 2, 40]"]
    assert [path.parent.name for path in sorted((tmp_path / "lake").rglob("*.parquet"))] == [
        "origin=JFK",
        "origin=LGA",
    ]

"""docs/guide/files.md: its code runs, and prints what stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "guide" / "files.md"


def test_the_page_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    printed = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert capsys.readouterr().out == "".join(printed)
    assert names["inbox"].info().discovery_interval_ms == 30_000
    assert [node.name for node in names["env"].job_graph("guide")[0].vertices]

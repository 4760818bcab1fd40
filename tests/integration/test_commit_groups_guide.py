"""The guide to commit groups says what is true: its code is run, and the command that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unistream.cli.main import main

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "commit-groups.md"


def test_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {"__name__": "guide"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL), 1):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    capsys.readouterr()
    assert main(["group", "show", "lake/groups", "shop"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("visible since", "orders  delta", "lines   delta"))

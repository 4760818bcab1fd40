"""What the guide and the docstrings say is true: their code is run."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
from pathlib import Path

import pytest

import unistream.api
import unistream.operator

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "datastream.md"
MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (unistream.api, unistream.operator)
    for module in pkgutil.iter_modules(package.__path__)
] + ["unistream.testing.harness"]


def test_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {"__name__": "guide"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert "hash by origin, carrier" in printed.getvalue()


@pytest.mark.parametrize("page", ["dead-letters.md", "secrets.md", "state.md"])
def test_pages_without_a_result_can_be_put_together(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (GUIDE.parent / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, object] = {"__name__": "guide"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0

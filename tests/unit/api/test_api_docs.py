"""What the guide and the docstrings say is true: their code is run."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

import unistream

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "datastream.md"
PACKAGE = Path(unistream.__file__).parent
MODULES = sorted(
    ".".join(("unistream", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


def test_the_guide_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {"__name__": "guide"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert "hash by origin, carrier" in printed.getvalue()


@pytest.mark.parametrize(
    "page",
    [
        "dead-letters.md",
        "delta.md",
        "failures.md",
        "files.md",
        "kafka.md",
        "object-stores.md",
        "secrets.md",
        "state.md",
    ],
)
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
def test_examples_in_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert (failed, tried > 0) == (0, True)


def test_the_package_tells_type_checkers_of_users_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()

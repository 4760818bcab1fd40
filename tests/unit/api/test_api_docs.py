"""What the guide and the docstrings say is true: their code is run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import unistream

PACKAGE = Path(unistream.__file__).parent
MODULES = sorted(
    ".".join(("unistream", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert (failed, tried > 0) == (0, True)


def test_the_package_tells_type_checkers_of_users_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()

"""The list of long tests names tests that exist, and leaves each part its tests in the gate."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.nightly import beginnings, is_due
from tests.tidy.parsed import parsed

ROOT = Path(__file__).parents[2]


@cache
def names_in(path: Path) -> list[str]:
    """`test_a` and `TestClass::test_b`."""
    found = []
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            found += [f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)]
    return [name for name in found if "test_" in name]


def begins_a_test(beginning: str) -> bool:
    file, _, test = beginning.partition("::")
    name = test.partition("[")[0]
    return any(known == name if "[" in test else known.startswith(name) for known in names_in(ROOT / file))


def test_each_line_is_the_beginning_of_a_test() -> None:
    assert [line for line in beginnings() if not begins_a_test(line)] == []


def test_no_line_is_there_twice_and_none_contains_another() -> None:
    lines = beginnings()
    assert not [(a, b) for a in lines for b in lines if a is not b and b.startswith(a)]


def test_those_listed_run_at_night_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, other = beginnings()[0], "tests/unit/test_x.py::test_y"
    for switch, wanted in [
        ("", (False, True)),
        ("UNISTREAM_NIGHTLY", (True, False)),
        ("UNISTREAM_CRASH_MATRIX", (True, True)),
    ]:
        with monkeypatch.context() as patched:
            for name in ("UNISTREAM_NIGHTLY", "UNISTREAM_CRASH_MATRIX", "UNISTREAM_HA_MATRIX"):
                patched.delenv(name, raising=False)
            if switch:
                patched.setenv(switch, "1")
            due = is_due()
            assert (due(listed), due(other)) == wanted


def test_the_name_of_a_warning_asks_for_no_test() -> None:
    """It has the two colons of a test that is asked for by its id."""
    folder = next(one for one in beginnings() if one.startswith("tests/unit/")).partition("::")[0]
    words = ["-q", "--collect-only", "-p", "no:cacheprovider", "-W", "default::DeprecationWarning", folder]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "deselected" in told.stdout, told.stdout + told.stderr

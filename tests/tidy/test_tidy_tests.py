"""A test says what it shows: by an assertion, or by a helper whose name says that it asserts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ASSERTING = ("check", "assert", "expect", "eventually")
OF_PYTEST = {"pytest.raises", "pytest.fail", "pytest.warns"}


def shows(node: ast.AST) -> bool:
    """Whether it asserts something."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    name = ast.unparse(node.func)
    return name in OF_PYTEST or name.rpartition(".")[2].lstrip("_").startswith(ASSERTING)


def found_in(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [function for function in functions if function.name.startswith("test_")]


def test_every_test_shows_something() -> None:
    found = {path: found_in(path) for path in TESTS.rglob("test_*.py")}
    assert sum(map(len, found.values())) > 1_000
    silent = [
        f"{path.relative_to(TESTS)}:{test.lineno} {test.name}"
        for path, tests in found.items()
        for test in tests
        if not any(map(shows, ast.walk(test)))
    ]
    assert silent == [], "assert what they show, or name a helper that asserts check_…, assert_… or expect_…"


@pytest.mark.parametrize(
    ("code", "then"),
    [
        ("assert found", True),
        ("with pytest.raises(ConfigError):\n    read()", True),
        ("eventually(ends, 'it ends')", True),
        ("lake.check('a')", True),
        ("read()", False),
        ("job.wait(10)", False),
    ],
)
def test_what_counts(code: str, then: bool) -> None:
    assert any(map(shows, ast.walk(ast.parse(code)))) is then

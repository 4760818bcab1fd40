"""A test says what it shows: by an assertion, or by a helper whose name says so. None asserts a time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.parsed import parsed

TESTS = Path(__file__).parents[1]
WAITS = TESTS / "eventually.py"  # its one limit is what all others wait for
CLOCKS = {"time.monotonic", "time.perf_counter", "time.time"}
ASSERTING = ("check", "assert", "expect", "eventually")
OF_PYTEST = {"pytest.raises", "pytest.fail", "pytest.warns"}


def shows(node: ast.AST) -> bool:
    """Whether it asserts something."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    name = ast.unparse(node.func)
    return name in OF_PYTEST or name.rpartition(".")[2].lstrip("_").startswith(ASSERTING)


def found_in(path: Path) -> list[ast.FunctionDef]:
    tree = parsed(path)
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


def times_in(tree: ast.AST) -> list[int]:
    """Lines that assert that something has taken less than a time, or that wait with a limit of their own."""
    elapsed = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_elapsed(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = frozenset(elapsed)
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Assert) and any(is_upper(one, names) for one in ast.walk(node.test)))
        or (isinstance(node, ast.Call) and has_its_own_limit(node))
    ]


def is_elapsed(node: ast.AST, names: frozenset[str]) -> bool:
    """`time.monotonic() - began`, or a name that was given that."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    return isinstance(node.left, ast.Call) and ast.unparse(node.left.func) in CLOCKS


def is_upper(node: ast.AST, names: frozenset[str]) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    pairs = zip(sides, node.ops, sides[1:], strict=False)
    return any(
        is_elapsed(left if isinstance(op, ast.Lt | ast.LtE) else right, names)
        for left, op, right in pairs
        if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    )


def has_its_own_limit(call: ast.Call) -> bool:
    """Of `eventually`: a number instead of its own."""
    if ast.unparse(call.func) != "eventually":
        return False
    limits = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "timeout_s")]
    return any(isinstance(limit, ast.Constant) for limit in limits)


def test_no_test_asserts_a_time() -> None:
    words = [*CLOCKS, "eventually("]
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != WAITS}
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path, text in texts.items()
        if any(word in text for word in words)
        for line in times_in(parsed(path))
    ]
    assert found == [], "wait for a condition; what is promised to users is measured by benchmarks/bounds.py"


@pytest.mark.parametrize(
    ("code", "then"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("took_s = time.perf_counter() - began\nassert (code, took_s < LIMIT_S) == (0, True)", True),
        ("took_s = time.monotonic() - began\nassert 3 <= took_s <= 5", True),
        ("assert 5 > time.monotonic() - began", True),
        ("eventually(ends, 'it ends', 10)", True),
        ("eventually(ends, 'it ends', timeout_s=10.0)", True),
        ("assert time.monotonic() - began > 5, 'it has waited'", False),
        ("took_s = time.monotonic() - began\nassert took_s >= 3", False),
        ("assert time.monotonic() < deadline", False),
        ("eventually(ends, 'it ends', WAIT_S, 0.1)", False),
    ],
)
def test_what_asserts_a_time(code: str, then: bool) -> None:
    assert bool(times_in(ast.parse(code))) is then

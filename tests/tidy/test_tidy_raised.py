"""Errors that leave a public function say something: the standard library gives them no text."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

import pytest

from tests.tidy.parsed import parsed
from tests.tidy.test_tidy_source import product_files, shown

STANDARD = {
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}
WITHOUT_TEXT = {"StopIteration", "StopAsyncIteration", "KeyError", "AttributeError", "NotImplementedError"}
"""Protocols of the language, which the interpreter catches, and those that carry a name instead."""
WAITS = "client/machine/background.py"
"""Where a future's `TimeoutError`, which is empty, is given its text."""


def bare_raises(tree: ast.AST) -> Iterator[ast.Raise]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        has_text = isinstance(node.exc, ast.Call) and bool(node.exc.args)
        if isinstance(raised, ast.Name) and raised.id in STANDARD - WITHOUT_TEXT and not has_text:
            yield node


def catches_timeouts(node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        return any("TimeoutError" in ast.unparse(one.type) for one in node.handlers if one.type is not None)
    if isinstance(node, ast.With):
        return any(
            "suppress" in (text := ast.unparse(one.context_expr)) and "TimeoutError" in text
            for one in node.items
        )
    return False


def bare_waits(node: ast.AST) -> Iterator[ast.Call]:
    """Waits with a limit for a `Future` that nobody catches: after the limit the error is an empty one."""
    for child in ast.iter_child_nodes(node):
        if catches_timeouts(child):
            continue
        if isinstance(child, ast.Call) and _is_limited_wait(child):
            yield child
        yield from bare_waits(child)


def _is_limited_wait(call: ast.Call) -> bool:
    """``Future.result`` with a time, known by its name, which ends with its unit."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "result":
        return False
    limits = [*call.args, *(word.value for word in call.keywords if word.arg == "timeout")]
    texts = [ast.unparse(limit).lower() for limit in limits]
    return any(text.replace(".", "").isdigit() or text.endswith(("_s", "timeout")) for text in texts)


@pytest.mark.parametrize(
    ("program", "raises", "waits"),
    [
        pytest.param("raise TimeoutError", 1, 0, id="a class"),
        pytest.param("raise ValueError()", 1, 0, id="an instance without a text"),
        pytest.param("raise ValueError('too long')", 0, 0, id="a text"),
        pytest.param("raise", 0, 0, id="again"),
        pytest.param("answer.result(WAIT_S)", 0, 1, id="a wait"),
        pytest.param("answer.result(timeout=0)", 0, 1, id="a look"),
        pytest.param(
            "with suppress(TimeoutError):\n    answer.result(WAIT_S)", 0, 0, id="a wait that may fail"
        ),
        pytest.param("try:\n    a.result(1.5)\nexcept TimeoutError as e:\n    f(e)", 0, 0, id="a caught one"),
        pytest.param("jobs.result(job)", 0, 0, id="a look-up of the same name"),
    ],
)
def test_what_is_found(program: str, raises: int, waits: int) -> None:
    tree = ast.parse(program)
    assert (len(list(bare_raises(tree))), len(list(bare_waits(tree)))) == (raises, waits)


def test_errors_of_the_standard_library_have_a_text() -> None:
    assert [shown(path, node) for path in product_files() for node in bare_raises(parsed(path))] == []


def test_a_wait_for_a_future_says_what_it_waited_for() -> None:
    files = [path for path in product_files() if not str(path).endswith(WAITS)]
    assert [shown(path, node) for path in files for node in bare_waits(parsed(path))] == []

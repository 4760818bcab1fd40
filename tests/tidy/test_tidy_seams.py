"""What stands in for a part of the product is passed to it; nothing of the product is overwritten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
TESTING = ROOT / "unistream" / "testing"
PLANT_BUGS = "mutants"  # files whose name begins so


def _sources() -> Iterator[Path]:
    """What we test with: shipped to users, and the support of our own tests."""
    support = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    for path in sorted([*TESTING.rglob("*.py"), *support]):
        if not path.name.startswith(PLANT_BUGS):
            yield path


def _assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Private attributes that something is assigned to."""
    for node in ast.walk(tree):
        is_written = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if is_written and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node


def _own(tree: ast.AST) -> set[str]:
    """Private attributes that a class assigns on itself."""
    return {n.attr for n in _assigned(tree) if isinstance(n.value, ast.Name) and n.value.id == "self"}


def test_no_private_attribute_of_another_object_is_assigned() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in _sources()
        for node in _assigned(parsed(path))
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert found == []


def test_no_stand_in_overwrites_a_private_attribute_of_the_class_that_it_extends() -> None:
    """A class of `unistream.testing` and its base in the product do not assign the same private attribute."""
    product = {
        node.name: _own(node)
        for path in sorted((ROOT / "unistream").rglob("*.py"))
        if TESTING not in path.parents
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    }
    found = []
    for path in _sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
                    both = sorted(_own(node) & product.get(name, set()))
                    found += [f"{path.relative_to(ROOT)}: {node.name}.{attribute}" for attribute in both]
    assert found == []

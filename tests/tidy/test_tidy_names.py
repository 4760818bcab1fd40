"""A class is found by its name: in the product each name stands once, so that a search finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.tidy.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]


def modules_of_classes() -> dict[str, list[str]]:
    """Name of a class at the top level of a module -> the modules that have one of that name."""
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "unistream").rglob("*.py")):
        for item in parsed(path).body:
            if isinstance(item, ast.ClassDef):
                modules[item.name].append(str(path.relative_to(ROOT)))
    return modules


def test_a_class_name_stands_once() -> None:
    modules = modules_of_classes()
    assert len(modules) > 1_000, "they are found"
    several = {name: places for name, places in modules.items() if len(places) > 1}
    assert not several, f"name the noun that it is, as `SilenceVerdict` for `Verdict`: {several}"

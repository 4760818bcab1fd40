"""A class is found by its name: in the product each name stands once, so that a search finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.tidy.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]

TWICE: Final = frozenset({
    "AggregatingHandle", "Alignment", "Bucket", "CancelTimer", "Change", "Counter", "Database", "Ended",
    "ExceptionHistory", "Failed", "Failure", "Fence", "Fenced", "Found", "Grant", "JobLog", "JobStatus",
    "KeyRows", "Kind", "Layout", "Link", "ListColumn", "ListHandle", "ListState", "Mailbox", "MapColumn",
    "MapHandle", "Marker", "Numbers", "Operation", "Outbox", "Pending", "Phase", "Place", "Progress",
    "Recovery", "ReducingHandle", "Refused", "Retention", "Rows", "SealedPartition", "SetTimer",
    "SinkTotals", "SlotsUnfulfillable", "StoredState", "Sweep", "Timer", "TimerFired", "TtlValueHandle",
    "ValueHandle", "VertexFigures", "_Asked", "_Channel", "_Connection", "_Event", "_Given", "_Index",
    "_Pending", "_Phase", "_Rows", "_Sender", "_Server", "_State", "_Stored", "_Waiting", "_Worker",
})  # fmt: skip
"""Names that several modules still have. It only gets shorter: a new class gets a name of its own."""


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
    new = {name: places for name, places in several.items() if name not in TWICE}
    assert not new, f"name the noun that it is, as `SilenceVerdict` for `Verdict`: {new}"
    assert several.keys() >= TWICE, f"take them off the list: {sorted(TWICE - several.keys())}"

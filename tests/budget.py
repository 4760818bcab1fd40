"""What each part of the gate may take on an idle machine of two cores, and what it has taken.

    python -m tests.budget            the table; it never fails because of a time

A session of pytest that runs several parts at once counts for each by its share of what the tests took.
Times are kept in the file that UNISTREAM_GATE_TIMES names, a line for each; without it nothing is noted.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "UNISTREAM_GATE_TIMES"
CHECK, NEAR, SIMULATED, INTEGRATION, GUIDES = PARTS = (
    "check",
    "unit, contract, conformance",
    "simulation, equality",
    "integration",
    "guides and UI",
)
WANTED_S: Final = {CHECK: 60, NEAR: 360, SIMULATED: 150, INTEGRATION: 540, GUIDES: 90}

FOLDERS: Final = (
    (re.compile(r"tests/(simulation|equality)/"), SIMULATED),
    (
        re.compile(r"tests/browser/|tests/integration/test_(\w*guide\w*|demo|dev|dagster_(stack|tour))\.py"),
        GUIDES,
    ),
    (re.compile(r"tests/integration/"), INTEGRATION),
    (re.compile(r"tests/"), NEAR),
)


def part_of(test: str) -> str:
    """The part of the gate to which the test of this id belongs."""
    return next((part for pattern, part in FOLDERS if pattern.match(test)), NEAR)


def shares(taken_s: Mapping[str, float], session_s: float) -> dict[str, float]:
    """The seconds of a session, divided among its parts as their tests took them."""
    whole_s = sum(taken_s.values())
    return {part: session_s * part_s / whole_s for part, part_s in taken_s.items()} if whole_s else {}


def table(notes: Iterable[tuple[str, float]]) -> str:
    """Minutes wanted and taken, one line for each part; a part that has not run shows a dash."""
    taken_s: dict[str, float] = defaultdict(float)
    for part, part_s in notes:
        taken_s[part] += part_s
    rows = [(part, WANTED_S[part], taken_s.get(part)) for part in PARTS]
    rows.append(("all", sum(WANTED_S.values()), sum(taken_s.values()) if taken_s else None))
    lines = [f"{'minutes':30s} wanted  taken"]
    for part, wanted_s, part_s in rows:
        lines.append(
            f"{part:30s} {wanted_s / 60:6.1f} {'     –' if part_s is None else f'{part_s / 60:6.1f}'}"
        )
    return "\n".join(lines)


class Recorder:
    """Adds up the times of the tests of a session, which `pytest` reports to it."""

    def __init__(self, notes: Path, now_s: float) -> None:
        self.notes, self.began_s = notes, now_s
        self.taken_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.taken_s[part_of(report.nodeid)] += report.duration

    def end(self, now_s: float) -> None:
        for part, part_s in shares(self.taken_s, now_s - self.began_s).items():
            note(self.notes, part, part_s)


def note(notes: Path, part: str, part_s: float) -> None:
    with notes.open("a") as file:
        file.write(json.dumps([part, round(part_s, 1)]) + "\n")


def main() -> None:
    notes = Path(os.environ[VARIABLE])
    lines = notes.read_text().splitlines() if notes.exists() else []
    print(table((part, part_s) for part, part_s in map(json.loads, lines)))


if __name__ == "__main__":
    main()

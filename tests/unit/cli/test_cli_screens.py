"""What people see of each command, in a narrow and in a wide terminal, with and without color.

Regenerate with ``UNISTREAM_GOLDEN=write pytest tests/unit/cli/test_cli_screens.py``, or ``make golden``, and
read the diff. ESC is written as ``␛``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.unit.cli.screens import NARROW, PICTURED, PICTURES, SCREENS, WIDE, picture, printed
from unistream.cli.tables import Grid

GOLDEN = Path(__file__).parents[2] / "golden" / "cli"
WRITES = os.environ.get("UNISTREAM_GOLDEN") == "write"


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def page(name: str) -> str:
    parts = []
    for width in (NARROW, WIDE):
        for color in (False, True):
            text = printed(SCREENS[name](width), width, color=color).replace("\x1b", "␛")
            parts.append(f"=== {width} columns{', color' if color else ''}\n{text}")
    return "\n".join(parts)


@pytest.mark.parametrize("name", SCREENS)
def test_what_a_command_shows(name: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if WRITES:
        file.write_text(page(name))
    assert page(name) == file.read_text()


def test_there_is_no_screen_of_a_command_that_is_gone() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_a_table_fits_a_narrow_terminal_but_for_a_last_word(name: str) -> None:
    """Such as a path, which stays whole."""
    for part in SCREENS[name](NARROW):
        lines = [line.plain for line in part.lines(NARROW)] if isinstance(part, Grid) else []
        assert [line for line in lines if cell_len(line) > NARROW and line.rindex(" ") >= NARROW] == []


@pytest.mark.parametrize("name", PICTURED)
def test_the_pictures_of_the_documentation_are_what_is_shown(name: str) -> None:
    file = PICTURES / f"cli-{name.replace('_', '-')}.svg"
    if WRITES:
        file.write_text(picture(name))
    assert picture(name) == file.read_text(), "make golden draws it again"

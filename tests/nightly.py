"""Which tests wait for the night: see `nightly.txt`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_suffix(".txt")
MATRICES: Final = ("UNISTREAM_CRASH_MATRIX", "UNISTREAM_HA_MATRIX", "UNISTREAM_DAGSTER_MATRIX")


def beginnings() -> tuple[str, ...]:
    """Of the ids of the tests that wait for the night."""
    lines = LIST.read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_due() -> Callable[[str], bool]:
    """Whether a test of this id is run: at night those that wait for it, in a matrix all, else the others."""
    if any(os.environ.get(matrix) == "1" for matrix in MATRICES):
        return lambda _id: True
    listed, night = beginnings(), os.environ.get("UNISTREAM_NIGHTLY") == "1"
    return lambda test: test.startswith(listed) == night

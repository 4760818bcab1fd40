"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 240.0  # that something comes within a time is what benchmarks show, not tests
STEP_S: Final = 0.02


def eventually(
    condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S, step_s: float = STEP_S
) -> float:
    """Returns when `condition` holds: the seconds that took. `what` should happen, for the failure."""
    begin = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begin
        assert waited_s < timeout_s, f"after {waited_s:.0f} s still not: {what}"
        time.sleep(step_s)
    return time.monotonic() - begin

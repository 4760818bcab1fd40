"""What a function of a job has logged."""

from __future__ import annotations

from typing import Final

import msgspec

LINES_KEPT_MAX: Final = 1_000
"""Older lines of a job's log are forgotten."""


class JobLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log of a job.

    Attributes:
        seq: Grows with each line, also under a later leader, which does not have those of before.
        at_ms: Of the worker's clock.
        level: As Python names it: INFO, WARNING, …
        task: Such as ``count (2/4)``.
        message: At most 4,000 characters, with the traceback if there is one.
        dropped: How many of the task's lines before this one were dropped: it logs too much.
    """

    seq: int
    at_ms: int
    level: str
    logger: str
    task: str
    message: str
    dropped: int = 0

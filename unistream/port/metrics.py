"""Counters that an operator, reader or writer keeps."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Named counters of one operator, shown with the job."""

    def add(self, name: str, amount: int) -> None: ...

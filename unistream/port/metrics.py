"""Counters and gauges that an operator, reader or writer keeps."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Named counters and gauges of one operator, shown with the job, added up over subtasks."""

    def add(self, name: str, amount: int) -> None: ...

    def set(self, name: str, value: int) -> None:
        """The gauge has this value now; it has none before."""


class Uncounted:
    """The metrics of an operator that runs without a job that could show them: they are dropped."""

    def add(self, name: str, amount: int) -> None:
        pass

    def set(self, name: str, value: int) -> None:
        pass

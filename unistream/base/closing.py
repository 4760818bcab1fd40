"""Objects that are closed at the end of a `with` block, and what is to be done when one is closed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)


class Closing(ABC):
    """A context manager that calls `close`."""

    @abstractmethod
    def close(self) -> None:
        """Releases all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Cleanups(ExitStack):
    """Steps that `close` performs, the last one first: all of them, although one fails. Each failure is
    logged, since an `ExitStack` raises the last one alone: CPython 3.11 does not chain those of a `close`."""

    def add(self, step: Callable[[], object]) -> None:
        self.callback(_performed, step)


def _performed(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception:
        logger.exception("event=cleanup_failed step=%r", step)
        raise

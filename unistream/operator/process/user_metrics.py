"""Counters and gauges of a user's function, shown with those of the runtime."""

from __future__ import annotations

import re
from typing import Any, Final

from unistream.base.errors import ConfigError
from unistream.model.counter_names import USER
from unistream.port.metrics import Metrics

NAMES_MAX: Final = 100  # of one function: each is in every heartbeat
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,79}")


class UserMetrics:
    """`context.metrics` of a function. Numbers of a subtask begin at zero when its task restarts, as Flink's
    do; those of all subtasks are added up.

    >>> import pyarrow as pa, unistream as us
    >>> class Parsed(us.ProcessFunction):
    ...     def process_element(self, row, context, out):
    ...         context.metrics.count("comments" if row["text"].startswith("#") else "rows")
    ...         out.emit(row)
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: dict[str, str] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to a counter. A call that fails and whose row is a dead letter has counted all the same.

        Raises:
            ConfigError: `name` is not of letters, digits, "_" and "-", or the function has too many.
            TypeError: `amount` is no whole number.
        """
        self._metrics.add(self._known.get(name) or self._checked(name), _whole(name, amount))

    def gauge(self, name: str, value: int) -> None:
        """Sets a gauge, a whole number. Raises as `count`."""
        self._metrics.set(self._known.get(name) or self._checked(name), _whole(name, value))

    def _checked(self, name: Any) -> str:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"metric {name!r:.100}: a name has at most 80 letters, digits, '_' and '-', and begins with "
                "a letter"
            )
        if len(self._known) >= NAMES_MAX:
            raise ConfigError(
                f"metric {name!r}: the function has {NAMES_MAX} metrics already; a name is not made of "
                "values of rows"
            )
        self._known[name] = f"{USER}{name}"
        return self._known[name]


def _whole(name: str, amount: Any) -> int:
    if isinstance(amount, bool) or not hasattr(amount, "__index__"):
        raise TypeError(f"metric {name!r}: {amount!r:.100} is no whole number")
    return int(amount)

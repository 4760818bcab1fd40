"""What a bootstrap of a pipeline reads and where its savepoint is; see `Environment.bootstrap`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime

from unistream.base.errors import ConfigError
from unistream.core.graph import BootstrapPlan, PipelineSource, bootstrap_watermarks
from unistream.model.stream_graph import StreamGraph
from unistream.model.time_range import moment_ms
from unistream.operator.common import AssignTimestampsAndWatermarks
from unistream.port.operator import SourceOperatorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapOrder:
    """A savepoint that is wanted.

    Attributes:
        savepoint: Its directory.
        until_ms: The fence that all hybrid sources must have; None: any.
    """

    savepoint: str
    until_ms: int | None = None

    @classmethod
    def of(cls, savepoint: str | os.PathLike[str], until: datetime | int | None) -> BootstrapOrder:
        """Raises ConfigError if an argument is wrong."""
        if not isinstance(savepoint, str | os.PathLike) or not os.fspath(savepoint):
            raise ConfigError(f"bootstrap: savepoint is the path of a directory, not {savepoint!r}")
        directory = os.fspath(savepoint)
        if "://" not in directory and not directory.startswith("file:"):
            directory = os.path.abspath(directory)  # the master may have another working directory
        return cls(savepoint=directory, until_ms=_until_ms(until))

    def for_graph(self, graph: StreamGraph) -> BootstrapPlan:
        """The plan of this bootstrap for a pipeline. Raises ConfigError if it cannot be bootstrapped."""
        for node in graph.nodes:
            if isinstance(node.operator, AssignTimestampsAndWatermarks):
                raise ConfigError(
                    f"bootstrap: {node.name!r} assigns event times behind the source, so the fence does not "
                    "say how far they are; pass the strategy to from_source"
                )
        sources = [
            PipelineSource(
                node=node.id,
                name=node.name,
                info=node.source,
                has_watermarks=isinstance(node.operator, SourceOperatorSpec)
                and node.operator.watermarks.out_of_orderness_ms is not None,
            )
            for node in graph.nodes
            if node.source is not None
        ]
        return BootstrapPlan(
            directory=self.savepoint, watermarks=bootstrap_watermarks(sources, self.until_ms)
        )


def parse_until(text: str) -> datetime | int:
    """A time of the command line: ISO 8601, or ms since 1970.

    Raises:
        ConfigError: it is neither.

    >>> parse_until("2026-03-01"), parse_until("1772323200000")
    (datetime.datetime(2026, 3, 1, 0, 0), 1772323200000)
    """
    try:
        return int(text) if text.lstrip("-").isdigit() else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--until {text!r} is no time: give one such as 2026-03-01T12:00:00Z, or milliseconds since 1970"
        ) from None


def _until_ms(until: datetime | int | None) -> int | None:
    if isinstance(until, datetime):
        return moment_ms(until)
    if until is not None and type(until) is not int:
        raise ConfigError(
            f"bootstrap: until must be a datetime or milliseconds since 1970, not {until!r:.200}"
        )
    return until

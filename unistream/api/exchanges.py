"""The part of `DataStream` that sets how rows are exchanged between operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from unistream.api.graph import Port
from unistream.api.settings import OperatorSettings
from unistream.base.errors import ConfigError
from unistream.model.graph import Ship
from unistream.model.stream_graph import StreamExchangeMode
from unistream.operator.common import describe

if TYPE_CHECKING:
    from unistream.api.stream import DataStream


class Exchanges(OperatorSettings):
    """Methods that change how rows are sent to the next operator, not the rows."""

    _ports: tuple[Port, ...]
    schema: pa.Schema | None

    def __repr__(self) -> str:
        """
        >>> import unistream as us
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> us.Environment().from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        DataStream(n int64)
        """
        columns = "columns known when it runs" if self.schema is None else describe(self.schema)
        return f"{type(self).__name__}({columns})"

    @abstractmethod
    def _through(self, ports: Sequence[Port]) -> DataStream:
        """A stream of the same rows, read by these ports."""

    def forward(self) -> DataStream:
        """Subtask i to subtask i; both sides need the same parallelism."""
        return self._shipped(Ship.FORWARD)

    def rescale(self) -> DataStream:
        """Round robin over the nearest subtasks."""
        return self._shipped(Ship.RESCALE)

    def rebalance(self) -> DataStream:
        """Round robin over all subtasks."""
        return self._shipped(Ship.REBALANCE)

    def broadcast(self) -> DataStream:
        """All rows to every subtask."""
        return self._shipped(Ship.BROADCAST)

    def global_(self) -> DataStream:
        """All rows to subtask 0."""
        return self._shipped(Ship.GLOBAL)

    def exchange_mode(self, mode: StreamExchangeMode) -> DataStream:
        """How the readers of this stream get its rows, instead of as `execution.runtime-mode` says.

        BATCH: rows are stored and read when all of them have been written, so that the two sides need not run
        at the same time; only after bounded sources. The checkpoints of a streaming job begin when they have
        been read. PIPELINED: rows are read while they are written.
        """
        if not isinstance(mode, StreamExchangeMode):
            raise ConfigError(f"exchange_mode takes a StreamExchangeMode, not {mode!r}")
        ports = [replace(port, partition=mode.partition) for port in self._ports]
        return self._through(ports)

    def _shipped(self, ship: Ship) -> DataStream:
        return self._through([replace(port, ship=ship) for port in self._ports])

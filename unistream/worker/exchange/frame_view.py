"""One reading of a stored subpartition, whatever its frames are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from unistream.base.errors import PartitionLost, ProtocolError
from unistream.base.ids import PartitionId
from unistream.model.elements import Element, EndOfPartition


class Reader(Protocol):
    """`FrameReader`, or another that is used like it."""

    def next(self) -> Element:
        """The next element, up to EndOfPartition."""


class FrameView:
    """Implements `port.transport.SubpartitionView`; one element at a time is read.

    Args:
        open_reader: Called once, at the first element.
        place: Where the frames are, for messages.
    """

    def __init__(self, open_reader: Callable[[], Reader], place: str, partition: PartitionId) -> None:
        self._open_reader: Callable[[], Reader] | None = open_reader
        self._place = place
        self._partition = partition
        self._reader: Reader | None = None
        self._head: Element | None = None

    def peek(self) -> Element | None:
        """The element that `poll` returns next. Raises like `poll`."""
        if self._head is None:
            self._head = self._read()
        return self._head

    def poll_urgent(self) -> None:
        """Nothing overtakes here."""

    def poll(self) -> Element | None:
        """The next element; None only after EndOfPartition.

        Raises:
            PartitionLost: the frames are damaged or missing.
            Transient: the store that has them does not answer.
        """
        head, self._head = self._head, None
        return self._read() if head is None else head

    def _read(self) -> Element | None:
        try:
            if self._open_reader is not None:
                self._reader = self._open_reader()
                self._open_reader = None
            if self._reader is None:
                return None
            element = self._reader.next()
        except (OSError, pa.ArrowException, ProtocolError) as error:
            self._reader = self._open_reader = None
            reason = (error.strerror or error) if isinstance(error, OSError) else error
            raise PartitionLost(
                f"{self._place} of partition {self._partition} cannot be read: {reason}", self._partition
            ) from error
        if isinstance(element, EndOfPartition):
            self._reader = None
        return element

    def release(self, error: BaseException | None) -> None:
        """The consumer has closed it; the partition stays."""
        self._reader = self._open_reader = None

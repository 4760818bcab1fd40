"""Prints rows to standard output: ``column=value, …``, one line for each row; with several subtasks after the
number of the subtask, as in Flink: ``2> column=value, …``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import PlainSink, PlainWriter
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext, SinkWriter


class PrintSink(PlainSink):
    """Prints a stream, at least once: after a restart, rows since the last checkpoint are printed again.

    Args:
        prefix: Printed before each row (``prefix> …``, with several subtasks ``prefix:2> …``).
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    @property
    def name(self) -> str:
        return "print"

    def create_writer(self) -> SinkWriter:
        return _PrintWriter(self._prefix)


class _PrintWriter(PlainWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._head = ""

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        subtask = [str(context.index + 1)] if context.parallelism > 1 else []
        head = ":".join([*([self._prefix] if self._prefix else []), *subtask])
        self._head = f"{head}> " if head else ""

    def write(self, batch: Batch) -> None:
        """Flushes at once: there may be no checkpoints."""
        lines = render_rows(batch.records)
        if lines:
            sys.stdout.write(self._head + f"\n{self._head}".join(lines) + "\n")
            sys.stdout.flush()


def render_rows(records: pa.RecordBatch) -> list[str]:
    """One ``a=1, b=x`` for each row; null is ``null``."""
    if not records.schema.names:
        return [""] * int(records.num_rows)
    columns = [
        pc.binary_join_element_wise(f"{field.name}=", _text(records.column(i)), "", null_handling="skip")
        for i, field in enumerate(records.schema)
    ]
    return list(pc.binary_join_element_wise(*columns, ", ").to_pylist())


def _text(column: pa.Array) -> pa.Array:
    try:
        text = column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested values, or bytes that are no text
        text = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return text.fill_null("null")

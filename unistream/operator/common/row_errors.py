"""What an operator does with rows that it cannot process: `on_error`.

    "fail"          the first one fails the job; the error names operator, function and row
    "skip"          it is left out, and counted (metric `numRecordsSkipped`)
    "dead-letter"   it is sent to the side output "dead-letters" (`port.dead_letters`), and counted

While nothing fails none of this runs: failures are found by the exception of the whole batch, or of the row.
Where a batch fails as a whole, halves of it are tried until the rows that fail are apart (`base.bisection`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError, MissingCode, SuppressRestarts, UnistreamError, UserCodeError
from unistream.base.user_files import raised_at
from unistream.model.columns.map_types import is_of_objects
from unistream.model.elements import Batch
from unistream.model.metric_names import DEAD_LETTERS, SKIPPED
from unistream.port.dead_letters import LETTER_SCHEMA, ON_ERROR, TEXT_CHARS_MAX, OnError
from unistream.port.operator import OperatorContext, Output
from unistream.port.source import DEAD_LETTERS_TAG

Failures = Mapping[int, BaseException]
"""Position of a row in its batch -> why it could not be processed."""

_FAILS_THE_JOB: Final = (MemoryError, MissingCode, SuppressRestarts)


def check_on_error(on_error: str, what: str) -> None:
    """Raises ConfigError; `what`: the operation."""
    if on_error not in ON_ERROR:
        raise ConfigError(f"{what}: on_error={on_error!r} is not one of {', '.join(map(repr, ON_ERROR))}")


def is_of_the_row(error: BaseException) -> bool:
    """The row is why it was raised, as far as can be said; not the pipeline, the machine or another system.

    >>> from unistream.base.errors import Unreachable
    >>> is_of_the_row(KeyError("fare")), is_of_the_row(Unreachable("the tariff service does not answer"))
    (True, False)
    """
    if not isinstance(error, Exception) or isinstance(error, _FAILS_THE_JOB):
        return False
    return isinstance(error, UserCodeError) or not isinstance(error, UnistreamError)


class RowErrors:
    """What one operator does with rows that fail.

    Attributes:
        replayed: Of a batch that is replayed: (attempt, id) of the letter of each row.
    """

    def __init__(self, on_error: OnError = "fail") -> None:
        self._on_error = on_error
        self.replayed: tuple[Sequence[int], Sequence[str]] | None = None
        self._numbers = count()

    @property
    def fails(self) -> bool:
        """The first row that fails, fails the job."""
        return self._on_error == "fail"

    def takes(self, error: BaseException) -> bool:
        """The row is left out, and the job goes on."""
        return self._on_error != "fail" and is_of_the_row(error)

    def send(
        self,
        context: OperatorContext,
        output: Output,
        batch: Batch,
        failures: Failures,
        places: Sequence[int] | None = None,
    ) -> None:
        """Counts the rows of `batch` that have failed, and sends their letters. `places`: for each row its
        position in the batch that the operator got; None: the same."""
        positions = sorted(failures)
        if self._on_error == "dead-letter":
            context.metrics.add(DEAD_LETTERS, len(positions))
            failed = batch.take(pa.array(positions, pa.int64()))
            given = positions if places is None else [places[p] for p in positions]
            letters = self._letters(context, failed, given, [failures[p] for p in positions])
            output.emit_side(DEAD_LETTERS_TAG, Batch(letters))
        else:
            context.metrics.add(SKIPPED, len(positions))

    def _letters(
        self, context: OperatorContext, rows: Batch, positions: Sequence[int], errors: Sequence[BaseException]
    ) -> pa.RecordBatch:
        number, records = rows.num_rows, rows.records
        attempts, origins = [1] * number, list[str | None]([None] * number)
        if self.replayed is not None:
            attempts = [self.replayed[0][p] + 1 for p in positions]
            origins = [self.replayed[1][p] for p in positions]
        each = [records.slice(i, 1) for i in range(number)]
        times = pa.nulls(number, pa.int64()) if rows.timestamps is None else rows.timestamps
        columns: dict[str, Any] = {
            "letter": [self._id(context) for _ in range(number)],
            "row": [_json(row) for row in each],
            "row_ipc": [encoded_row(row) for row in each],
            "event_time": times.cast(pa.timestamp("ms", tz="UTC")),
            "error_type": [type(error).__name__ for error in errors],
            "error": [str(error)[:TEXT_CHARS_MAX] for error in errors],
            "error_at": [raised_at(error.__traceback__) for error in errors],
            "operator_uid": [context.uid] * number,
            "operator": [context.name] * number,
            "subtask": [context.index] * number,
            "attempt": attempts,
            "replay_of": origins,
            "job": [context.job] * number,
            "lineage": [context.lineage] * number,
            "time": pa.array([context.clock.wall_ms()] * number, pa.int64()).cast(
                pa.timestamp("ms", tz="UTC")
            ),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in LETTER_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=LETTER_SCHEMA)

    def _id(self, context: OperatorContext) -> str:
        """No two attempts have the same number, so neither have two letters."""
        parts = (context.attempt, context.epoch, context.uid, next(self._numbers))
        return sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]

    def __getstate__(self) -> dict[str, object]:
        return {"_on_error": self._on_error}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_on_error"])  # type: ignore[misc]


def encoded_row(row: pa.RecordBatch) -> bytes:
    """A batch, usually of one row, as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return bytes(sink.getvalue())


def decoded_row(content: bytes) -> pa.RecordBatch:
    """What `encoded_row` was given. Raises pa.ArrowException: it is none."""
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        return reader.read_next_batch()


def _json(row: pa.RecordBatch) -> str:
    try:
        values = {name: _value(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
        return msgspec.json.encode(values, enc_hook=str).decode()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):  # such as times in nanoseconds
        texts = {name: _text(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
        return msgspec.json.encode(texts).decode()


def _value(column: pa.Array) -> Any:
    """The value of the one row. Maps are objects, as sources and sinks have them, unless one has a key
    twice."""
    if is_of_objects(column.type):
        with suppress(KeyError):
            return column.to_pylist(maps_as_pydicts="strict")[0]
    return column[0].as_py()


def _text(column: pa.Array) -> str | None:
    try:
        found = column.cast(pa.string())[0].as_py()
        return None if found is None else str(found)
    except (pa.ArrowException, ValueError):
        return str(column[0])

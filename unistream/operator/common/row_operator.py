"""The base of operators whose functions may fail for some rows and not for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from unistream.base.bisection import bisected
from unistream.base.errors import UserCodeError
from unistream.model.elements import Batch
from unistream.operator.common.base import BaseOperator, ForwardsColumns, function_name
from unistream.operator.common.row_errors import Failures, RowErrors
from unistream.operator.common.row_schema import RowSchema, TakenRows
from unistream.port.projection import UsedColumns, together
from unistream.port.source import DEAD_LETTERS_TAG

T = TypeVar("T")


class RowOperator(BaseOperator):
    """An operator with `on_error`.

    Attributes:
        errors: What it does with rows that fail.
    """

    errors: RowErrors

    @staticmethod
    def has_letters(wanted: Mapping[str | None, UsedColumns]) -> bool:
        """Somebody reads its dead letters, which have whole rows. `wanted`: see `port.projection`."""
        return DEAD_LETTERS_TAG in wanted

    def with_letters(self, used: frozenset[str], wanted: Mapping[str | None, UsedColumns]) -> UsedColumns:
        """The columns that one needs which forwards its rows, and itself reads `used`."""
        return None if self.has_letters(wanted) else together(used, *wanted.values())

    def refuse_row(
        self,
        failed: dict[int, BaseException],
        function: object,
        error: Exception,
        position: int,
        rows: Iterator[object],
    ) -> None:
        """Notes in `failed` why a row did. `rows`: the iterator over the rows, which goes on behind it.

        Raises:
            UserCodeError: the error fails the job, or `rows` has raised it: then the rows cannot be converted
                to Python, and there are no more of them.
        """
        ended = isinstance(rows, GeneratorType) and rows.gi_frame is None
        if ended or not self.errors.takes(error):
            raise self.user_error(function_name(function), error, position) from error
        failed[position] = error

    def fail(self, what: str, error: Exception) -> NoReturn:
        """Raises UserCodeError for an error of a user's function, or one of ours, which says where it was."""
        if type(error) is UserCodeError:
            raise error
        raise self.user_error(what, error) from error

    def send_failed(
        self, batch: Batch, failed: Failures, places: Sequence[int] | None = None
    ) -> list[int] | None:
        """Sends the letters of rows that have failed. Returns the positions of the other rows; None: all.
        `places`: for each row of `batch` its position in the batch that the operator got; None: the same."""
        if not failed:
            return None
        self.errors.send(self.context, self.output, batch, failed, places)
        return [row for row in range(batch.num_rows) if row not in failed]

    def apart(
        self, batch: Batch, error: Exception, attempt: Callable[[Batch], T], *, row_wise: bool = True
    ) -> tuple[Batch, list[T]]:
        """Tells failing rows from others after `attempt(batch)` raised `error`: the rows that do not fail,
        and the results of their ranges, in order; letters of the others are sent. `row_wise`: a row fails
        or not whatever the others are, so `attempt` may be called with a part of them; otherwise all rows
        fail."""
        if row_wise:
            good, bad = bisected(
                batch.num_rows, lambda i, j: attempt(batch.slice(i, j - i)), self.errors.takes
            )
        else:
            good, bad = [], dict[int, BaseException].fromkeys(range(batch.num_rows), error)
        return self.without(batch, bad), [result for _, result in good]

    def without(self, batch: Batch, failed: Failures) -> Batch:
        """The rows that have not failed; letters of the others are sent."""
        rest = self.send_failed(batch, failed)
        return batch if rest is None else batch.take(pa.array(rest, pa.int64()))

    def emit_built(
        self, schema: RowSchema, what: str, rows: TakenRows, parents: Sequence[int] | None, batch: Batch
    ) -> None:
        """Emits rows with the event times of their parents in `batch`; those that do not match the schema
        have failed. Arguments as for `RowSchema.build`."""
        if not rows:
            return
        try:
            records = schema.build(self, what, rows, parents)
        except UserCodeError:
            if self.errors.fails:
                raise
            found, refused = schema.build_fitting(rows, parents)
            failures = {row: UserCodeError(f"{what} {error}") for row, error in refused.items()}
            self.send_failed(batch, failures)
            if found is None:
                return
            places = range(len(rows)) if parents is None else parents
            records, parents = found, [parent for parent in places if parent not in refused]
        times = batch.timestamps
        if times is not None and parents is not None:
            times = times.take(pa.array(np.asarray(parents, dtype=np.int64)))
        self.output.emit(Batch(records, times))


class ForwardsRows(RowOperator, ForwardsColumns):
    """One whose output has the columns of its input, and perhaps others."""


def computes_anything(compute: Callable[[Batch], object], batch: Batch) -> bool:
    """It can be computed for no rows at all; otherwise a column is missing or has another type, which no row
    is to blame for."""
    try:
        compute(batch.slice(0, 0))
    except (pa.ArrowException, KeyError, UserCodeError):
        return False
    return True

"""Builds batches of one schema from the rows of a user's function, without changing a value.

The values of a row are taken at once, since the function may change it afterwards; lists, dicts and bytes are
copied. A batch is built later, column by column (`model.column_forms`), with exactly these values; a value
that a column cannot hold is refused, with the row and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from unistream.model.column_forms import ColumnForm, ValueRefused
from unistream.model.given_values import copied, copier
from unistream.operator.common.base import BaseOperator

Row = dict[str, Any]
Take = Callable[[Any], Any]


class RowSchema:
    """Builds record batches from dicts of one schema.

    A row must have exactly the columns of the schema; None is null.

    Args:
        schema: None: that of the first rows, then fixed.

    >>> from unistream.operator.common.base import BaseOperator
    >>> rows, row = RowSchema(pa.schema({"n": pa.int64()})), {"n": 1}
    >>> taken = [rows.take(row)]
    >>> row["n"] = 2
    >>> rows.build(BaseOperator(), "f returned", [*taken, rows.take(row)], None).to_pylist()
    [{'n': 1}, {'n': 2}]
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.schema = schema
        self._is_inferred = schema is None
        self._columns: _Columns | None = None

    @property
    def take(self) -> Take:
        """Converts a row for `build`; a different function after the first `build`."""
        return _copied_row if self.schema is None else self._known(self.schema).take

    def build(
        self, operator: BaseOperator, what: str, rows: list[Any], parents: Sequence[int] | None
    ) -> pa.RecordBatch:
        """A batch of `rows`, as for `batch`.

        Args:
            operator: For errors.
            what: The source of the rows, for errors, such as ``"function 'f' returned"``.
            rows: As for `batch`.
            parents: For each row the position of its input row; None: the same.

        Raises:
            UserCodeError: a row does not match the schema; names the position of its parent.
        """
        try:
            return self.batch(rows)
        except ValueRefused as refused:
            place = refused.position if parents is None else parents[refused.position]
            raise operator.user_error(f"{what} {refused.reason};", row=place) from refused

    def batch(self, rows: list[Any]) -> pa.RecordBatch:
        """A batch of `rows` (at least one) that `take` has converted since the last `batch`. Raises
        ValueRefused."""
        if self.schema is None:
            self.schema = _inferred(rows)
            rows = list(map(self.take, rows))
        try:
            return self._known(self.schema).batch(rows)
        except ValueRefused as refused:
            if not self._is_inferred:
                raise
            hint = "the columns are those of the first rows, give returns= to set them"
            raise ValueRefused(refused.position, f"{refused.reason}; {hint}") from refused

    def _known(self, schema: pa.Schema) -> _Columns:
        if self._columns is None:
            self._columns = _Columns(schema)
        return self._columns


def table_of(rows: Sequence[Any], schema: pa.Schema | None) -> pa.Table:
    """All rows as a table; without a schema it is inferred from all of them.

    Raises:
        ValueRefused: there is no row and no schema, or a row does not match the schema.

    >>> table_of([{"n": 1}, {"n": None}], None).to_pydict()
    {'n': [1, None]}
    """
    if not rows:
        if schema is None:
            raise ValueRefused(0, "no rows, so their columns are not known: give a schema")
        return schema.empty_table()
    found = RowSchema(schema if schema is not None else _inferred(list(map(_copied_row, rows))))
    return pa.Table.from_batches([found.batch(list(map(found.take, rows)))])


class _Misfit:
    """Replaces a row that does not match the schema."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Columns:
    """Converts rows of a schema, and builds batches of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = list(schema.names)
        self._forms = [ColumnForm(field.type, nullable=field.nullable) for field in schema]
        self.take = self._taker()

    def batch(self, rows: list[Any]) -> pa.RecordBatch:
        """Raises ValueRefused for the first row that does not match the schema."""
        if _Misfit in set(map(type, rows)):
            position, misfit = next((at, row) for at, row in enumerate(rows) if type(row) is _Misfit)
            raise ValueRefused(position, misfit.reason)
        arrays = []
        for number, (field, form) in enumerate(zip(self._schema, self._forms, strict=True)):
            try:
                arrays.append(form.column(list(map(itemgetter(number), rows))))
            except ValueRefused as refused:
                reason = f"a value that column {field.name!r} ({field.type}) cannot hold: {refused.reason}"
                raise ValueRefused(refused.position, reason) from refused
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _taker(self) -> Take:
        size, values_of, misfit = len(self._names), _getter(self._names), self._other
        copiers = [(number, copier(field.type)) for number, field in enumerate(self._schema)]
        changeable = [(number, copy) for number, copy in copiers if copy is not None]

        def take(row: Any) -> Any:
            if type(row) is not dict or len(row) != size:
                return misfit(row)
            try:
                return values_of(row)
            except KeyError:
                return misfit(row)

        def take_copies(row: Any) -> Any:
            values = take(row)
            if type(values) is _Misfit:
                return values
            own = list(values)
            for number, copy in changeable:
                own[number] = copy(own[number])
            return own

        return take_copies if changeable else take

    def _other(self, row: Any) -> Any:
        """Converts another mapping, or returns a `_Misfit`."""
        if not isinstance(row, Mapping):
            return _Misfit(_no_row(row))
        if len(row) == len(self._names) and set(row) == set(self._names):
            return _getter(self._names)(dict(row))
        got = ", ".join(map(str, row))
        return _Misfit(f"columns ({got}), wanted ({', '.join(self._names)})")


def _getter(names: list[str]) -> Callable[[Row], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple([row[name] for name in names])


def _no_row(row: object) -> str:
    remedy = "; to drop rows use filter or flat_map" if row is None else ""
    return f"{row!r:.200} ({type(row).__name__}), wanted a dict of columns{remedy}"


# --- before the schema is known -------------------------------------------------------------------


def _copied_row(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return row
    return {name: copied(value) for name, value in row.items()}


def _inferred(rows: list[Any]) -> pa.Schema:
    first = rows[0]
    if not isinstance(first, Mapping):
        raise ValueRefused(0, _no_row(first))
    if not first:
        raise ValueRefused(0, "a row without columns")
    fields = []
    for name in first:
        if not isinstance(name, str):
            raise ValueRefused(0, f"a row; names of columns are text, not {name!r:.200}")
        values = [row.get(name) for row in rows if isinstance(row, Mapping)]
        try:
            fields.append(pa.field(name, _inferred_type(values)))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueRefused(0, f"a value for column {name!r} that has no Arrow type: {error}") from error
    return pa.schema(fields)


def _inferred_type(values: list[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except (pa.ArrowException, TypeError, OverflowError):
        return pa.array(values[:1]).type  # the batch is then refused at the row that differs

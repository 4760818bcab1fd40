"""Builds batches of one schema from the rows of a user's function, without changing a value.

The values of a row are taken at once, since the function may change it afterwards, each into the list of its
column; lists, dicts and bytes are copied. A batch is built later (`model.column_forms`), with exactly these
values; a value that a column cannot hold is refused, with the row and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from unistream.base.bisection import bisected
from unistream.base.errors import ConfigError
from unistream.model.columns.column_forms import ColumnForm, ValueRefused
from unistream.model.columns.given_values import copied, copier
from unistream.operator.common.base import BaseOperator

Row = dict[str, Any]
Take = Callable[[Any], None]


class CurrentRow:
    """The position of the row, in its batch, from which rows are made now."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = 0


class RowSchema:
    """Builds record batches from dicts of one schema.

    A row must have exactly the columns of the schema; None is null.

    Args:
        schema: None: that of the first rows, then fixed.
        declared_by: The argument that would set it, for errors.

    >>> from unistream.operator.common.base import BaseOperator
    >>> schema, row = RowSchema(pa.schema({"n": pa.int64()})), {"n": 1}
    >>> taken = schema.taken()
    >>> taken.take(row)
    >>> row["n"] = 2
    >>> taken.take(row)
    >>> schema.build(BaseOperator(), "f returned", taken, None).to_pylist()
    [{'n': 1}, {'n': 2}]
    """

    def __init__(self, schema: pa.Schema | None, declared_by: str = "returns=") -> None:
        self.schema = schema
        self._declared_by = declared_by
        self._is_inferred = schema is None
        self._columns: _Columns | None = None

    def taken(self, place: CurrentRow | None = None) -> TakenRows:
        """An empty collection of rows for `build`. `place`: it is noted with each row."""
        if self.schema is None:
            return _RowsAsGiven(place)
        return self._known(self.schema).taken(place)

    def build(
        self, operator: BaseOperator, what: str, rows: TakenRows, parents: Sequence[int] | None
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

    def build_fitting(
        self, rows: TakenRows, parents: Sequence[int] | None
    ) -> tuple[pa.RecordBatch | None, dict[int, BaseException]]:
        """A batch of the rows that match the schema, without others of the same parents, and why they do not:
        by the position of the parent. None: no row is left. Arguments as for `build`."""
        place = range(len(rows)) if parents is None else parents
        _, bad = bisected(
            len(rows), lambda start, stop: self.batch(rows.between(start, stop)), lambda _: True
        )
        failed: dict[int, BaseException] = {}
        for row, error in bad.items():
            failed.setdefault(place[row], error)
        rest = [row for row in range(len(rows)) if place[row] not in failed]
        return (self.batch(rows.of(rest)) if rest else None), failed

    def batch(self, rows: TakenRows) -> pa.RecordBatch:
        """A batch of at least one row, of `taken`. Raises ValueRefused."""
        try:
            if isinstance(rows, _RowsAsGiven):
                if self.schema is None:
                    self.schema = _inferred(rows.rows)
                given, rows = rows, self._known(self.schema).taken(None)
                for row in given.rows:
                    rows.take(row)
            assert self.schema is not None, "it is known now"
            return self._known(self.schema).batch(rows)
        except ValueRefused as refused:
            if not self._is_inferred or self.schema is None:
                raise
            hint = f"the columns are those of the first rows, give {self._declared_by} to set them"
            raise ValueRefused(refused.position, f"{refused.reason}; {hint}") from refused

    def check(self, rows: TakenRows, parent: int) -> None:
        """Checks the rows that were taken last, those made from the row at `parent`: for functions
        whose call has to fail, before their state is changed for good.

        Raises:
            ValueRefused: one does not match the schema.
            ConfigError: the schema is not known.
        """
        columns, parents = self._columns, rows.parents
        if self.schema is None:
            raise ConfigError(
                f"with on_error the columns of all outputs have to be declared: give {self._declared_by}"
            )
        assert columns is not None, "it has taken rows"
        first = len(parents) - 1
        while first and parents[first - 1] == parent:
            first -= 1
        if rows.misfits and rows.misfits[-1].position >= first:
            raise rows.misfits[-1]
        columns.check(rows.columns, first, len(parents))

    def _known(self, schema: pa.Schema) -> _Columns:
        if self._columns is None:
            self._columns = _Columns(schema)
        return self._columns


class TakenRows:
    """Rows of one batch, until it is built. Nothing in it refers to it, so that its end needs no collector.

    Attributes:
        take: Takes the values of one more row.
        columns: The values, a list for each column.
        parents: For each row its place.
        misfits: Rows that do not match the schema; here they are rows of None.
    """

    def __init__(
        self, take: Take, columns: list[list[Any]], parents: list[int], misfits: list[ValueRefused]
    ) -> None:
        self.take = take
        self.columns = columns
        self.parents = parents
        self.misfits = misfits

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def clear(self) -> None:
        for values in (*self.columns, self.parents, self.misfits):
            values.clear()

    def take_back(self, parent: int) -> None:
        """Forgets the rows that were taken last, if they were made from the row at `parent`."""
        while self.parents and self.parents[-1] == parent:
            for values in (*self.columns, self.parents):
                values.pop()
            if self.misfits and self.misfits[-1].position == len(self):
                self.misfits.pop()

    def between(self, start: int, stop: int) -> TakenRows:
        """A copy of the rows [start, stop), to be built."""
        return self.of(range(start, stop))

    def of(self, positions: Sequence[int]) -> TakenRows:
        """A copy of the rows at `positions`, ascending, to be built."""
        chosen = [[values[row] for row in positions] for values in self.columns]
        misfits = {misfit.position: misfit.reason for misfit in self.misfits}
        found = [ValueRefused(i, misfits[row]) for i, row in enumerate(positions) if row in misfits]
        return self._like(chosen, found)

    def _like(self, columns: list[list[Any]], misfits: list[ValueRefused]) -> TakenRows:
        return TakenRows(self.take, columns, [], misfits)


class _RowsAsGiven(TakenRows):
    """The rows as they were given, for as long as the schema is not known. `rows`: copies."""

    def __init__(self, place: CurrentRow | None, rows: list[Any] | None = None) -> None:
        self.rows: list[Any] = [] if rows is None else rows
        parents: list[int] = []
        super().__init__(_take_copies(self.rows, parents, place), [self.rows], parents, [])

    def _like(self, columns: list[list[Any]], misfits: list[ValueRefused]) -> TakenRows:
        return _RowsAsGiven(None, columns[0])


def _take_copies(rows: list[Any], parents: list[int], place: CurrentRow | None) -> Take:
    def take(row: Any) -> None:
        rows.append(_copied_row(row))
        if place is not None:
            parents.append(place.position)

    return take


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
    taken = found.taken()
    for row in rows:
        taken.take(row)
    return pa.Table.from_batches([found.batch(taken)])


class _Columns:
    """Takes rows of a schema, and builds batches of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = list(schema.names)
        self._forms = [ColumnForm(field.type, nullable=field.nullable) for field in schema]
        self._copiers = [copier(field.type) for field in schema]
        self._surely_fits = _cheap_check(tuple((str(field.type), field.nullable) for field in schema))

    def taken(self, place: CurrentRow | None) -> TakenRows:
        columns: list[list[Any]] = [[] for _ in self._names]
        parents: list[int] = []
        misfits: list[ValueRefused] = []
        make = _taker(
            tuple(self._names), tuple(copy is not None for copy in self._copiers), noted=place is not None
        )
        appends = [column.append for column in columns]
        fitted = partial(self._fitted, columns, misfits)
        take = make(fitted, place, parents.append, *appends, *self._copiers)
        return TakenRows(take, columns, parents, misfits)

    def batch(self, rows: TakenRows) -> pa.RecordBatch:
        """Raises ValueRefused for the first row that does not match the schema."""
        if rows.misfits:
            raise rows.misfits[0]
        arrays = []
        for field, form, values in zip(self._schema, self._forms, rows.columns, strict=True):
            try:
                arrays.append(form.column(values))
            except ValueRefused as refused:
                raise _refused(field, refused, refused.position) from refused
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def check(self, columns: Sequence[Sequence[Any]], start: int, stop: int) -> None:
        """Raises ValueRefused for the first value of rows [start, stop) that its column cannot hold."""
        if all(self._surely_fits(columns, row) for row in range(start, stop)):
            return
        for field, form, values in zip(self._schema, self._forms, columns, strict=True):
            try:
                form.column(values[start:stop])
            except ValueRefused as refused:
                raise _refused(field, refused, start + refused.position) from refused

    def _fitted(self, columns: list[list[Any]], misfits: list[ValueRefused], row: Any) -> Row:
        """Another mapping as a dict of the columns; None for each of them if it has others."""
        if isinstance(row, Mapping) and len(row) == len(self._names) and set(row) == set(self._names):
            return dict(row)
        misfits.append(ValueRefused(len(columns[0]) if columns else 0, self._reason(row)))
        return dict.fromkeys(self._names)

    def _reason(self, row: object) -> str:
        if not isinstance(row, Mapping):
            return _no_row(row)
        return f"columns ({', '.join(map(str, row))}), wanted ({', '.join(self._names)})"


def _refused(field: pa.Field, refused: ValueRefused, position: int) -> ValueRefused:
    return ValueRefused(
        position, f"a value that column {field.name!r} ({field.type}) cannot hold: {refused.reason}"
    )


_SURELY_FITS = {
    "int64": f"type({{0}}) is int and {-(2**63)} <= {{0}} < {2**63}",
    "string": "type({0}) is str and {0}.isascii()",  # others may have surrogates, which are no Unicode
    "double": "type({0}) is float",
    "bool": "type({0}) is bool",
}


@lru_cache(maxsize=256)
def _cheap_check(fields: tuple[tuple[str, bool], ...]) -> Callable[[Sequence[Sequence[Any]], int], bool]:
    """Makes a function (columns, row) that is true if all values of the row surely fit. `fields`: the type of
    each column, and whether it may be null. It runs for each row, so it is code made for these columns."""
    steps = []
    for number, (kind, nullable) in enumerate(fields):
        fits = f"({_SURELY_FITS.get(kind, 'False').format('v')})"
        known = f"v is None or {fits}" if nullable else fits
        steps += [f"v = columns[{number}][row]", f"if not ({known}):", "    return False"]
    code = "\n    ".join(["def check(columns, row):", *steps, "return True"])
    found: dict[str, Any] = {}
    exec(code, found)  # noqa: S102 - names of types
    checked: Callable[[Sequence[Sequence[Any]], int], bool] = found["check"]
    return checked


@lru_cache(maxsize=256)
def _taker(names: tuple[str, ...], copies: tuple[bool, ...], *, noted: bool) -> Any:
    """Makes functions that take a row: each value goes to the list of its column, nothing is allocated.

    `names` and `copies`: of the columns, and whether their values are copied. `noted`: the place, too. Code
    made for these names, as `namedtuple` makes its own, needs half the time of a loop over them.
    """
    numbers = range(len(names))
    arguments = ["fitted", "place", "note", *(f"append{n}" for n in numbers), *(f"copy{n}" for n in numbers)]
    values = "; ".join([f"v{n} = row[{name!r}]" for n, name in enumerate(names)] or ["pass"])
    copied_first = [
        f"v{n} = copy{n}(v{n})" for n in numbers if copies[n]
    ]  # one may fail: then no list has more
    steps = [*copied_first, *(f"append{n}(v{n})" for n in numbers)]
    code = f"""
def make({", ".join(arguments)}):
    def take(row):
        if type(row) is not dict or len(row) != {len(names)}:
            row = fitted(row)
        try:
            {values}
        except KeyError:
            row = fitted(row)
            {values}
        {"; ".join([*steps, "note(place.position)" if noted else "pass"])}
    return take
"""
    found: dict[str, Any] = {}
    exec(code, found)  # noqa: S102 - reprs of texts
    return found["make"]


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

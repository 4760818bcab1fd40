"""Checks that a user's own sink shows the rows that reach it, in runs without faults.

    reached   rows in the simulation's table, which replaces the sink in one run
    shown     rows that the user's `outputs` read from the sink, in another run

A sink that always loses rows, or writes none, would show the same in all runs; so it is not compared with
itself. An output with the name of a sink is read as its rows. Columns that it lacks, or whose values are of
another kind there (times as text), are left out and named; if no column is left, rows are counted. For a sink
without an output of its name, only some output must show a row.
"""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from unistream.testing.simulation.report import Difference, OutputRows, Row, comparable, difference

_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (  # the first that fits
    (Decimal, "a decimal"),
    (numbers.Real, "a number"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    (dt.datetime, "a time"),
    (dt.date, "a date"),
    (dt.time, "a time of day"),
    (dt.timedelta, "a duration"),
)


@dataclass(slots=True)
class TruthVerdict:
    """Result of a run without faults.

    Attributes:
        compared: What was compared, one sentence for each sink.
        wrong: One text for each sink that is wrong.
    """

    compared: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def judged(
    sinks: Mapping[str, str], reached: Mapping[str, OutputRows], shown: Mapping[str, OutputRows]
) -> TruthVerdict:
    """`sinks`: uid -> name of the connector."""
    verdict = TruthVerdict()
    something = any(one.rows for name, one in shown.items() if name not in sinks)
    for uid, connector in sinks.items():
        want = comparable(reached.get(uid, OutputRows((), ())))
        sink = f"sink {uid!r} ({connector})"
        if uid in shown:
            _hold(verdict, sink, uid, want, comparable(shown[uid]))
            continue
        if want.rows and not something:
            verdict.wrong.append(
                f"{len(want.rows)} row(s) reach {sink} without any fault, and no output shows a row"
            )
        verdict.compared.append(
            f"{sink} is kept: {len(want.rows)} row(s) reach it without faults, and no output "
            f"reads them; pass outputs={{{uid!r}: ...}} to have them compared"
        )
    return verdict


def _hold(verdict: TruthVerdict, sink: str, uid: str, want: OutputRows, have: OutputRows) -> None:
    """Compares the rows that reach the sink `uid` with those of its output."""
    columns, left_out = _comparable(want, have)
    names = tuple(column.name for column in columns)
    hint = (
        "(An output with the name of a sink is read as its rows. If it shows something else, such as totals, "
        "give it another name.)"
    )
    if columns or not want.rows:
        differing = difference(
            uid,
            names or have.columns,
            _picked(want.rows, [(column.there, column.is_float) for column in columns]),
            _picked(have.rows, [(column.here, column.is_float) for column in columns])
            if columns
            else have.rows,
        )
        if differing is not None:
            verdict.differences.append(differing)
            verdict.wrong.append(
                f"{sink} shows other rows than those that reach it, without any fault\n{differing}\n{hint}"
            )
    elif len(want.rows) != len(have.rows):
        verdict.wrong.append(
            f"{len(want.rows)} row(s) reach {sink} without any fault, and its output shows {len(have.rows)}\n"
            f"{hint}"
        )
    by = f"by {', '.join(names)}" if columns else "by their number only"
    but = f" ({'; '.join(left_out)})" if left_out else ""
    verdict.compared.append(
        f"{sink} is kept: without faults, the {len(want.rows)} row(s) that reach it were compared "
        f"with its output {by}{but}"
    )


@dataclass(frozen=True, slots=True)
class _ComparedColumn:
    """A common column: its place in the rows that reach the sink, and in those of the output."""

    name: str
    there: int
    here: int
    is_float: bool


def _comparable(want: OutputRows, have: OutputRows) -> tuple[list[_ComparedColumn], list[str]]:
    """The comparable columns, and why others are left out."""
    if have.columns:
        places = {name: have.columns.index(name) for name in want.columns if name in have.columns}
    elif all(len(row) == len(want.columns) for row in have.rows):
        places = {name: place for place, name in enumerate(want.columns)}
    else:
        return [], [f"its values are not rows of {', '.join(want.columns)}"] if want.columns else []
    columns, left_out = [], []
    for there, name in enumerate(want.columns):
        if name not in places:
            left_out.append(f"{name!r} is not in it")
            continue
        kinds = [_kinds(row[there] for row in want.rows), _kinds(row[places[name]] for row in have.rows)]
        if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
            left_out.append(f"{name!r} is {_text(kinds[0])}, and {_text(kinds[1])} in it")
            continue
        is_float = any(isinstance(row[there], float) for row in want.rows) or any(
            isinstance(row[places[name]], float) for row in have.rows
        )
        columns.append(_ComparedColumn(name, there, places[name], is_float))
    return columns, left_out


def _picked(rows: Sequence[Row], columns: Sequence[tuple[int, bool]]) -> list[Row]:
    """Some places of each row. Whole numbers among floats become floats."""
    return [
        tuple(
            float(row[place]) if is_float and isinstance(row[place], int) else row[place]
            for place, is_float in columns
        )
        for row in rows
    ]


def _text(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


def _kinds(values: Iterable[Any]) -> frozenset[str]:
    """The kinds of all values, also inside of lists; nulls have none."""
    return frozenset(kind for value in values for kind in _kinds_of(value))


def _kinds_of(value: Any) -> Iterator[str]:
    match value:
        case None:
            return
        case dict():
            for item in value.values():
                yield from _kinds_of(item)
        case list() | tuple() | set():
            for item in value:
                yield from _kinds_of(item)
        case _:
            kind = next((name for types, name in _KINDS if isinstance(value, types)), type(value).__name__)
            zoned = isinstance(value, dt.datetime) and value.tzinfo is not None
            yield f"{kind} with a zone" if zoned else kind

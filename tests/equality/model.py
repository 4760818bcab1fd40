"""What plain Python gives: the rows of each sink, computed from all rows at once.

It knows event times, but no order of arrival, no watermarks and no parts. A row is a dict with a time next to
it. The rules about keys are those of docs/guide/state.md, "What is equal as a key"; those about nulls and NaN
in aggregates are in docs/guide/datastream.md, "Windows".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

from tests.equality import plain
from tests.equality.pipelines import (
    COLUMNS,
    Apply,
    Assign,
    Exchange,
    Fails,
    Hold,
    Join,
    Key,
    Pipeline,
    Process,
    Side,
    Source,
    Split,
    Stamp,
    Step,
    Union,
    Window,
    name_of,
)
from tests.equality.plain import EPOCH, Values, text

FAR = 10**12
BUCKET = 10


@dataclass(frozen=True)
class Timed:
    """A row and its event time."""

    time: int
    row: Values


@dataclass
class Stream:
    """The rows of a step, and those of its side output."""

    rows: list[Timed]
    side: list[Timed] = field(default_factory=list)


def expected(pipeline: Pipeline) -> dict[str, list[tuple]]:
    """Rows of each sink, in any order."""
    streams: list[Stream] = []
    for step in pipeline.steps:
        streams.append(stream_of(step, [streams[number] for number in step.inputs]))
    return {
        name_of(number): [tuple(one.row[column] for column in COLUMNS) for one in streams[number].rows]
        for number in pipeline.written()
    }


def stream_of(step: Step, inputs: Sequence[Stream]) -> Stream:
    """What a step makes of the streams that it reads."""
    rows = [one for stream in inputs for one in stream.rows]
    match step:
        case Source():
            return Stream([Timed(row.at, row._asdict()) for row in step.rows])
        case Side():
            return Stream(inputs[0].side)
        case Split(expression=expression):
            moves = plain.PREDICATES[expression]
            return Stream([o for o in rows if not moves(o.row)], [o for o in rows if moves(o.row)])
        case Process():
            return processed(step, rows)
        case Window():
            return Stream(windowed(step, rows))
        case Join():
            return Stream(joined(step, rows))
        case Apply():
            return Stream(applied(step, rows))
        case Stamp() | Assign():
            return Stream(timed(step, rows))
        case Union() | Exchange() | Fails() | Hold():
            return Stream(rows)


def timed(step: Stamp | Assign, rows: list[Timed]) -> list[Timed]:
    """From the time to the column, or the other way round."""
    if isinstance(step, Stamp):
        return [Timed(one.time, {**one.row, "at": one.time}) for one in rows]
    return [Timed(one.row["at"], one.row) for one in rows]


def applied(step: Apply, rows: list[Timed]) -> list[Timed]:
    """The results have the time of their row."""
    match step.method:
        case "map":
            function = plain.MAPS[step.function]
            return [Timed(one.time, function(one.row)) for one in rows]
        case "with_columns":
            function = plain.COMPUTED[step.function]
            return [Timed(one.time, function(one.row)) for one in rows]
        case "flat_map":
            return [Timed(one.time, made) for one in rows for made in plain.FLAT_MAPS[step.function](one.row)]
        case "filter":
            keeps = {**plain.FILTERS, **plain.PREDICATES}[step.function]
            return [one for one in rows if keeps(one.row)]
    raise AssertionError(step.method)


# --- keys -----------------------------------------------------------------------------------------


def as_key(value: Any) -> Any:
    """-0.0 is 0.0."""
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def keyed(key: Key, rows: list[Timed]) -> list[tuple[Values, list[Timed]]]:
    """(the key by column, its rows), with the key as the rows have it behind `key_by`."""
    columns = key.columns or ("key",)
    groups: dict[str, tuple[Values, list[Timed]]] = {}
    for one in rows:
        row = (
            {**one.row, "key": plain.KEY_FUNCTIONS[key.function](one.row)} if key.function else dict(one.row)
        )
        values = {column: as_key(row[column]) for column in columns}
        groups.setdefault(text(values), (values, []))[1].append(Timed(one.time, {**row, **values}))
    return list(groups.values())


# --- windows --------------------------------------------------------------------------------------


def windowed(step: Window, rows: list[Timed]) -> list[Timed]:
    made = []
    for key, of_key in keyed(step.key, rows):
        for start in sorted({start for one in of_key for start in starts(step, one.time)}):
            end = start + step.size
            inside = [one.row for one in of_key if start <= one.time < end]
            result = {
                **key,
                "window_start": EPOCH + timedelta(milliseconds=start),
                "window_end": EPOCH + timedelta(milliseconds=end),
                **{name: aggregate(kind, column, inside) for name, kind, column in step.aggregates},
            }
            made.append(Timed(end - 1, plain.of_window(result)))
    return made


def starts(step: Window, time: int) -> list[int]:
    """Of the windows that contain `time`."""
    low = time - step.size + 1
    return [start for start in range(low, time + 1) if (start - step.offset) % step.slide == 0]


def aggregate(kind: str, column: str, rows: list[Values]) -> Any:
    """Nulls are ignored; of nothing but nulls the count is 0, and the others are null."""
    if kind == "count" and not column:
        return len(rows)
    values = [row[column] for row in rows if row[column] is not None]
    if kind == "count":
        return len(values)
    if not values:
        return None
    numbers = [value for value in values if not math.isnan(value)]  # NaN is the largest
    return {
        "sum": lambda: sum(values),
        "mean": lambda: sum(values) / len(values),
        "min": lambda: min(numbers or values),
        "max": lambda: max(values if len(numbers) == len(values) else [math.nan]),
    }[kind]()


# --- join -----------------------------------------------------------------------------------------


def joined(step: Join, rows: list[Timed]) -> list[Timed]:
    """Null matches nothing."""
    labels: dict[str, list[str | None]] = {}
    for value, label in step.table:
        if value is not None:
            labels.setdefault(text(as_key(value)), []).append(label)
    if step.latest:
        labels = {key: [one for one in found if one == max(found)] for key, found in labels.items()}
    made = []
    for one in rows:
        none: list[str | None] = [None] if step.how == "left" else []
        for label in labels.get(text(as_key(one.row[step.column])), none):
            made.append(Timed(one.time, plain.labelled({**one.row, "label": label})))
    return made


# --- functions with state and timers, each over all rows of a key ----------------------------------


def processed(step: Process, rows: list[Timed]) -> Stream:
    stream = Stream([])
    for key, of_key in keyed(step.key, rows):
        of_columns = [Timed(one.time, {c: one.row[c] for c in COLUMNS}) for one in of_key]
        ordered = sorted(of_columns, key=lambda one: (one.time, text(one.row)))
        PROCESSES[step.function](text(tuple(key.values())), ordered, stream)
    return stream


def total(key: str, rows: list[Timed], to: Stream) -> None:
    numbers = [one.row["v"] for one in rows if one.row["v"] is not None]
    v = sum(numbers) if numbers else None
    to.rows.append(Timed(FAR, {"n": len(rows), "at": FAR, "s": key, "f": None, "v": v}))


def in_order(key: str, rows: list[Timed], to: Stream) -> None:
    for number, one in enumerate(rows, 1):
        numbered = Timed(one.time, {**one.row, "n": number})
        to.rows.append(numbered)
        if number % 2:
            to.side.append(numbered)


def buckets(key: str, rows: list[Timed], to: Stream) -> None:
    for bucket, found in groupby(rows, key=lambda one: one.time // BUCKET):
        texts = [text(one.row) for one in found]
        row = {"n": len(texts), "at": bucket * BUCKET, "s": min(texts), "f": None, "v": bucket}
        to.rows.append(Timed(bucket * BUCKET + BUCKET - 1, row))


def newest(key: str, rows: list[Timed], to: Stream) -> None:
    to.rows.append(Timed(rows[-1].time + FAR, rows[-1].row))


def distinct(key: str, rows: list[Timed], to: Stream) -> None:
    counts: dict[str, int] = defaultdict(int)
    values = {}
    for one in rows:
        if one.row["f"] is not None:
            f = as_key(one.row["f"])
            counts[text(f)] += 1
            values[text(f)] = f
    to.rows += [
        Timed(FAR, {"n": count, "at": FAR, "s": key, "f": values[f], "v": None})
        for f, count in counts.items()
    ]


PROCESSES: dict[str, Callable[[str, list[Timed], Stream], None]] = {
    "Total": total,
    "TotalInColumns": total,
    "InOrder": in_order,
    "Buckets": buckets,
    "Newest": newest,
    "Distinct": distinct,
}

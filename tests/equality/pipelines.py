"""Descriptions of pipelines: plain data that prints as the Python program which it stands for.

Each step makes one stream of rows with the same five columns, and names the steps that it reads by their
numbers; so any step can follow any other. `str(pipeline)` is a program (`python -c` runs it), and
`Pipeline.body()` is the part of it that `build` executes: what one reads is what has run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

LONG = "200000 d"  # more than all times of rows, also those of timers
COLUMNS = ("n", "at", "s", "f", "v")


class Row(NamedTuple):
    """`n` numbers the rows of a pipeline's sources, `at` is the event time in ms; the others may be null."""

    n: int
    at: int
    s: str | None
    f: float | None
    v: int | None


Rows: TypeAlias = tuple[Row, ...]


def disorder(rows: Sequence[Row]) -> int:
    """How far rows are behind the newest one before them, in ms: the bound with which none is late."""
    newest, most = -math.inf, 0
    for row in rows:
        most = max(most, int(newest - row.at) if row.at < newest else 0)
        newest = max(newest, row.at)
    return most


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in files, or in a table of the program.

    Attributes:
        files: The rows of each file, some of which may be empty.
        kind: "parquet", "parquet-without-statistics", "json", "csv" or "static".
        in_order: Files and rows follow event time, up to the bound of their disorder.
        piece: Rows of a row group; splits of a static source; with 1 a CSV file is read as a whole.
    """

    files: tuple[Rows, ...]
    kind: str = "parquet"
    in_order: bool = False
    piece: int = 2

    inputs = ()

    @property
    def rows(self) -> Rows:
        return tuple(row for file in self.files for row in file)

    @property
    def bound(self) -> int:
        """Of the watermark strategy, so that no row is late."""
        if self.in_order or self.kind == "static":
            return disorder(self.rows)
        return max([0, *map(disorder, self.files)])

    def text(self, me: str, inputs: Sequence[str]) -> str:
        files = "\n".join(
            "        [" + "".join(f"\n            {tuple(row)!r}," for row in file) + "\n        ],"
            if file
            else "        [],"
            for file in self.files
        )
        what = f"{me!r}, [\n{files}\n    ], {self.kind!r}, piece={self.piece}, in_order={self.in_order}"
        return f"env.from_source(source(folder / {what}), times({self.bound}), {me!r}).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of a row, or an expression: see `plain.FUNCTIONS` and `plain.EXPRESSIONS`.

    Attributes:
        method: "map", "flat_map", "filter", "with_columns".
        function: Its name.
    """

    input: int
    method: str
    function: str

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        returns = ", returns=R" if self.method in {"map", "flat_map"} else ""
        return f"{inputs[0]}.{self.method}({self.function}{returns}).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of which an expression is true move to the side output "side"."""

    input: int
    expression: str

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f'{inputs[0]}.side_output("side", {self.expression}).uid({me!r})'


@dataclass(frozen=True, slots=True)
class Side:
    """The side output of a `Split` or a `Process`."""

    input: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f'{inputs[0]}.get_side_output("side")'


@dataclass(frozen=True, slots=True)
class Union:
    """Rows of two streams; of one twice, if they are the same."""

    input: int
    other: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input, self.other)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}.union({inputs[1]})"


@dataclass(frozen=True, slots=True)
class Exchange:
    """ "rebalance", "rescale" or "global_"."""

    input: int
    method: str

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}.{self.method}()"


@dataclass(frozen=True, slots=True)
class Key:
    """Columns, or the name of a function (`plain.KEYS`), whose value is in the column "key"."""

    columns: tuple[str, ...] = ()
    function: str = ""

    def __str__(self) -> str:
        if self.function:
            return f"key_by({self.function}, returns=KEYS[{self.function!r}])"
        return f"key_by({', '.join(map(repr, self.columns))})"


@dataclass(frozen=True, slots=True)
class Window:
    """Aggregates of windows, as rows again.

    Attributes:
        slide: As `size`: tumbling.
        aggregates: (column of the result, "count", "sum", "min", "max" or "mean", column or "").
    """

    input: int
    key: Key
    size: int
    slide: int
    offset: int
    aggregates: tuple[tuple[str, str, str], ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        kind = "Tumbling" if self.slide == self.size else "Sliding"
        slide = "" if self.slide == self.size else f", {self.slide}"
        offset = f", offset={self.offset}" if self.offset else ""
        made = ", ".join(
            f"{name}=us.{kind}({repr(column) if column else ''})" for name, kind, column in self.aggregates
        )
        return (
            f"{inputs[0]}.{self.key}"
            f".window(us.{kind}EventTimeWindows.of({self.size}{slide}{offset}))"
            f".aggregate({made}).uid('{me} windows')"
            f".map(of_window, returns=R).uid({me!r})"
        )


@dataclass(frozen=True, slots=True)
class Process:
    """A function with state and timers of a key (`functions`, `model.PROCESSES`), by its name."""

    input: int
    key: Key
    function: str

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        method = "process_batch" if self.function.endswith("InColumns") else "process"
        sides = ", side_outputs={'side': R}" if self.function == "InOrder" else ""
        return f"{inputs[0]}.{self.key}.{method}({self.function}(), returns=R{sides}).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A function without a key, which puts the event time of a row into the column `at`."""

    input: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}.process(Stamp(), returns=R).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Hold:
    """A function without a key, which passes rows on in groups, and at its end those that are left. Nothing
    reads it: what it emits last comes behind the end of time."""

    input: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}.process(Hold(), returns=R).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Assign:
    """New event times: those in the column `at`. No bound of theirs is known, so a very large one."""

    input: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}.assign_timestamps_and_watermarks(times({LONG!r})).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Fails:
    """A function that fails once in the run, at the row with this `n` (or "kills" its process)."""

    input: int
    n: int
    how: str = "raises"

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        function = f"FailsOnce(folder / '{me} failed', {self.n}, {self.how!r})"
        return f"{inputs[0]}.process({function}, returns=R).uid({me!r})"


@dataclass(frozen=True, slots=True)
class Join:
    """The label that a small table has for a column, which is appended to `s`.

    Attributes:
        table: (value, label), of which equal values may have several.
        latest: Of equal values only the rows with the largest label count.
    """

    input: int
    column: str
    how: str
    table: tuple[tuple[object, str], ...]
    latest: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.input,)

    def text(self, me: str, inputs: Sequence[str]) -> str:
        labels = f"env.from_source(labels({self.column!r}, {list(self.table)!r}), no_times(), '{me} labels')"
        latest = ", latest_by='label'" if self.latest else ""
        return (
            f"{inputs[0]}.join({labels}.uid('{me} labels'), on={self.column!r}, how={self.how!r}{latest})"
            f".uid('{me} join').map(labelled, returns=R).uid({me!r})"
        )


Step: TypeAlias = (
    Source | Apply | Split | Side | Union | Exchange | Window | Process | Stamp | Hold | Assign | Fails | Join
)


@dataclass(frozen=True)
class Pipeline:
    """Steps in the order of the program. Streams that no step reads have a sink, and those in `sinks`."""

    steps: tuple[Step, ...]
    sinks: frozenset[int] = frozenset()

    def written(self) -> list[int]:
        """The streams that have a sink."""
        read = {number for step in self.steps for number in step.inputs}
        return [number for number in range(len(self.steps)) if number in self.sinks or number not in read]

    def body(self) -> str:
        """Statements that need `env`, `folder`, `sink`, and the names of `functions`."""
        lines = []
        for number, step in enumerate(self.steps):
            me = name_of(number)
            lines.append(f"{me} = {step.text(me, [name_of(one) for one in step.inputs])}")
        lines += [
            f"{name_of(n)}.sink_to(sink({name_of(n)!r})).uid('{name_of(n)} out')" for n in self.written()
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{HEAD}\n{self.body()}\n{TAIL}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis prints a failing example by it."""
        printer.text(f"\n{self}")


def name_of(number: int) -> str:
    """a, b, …

    >>> name_of(0), name_of(25)
    ('a', 'z')
    """
    return "abcdefghijklmnopqrstuvwxyz"[number]


HEAD = """\
from tests.equality.functions import *

folder = empty_folder()
sink = sinks_in(folder)
env = us.Environment({"parallelism.default": "2"}, target="local")
"""

TAIL = """
if __name__ == "__main__":
    env.execute()
    print_rows(folder)
"""

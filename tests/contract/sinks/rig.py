"""What a sink shows of itself to the suites of this folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from tests.contract.sinks.model import Place, Rows, Rule
from unistream.port.sink import Sink


@dataclass(frozen=True)
class Way:
    """How rows get into a target.

    Attributes:
        rule: What becomes of the rows that are there.
        place: Where the value stands that is tried. As "key" it is that of an upsert.
        options: Of the sink.
        steps: Crash points of its commits besides those of every way.
        look: The one between the look at the target and the commit, if it is not that of every way.
    """

    rule: Rule
    place: Place
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    look: str = ""


@dataclass(frozen=True)
class Foreign:
    """What somebody else does to the target, with a library that is not ours.

    Attributes:
        begin: Given the rig, the id of a row that is there, and one row of theirs: opens the target as it is
            now; what it returns does it.
        then: What that makes of the rows, given the same id and row.
    """

    begin: Callable[[Any, int, pa.RecordBatch], Callable[[], object]]
    then: Callable[[Rows, int, Rows], Rows] = lambda rows, _victim, _theirs: rows


def appended(rows: Rows, _victim: int, theirs: Rows) -> Rows:
    return rows | theirs


def deleted(rows: Rows, victim: int, _theirs: Rows) -> Rows:
    return frozenset(one for one in rows if one.id != victim)


def updated(rows: Rows, victim: int, _theirs: Rows) -> Rows:
    """`n` is 8 now."""
    return frozenset(one._replace(n=8) if one.id == victim else one for one in rows)


def overwritten(_rows: Rows, _victim: int, theirs: Rows) -> Rows:
    return theirs


NEW, WITH_ROWS = TABLES = ("new", "with rows")
NOTHING: Final = "nothing"
NEVER, BETWEEN, AROUND = WHEN = ("never", "between look and commit", "begun before, made after")
NOBODY: Final = "nobody"
UNTOLD, TOLD, TWICE = AROUND_COMMIT = ("all before the commit", "all after the commit", "nobody, told twice")


@dataclass(frozen=True)
class Combination:
    """One value of each dimension.

    Attributes:
        kind: Of value.
        way: Of the rig.
        table: Of `TABLES`.
        foreign: Of the rig, or NOTHING.
        when: Of `WHEN`.
        killed: NOBODY, one of `AROUND_COMMIT`, or a crash point.
    """

    kind: str
    way: str
    table: str
    foreign: str
    when: str
    killed: str

    def __str__(self) -> str:
        foreign = "" if self.foreign == NOTHING else f", {self.foreign} {self.when}"
        return f"{self.kind}, {self.way}, {self.table}{foreign}, killed: {self.killed}"


class Rig(Protocol):
    """A sink on one empty place.

    Attributes:
        kinds: Of values that it takes, see `values`.
        ways: By name.
        refused: Kind and way that it refuses, by name, before anything is written.
        staging: Crash points of a writer, in their order.
        steps: Crash points of every commit, in their order.
        look: The one between the look at the target and the commit; "": they are one step.
        foreign: By name.
        refusals: What those may raise that begin before a commit and end after it.
        background: Name of the threads of its committer; "": none.
    """

    kinds: ClassVar[Collection[str]]
    ways: ClassVar[Mapping[str, Way]]
    refused: ClassVar[Collection[tuple[str, str]]]
    staging: ClassVar[tuple[str, ...]]
    steps: ClassVar[tuple[str, ...]]
    look: ClassVar[str]
    foreign: ClassVar[Mapping[str, Foreign]]
    refusals: ClassVar[tuple[type[Exception], ...]]
    background: ClassVar[str]

    @staticmethod
    def is_possible(one: Combination, /) -> bool:
        """Whether others can do their part of a `Combination`."""

    def __init__(self, folder: Path, fixture: Callable[[str], Any]) -> None:
        """`fixture`: of pytest, by its name: a server."""

    def is_empty(self) -> bool:
        """Nothing was written."""

    def sink(self, way: Way) -> Sink: ...

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        """Others have made the target, with these rows."""

    def shown(self, value: Any, way: Way) -> Any:
        """What the readers find for that value; by the specification of the target, not by what is found."""

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The rows by each reader that is not ours; at least one."""

"""Results of a simulation of a user's pipeline: rows that were lost or doubled, and how to reproduce it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from unistream.port.dead_letters import LETTER_SCHEMA
from unistream.testing.sim.faults import Faults
from unistream.testing.sim.story import StoryFile, StoryLine

Row = tuple[Any, ...]

SHOWN: Final = 5  # rows of a kind, seeds
STORY_LINES: Final = 60
DIGITS: Final = 9  # later digits of a sum depend on the order of its terms


@dataclass(slots=True)
class OutputRows:
    """Rows of one sink (or output of the user's) in one run. `columns`: empty if they have no names."""

    columns: tuple[str, ...]
    rows: Sequence[Row]


VARYING: Final = frozenset({"letter", "row_ipc", "subtask", "attempt", "replay_of", "job", "lineage", "time"})
"""The columns of a dead letter that say which attempt has sent it and when. Another run of the same rows has
others."""


def comparable(shown: OutputRows) -> OutputRows:
    """The columns that are the same in each run: of dead letters of operators without `VARYING`."""
    if not set(LETTER_SCHEMA.names) <= set(shown.columns):
        return shown
    places = [place for place, name in enumerate(shown.columns) if name not in VARYING]
    rows = [tuple(row[place] for place in places) for row in shown.rows]
    return OutputRows(tuple(shown.columns[place] for place in places), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Rows of one sink (or of one of the user's outputs) that differ, with their counts.

    Attributes:
        lost: In the undisturbed run (or, in that run, rows that reached the sink), and not here.
        doubled: In both, here more often.
        foreign: Only here.
    """

    sink: str
    columns: tuple[str, ...]
    lost: Mapping[Row, int]
    doubled: Mapping[Row, int]
    foreign: Mapping[Row, int]

    def __str__(self) -> str:
        lines = [f"sink {self.sink!r} ({', '.join(self.columns)}):" if self.columns else f"{self.sink!r}:"]
        for word, rows in (("lost", self.lost), ("doubled", self.doubled), ("not expected", self.foreign)):
            if rows:
                lines.append(f"  {sum(rows.values())} row(s) {word}:")
                lines += [f"    {row}{f' x {n}' if n > 1 else ''}" for row, n in list(rows.items())[:SHOWN]]
                lines += ["    …"] if len(rows) > SHOWN else []
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFailure:
    """A seed that failed, or the run without faults.

    Attributes:
        seed: None: the run without faults, whose rows are not those that reach the sinks. Then it is the only
            failure, as no run can be compared with it.
        reason: One sentence, or several lines if rows differ.
        faults: The faults of the run; fewer than the seed's own, if it was shrunk.
        lines: The events in order; empty unless it was shrunk or requested.
    """

    seed: int | None
    reason: str
    faults: Faults
    differences: tuple[Difference, ...] = ()
    lines: tuple[StoryLine, ...] = ()

    @property
    def story(self) -> tuple[str, ...]:
        """The lines, for people."""
        return tuple(map(str, self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """Result of `simulate`.

    Attributes:
        seeds: The number of runs.
        failures: By seed; the first has the fewest faults that still show it, and its story.
        replaced: Replaced parts of the pipeline, one sentence each.
        compared: What the rows of each kept sink were compared with, one sentence each.
        restarts: Restarted tasks of all runs together.
        seconds: Wall time of all runs.
    """

    seeds: int
    failures: tuple[SeedFailure, ...]
    replaced: tuple[str, ...]
    restarts: int
    seconds: float
    lines: tuple[StoryLine, ...] = ()
    compared: tuple[str, ...] = ()

    @property
    def story(self) -> tuple[str, ...]:
        """The events of the last run, in order; empty unless it was requested."""
        return tuple(map(str, self.lines))

    def story_file(self, pipeline: str) -> StoryFile | None:
        """The story of the first failure, otherwise of the last run, for a picture; None: there is no
        story."""
        first = self.failures[0] if self.failures else None
        lines = self.lines if first is None else first.lines
        if not lines:
            return None
        seed = None if first is None else first.seed
        return StoryFile(
            title=pipeline if seed is None else f"{pipeline}, seed {seed}",
            reason="" if first is None else first.reason,
            faults="" if first is None else first.faults.text(),
            lines=lines,
        )

    @property
    def ok(self) -> bool:
        """No seed failed."""
        return not self.failures

    def raise_for_failures(self) -> None:
        """Raises AssertionError with the whole report if a seed failed."""
        if self.failures:
            raise AssertionError(str(self))

    def for_programs(self) -> dict[str, Any]:
        """The report as JSON values; rows are counted, and the first of them are text."""
        return {
            "ok": self.ok,
            "seeds": self.seeds,
            "seconds": round(self.seconds, 3),
            "restarts": self.restarts,
            "replaced": list(self.replaced),
            "compared": list(self.compared),
            "failures": [_failure(one) for one in self.failures],
            "story": list(self.story),
        }

    def __str__(self) -> str:
        first = self.failures[0] if self.failures else None
        failed = (
            "the run without faults failed, so no seed was tried"
            if first is not None and first.seed is None
            else f"{self.seeds} seeds, {len(self.failures)} failed; {self.restarts} tasks restarted"
        )
        lines = [
            f"{failed}; {self.seconds:.1f} s",
            *(f"  {said}" for said in (*self.replaced, *self.compared)),
        ]
        if first is not None:
            which = f"seed {first.seed} failed, with these faults: {first.faults.text()}"
            lines += ["", *([] if first.seed is None else [which]), first.reason]
            others = [str(failure.seed) for failure in self.failures[1:]]
            if others:
                more = ", …" if len(others) > SHOWN else ""
                lines.append(f"other seeds that failed: {', '.join(others[:SHOWN])}{more}")
            lines += ["", *_end(first.story)] if first.story else []
        return "\n".join(lines)


def _failure(failure: SeedFailure) -> dict[str, Any]:
    return {
        "seed": failure.seed,
        "reason": failure.reason,
        "faults": failure.faults.text(),
        "differences": [_difference(one) for one in failure.differences],
        "story": list(failure.story),
    }


def _difference(found: Difference) -> dict[str, Any]:
    kinds = {"lost": found.lost, "doubled": found.doubled, "foreign": found.foreign}
    rows = {
        kind: {"rows": sum(counts.values()), "first": [str(row) for row in list(counts)[:SHOWN]]}
        for kind, counts in kinds.items()
    }
    return {"sink": found.sink, "columns": list(found.columns), **rows}


def _end(story: tuple[str, ...]) -> list[str]:
    """The last lines, without those of messages."""
    lines = [line for line in story if " -> " not in line or "FAILED" in line]
    if len(lines) <= STORY_LINES:
        return lines
    return [f"… {len(lines) - STORY_LINES} earlier lines", *lines[-STORY_LINES:]]


def difference(
    sink: str, columns: tuple[str, ...], want: Iterable[Row], have: Iterable[Row]
) -> Difference | None:
    """The difference of two multisets of rows; None: they are equal. Floats are compared in nine digits.

    >>> print(difference("out", ("k", "n"), [("a", 1), ("b", 2)], [("a", 1), ("a", 1)]))
    sink 'out' (k, n):
      1 row(s) lost:
        ('b', 2)
      1 row(s) doubled:
        ('a', 1)
    """
    wanted, had = Counter(map(_plain, want)), Counter(map(_plain, have))
    if wanted == had:
        return None
    more = had - wanted
    return Difference(
        sink=sink,
        columns=columns,
        lost=dict(wanted - had),
        doubled={row: n for row, n in more.items() if row in wanted},
        foreign={row: n for row, n in more.items() if row not in wanted},
    )


def _plain(row: Row) -> Row:
    return tuple(value if type(value) in _HASHED else _hashed(value) for value in row)


_HASHED: Final = (int, str, bytes, bool, type(None))


def _hashed(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}") if value == value else "nan"  # noqa: PLR0124  only nan differs
        case dict():
            return tuple((key, _hashed(item)) for key, item in value.items())
        case list() | tuple():
            return tuple(_hashed(item) for item in value)
        case _:
            return value

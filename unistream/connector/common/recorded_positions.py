"""Up to which positions of a source a table has everything, by what its sinks have recorded in it.

A commit with positions and the table before it have everything up to there. What is looked for is the newest
commit that changed rows:

    it has positions of the source          found
    it has none                             refused: its rows may lie behind the positions of an older commit
    it is not there any more                refused: nobody knows
    only compaction, properties, …          passed: the rows are those before it

If two sinks record positions of one source, those of one say nothing about the rows of the other, so neither
counts: each commit says in the table which sink records them (`owners`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from unistream.base.errors import ConfigError
from unistream.model.positions import SourcePositions, decode_positions

SEVERAL: Final = 0
LOOK_BACK_MAX: Final = 1_000  # commits; an object store answers each in some 20 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCommit:
    """What is needed of a version or snapshot.

    Attributes:
        name: "version 7".
        argument: By which a source reads it: "version=7".
        positions: None: it has none.
        writer: Lineage and uid of the sink, if it was one.
    """

    name: str
    argument: str
    operation: str
    positions: str | None
    writer: tuple[str, str] | None
    changes_rows: bool


Commits = Callable[[], Iterator[RecordedCommit | None]]
"""The newest first; None: one that is not there any more, which ends them."""


def owner_number(lineage: str, sink_uid: str) -> int:
    """The number by which a sink is named as the owner of positions."""
    return number_of(f"{lineage}/{sink_uid}")


def number_of(text: str) -> int:
    """A text as a number above 0, exact as a floating-point number."""
    return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def owners(
    positions: Iterable[SourcePositions],
    name_of: Callable[[SourcePositions], str],
    mine: int,
    held: Callable[[str], int | None],
) -> dict[str, int]:
    """What a commit with these positions writes to the table. `held`: what the table has."""
    names = sorted({name_of(one) for one in positions})
    return {name: mine if held(name) in (None, mine) else SEVERAL for name in names}


def find_recorded(
    table: str,
    head: str,
    commits: Commits,
    *,
    gone: str,
    connector: str,
    name: str,
    owner_of: Callable[[SourcePositions], int | None],
) -> SourcePositions:
    """Finds up to which positions of a source the newest of `commits` has everything.

    Args:
        table: For messages.
        head: The newest of the commits, as ``version 7``.
        commits: At least one.
        gone: Why a commit is not there any more, as the end of a sentence.
        connector: Of the source.
        name: Of the source.
        owner_of: Which sink records these positions, as the table says; None: it does not.

    Raises:
        ConfigError: that is not known; see above.
    """
    source = f"{connector} {name!r}"
    where = f"table {table}, {head}"
    found = _newest_change(commits, gone)
    if isinstance(found, str):
        raise ConfigError(
            f"{where}: no commit says up to which positions of {source} it has everything, since {found}; "
            f"{_ELSE}"
        )
    positions = _of_source(table, found, connector, name)
    if not positions:
        what = _without(table, found, source) + _newest_with(table, found, commits, connector, name)
        raise ConfigError(f"{where}: {what}; {_ELSE}")
    if len(positions) > 1:
        uids = " and ".join(repr(one.uid) for one in positions)
        raise ConfigError(
            f"{where}: {source} is read by several sources of the job that writes it ({uids}), so the table "
            f"has its rows more than once; {_ELSE}"
        )
    owner = owner_of(positions[0])
    if owner is not None and owner != owner_number(*(found.writer or ("", ""))):
        raise ConfigError(
            f"{where}: several sinks have written rows of {source} to it, each with positions of its own, so "
            f"those of one say nothing about the rows of the others; {_ELSE}"
        )
    return positions[0]


_ELSE: Final = 'use a fence in event time, or switch="fixed" with starting_offsets for each partition'


def _newest_change(commits: Commits, gone: str) -> RecordedCommit | str:
    """The newest commit that changed rows, or why there is none."""
    looked_at = 0
    for commit in islice(commits(), LOOK_BACK_MAX):
        if commit is None:
            return gone
        if commit.changes_rows:
            return commit
        looked_at += 1
    return (
        f"the last {LOOK_BACK_MAX} versions change no rows"
        if looked_at >= LOOK_BACK_MAX
        else "it has no rows"
    )


def _of_source(table: str, commit: RecordedCommit, connector: str, name: str) -> list[SourcePositions]:
    if commit.positions is None:
        return []
    found = decode_positions(commit.positions, f"table {table}, {commit.name}")
    return [one for one in found if one.connector == connector and one.name == name]


def _without(table: str, commit: RecordedCommit, source: str) -> str:
    who = f"sink {commit.writer[1]!r} of a job" if commit.writer else "another writer"
    if commit.positions is None:
        return (
            f"the newest change of its rows ({commit.name}, {commit.operation}) is by {who} and "
            f"has no positions of {source}, so it may have rows from behind those of older commits"
        )
    others = decode_positions(commit.positions, f"table {table}, {commit.name}")
    names = ", ".join(sorted({f"{one.connector} {one.name!r}" for one in others}))
    return (
        f"the newest change of its rows ({commit.name}) is by {who} and has positions of {names}, not of "
        f"{source}"
    )


def _newest_with(table: str, newest: RecordedCommit, commits: Commits, connector: str, name: str) -> str:
    """Which older commit has positions, for the message."""
    is_older = False
    for commit in islice(commits(), LOOK_BACK_MAX):
        if commit is None:
            break
        if is_older and _of_source(table, commit, connector, name):
            return f" ({commit.argument} of the history would have them)"
        is_older = is_older or commit.name == newest.name
    return ""

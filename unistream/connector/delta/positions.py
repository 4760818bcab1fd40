"""Positions of sources in the commits of a Delta table: what a sink writes, and what a source finds.

commitInfo   "unistream.source-positions": the positions (JSON), with the lineage and uid of the sink
txn          unistream/positions/<connector>/<name>/<origin>: which sink records them, as a number; 0: several

A commit with positions and the table before it have everything up to there. What is looked for in a version
is the newest commit that changed its rows:

    it has positions of the source          found
    it has none                             refused: its rows may lie behind the positions of an older commit
    its log entry was cleaned up            refused: nobody knows
    only compaction, properties, …          passed: the rows are those of the version before

The transaction is in every later version, also when the log was cleaned up. If two sinks record
positions of one source, those of one say nothing about the rows of the other, so neither counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from unistream.base.errors import ConfigError
from unistream.model.positions import SourcePositions, decode_positions, encode_positions

POSITIONS_KEY: Final = "unistream.source-positions"
SEVERAL: Final = 0
LOOK_BACK_MAX: Final = 1_000  # versions; an object store answers each in some 20 ms


class LoggedCommit(Protocol):
    """What is needed of a version. `positions`: None: it has none. `writer`: the sink, if it was one."""

    @property
    def version(self) -> int: ...
    @property
    def operation(self) -> str: ...
    @property
    def positions(self) -> str | None: ...
    @property
    def writer(self) -> tuple[str, str] | None: ...
    @property
    def changes_rows(self) -> bool: ...


# --- written by a sink ----------------------------------------------------------------------------


def positions_metadata(positions: Sequence[SourcePositions]) -> dict[str, str]:
    """For the commit; none without positions."""
    return {POSITIONS_KEY: encode_positions(positions)} if positions else {}


def owner_id(positions: SourcePositions) -> str:
    """The application id of the transaction that says which sink records these positions."""
    return f"unistream/positions/{positions.connector}/{positions.name}/{positions.origin}"


def owner_number(lineage: str, sink_uid: str) -> int:
    """Of a sink."""
    return number_of(f"{lineage}/{sink_uid}")


def number_of(text: str) -> int:
    """A text as the version of a transaction: above 0, and exact as a floating-point number."""
    return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def owners(
    positions: Iterable[SourcePositions], mine: int, held: Callable[[str], int | None]
) -> dict[str, int]:
    """The transactions of a commit with these positions. `held`: those that the table has."""
    ids = sorted({owner_id(one) for one in positions})
    return {app_id: mine if held(app_id) in (None, mine) else SEVERAL for app_id in ids}


# --- found by a source ----------------------------------------------------------------------------


def find_positions(
    table: str,
    version: int,
    commit_of: Callable[[int], LoggedCommit | None],
    *,
    connector: str,
    name: str,
    held: Callable[[str], int | None],
) -> SourcePositions:
    """Up to which positions of a source this version has everything.

    `commit_of`: the commit of a version; None: it is not in the log. `held`: the transactions that this
    version has.

    Raises:
        ConfigError: that is not known; see above.
    """
    source = f"{connector} {name!r}"
    where = f"table {table}, version {version}"
    found = _newest_change(version, commit_of)
    if isinstance(found, str):
        raise ConfigError(
            f"{where}: no commit says up to which positions of {source} it has everything, since {found}; "
            f"{_ELSE}"
        )
    positions = _of_source(table, found, connector, name)
    if not positions:
        what = _without(table, found, source) + _newest_with(table, found.version, commit_of, connector, name)
        raise ConfigError(f"{where}: {what}; {_ELSE}")
    if len(positions) > 1:
        uids = " and ".join(repr(one.uid) for one in positions)
        raise ConfigError(
            f"{where}: {source} is read by several sources of the job that writes it ({uids}), so the table "
            f"has its rows more than once; {_ELSE}"
        )
    owner = held(owner_id(positions[0]))
    if owner is not None and owner != owner_number(*(found.writer or ("", ""))):
        raise ConfigError(
            f"{where}: several sinks have written rows of {source} to it, each with positions of its own, so "
            f"those of one say nothing about the rows of the others; {_ELSE}"
        )
    return positions[0]


_ELSE: Final = 'use a fence in event time, or switch="fixed" with starting_offsets for each partition'


def _newest_change(version: int, commit_of: Callable[[int], LoggedCommit | None]) -> LoggedCommit | str:
    """The newest commit up to `version` that changed rows, or why there is none."""
    for one in range(version, max(-1, version - LOOK_BACK_MAX), -1):
        commit = commit_of(one)
        if commit is None:
            return "the log of the last rows was cleaned up"
        if commit.changes_rows:
            return commit
    return (
        f"the last {LOOK_BACK_MAX} versions change no rows" if version >= LOOK_BACK_MAX else "it has no rows"
    )


def _of_source(table: str, commit: LoggedCommit, connector: str, name: str) -> list[SourcePositions]:
    if commit.positions is None:
        return []
    found = decode_positions(commit.positions, f"table {table}, version {commit.version}")
    return [one for one in found if one.connector == connector and one.name == name]


def _without(table: str, commit: LoggedCommit, source: str) -> str:
    who = f"sink {commit.writer[1]!r} of a job" if commit.writer else "another writer"
    if commit.positions is None:
        return (
            f"the newest change of its rows (version {commit.version}, {commit.operation}) is by {who} and "
            f"has no positions of {source}, so it may have rows from behind those of older commits"
        )
    others = decode_positions(commit.positions, f"table {table}, version {commit.version}")
    names = ", ".join(sorted({f"{one.connector} {one.name!r}" for one in others}))
    return (
        f"the newest change of its rows (version {commit.version}) is by {who} and has positions of "
        f"{names}, not of {source}"
    )


def _newest_with(
    table: str,
    before: int,
    commit_of: Callable[[int], LoggedCommit | None],
    connector: str,
    name: str,
) -> str:
    """Which older version has positions, for the message."""
    for version in range(before - 1, max(-1, before - LOOK_BACK_MAX), -1):
        commit = commit_of(version)
        if commit is None:
            break
        if _of_source(table, commit, connector, name):
            return f" (version={version} of the history would have them)"
    return ""

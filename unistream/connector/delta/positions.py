"""Positions of sources in the commits of a Delta table: what a sink writes, and what a source finds.

commitInfo   "unistream.source-positions": the positions (JSON), with the lineage and uid of the sink
txn          unistream/positions/<connector>/<name>/<origin>: which sink records them, as a number; 0: several

What is found is in `connector.common.recorded_positions`. The transaction is in every later version, also
when the log was cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from unistream.connector.common import RecordedCommit, find_recorded
from unistream.connector.common import owners as recorded_owners
from unistream.model.positions import SourcePositions, encode_positions

POSITIONS_KEY: Final = "unistream.source-positions"


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
    """The metadata by which a commit has these positions; none without positions."""
    return {POSITIONS_KEY: encode_positions(positions)} if positions else {}


def owner_id(positions: SourcePositions) -> str:
    """The application id of the transaction that says which sink records these positions."""
    return f"unistream/positions/{positions.connector}/{positions.name}/{positions.origin}"


def owners(
    positions: Iterable[SourcePositions], mine: int, held: Callable[[str], int | None]
) -> dict[str, int]:
    """The transactions of a commit with these positions. `held`: those that the table has."""
    return recorded_owners(positions, owner_id, mine, held)


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
    """Finds up to which positions of a source this version has everything.

    `commit_of`: the commit of a version; None: it is not in the log. `held`: the transactions that this
    version has.

    Raises:
        ConfigError: that is not known.
    """

    def commits() -> Iterator[RecordedCommit | None]:
        for one in range(version, -1, -1):
            commit = commit_of(one)
            yield None if commit is None else _recorded(commit)

    return find_recorded(
        table,
        f"version {version}",
        commits,
        gone="the log of the last rows was cleaned up",
        connector=connector,
        name=name,
        owner_of=lambda positions: held(owner_id(positions)),
    )


def _recorded(commit: LoggedCommit) -> RecordedCommit:
    return RecordedCommit(
        name=f"version {commit.version}",
        argument=f"version={commit.version}",
        operation=commit.operation,
        positions=commit.positions,
        writer=commit.writer,
        changes_rows=commit.changes_rows,
    )

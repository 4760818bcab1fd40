"""Under which application ids a sink commits to a table, and up to which checkpoint a table holds its output.

unistream/<lineage>/<sink uid>            version = the last checkpoint
unistream/<lineage>/<sink uid>~1, ~2, …   behind the first rewind, the second, …
…/begun                                   version = the checkpoint that the branch begins behind
"""

from __future__ import annotations

from typing import Final, Protocol

from unistream.base.errors import ConfigError
from unistream.port.sink import SinkContext

BRANCHES_MAX: Final = 1000


class Transactions(Protocol):
    """A loaded table, as far as it tells what was committed to it."""

    def transaction_version(self, app_id: str) -> int | None: ...


def app_id(context: SinkContext, branch: int) -> str:
    return f"unistream/{context.lineage}/{context.sink_uid}" + (f"~{branch}" if branch else "")


def begun_id(context: SinkContext, branch: int) -> str:
    return f"{app_id(context, branch)}/begun"


def last_of(table: Transactions, context: SinkContext, branch: int) -> int | None:
    """Last checkpoint of a branch, or the one that it begins behind; None: there is no such branch."""
    last = table.transaction_version(app_id(context, branch))
    return table.transaction_version(begun_id(context, branch)) if last is None else last


def newest_branch(table: Transactions, context: SinkContext, uri: str) -> int:
    """Raises ConfigError if there are too many."""
    for branch in range(BRANCHES_MAX):
        if last_of(table, context, branch + 1) is None:
            return branch
    raise ConfigError(f"table {uri}: more than {BRANCHES_MAX} rewinds of one sink")

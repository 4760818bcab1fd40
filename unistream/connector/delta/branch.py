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


class Versions(Protocol):
    """A loaded table, as far as it tells which of its versions brought what."""

    @property
    def version(self) -> int: ...

    def version_of(self, lineage: str, sink_uid: str, checkpoint_id: int) -> int | None: ...


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


def rewind_text(uri: str, table: Versions, context: SinkContext, last: int) -> str:
    """Why a job that was restored from before checkpoint `last` is refused, and what to do."""
    restored = context.restored or 0
    at = table.version_of(context.lineage, context.sink_uid, restored) if restored else None
    back = f" (version {at})" if at is not None else ""
    return (
        f"table {uri} (version {table.version}) holds the output of sink {context.sink_uid!r} up to "
        f"checkpoint {last}, but the job was restored from checkpoint {restored}: going on would write what "
        f"follows it a second time. Restore from checkpoint {last} or a later one; or bring the table back "
        f"to checkpoint {restored}{back} and set on_rewind='allow_duplicates'; or set that alone and accept "
        "duplicates"
    )

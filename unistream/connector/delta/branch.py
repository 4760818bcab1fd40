"""The application ids under which a sink commits to a table, and the last checkpoint that a table holds.

unistream/<lineage>/<sink uid>            version = the last checkpoint
unistream/<lineage>/<sink uid>~1, ~2, …   after the first rewind, the second, …
…/begun                                   version = the checkpoint after which the branch begins
unistream/<lineage>/<sink uid>/writer     version = the job of the last commit, as a number
unistream/line                            version = the line of jobs that writes the table, as a number

And the identity of the table. It is the one that was committed to if its metadata has the same `id`, its
version is not lower, and it has the transaction of the last commit. So OPTIMIZE, VACUUM, DELETE, RESTORE, an
overwrite, and a checkpoint or cleanup of the log leave the same table. A table that was removed and created
again is another one, and so is one from a backup without the last commit. A table that lets transactions
expire is identified by id and version alone.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from unistream.base.errors import ConfigError
from unistream.connector.common import changed_target
from unistream.port.sink import SinkContext

BRANCHES_MAX: Final = 1000
STATE_FORMAT: Final = 1
EXPIRES: Final = "delta.setTransactionRetentionDuration"
LINE_ID: Final = "unistream/line"


class DeltaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The table after the last commit; see `CommittedTarget`. `writer`: the job
    that made it, as a number; 0: not recorded. `until`: the checkpoint up to which its commits are
    followed."""

    address: str = msgspec.field(name="table_uri")
    table_id: str
    version: int
    checkpoint_id: int
    writer: int = 0
    until: int = 0
    format: int = STATE_FORMAT


class LoadedTable(Protocol):
    """The identity of a table, and its transactions."""

    @property
    def table_id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def configuration(self) -> dict[str, str]: ...
    def transaction_version(self, app_id: str) -> int | None: ...


def app_id(context: SinkContext, branch: int) -> str:
    return f"unistream/{context.lineage}/{context.sink_uid}" + (f"~{branch}" if branch else "")


def writer_id(context: SinkContext) -> str:
    return f"{app_id(context, 0)}/writer"


def begun_id(context: SinkContext, branch: int) -> str:
    return f"{app_id(context, branch)}/begun"


def last_of(table: LoadedTable, context: SinkContext, branch: int) -> int | None:
    """The last checkpoint of a branch, or the one after which it begins; None: there is no such branch."""
    last = table.transaction_version(app_id(context, branch))
    return table.transaction_version(begun_id(context, branch)) if last is None else last


def newest_branch(table: LoadedTable, context: SinkContext, uri: str) -> int:
    """Raises ConfigError if there are too many."""
    for branch in range(BRANCHES_MAX):
        if last_of(table, context, branch + 1) is None:
            return branch
    raise ConfigError(f"table {uri}: more than {BRANCHES_MAX} rewinds of one sink")


def check_target(target: DeltaTarget, found: LoadedTable | None, context: SinkContext, branch: int) -> None:
    """Raises ConfigError unless `found` is the remembered table, with all that was committed to it."""
    now = _difference(target, found, None if found is None else last_of(found, context, branch))
    if now is not None:
        number = target.checkpoint_id
        done = f"had committed up to checkpoint {number} to" if number else "began with"
        done = f"{done} the table with id {target.table_id} (version {target.version})"
        raise changed_target(f"table {target.address}", context, done, now)


def _difference(target: DeltaTarget, found: LoadedTable | None, last: int | None) -> str | None:
    """What is there instead; None: nothing differs. `last`: the last checkpoint of this sink in `found`."""
    if found is None:
        return "there is no table now"
    if found.table_id != target.table_id:
        return f"the table there now has id {found.table_id} (version {found.version})"
    if found.version < target.version:
        return f"it is at version {found.version} now"
    if not target.checkpoint_id or (last is None and EXPIRES in found.configuration):
        return None
    if last is None:
        return f"it has no commit of this sink now (version {found.version})"
    if last < target.checkpoint_id:
        return f"it has commits of this sink up to checkpoint {last} only (version {found.version})"
    return None

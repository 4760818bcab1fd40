"""What an error of a database means for a job: which sentence, and whether to try again.

refused        a login, a right, a statement or rows that do not fit     ConfigError
given up       a lock, or a statement, took too long                     Unreachable, with what to do
anything else  it did not answer                                         Unreachable
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.connector.common import remedy, sqlite_code, sqlstate
from unistream.connector.sql.statements import SqlTableName

STATEMENT_TIMEOUT_MS: Final = 120_000  # PostgreSQL: of one statement, if the sink does not say otherwise
LOCK_TIMEOUT_MS: Final = 30_000  # of both: longest wait for another writer
STATEMENT_GIVEN_UP: Final = "57014"
LOCK_GIVEN_UP: Final = "55P03"
OTHER_TYPE: Final = "42804"
_TOO_LONG: Final = ("54000",)  # "cannot enlarge string buffer"
_ALLOCATION: Final = "invalid memory alloc request size"  # the same, where it has no code of its own
ONLY_READS: Final = "25006"  # a function of a query would write
OF_ROWS: Final = ("22", "23", "44", "P0001")
"""Beginnings of SQLSTATE: data, constraints, the condition of a view, RAISE of a trigger."""
_AGAIN: Final = ("08", "25", "40", "53", "55006", LOCK_GIVEN_UP, "57", "58", "F0", "XX")
"""Beginnings of SQLSTATE for what may be no error the next time: the connection, a server that only reads,
deadlocks, resources, an object in use, locks, a server that stops, its disks and files."""
CAST: Final = (
    "nothing was written. Cast that column in the pipeline (us.col(…).cast(…)), or give it another type in "
    "the table"
)
NO_TEXT: Final = "Could not decode to UTF-8"  # of Python, about a text of SQLite
BY_SOMEBODY: Final = "user request"  # of a statement that was cancelled, in English

IN_THE_WAY: Final = (
    "nothing was written of that checkpoint. With on_error such rows are found before the checkpoint, unless "
    "another program or subtask has written what is in their way since. Remove that from the table, or the "
    "constraint, and start the job from its last checkpoint, which has the rows"
)
"""The advice when a constraint refuses rows in a commit: they cannot become letters any more."""


class Limit(NamedTuple):
    """How long each statement of a commit may take. `lock`: the name of the sink's own lock."""

    target: SqlTableName
    lock: str
    ms: int

    @property
    def lock_ms(self) -> int:
        """The limit of a wait for a lock, which is shorter, so that a commit that only waits for one says
        so."""
        return max(1, min(LOCK_TIMEOUT_MS, self.ms * 3 // 4))


def failure(
    error: DBAPIError,
    *,
    where: str,
    doing: str,
    limit: Limit | None = None,
    holders: Callable[[Limit], Sequence[str]] = lambda _: (),
) -> UnistreamError:
    """What an error of a database means for a job. `limit`: of a commit. `holders`: asks who holds locks of
    its table, for the sentence."""
    orig: BaseException = error.orig or error
    text = str(orig).strip().partition("\n")[0]
    state, code = sqlstate(orig), sqlite_code(orig)
    if (what := remedy(error)) is not None:
        return ConfigError(f"{where} refused {doing}: {text}; {what}")
    if limit is not None and (isinstance(orig, sqlite3.IntegrityError) or state.startswith(OF_ROWS)):
        return ConfigError(f"{where} refused {doing}: {_whole(orig)}; {IN_THE_WAY}")
    if state == OTHER_TYPE:
        return ConfigError(f"{where} refused {doing}: {text}; {CAST}")
    if not error.connection_invalidated and _is_refused(error, state, code):
        return ConfigError(f"{where} refused {doing}: {text}; nothing was written")
    if state == LOCK_GIVEN_UP:
        return Unreachable(f"{where}: {doing} {_of_lock(limit, holders)}")
    if state == STATEMENT_GIVEN_UP and BY_SOMEBODY not in text:
        return Unreachable(f"{where}: {doing} {_of_statement(limit, holders)}")
    if code == sqlite3.SQLITE_BUSY:
        return Unreachable(
            f"{where}: {doing} waited {LOCK_TIMEOUT_MS // 1000} s for another program that writes to the "
            "file, and was given up; nothing was written. End that program, or its transaction"
        )
    return Unreachable(f"{where} did not answer while {doing}: {text}")


class ValueTooLong(ConfigError):
    """PostgreSQL has no value of more than 1 GB, and the text of a page is one."""


def read_failure(error: DBAPIError, named: str, doing: str, limit_ms: int) -> UnistreamError:
    """What the error of a statement that reads means. `named`: what is read, and where; `limit_ms`: how long
    the statement might take."""
    orig: BaseException = error.orig or error
    text = str(orig).strip().partition("\n")[0]
    state, code = sqlstate(orig), sqlite_code(orig)
    if (what := remedy(error)) is not None:
        return ConfigError(f"{named}: {doing} was refused: {text}; {what}")
    if (state == STATEMENT_GIVEN_UP and BY_SOMEBODY not in text) or code == sqlite3.SQLITE_INTERRUPT:
        return Unreachable(
            f"{named}: {doing} took longer than {limit_ms / 1000:g} s, and was given up. An index on the "
            "column by which it is read makes it fast; or give the source a longer query_timeout"
        )
    if state in _TOO_LONG or _ALLOCATION in text:
        return ValueTooLong(
            f"{named}: {doing}: a row has more than PostgreSQL can send as one text ({text}); leave its "
            "large columns out by columns="
        )
    if NO_TEXT in text:
        return ConfigError(
            f"{named}: {doing} was refused: {text!r:.200}; read such a column as bytes, by a query= with "
            "CAST(… AS BLOB)"
        )
    if state == ONLY_READS or (not error.connection_invalidated and _is_refused(error, state, code)):
        return ConfigError(f"{named}: {doing} was refused: {text}")
    return Unreachable(f"{named} did not answer while {doing}: {text}")


def _is_refused(error: DBAPIError, state: str, code: int) -> bool:
    """Whether the statement would be refused again."""
    if state:
        return not state.startswith(_AGAIN)
    return isinstance(error, IntegrityError | DataError | ProgrammingError) or code == sqlite3.SQLITE_ERROR


def _whole(orig: BaseException) -> str:
    """The text of an error of PostgreSQL with the values that it names."""
    lines = str(orig).strip().splitlines()
    detail = next((line.partition(":")[2].strip() for line in lines[1:] if line.startswith("DETAIL")), "")
    return f"{lines[0]} ({detail.rstrip('.')})" if detail else lines[0]


def _of_lock(limit: Limit | None, holders: Callable[[Limit], Sequence[str]]) -> str:
    waited_ms = LOCK_TIMEOUT_MS if limit is None else limit.lock_ms
    found = () if limit is None else holders(limit)
    held = f" Locks of table {limit.target} are held by {', '.join(found)}." if limit and found else ""
    return (
        f"waited {waited_ms / 1000:g} s for a lock, and was given up; nothing was written.{held} pg_locks "
        "and pg_stat_activity show who holds it: end that transaction (pg_terminate_backend), and the job "
        "goes on with its next restart"
    )


def _of_statement(limit: Limit | None, holders: Callable[[Limit], Sequence[str]]) -> str:
    if limit is None:
        return (
            f"took longer than {STATEMENT_TIMEOUT_MS // 1000} s, and was given up; nothing was written: the "
            "server has too much to do"
        )
    found = holders(limit)
    held = f" Locks of the table are held by {', '.join(found)}." if found else ""
    return (
        f"took longer than {limit.ms / 1000:g} s, the commit_timeout of the sink, and was given up; nothing "
        f"was written.{held} Give the sink a longer commit_timeout, or fewer rows in a checkpoint by a "
        "shorter execution.checkpointing.interval"
    )

"""A query of a savepoint that can harm nobody: in a process of its own, with limits, which is killed.

    BoundedQuery ── a `BoundedProcess` ──► query_process
        reads the states that the statement names
        seals itself: no file, no socket, no environment
        runs the statement in DuckDB, and answers rows or a `QueryRefusal`

Nobody reads a Python object of a savepoint here: pickled values are bytes.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from unistream.base.bounded_process import BoundedProcess, Said
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, Transient
from unistream.base.limits import MIB
from unistream.core.memory import describe_bytes

MODULE: Final = "unistream.savepoint.query_process"
ANSWER_SLACK_BYTES: Final = 2 * MIB  # of JSON, over the cells
SQL_CHARACTERS_MAX: Final = 20_000

logger = logging.getLogger(__name__)


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one query.

    Attributes:
        rows: That are answered; those after them are not.
        cell_characters: Of a value; a longer one is cut.
        answer_bytes: Of all values together; the rows after them are left out.
        state_bytes: Of the files of the states that are read.
        memory_bytes: Of the process.
        seconds: From its start to its end.
    """

    rows: int = 10_000
    cell_characters: int = 2_000
    answer_bytes: int = 4 * MIB
    state_bytes: int = 256 * MIB
    memory_bytes: int = 1_024 * MIB
    seconds: int = 20


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`store`: options of the store in which `path` is; they may hold secrets, so they go by a pipe alone."""

    path: str
    sql: str
    limits: QueryLimits
    store: dict[str, str] = {}


class ResultColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a result. `type`: as DuckDB calls it."""

    name: str
    type: str


class ResultRows(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """A result.

    Attributes:
        rows: Each value as text; None: null. So whole numbers and decimals keep their digits.
        more: There are rows after these.
        cut: Number of values that are cut.
    """

    columns: tuple[ResultColumn, ...]
    rows: list[list[str | None]]
    more: bool
    cut: int


class QueryRefusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """`damaged`: not the statement is wrong, but the savepoint: a file is damaged, or not there any more."""

    why: str
    damaged: bool = False


class BoundedQuery:
    """One query. `result` is called once; `stop` by any thread, at any time.

    Args:
        sql: The statement.
        path: Directory of the snapshot; called when the process is ready to read it.
        limits: What it may take.
        store: See `Question`.

    Raises:
        ConfigError: the statement is too long.
    """

    def __init__(
        self,
        sql: str,
        path: Callable[[], str],
        *,
        limits: QueryLimits | None = None,
        store: Mapping[str, str] | None = None,
    ) -> None:
        if len(sql) > SQL_CHARACTERS_MAX:
            raise ConfigError(f"the statement has more than {SQL_CHARACTERS_MAX:,} characters")
        self._sql = sql
        self._path = path
        self._limits = limits or QueryLimits()
        self._store = dict(store or {})
        most = self._limits.answer_bytes * 2 + ANSWER_SLACK_BYTES
        self._process = BoundedProcess(MODULE, seconds=self._limits.seconds, answer_bytes=most)

    @property
    def is_running(self) -> bool:
        """It has a process."""
        return self._process.is_running

    def result(self) -> ResultRows:
        """Waits for it.

        Raises:
            ConfigError: the statement is refused, or takes more than its limits allow.
            CorruptSnapshot: a file of the savepoint is damaged, or is not there any more.
            Transient: it was stopped.
        """
        return self._understood(self._process.ask(self._question))

    def stop(self, why: str = "nobody waits for it any more") -> None:
        """Kills its process; `result` says why."""
        self._process.stop(why)

    def _question(self) -> bytes:
        return msgspec.json.encode(
            Question(path=self._path(), sql=self._sql, limits=self._limits, store=self._store)
        )

    def _understood(self, said: Said) -> ResultRows:
        if said.stopped:
            raise (ConfigError if said.late else Transient)(f"the query was stopped: {said.stopped}")
        try:
            answer = msgspec.json.decode(said.answer or b"", type=ResultRows | QueryRefusal)
        except UNDECODABLE:
            raise ConfigError(self._why_it_ended(said)) from None
        if isinstance(answer, QueryRefusal):
            raise (CorruptSnapshot if answer.damaged else ConfigError)(answer.why)
        return answer

    def _why_it_ended(self, said: Said) -> str:
        logger.warning("event=savepoint_query_ended code=%s sql_characters=%d", said.code, len(self._sql))
        limits = self._limits
        if said.answer is None:
            return "the query was stopped: its answer is too large; ask for fewer or smaller columns"
        if said.code == -signal.SIGXCPU:
            return f"the query was stopped: it takes more than {limits.seconds} s"
        return (
            "the process of the query ended without an answer: most likely it takes more than the "
            f"{describe_bytes(limits.memory_bytes)} of memory that it may have"
        )

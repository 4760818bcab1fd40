"""One transaction of a database, for the sinks of a commit group and its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from sqlalchemy import Connection

from unistream.base.errors import ConfigError
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.group_log import LogInTransaction
from unistream.port.group import GroupLog, SharesTransaction
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, CommitResult


@runtime_checkable
class CommitsWithin(SharesTransaction, Protocol):
    """A committer of a SQL sink."""

    def commit_within(
        self, connection: Connection, permit: CommitPermit, requests: Sequence[CommitRequest]
    ) -> Callable[[], CommitResult]: ...


class SqlTransaction:
    """See `unistream.port.group.Transaction`."""

    def __init__(self, database: SinkDatabase, connection: Connection) -> None:
        self._database = database
        self.connection = connection

    def commit(
        self, member: SharesTransaction, permit: CommitPermit, requests: Sequence[CommitRequest]
    ) -> Callable[[], CommitResult]:
        """Raises as `SqlCommitter.commit_all`."""
        if not isinstance(member, CommitsWithin):
            raise ConfigError(
                f"a transaction of {self._database.where} cannot have a {type(member).__name__}"
            )
        return member.commit_within(self.connection, permit, requests)

    def log(self, group: str) -> GroupLog:
        return LogInTransaction(self._database, self.connection, group)

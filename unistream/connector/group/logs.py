"""Where the log of a group is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing

from unistream.base.errors import ConfigError, NotFound
from unistream.base.secrets import Secret
from unistream.connector.common import absolute
from unistream.connector.group.file_log import FileGroupLog
from unistream.port.group import GroupCommit, GroupLog, GroupOptions, SharesTransaction, check_group_name
from unistream.port.sink import Committer


def log_of(options: GroupOptions, committers: Iterable[Committer]) -> GroupLog:
    """The log in the database of one of the members, if there is one. If only a snapshot knows that there is,
    its URL has no password: another one may be in the environment (`unistream.connector.sql.ENVIRONMENT`).
    The caller closes it.

    Raises:
        ConfigError: it cannot be opened.
    """
    for committer in committers:
        if isinstance(committer, SharesTransaction):
            return committer.group_log(options.name)
    if options.location:
        return FileGroupLog(options.location, options.name)
    from unistream.connector.sql import ENVIRONMENT

    return _sql_log(os.environ.get(ENVIRONMENT) or options.database, options.name)


def log_at(where: str | Secret, group: str) -> GroupLog:
    """The log for a reader: `where` is the folder of the log, or the URL of the database of the members."""
    from unistream.connector.sql import DIALECTS

    if isinstance(where, str) and where.partition(":")[0].partition("+")[0] not in DIALECTS:
        return FileGroupLog(absolute(where), group)
    return _sql_log(where, group)


def read_group(where: str | Secret, group: str) -> GroupCommit:
    """The newest commit of a commit group: up to which checkpoint all its tables are complete, and at which
    version of each that can be read.

    Args:
        where: The `location` of the group, or the SQLAlchemy URL of the database of its members.
        group: Its name.

    Raises:
        ConfigError: no group has such a name.
        NotFound: it has committed nothing yet, or is not there.
        CorruptSnapshot: the record cannot be read.
        Unreachable: the storage or the database does not answer.

    >>> import tempfile
    >>> try:
    ...     read_group(tempfile.mkdtemp(), "shop").tables["orders"].version
    ... except NotFound:
    ...     print("no orders yet")
    no orders yet
    """
    check_group_name(group)
    with closing(log_at(where, group)) as log:
        found = log.newest()
    if found is None:
        raise NotFound(
            f"commit group {group!r} has no record there: nothing is committed yet, or it is elsewhere (a "
            "group with a SQL sink has its records in the database)"
        )
    return found


def _sql_log(url: str | Secret, group: str) -> GroupLog:
    if not url:
        raise ConfigError(f"commit group {group!r}: there is neither a folder nor a database of its log")
    from unistream.connector.sql import SqlGroupLog  # its packages may be missing

    return SqlGroupLog(url, group)

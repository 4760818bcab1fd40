"""One metadata database: its transactions, who may write what, and what happens when its file is removed.

SQLite does not notice that its file was removed or replaced: it goes on with the one that has no name any
more, and all that is written there is lost. So every transaction compares the file with the one that was
opened.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Select, Table, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from unistream.base.errors import ConfigError, Fenced, NotFound, Unreachable
from unistream.base.ids import NO_CLUSTER, JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.engine import MISSING, database_errors, open_engine, sqlite_path
from unistream.metadata.schema import ensure

_NO_FILE: Final = "was removed"
_OTHER_FILE: Final = "was replaced by another file"


class MetadataDatabase:
    """Thread-safe. Each transaction is short and on a pooled connection. `is_ensured`: its schema is known to
    be there, or to be for others to make; False: `recover` makes it."""

    def __init__(self, url: str, *, is_ensured: bool = True) -> None:
        self._url = url
        self._is_ensured = is_ensured
        self.cluster = NO_CLUSTER  # that writes; see `MetadataStore.act_for`
        self.engine = open_engine(url, create=False)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.insert = sqlite.insert if self.is_sqlite else postgresql.insert
        self._path = sqlite_path(self.engine.url)
        self._opened: tuple[int, int] | None = None  # device and inode of the file
        self._is_lost = False  # the file was removed, and `recover` has not ended yet
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}  # the last numbers of the counters
        self._upserts: dict[tuple[str, tuple[str, ...], tuple[str, ...], bool], Any] = {}  # were made

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction.

        Raises:
            Unreachable: the database does not answer, or its file is gone.
            ConfigError: the schema is missing or another version's.
        """
        self._check_file()
        with database_errors(self.engine), self.engine.begin() as connection:
            yield connection

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """All rows of a query that has a limit, or of which there are few."""
        self._check_file()
        with database_errors(self.engine), self.engine.connect() as connection:
            reader = connection.execution_options(unistream_read=True)
            with reader.begin():
                return reader.execute(query).all()

    @contextmanager
    def of_job(self, job: JobId, epoch: LeaderEpoch) -> Iterator[tuple[Connection, Any]]:
        """A transaction that writes rows of a job, and the name, lineage and leader epoch of that.

        Raises:
            NotFound: there is no such job.
            Fenced: a newer leader has written it, or it is another cluster's.
        """
        try:
            with self.write() as connection:
                c = t.jobs.c
                wanted = select(c.name, c.lineage, c.leader_epoch, c.cluster).where(c.job == job)
                stored = connection.execute(wanted).one_or_none()
                if stored is None:
                    raise NotFound(f"there is no job {job} in the metadata")
                self.check_owner(job, stored.cluster)
                if stored.leader_epoch > epoch:
                    raise Fenced(
                        f"job {job} is written with epoch {stored.leader_epoch}, refused was {epoch}"
                    )
                yield connection, stored
        except IntegrityError as error:  # it was removed in between
            raise NotFound(f"there is no job {job} in the metadata any more") from error

    def check_owner(self, job: JobId, cluster: str) -> None:
        """Raises Fenced if the row of a job is another cluster's: epochs of two of them cannot be
        compared."""
        if NO_CLUSTER not in (self.cluster, cluster) and self.cluster != cluster:
            raise Fenced(f"job {job} is of the cluster {cluster}, refused was a write of {self.cluster}")

    def upsert(
        self,
        connection: Connection,
        table: Table,
        key: Mapping[str, Any],
        changed: Mapping[str, Any],
        epoch: LeaderEpoch,
    ) -> None:
        """Inserts `key` and `changed`, or updates the row of `key` with `changed`.

        Raises:
            Fenced: a newer leader has written the row.
        """
        statement = self._upsert_of(table, tuple(key), tuple(changed), keeps_known=False)
        row = {**key, **changed, "version": 0, "leader_epoch": epoch}
        # the number of rows is not known after an INSERT, on PostgreSQL
        if connection.execute(statement, row).one_or_none() is None:
            raise Fenced(
                f"{table.name}: {dict(key)} was written by a newer leader, refused was epoch {epoch}"
            )

    def upsert_all(
        self,
        connection: Connection,
        table: Table,
        rows: Sequence[Mapping[str, Any]],
        epoch: LeaderEpoch,
        *,
        key: Sequence[str],
        first: Collection[str] = (),
    ) -> None:
        """Inserts or updates each of `rows`, which are of different keys and have the same columns: together,
        since one after the other takes ten times as long.

        `key`: its columns; `first`: columns that a row which is there keeps; all others change, unless the
        new value is None.

        Raises:
            Fenced: a newer leader has written one of them.
        """
        if not rows:
            return
        changed = tuple(name for name in rows[0] if name not in key and name not in first)
        statement = self._upsert_of(table, tuple(key), changed, keeps_known=True)
        values = [{**row, "version": 0, "leader_epoch": epoch} for row in rows]
        written = connection.execute(statement, values).all()
        if len(written) < len(rows):
            lost = f"{len(rows) - len(written)} of {len(rows)} rows"
            raise Fenced(f"{table.name}: {lost} were written by a newer leader, refused was epoch {epoch}")

    def _upsert_of(
        self, table: Table, key: tuple[str, ...], changed: tuple[str, ...], *, keeps_known: bool
    ) -> Any:
        """The statement, which returns a value for each row that is written; made once, since that takes
        longer than to write a row. `keeps_known`: None changes nothing."""
        wanted = (table.name, key, changed, keeps_known)
        made = self._upserts.get(wanted)
        if made is None:
            stored = self.insert(table)
            new = stored.excluded
            again = {n: func.coalesce(new[n], table.c[n]) if keeps_known else new[n] for n in changed}
            made = self._upserts[wanted] = stored.on_conflict_do_update(
                index_elements=list(key),
                set_={**again, "version": table.c.version + 1, "leader_epoch": new.leader_epoch},
                where=table.c.leader_epoch <= new.leader_epoch,
            ).returning(table.c.version)
        return made

    def next_number(self, connection: Connection, counter: str) -> int:
        """The next number of a counter. The last thing that a transaction does: others wait for its end."""
        c = t.counters.c
        counted = update(t.counters).where(c.name == counter).values(value=c.value + 1).returning(c.value)
        number = connection.execute(counted).scalar_one_or_none()
        if number is None:
            raise ConfigError(
                f"the metadata database lacks the counter {counter!r}: restore it from a backup"
            )
        with self._lock:
            self._given[counter] = max(number, self._given.get(counter, 0))
        return int(number)

    # --- a file that is removed -------------------------------------------------------------------

    def recover(self) -> bool:
        """See `MetadataStore`. Numbers go on where they were."""
        if not self._is_ensured:
            ensure(self._url)
            self._is_ensured = True
        with self._lock:
            if self._path is None or self._opened is None:
                return False
            if _identity(self._path) != self._opened:
                self._is_lost = True
                self.engine.dispose()  # SQLite leaves the new file alone when it closes the old one
                ensure(self._url)
                self._opened = _identity(self._path)
            given = dict(self._given)
            if not self._is_lost:
                return False
        with self.write() as connection:
            for counter, number in given.items():
                c = t.counters.c
                behind = (c.name == counter) & (c.value < number)
                connection.execute(update(t.counters).where(behind).values(value=number))
        self._is_lost = False
        return True

    def _check_file(self) -> None:
        if self._path is None:
            return
        found = _identity(self._path)
        if found is not None and found == self._opened:
            return
        with self._lock:
            if self._opened is None and found is not None:
                self._opened = found
        if found is None and self._opened is None:
            raise ConfigError(f"{MISSING} ({self.engine.url.render_as_string(hide_password=True)})")
        if found != self._opened:
            what = _NO_FILE if found is None else _OTHER_FILE
            raise Unreachable(f"the metadata database {self._path} {what} while it was in use")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreachable(f"the metadata database {path} cannot be read: {error.strerror}") from error
    return found.st_dev, found.st_ino


def fields(record: msgspec.Struct) -> dict[str, Any]:
    """The columns of a record that has one for each of its fields."""
    return {name: storable(getattr(record, name)) for name in record.__struct_fields__}


def storable(value: object) -> object:
    """Escapes what databases refuse in texts: NUL (PostgreSQL) and lone surrogates (all)."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def without(row: Row[Any], *names: str) -> dict[str, Any]:
    """The columns of a row but these."""
    return {name: value for name, value in row._mapping.items() if name not in names}

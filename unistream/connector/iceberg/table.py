"""A table of a catalogue: looked at, created, changed, committed to. With `snapshot` the only module that
calls a catalogue's methods.

`commit` calls `Catalog.commit_table` itself: pyiceberg's transactions try again after a conflict on a
snapshot that nobody has looked at, and would add the files of a checkpoint a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.schema import Schema

from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.connector.common import Conflict, Unknown
from unistream.connector.iceberg.catalog import FORMAT_VERSION_MAX, TableAddress, answering, open_catalog
from unistream.connector.iceberg.partition import partition_spec
from unistream.connector.iceberg.record import CHECKPOINT_KEY, LINEAGE_KEY, SINK_KEY, ancestors
from unistream.connector.iceberg.schema import SchemaChange, evolve

CREATE_ATTEMPTS: Final = 3
CREATED_WITH: Final = {
    "write.metadata.delete-after-commit.enabled": "true",  # or each checkpoint leaves a file for ever
    "write.metadata.previous-versions-max": "100",
}


class IcebergSinkTable:
    """One table; its catalogue stays open until `close`."""

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._catalog = open_catalog(address)
        self._table: Any = None

    @classmethod
    @contextmanager
    def opened(cls, address: TableAddress) -> Iterator[Self]:
        lake = cls(address)
        try:
            yield lake
        finally:
            lake.close()

    def close(self) -> None:
        self._catalog.close()

    @property
    def table(self) -> Any:
        """A `pyiceberg.table.Table`, as of the last look."""
        assert self._table is not None, "load() comes first"
        return self._table

    @property
    def has_table(self) -> bool:
        """The last look has found it."""
        return self._table is not None

    def load(self) -> Any:
        """The table as it is now; None: there is none. Raises ConfigError, Unreachable."""
        try:
            with answering(self._where, "loading it"):
                try:
                    self._table = self._catalog.load_table(self._address.table)
                except FileNotFoundError as error:
                    raise ConfigError(
                        f"{self._where} is in the catalog, but its metadata is not: {error}"
                    ) from error
                except (NoSuchTableError, NoSuchNamespaceError):
                    self._table = None
        except UnistreamError:
            self._table = None
            raise
        return self._table

    def create(self, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Unless somebody else has created it a moment before; then that one is loaded. Databases of catalogs
        refuse one of two writers that create a namespace at once, each in its own words: it tries again."""
        spec = partition_spec(schema, partition_by)
        for attempt in range(CREATE_ATTEMPTS):
            try:
                self._create(schema, spec, {**CREATED_WITH, **properties})
            except Unreachable:
                if attempt == CREATE_ATTEMPTS - 1:
                    raise
            if self._table is not None or self.load() is not None:
                return
        raise Unreachable(f"{self._where} was created by somebody else, and is not there")

    def _create(self, schema: Schema, spec: Any, properties: Mapping[str, str]) -> None:
        namespace = self._address.table.rpartition(".")[0]
        with answering(self._where, "creating it"):
            self._catalog.create_namespace_if_not_exists(namespace)
            try:
                self._table = self._catalog.create_table(
                    self._address.table,
                    schema,
                    partition_spec=spec,
                    properties=properties,
                )
            except TableAlreadyExistsError:
                self._table = None

    def evolve(self, wanted: Sequence[SchemaChange]) -> bool:
        """Makes these changes of its schema. False: somebody else was faster; the table is loaded again."""
        with answering(self._where, "changing its columns"):
            try:
                with self.table.update_schema() as update:
                    evolve(update, wanted)
            except CommitFailedException:
                is_done = False
            else:
                is_done = True
        if not is_done and self.load() is None:
            raise ConfigError(f"{self._where} does not exist any more")
        return is_done

    def check_writable(self) -> None:
        """Checks that this version writes tables of the table's format. Raises ConfigError: it does not."""
        version = int(self.table.metadata.format_version)
        if version > FORMAT_VERSION_MAX:
            raise ConfigError(
                f"{self._where} has format version {version}; this version writes tables of version 1 and 2"
            )

    def commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
        """Commits in one step: all updates, if all requirements hold. The loaded table is the one after it.

        Raises:
            Conflict: they do not hold; nothing was changed.
            Unknown: the outcome is unknown.
            ConfigError: the catalogue refuses it.
        """
        try:
            response = self._catalog.commit_table(self.table, requirements, updates)
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        except (BadRequestError, ForbiddenError, UnauthorizedError) as error:
            raise ConfigError(f"{self._where} refuses the commit: {error}") from error
        except Exception as error:  # of whatever library is below this catalogue
            raise Unknown(f"{type(error).__name__}: {error}") from error
        self._table.metadata = response.metadata
        self._table.metadata_location = response.metadata_location

    def remove(self, path: str) -> None:
        """A file that no snapshot names. Best effort: readers do not see one that remains."""
        try:
            self.table.io.delete(path)
        except Exception:
            return

    def snapshot_of(self, lineage: str, sink_uid: str, checkpoint_id: int) -> int | None:
        """The snapshot that committed `checkpoint_id`, if it has not expired."""
        wanted = {LINEAGE_KEY: lineage, SINK_KEY: sink_uid, CHECKPOINT_KEY: str(checkpoint_id)}
        for snapshot in ancestors(self.table.metadata):
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if all(summary.get(name) == value for name, value in wanted.items()):
                return int(snapshot.snapshot_id)
        return None

    def row_count(self) -> int | None:
        """The rows of the table by the head's summary; None: it does not say, or rows were deleted by delete
        files."""
        head = next(ancestors(self.table.metadata), None)
        if head is None:
            return 0
        summary = {} if head.summary is None else head.summary.additional_properties
        deletes = [summary.get(f"total-{kind}-deletes", "0") for kind in ("position", "equality")]
        rows = summary.get("total-records")
        return None if rows is None or any(one != "0" for one in deletes) else int(rows)

    @property
    def _where(self) -> str:
        return f"table {self._address.text}"

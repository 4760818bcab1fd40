"""The log of a Delta table, version by version: what a commit adds, and whether a stream may pass it.

    add, dataChange=false           rows that were there before, in other files (OPTIMIZE): skipped
    add                             new rows
    remove, dataChange=false        skipped
    remove, and no add              rows are deleted: refused, unless deletes are ignored
    remove and add                  rows are rewritten (UPDATE, MERGE, DELETE, overwrite): refused, unless
                                    changes are ignored; then all rows of the new files are read
    remove and add of the same file, of which more rows are deleted by a deletion vector: nothing is added
    metaData of another id          another table
    protocol                        it may need what this source does not know

Pure, apart from `TableLog`, which reads the files of `_delta_log`, and from what is handed over to read
deletion vectors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from unistream.base.errors import UNDECODABLE, ConfigError, Unreachable
from unistream.base.os_failures import stays
from unistream.connector.common import unpacked
from unistream.connector.delta.access import brief
from unistream.connector.delta.column_mapping import physical_name
from unistream.connector.delta.positions import POSITIONS_KEY
from unistream.connector.delta.source_split import DataFile, logged_stats, renamed

LOG: Final = "_delta_log"
FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # refused by the column
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
"""Features of a table that a reader may have to know, and this one does."""

COMPACTION_KEY: Final = "unistream.compaction"

Deleted: TypeAlias = Callable[[int], Mapping[str, bytes]]
"""Finds for a version: paths in the log -> which rows of the file were deleted, as
`connector.common.deleted_rows` packs them. Raises ConfigError, Unreachable."""

_COMMIT: Final = re.compile(r"(\d{20})\.json")


class _Add(msgspec.Struct, rename="camel"):
    path: str
    size: int
    partition_values: dict[str, str | None] = {}
    data_change: bool = True
    stats: str | None = None
    deletion_vector: Any = None


class Removal(msgspec.Struct, rename="camel"):
    """A file that a commit removes. `path`: as it stands in the log."""

    path: str = ""
    size: int | None = None
    partition_values: dict[str, str | None] | None = None
    data_change: bool = True


class Metadata(msgspec.Struct, rename="camel"):
    """The metadata of a table in its log. `schema_string`: Delta's JSON."""

    id: str
    schema_string: str
    partition_columns: list[str] = []
    configuration: dict[str, str | None] = {}


class Protocol(msgspec.Struct, rename="camel"):
    reader_features: list[str] | None = None


class _CommitInfo(msgspec.Struct, rename="camel"):
    operation: str | None = None
    in_commit_timestamp: int | None = None
    positions: str | None = msgspec.field(default=None, name=POSITIONS_KEY)
    lineage: str | None = msgspec.field(default=None, name="unistream.lineage")
    sink_uid: str | None = msgspec.field(default=None, name="unistream.sink-uid")
    compaction: str | None = msgspec.field(default=None, name=COMPACTION_KEY)


class _Action(msgspec.Struct, rename={"meta_data": "metaData", "commit_info": "commitInfo"}):
    add: _Add | None = None
    remove: Removal | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    commit_info: _CommitInfo | None = None


class Commit(msgspec.Struct, kw_only=True):
    """One version. `digest`: of its content. `moved`, `removed`: all files that it adds with rows that were
    there before, and all that it removes. `positions`, `writer`: of a sink of unistream, see
    `unistream.connector.delta.positions`; `compaction`: see `unistream.connector.delta.compaction`."""

    version: int
    digest: str
    adds: list[_Add]
    removes: int
    metadata: Metadata | None
    protocol: Protocol | None
    operation: str
    time_ms: int | None
    positions: str | None = None
    writer: tuple[str, str] | None = None
    compaction: str | None = None
    moved: list[_Add] = []
    removed: list[Removal] = []

    @property
    def changes_rows(self) -> bool:
        return bool(self.adds or self.removes)


_DECODER: Final = msgspec.json.Decoder(_Action)


def parse_commit(table: str, version: int, content: bytes) -> Commit:
    """Reads the log of one version. Raises ConfigError: it is unreadable."""
    try:
        actions = _DECODER.decode_lines(content)
    except UNDECODABLE as error:
        raise ConfigError(f"table {table}: the log of version {version} is unreadable: {error}") from error
    if not actions:
        raise ConfigError(f"table {table}: the log of version {version} is unreadable: it is empty")
    infos = [one.commit_info for one in actions if one.commit_info is not None]
    times = [info.in_commit_timestamp for info in infos if info.in_commit_timestamp is not None]
    return Commit(
        version=version,
        digest=hashlib.sha256(content).hexdigest()[:16],
        adds=[one.add for one in actions if one.add is not None and one.add.data_change],
        removes=sum(one.remove is not None and one.remove.data_change for one in actions),
        metadata=next((one.meta_data for one in actions if one.meta_data is not None), None),
        protocol=next((one.protocol for one in actions if one.protocol is not None), None),
        operation=next((info.operation for info in infos if info.operation), "a commit"),
        time_ms=times[0] if times else None,
        positions=next((info.positions for info in infos if info.positions is not None), None),
        writer=next(
            ((info.lineage, info.sink_uid) for info in infos if info.lineage and info.sink_uid), None
        ),
        compaction=next((info.compaction for info in infos if info.compaction is not None), None),
        moved=[one.add for one in actions if one.add is not None and not one.add.data_change],
        removed=[one.remove for one in actions if one.remove is not None],
    )


def added_files(
    table: str,
    commit: Commit,
    columns: Sequence[pa.Field],
    *,
    deleted: Deleted,
    ignore_deletes: bool,
    ignore_changes: bool,
) -> list[DataFile]:
    """The files with new rows; see above.

    Args:
        table: For messages.
        commit: The version.
        columns: Whose statistics are wanted, and their partitions.
        deleted: Called for versions with files of which rows were deleted by deletion vectors.
        ignore_deletes: See `DeltaSource`.
        ignore_changes: The same.

    Raises:
        ConfigError: the commit removes or rewrites rows, or deletion vectors cannot be read any more.
    """
    where = f"table {table}, version {commit.version} ({commit.operation})"
    adds, now = _adding(commit, deleted)
    if commit.removes and adds and not ignore_changes:
        raise ConfigError(
            f"{where} rewrites rows, which a stream of added rows cannot express; ignore_changes=True reads "
            "all rows of the rewritten files, with those that were read before, or start again without the "
            "checkpoint from a newer starting_version"
        )
    if commit.removes and not (ignore_deletes or ignore_changes):
        raise ConfigError(
            f"{where} deletes rows, which a stream of added rows cannot express; ignore_deletes=True passes "
            "such versions"
        )
    found = []
    kinds = {physical_name(field): field.type for field in columns}
    for add in adds:
        if add.deletion_vector is not None and add.path not in now:
            raise deletion_vectors(where, add.path)
        found.append(
            renamed(
                DataFile(
                    path=checked_path(table, add.path),
                    size=add.size,
                    partition=add.partition_values,
                    deleted=now.get(add.path, b""),
                    **logged_stats(add.stats, kinds),
                ),
                columns,
            )
        )
    return found


def _adding(commit: Commit, deleted: Deleted) -> tuple[list[_Add], Mapping[str, bytes]]:
    """The files that may have new rows, without those that were there and have lost some; and which rows of
    files were deleted in that version."""
    removed = {one.path for one in commit.removed}
    again = [add for add in commit.adds if add.path in removed]
    if not again and all(add.deletion_vector is None for add in commit.adds):
        return commit.adds, {}
    now = deleted(commit.version)
    before = deleted(commit.version - 1) if again else {}
    lost = {
        add.path
        for add in again
        if (add.deletion_vector is None or add.path in now)
        and np.isin(unpacked(before.get(add.path, b"")), unpacked(now.get(add.path, b""))).all()
    }
    return [add for add in commit.adds if add.path not in lost], now


def deletion_vectors(where: str, path: str) -> ConfigError:
    """The refusal of deletion vectors where they are not read: by who rewrites files, and where deltalake
    does not know them."""
    return ConfigError(
        f"{where}: file {path} has a deletion vector, which is not read here; rewrite such files first "
        "(REORG TABLE … APPLY (PURGE)), and turn delta.enableDeletionVectors off"
    )


def checked_path(table: str, encoded: str) -> str:
    """The path of a data file, relative to the table. Raises ConfigError for another folder, as a shallow
    clone has it."""
    path = unquote(encoded)
    if path.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) or ".." in path.split("/"):
        raise ConfigError(
            f"table {table} has files outside of its folder ({path}), as a shallow clone has; read the "
            "table that was cloned"
        )
    return path


def check_features(table: str, features: list[str] | None) -> None:
    """Checks the features that readers of a table have to know. Raises ConfigError: this source does not know
    one."""
    unknown = sorted(set(features or ()) - FEATURES)
    if unknown:
        raise ConfigError(
            f"table {table} needs readers that know {', '.join(unknown)}, which this source does not"
        )


class TableLog:
    """The files in `_delta_log`.

    Args:
        files: The folder of the table.
    """

    def __init__(self, table: str, files: pa_fs.FileSystem) -> None:
        self._table = table
        self._files = files

    def commit(self, version: int) -> Commit | None:
        """Reads the commit of a version; None: it is not written yet, or was cleaned up. Raises ConfigError
        or Unreachable."""
        content = self._read(f"{version:020d}.json")
        return None if content is None else parse_commit(self._table, version, content)

    def modified_ns(self, version: int) -> int | None:
        """The time at which the commit of a version was written, in ns; None: it is not there. Raises
        Unreachable."""
        try:
            [found] = self._files.get_file_info([f"{LOG}/{version:020d}.json"])
        except OSError as error:
            raise self._failed(error) from error
        return found.mtime_ns if found.is_file else None

    def last_checkpoint(self) -> int:
        """The version of the last checkpoint of the table, before which the log may be cleaned up; -1: there
        is none. Raises Unreachable."""
        content = self._read("_last_checkpoint")
        try:
            return -1 if content is None else int(msgspec.json.decode(content)["version"])
        except (*UNDECODABLE, KeyError, TypeError, ValueError):
            return -1  # it is a hint only

    def times(self) -> dict[int, int]:
        """The times at which the commits that are there were written: version -> ms since 1970. Raises
        Unreachable."""
        try:
            listed = self._files.get_file_info(pa_fs.FileSelector(LOG))
        except OSError as error:
            raise self._failed(error) from error
        found = {int(m[1]): one for one in listed if (m := _COMMIT.fullmatch(one.base_name))}
        return {version: found[version].mtime_ns // 1_000_000 for version in sorted(found)}

    def _read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_file(f"{LOG}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ConfigError | Unreachable:
        text = f"the log of table {self._table} could not be read: {brief(error)}"
        return ConfigError(text) if stays(error) else Unreachable(text)

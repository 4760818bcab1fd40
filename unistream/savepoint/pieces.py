"""States of a savepoint as files in its directory: new ones cut into parts, kept ones copied.

A part holds a range of key groups, as a subtask of a job would have stored it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from unistream.base.ids import OperatorUid
from unistream.base.limits import MIB
from unistream.model.file_ref import FileRef
from unistream.model.in_flight import InFlightHandle
from unistream.model.key_groups import key_group_range
from unistream.model.keyed_snapshot import StateTable
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    KeyedHandle,
    ListMode,
    OperatorListState,
    OperatorStateHandle,
)
from unistream.port.storage import StateReader, StateWriter
from unistream.savepoint.state_rows import StateRows
from unistream.state.common import FolderWriter, batches_of, list_handle, write_keyed_table
from unistream.storage.fs import MANIFEST_NAME
from unistream.storage.location import Location

PART_BYTES_MAX: Final = 64 * MIB  # of a state in one file; a subtask reads whole record batches of it anyway
_IN_FLIGHT: Final = "in-flight"  # hint of the file's name, as workers give it


@dataclass(slots=True)
class NewStates:
    """The new states of one operator, by name."""

    tables: dict[str, StateRows] = field(default_factory=dict)
    lists: dict[str, OperatorListState] = field(default_factory=dict)


def parts_of(new: NewStates, max_parallelism: int) -> int:
    """The number of parts that the operator's largest state needs; at least one."""
    sizes = (int(rows.table.nbytes) for rows in new.tables.values())
    return min(max_parallelism, 1 + max(sizes, default=0) // PART_BYTES_MAX)


def written(
    uid: OperatorUid, new: NewStates, parts: int, max_parallelism: int, writer: StateWriter
) -> list[OperatorStateHandle]:
    """What each of `parts` subtasks would have stored: lists by the first one, broadcast lists by all.

    Raises:
        ConfigError: a key column has a type that cannot be a key.
        Transient: it could not be stored.
    """
    folder = FolderWriter(writer, uid)
    keyed: list[list[KeyedHandle]] = [[] for _ in range(parts)]
    for rows in new.tables.values():
        table = rows.with_key_groups(max_parallelism)
        groups = table.column(KEY_GROUP_COLUMN).to_numpy()
        for part in range(parts):
            first, last = key_group_range(max_parallelism, parts, part)
            low, high = groups.searchsorted(first), groups.searchsorted(last, "right")
            stored = StateTable(
                name=rows.name,
                kind=rows.kind,
                pickled=rows.pickled,
                schema=table.schema,
                batches=batches_of(table.slice(low, high - low)),
            )
            handle = write_keyed_table(stored, folder)
            if handle is not None:
                keyed[part].append(handle)
    lists = [list_handle(name, items, folder) for name, items in new.lists.items()]
    of_all = tuple(handle for handle in lists if handle.mode is ListMode.BROADCAST)
    return [
        OperatorStateHandle(keyed=tuple(handles), lists=of_all if part else tuple(lists))
        for part, handles in enumerate(keyed)
    ]


# --- what is taken over ---------------------------------------------------------------------------


def copied(handle: OperatorStateHandle, reader: StateReader, writer: StateWriter) -> OperatorStateHandle:
    """The same state, in files of the new savepoint. Raises CorruptSnapshot."""
    return OperatorStateHandle(
        keyed=tuple(structs.replace(k, file=_copy(k.name, k.file, reader, writer)) for k in handle.keyed),
        lists=tuple(
            structs.replace(stored, file=_copy_list(stored.name, stored.file, reader, writer))
            for stored in handle.lists
        ),
    )


def copied_in_flight(
    handle: InFlightHandle | None, reader: StateReader, writer: StateWriter
) -> InFlightHandle | None:
    """The same in-flight rows, in a file of the new savepoint. Raises CorruptSnapshot."""
    if handle is None:
        return None
    return structs.replace(handle, file=_copy(_IN_FLIGHT, handle.file, reader, writer))


def _copy(name: str, ref: FileRef, reader: StateReader, writer: StateWriter) -> FileRef:
    content = reader.read(ref)
    with writer.open(name) as file:
        file.write(content)
    return file.ref


def _copy_list(name: str, ref: FileRef | None, reader: StateReader, writer: StateWriter) -> FileRef | None:
    return None if ref is None else writer.write(name, reader.read(ref))


# --- what could not be written --------------------------------------------------------------------


def clear(location: Location, *, keep: bool) -> None:
    """Removes what was written before a failure, unless there is a manifest: then another writer made it."""
    if location.below(MANIFEST_NAME).size() is not None:
        return
    for name in location.names() if location.is_directory() else ():
        location.fs.rm(f"{location.path}/{name}", recursive=True)
    if not keep and location.is_directory() and location.is_local:
        location.fs.rmdir(location.path)

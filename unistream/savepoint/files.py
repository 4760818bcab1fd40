"""A savepoint from files of rows, as `unistream savepoint write` makes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.parquet_files import parquet_file
from unistream.model.key_groups import KEY_GROUPS_DEFAULT_MIN
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.savepoint.writing import TIMER_STATES, SavepointWriter

KINDS: Final = tuple(kind.value for kind in StateKind)
_LISTS: Final = {f"list-{mode.value}": mode for mode in ListMode}  # as `inspect` calls them
_TABLES: Final = (StateKind.TABLE.value, StateKind.TIMERS.value)
_PARQUET: Final = b"PAR1"
_ARROW: Final = b"ARROW1"


def write_state(
    *,
    uid: str,
    state: str,
    keys: Sequence[str],
    files: Sequence[str],
    out: str,
    kind: str | None = None,
    max_parallelism: int | None = None,
    base: str | None = None,
) -> str:
    """Writes the rows of `files` as one state, and returns the savepoint's directory.

    `base`: a savepoint whose other states are taken over. `kind` None: that of the state in `base`, otherwise
    "value". `max_parallelism` None: that of `base`, otherwise 128.
    """
    if kind is not None and kind not in (*KINDS, *_LISTS):
        raise ConfigError(f"--kind {kind!r} is not one of {', '.join((*KINDS, *_LISTS))}")
    if kind in _LISTS and keys:
        raise ConfigError(f"--kind {kind}: operator state has no key; leave out --keys")
    if kind not in _LISTS and not keys:
        raise ConfigError("--keys: name the key columns (lists, --kind list-…, have none)")
    rows = _common([_read(file) for file in files], files)
    if base is not None:
        writer = SavepointWriter.change(base, max_parallelism=max_parallelism)
    else:
        writer = SavepointWriter(
            max_parallelism=KEY_GROUPS_DEFAULT_MIN if max_parallelism is None else max_parallelism
        )
    if kind == StateKind.TIMERS.value and state not in TIMER_STATES:
        raise ConfigError(f"--kind timers: the state must be one of {', '.join(TIMER_STATES)}, not {state!r}")
    if kind in _LISTS:
        writer.with_rows(uid, state, rows, mode=_LISTS[kind])
    elif kind in _TABLES:
        writer.with_table(uid, state, rows, keys=keys)
    else:
        writer.with_state(uid, state, rows, keys=keys, kind=None if kind is None else StateKind(kind))
    return writer.write(out)


def _read(path: str) -> pa.Table:
    """A Parquet file, or an Arrow IPC file or stream, by its first bytes."""
    try:
        if os.path.isdir(path):
            raise ConfigError(f"{path} is a directory; name the files")
        with open(path, "rb") as file:
            head = file.read(len(_ARROW))
        if head.startswith(_PARQUET):
            return parquet_file(path).read()
        with pa.memory_map(path) as source:
            if head == _ARROW:
                return pa.ipc.open_file(source).read_all()
            return pa.ipc.open_stream(source).read_all()
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path} cannot be read as Parquet or Arrow: {error}") from error


def _common(tables: Sequence[pa.Table], files: Sequence[str]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        raise ConfigError(f"the files {', '.join(files)} have different columns: {error}") from error

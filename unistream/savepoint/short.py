"""The short form of `SavepointWriter`, for states that have the same key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from unistream.model.key_groups import KEY_GROUPS_DEFAULT_MIN
from unistream.model.state import StateDescriptor
from unistream.savepoint.writing import SavepointWriter


def write_savepoint(
    path: str | os.PathLike[str],
    states: Mapping[tuple[str, StateDescriptor | str], Any],
    *,
    keys: Sequence[str] | pa.Schema,
    max_parallelism: int = KEY_GROUPS_DEFAULT_MIN,
) -> str:
    """The short form for states that have the same key: (operator uid, state) -> rows.

    >>> import tempfile, pyarrow as pa, unistream as us
    >>> users = pa.table({"user": [1, 2], "value": ["a", "b"]})
    >>> made = us.write_savepoint(tempfile.mkdtemp() + "/sp", {("names", "name"): users}, keys=["user"])
    >>> us.read_savepoint(made).table_names
    [('names', 'name')]

    Raises:
        ConfigError, Transient: as `SavepointWriter`.
    """
    writer = SavepointWriter(max_parallelism=max_parallelism)
    for (uid, state), rows in states.items():
        writer.with_state(uid, state, rows, keys=keys)
    return writer.write(path)

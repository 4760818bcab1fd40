"""Rows of a whole Delta table, for commands; a stream of them is `DeltaSource`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from unistream.base.errors import ConfigError


def read_table(uri: str, options: Mapping[str, str]) -> pa.Table:
    """All rows of the newest version.

    Raises:
        ConfigError: there is no table, or it cannot be used.
        Unreachable: it could not be read.
    """
    from unistream.connector.delta.table import LakeTable

    table = LakeTable.open(uri, options)
    if table is None:
        raise ConfigError(f"there is no Delta table at {uri}")
    return table.rows()

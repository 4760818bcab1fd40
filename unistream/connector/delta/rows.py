"""Rows of a whole Delta table, for commands; a stream of them is `DeltaSource`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from unistream.base.errors import ConfigError

if TYPE_CHECKING:
    from unistream.connector.delta.table import DeltaSinkTable


def read_table(uri: str, options: Mapping[str, str]) -> pa.Table:
    """All rows of the newest version.

    Raises:
        ConfigError: there is no table, or it cannot be used.
        Unreachable: it could not be read.
    """
    return _opened(uri, options).rows()


def read_column_names(uri: str, options: Mapping[str, str]) -> list[str]:
    """The columns of the newest version, without a look at its files. Raises as `read_table`."""
    return _opened(uri, options).column_names()


def _opened(uri: str, options: Mapping[str, str]) -> DeltaSinkTable:
    from unistream.connector.delta.table import DeltaSinkTable

    table = DeltaSinkTable.open(uri, options)
    if table is None:
        raise ConfigError(f"there is no Delta table at {uri}")
    return table

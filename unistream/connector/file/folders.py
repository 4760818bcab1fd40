"""What the names in a folder mean to a file source: hidden files, and tables.

As in Spark, names that begin with a dot or an underscore are ignored (`_SUCCESS`, `_staged/`, `.x.crc`), but
not a folder `_column=value`, which is a column (`partition_columns`). The folder of a table is refused: it
also has files that were removed from the table, which only its log shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from unistream.base.errors import ConfigError

_COPYING: Final = "._COPYING_"  # Hadoop's suffix of an incomplete copy
_LOGS: Final = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
_ICEBERG_LOG: Final = re.compile(r"metadata/[^/]+\.metadata\.json")


def below(name: str, folder: str) -> str:
    return name[len(folder) :].strip("/")


def fixed_part(pattern: str) -> str:
    """The folder of a glob pattern before its first wildcard; a path without wildcards is returned as it is.

    >>> fixed_part("/flights/2013-*/*.parquet"), fixed_part("/flights/2013-01")
    ('/flights', '/flights/2013-01')
    """
    if not any(char in pattern for char in "*?["):
        return pattern
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def is_hidden(inner: str) -> bool:
    """
    >>> [is_hidden(name) for name in ("a.csv", "_SUCCESS", "_tmp/a.csv", ".a.csv.crc", "_day=1/a.csv")]
    [False, True, True, True, False]
    """
    return inner.endswith(_COPYING) or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in inner.split("/")
    )


def check_no_table_below(names: Iterable[str], folder: str) -> None:
    """Raises ConfigError if there is a table below `folder`. `names`: all files below it."""
    for name in names:
        inner = "/" + below(name, folder)
        for log, kind in _LOGS.items():
            at = inner.find(f"/{log}/")
            if at >= 0:
                raise _refused(folder.rstrip("/") + inner[:at], kind)
        found = _ICEBERG_LOG.search(inner)
        if found is not None and found.end() == len(inner):
            raise _refused((folder.rstrip("/") + inner[: found.start()]).rstrip("/"), "an Iceberg table")


class TableSearch:
    """Checks whether folders are in a table; each folder once."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self._searched: set[str] = set()

    def check(self, folder: str) -> None:
        """Raises ConfigError if `folder`, or one of its parents, is a table."""
        while folder.strip("/") and folder not in self._searched:
            self._searched.add(folder)
            kind = table_at(self._system, folder)
            if kind is not None:
                raise _refused(folder, kind)
            folder = folder.rpartition("/")[0]


def table_at(system: Any, folder: str) -> str | None:
    """Which kind of table the folder itself is; None: it is none."""
    for log, kind in _LOGS.items():
        if system.isdir(f"{folder}/{log}"):
            return kind
    if system.isdir(f"{folder}/metadata") and any(
        _ICEBERG_LOG.fullmatch(f"metadata/{str(name).rpartition('/')[2]}")
        for name in system.ls(f"{folder}/metadata", detail=False)
    ):
        return "an Iceberg table"
    return None


def _refused(folder: str, kind: str) -> ConfigError:
    how = (
        f"read it with us.DeltaSource({folder!r})"
        if kind == "a Delta table"
        else "write its current rows to separate files and read these"
    )
    return ConfigError(
        f"{folder} is {kind}: its folder also has files that were removed from it, and not all its columns, "
        f"so a file source would read other rows than the table has; {how}"
    )

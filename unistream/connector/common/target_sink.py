"""What the sinks of tables and folders share: their options, and one committer for all writers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Literal, Self, get_args

from unistream.base.errors import ConfigError
from unistream.connector.common.keyed_rows import Upsert
from unistream.port.line import OnForeign, check_on_foreign

OnRewind = Literal["refuse", "allow_duplicates"]


def check_on_rewind(on_rewind: str) -> None:
    """Raises ConfigError: it is no `OnRewind`."""
    if on_rewind not in (choices := get_args(OnRewind)):
        raise ConfigError(f"on_rewind must be {' or '.join(map(repr, choices))}, not {on_rewind!r}")


class TargetSink:
    """A sink whose target records which line of jobs writes it, with each commit.

    Args:
        on_rewind: If the job is restored from a checkpoint older than the last one of the target.
        on_foreign: If another line of jobs writes the target.
        target_file_bytes: Of a sink of files.

    Raises:
        ConfigError: one of them has a value that there is not.
    """

    def __init__(
        self, *, on_rewind: OnRewind, on_foreign: OnForeign, target_file_bytes: int | None = None
    ) -> None:
        if target_file_bytes is not None and target_file_bytes < 1:
            raise ConfigError(f"target_file_bytes must be above 0, not {target_file_bytes}")
        check_on_rewind(on_rewind)
        check_on_foreign(on_foreign)
        self._on_rewind: OnRewind = on_rewind
        self._on_foreign: OnForeign = on_foreign

    @property
    def global_committer(self) -> bool:
        """Whether one committer commits for all writers: here it does, in one step for all of their rows."""
        return True

    def appending(self) -> Self:
        """See `unistream.port.sink.AppendsToForeign`."""
        other = copy(self)
        other._on_foreign = "append"
        return other


class KeyedSink(TargetSink):
    """A `TargetSink` that may keep the last row of each key.

    Args:
        upsert: The key; None: it keeps all rows.
    """

    def __init__(
        self,
        upsert: Upsert | None,
        *,
        on_rewind: OnRewind,
        on_foreign: OnForeign,
        target_file_bytes: int | None = None,
    ) -> None:
        super().__init__(on_rewind=on_rewind, on_foreign=on_foreign, target_file_bytes=target_file_bytes)
        self._upsert = upsert

    @property
    def row_key(self) -> tuple[str, ...]:
        """See `unistream.port.sink.ReplacesByKey`."""
        return () if self._upsert is None else self._upsert.key


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """The names of an argument that takes one column, or several.

    >>> names_of("id"), names_of(["a", "b"])
    (('id',), ('a', 'b'))
    """
    return (columns,) if isinstance(columns, str) else tuple(columns)

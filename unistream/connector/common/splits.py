"""What split discoveries and readers share: stored splits, options of a discovery, a list of splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split

S = TypeVar("S", bound=msgspec.Struct)


def encoded_split(
    split_id: str,
    split: msgspec.Struct,
    min_timestamp: int | None = None,
    size: int = 0,
    rows: int | None = None,
) -> Split:
    """Makes a split with these data. `min_timestamp`, `size`, `rows`: see `Split`."""
    data = msgspec.msgpack.encode(split)
    return Split(id=split_id, data=data, min_timestamp=min_timestamp, size=size, rows=rows)


def decoded_split(split: Split, kind: type[S], source: str) -> S:
    """Reads a stored split of this kind. Raises CorruptSnapshot: it is unreadable."""
    try:
        return msgspec.msgpack.decode(split.data, type=kind)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"split {split.id!r} of a {source} source is unreadable: {error}") from error


def discovery_options(info: SourceInfo, kind: type[S], source: str) -> S:
    """Raises ConfigError if the options are not those of the source's `info`."""
    try:
        return msgspec.convert(info.options, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of a {source} source: {error}") from error


class ListedSplits:
    """A `SplitDiscovery` that calls a function."""

    def __init__(self, discover: Callable[[], Sequence[Split]]) -> None:
        self._discover = discover

    def discover(self) -> Sequence[Split]:
        return self._discover()

    def close(self) -> None:
        """Does nothing: the discovery holds no resource."""

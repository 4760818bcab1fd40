"""Splits of a polling source, as they are stored, and how a master finds the first ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from unistream.base.limits import MAX_WATERMARK
from unistream.connector.common import decoded_split, discovery_options, encoded_split
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import SplitDiscovery

CONNECTOR: Final = "polling"
NEW_SPLITS: Final = "~new splits"
"""Id of the split that stands for those that are not there yet. It has no rows, and sorts behind names."""


class PollingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a master knows of a source. `grows`: more splits may come while it is read."""

    splits: list[str]
    grows: bool


class PollingSplit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A split as it is stored.

    Attributes:
        position: What the last poll has returned, as msgpack; None: the split was not polled yet.
        known: Of `NEW_SPLITS`: the names of all splits that were ever found.
    """

    position: bytes | None = None
    known: list[str] | None = None
    v: int = 1


def named_split(name: str, position: bytes | None = None) -> Split:
    """A split of that name, at a position."""
    return encoded_split(name, PollingSplit(position=position))


def new_splits(known: list[str]) -> Split:
    """The split whose reader looks for others than those that are known."""
    return encoded_split(NEW_SPLITS, PollingSplit(known=known), min_timestamp=MAX_WATERMARK)


def stored_split(split: Split) -> PollingSplit:
    """Reads a split. Raises CorruptSnapshot: it is unreadable."""
    return decoded_split(split, PollingSplit, CONNECTOR)


def read_positions(splits: Iterable[Split]) -> dict[str, Any]:
    """The position of each split of a snapshot; None: it was not polled yet."""
    stored = {split.id: stored_split(split) for split in splits}
    return {
        name: None if split.position is None else msgspec.msgpack.decode(split.position)
        for name, split in stored.items()
        if name != NEW_SPLITS
    }


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of a polling source."""
    return _PollingDiscovery(discovery_options(info, PollingOptions, CONNECTOR))


class _PollingDiscovery:
    def __init__(self, options: PollingOptions) -> None:
        self._options = options

    def discover(self) -> list[Split]:
        names = self._options.splits
        return [*map(named_split, names), *([new_splits(names)] if self._options.grows else [])]

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """All of them, once: what comes later is found by the reader of `NEW_SPLITS`, which a source has from
        now on that was bounded until now."""
        if known is None:
            return FoundSplits(splits=tuple(self.discover()))
        grows_now = self._options.grows and NEW_SPLITS not in known.ids
        return FoundSplits(splits=(new_splits(sorted(known.ids)),) if grows_now else ())

    def close(self) -> None:
        """Does nothing: the names are in the options."""

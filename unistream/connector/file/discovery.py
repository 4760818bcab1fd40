"""Discoveries of a file source: once, or again and again while a folder is watched."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.common import ListedSplits, discovery_options
from unistream.connector.file.listing import Listing, list_files, list_splits, splits_of
from unistream.connector.file.watch import (
    FolderChanges,
    FoundFile,
    Seen,
    as_seen,
    changed_file,
    decode_seen,
    look,
)
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import SplitDiscovery

_NAMED: Final = 3  # files in a message
_log = logging.getLogger(__name__)


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of `FileSource.info`."""
    listing = discovery_options(info, Listing, "file")
    if listing.watch is None:
        return ListedSplits(lambda: list_splits(listing, info))
    return WatchedFolder(listing, info, SystemClock())


class WatchedFolder:
    """See `unistream.port.source.GrowingDiscovery`; what is new is decided by `look`."""

    def __init__(self, listing: Listing, info: SourceInfo, clock: Clock) -> None:
        self._listing = listing
        self._info = info
        self._clock = clock

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """
        Raises:
            ConfigError: a file has changed since it was found; at the first time also: a path does not exist.
            Unreachable: the storage failed, or a path is not there any more.
        """
        listed = self._listed(again=known is not None)
        found = self._look(listed, _seen(known, listed))
        if found.changed:
            self._changed([file.path for file in found.changed])
        splits = splits_of(found.new, listed[:1], self._listing, self._info)
        return FoundSplits(splits=tuple(splits), position=found.seen.encode())

    def close(self) -> None:
        """Holds nothing between calls."""

    def _listed(self, *, again: bool) -> list[FoundFile]:
        listing = self._listing
        try:
            return list_files(listing.paths, listing.options, ignored=listing.ignored, may_be_empty=True)
        except ConfigError as error:
            if not again:
                raise
            raise Unreachable(f"a watched folder is not there now: {error}") from error

    def _look(self, listed: Sequence[FoundFile], seen: Seen) -> FolderChanges:
        watch = self._listing.watch
        assert watch is not None, "the folder is not watched"
        return look(listed, seen, now_ms=self._clock.wall_ms(), min_age_ms=watch.min_age_ms)

    def _changed(self, paths: Sequence[str]) -> None:
        watch = self._listing.watch
        assert watch is not None, "the folder is not watched"
        named = ", ".join(paths[:_NAMED]) + (
            f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        )
        if watch.fails:
            raise ConfigError(changed_file(named))
        _log.warning("event=watched_file_changed files=%s: what is new in it is not read", named)


def _seen(known: KnownSplits | None, listed: Sequence[FoundFile]) -> Seen:
    """A source that was not watched before has a state without position: ids of splits."""
    if known is None:
        return Seen()
    if known.position:
        return decode_seen(known.position)
    paths = {split.rpartition(":")[0] for split in known.ids}
    return as_seen([file for file in listed if file.path in paths])

"""Lists the splits of a hybrid source, in the master.

Both sources are asked at the first start of the job. So the start positions of the live source do not depend
on how long the history takes: rows that arrive meanwhile are read after it, also from "latest", and if the
system deletes rows behind a start position before the switch, the job fails instead of beginning later. Flink
asks the live source at the switch, where it skips such rows without an error.

The live source is asked first: a row that moves from it to the history at this moment is then in both rather
than in neither. If the live source begins at positions that are recorded in the history, the history is asked
first: it then is what a job has written, and no row moves. Later discoveries ask only the live source.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol, cast

import msgspec
from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery as create_any_discovery
from unistream.connector.common import discovery_options
from unistream.connector.hybrid.split import PREFIXES, wrapped
from unistream.model.graph import HISTORY, LIVE, SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import GrowingDiscovery, PositionedDiscovery, RecordedDiscovery, SplitDiscovery


class HybridOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a hybrid source. `fence`: ms; None: none, or found at the end of the history.
    `fence_column`: of the event times that are compared with it; empty: there is no fence. `at_positions`:
    the live source begins at the positions that are recorded in the history."""

    fence: int | None
    fence_column: str = ""
    at_positions: bool = False


class HybridDiscovery:
    """See `unistream.port.source.GrowingDiscovery`."""

    def __init__(self, options: HybridOptions, phases: Sequence[SourceInfo]) -> None:
        self._fence = options.fence
        self._at_positions = options.at_positions
        self._phases = phases

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """Raises ConfigError or Unreachable, as the discoveries of the two sources."""
        if known is None and self._at_positions:
            return self._found_at_positions()
        live = self._found(LIVE, None if known is None else _live_ones(known))
        if known is not None:
            return live
        history = self._found(HISTORY, None)
        return structs.replace(live, splits=history.splits + live.splits)

    def close(self) -> None:
        """Holds nothing between calls."""

    def _found_at_positions(self) -> FoundSplits:
        """The history first: it says where the live source begins."""
        live = self._phases[LIVE]
        with closing(recorded_discovery(self._phases[HISTORY])) as discovery:
            history, positions = discovery.find_recorded(live.connector, live.recorded_as)
        with closing(positioned_discovery(live)) as discovery:
            following = discovery.find_at(positions)
        splits = self._wrapped(history, HISTORY) + self._wrapped(following, LIVE)
        return structs.replace(following, splits=splits)

    def _wrapped(self, found: FoundSplits, phase: int) -> tuple[Split, ...]:
        return tuple(wrapped(split, phase, self._fence) for split in found.splits)

    def _found(self, phase: int, known: KnownSplits | None) -> FoundSplits:
        discovery = create_any_discovery(self._phases[phase])
        try:
            if isinstance(discovery, GrowingDiscovery):
                found = discovery.find(known)
            else:
                found = FoundSplits(splits=tuple(discovery.discover()))
        finally:
            discovery.close()
        return structs.replace(found, splits=self._wrapped(found, phase))


class _Recorded(SplitDiscovery, RecordedDiscovery, Protocol):
    """A discovery of splits that also finds recorded positions."""


class _Positioned(SplitDiscovery, PositionedDiscovery, Protocol):
    """A discovery of splits that can begin at positions."""


def recorded_discovery(history: SourceInfo) -> _Recorded:
    """Raises ConfigError: it does not record positions."""
    discovery = create_any_discovery(history)
    if not isinstance(discovery, RecordedDiscovery):
        discovery.close()
        raise ConfigError(
            'HybridSource: switch="recorded-positions" needs a history in which a job has recorded its '
            f"positions, such as us.DeltaSource(…) or us.IcebergSource(…); {history.connector!r} has none"
        )
    return cast(_Recorded, discovery)


def positioned_discovery(live: SourceInfo) -> _Positioned:
    """Raises ConfigError: its positions are not recorded."""
    discovery = create_any_discovery(live)
    if live.recorded_by_name:
        discovery.close()
        raise ConfigError(
            'HybridSource: switch="recorded-positions" needs a live source of one topic, whose rows alone '
            f"the history has; this one reads several ({live.recorded_as})"
        )
    if not live.recorded_as or not isinstance(discovery, PositionedDiscovery):
        discovery.close()
        raise ConfigError(
            'HybridSource: switch="recorded-positions" needs a live source whose positions are recorded, '
            f"such as us.KafkaSource(…); those of {live.connector!r} are not"
        )
    return cast(_Positioned, discovery)


def create_discovery(info: SourceInfo) -> HybridDiscovery:
    """Raises ConfigError if the options are not those of `HybridSource.info`."""
    options = discovery_options(info, HybridOptions, "hybrid")
    if len(info.phases) != 2:
        raise ConfigError(f"options of a hybrid source: it has {len(info.phases)} phases instead of 2")
    return HybridDiscovery(options, [_with_times_of(info, phase) for phase in info.phases])


def _with_times_of(info: SourceInfo, phase: SourceInfo) -> SourceInfo:
    """`Environment.from_source` names the timestamp column in the outer one."""
    return structs.replace(phase, timestamp_column=info.timestamp_column, timestamp_type=info.timestamp_type)


def _live_ones(known: KnownSplits) -> KnownSplits:
    prefix = PREFIXES[LIVE]
    ids = frozenset(name.removeprefix(prefix) for name in known.ids if name.startswith(prefix))
    return structs.replace(known, ids=ids)

"""What the catalogue's thread does besides writing facts: the leader's own rows, pruning, and its health."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from unistream.base.clock import Clock
from unistream.base.ids import NO_CLUSTER, ClusterId, LeaderEpoch
from unistream.base.process_mark import process_name
from unistream.master.service.write_queue import WriteKind
from unistream.model.job_info import MetadataHealth
from unistream.port import metadata as meta
from unistream.port.retention import MetadataRetention, Pruned

BEAT_S: Final = 10.0  # between two heartbeats of the cluster; see `CLUSTER_SILENT_MS`
FIRST_PRUNING_S: Final = 30.0  # after the start, or the interval if that is shorter
PAUSE_S: Final = 0.01  # between two steps of pruning, in which others may write
LOG_S: Final = 60.0  # failures are logged at most this often

logger = logging.getLogger(__name__)


class LeaderRows:
    """The rows of this leader and of its cluster. Readers of a shared database see by the heartbeats that the
    cluster lives."""

    def __init__(
        self,
        store: meta.MetadataStore,
        epoch: LeaderEpoch,
        cluster: meta.ClusterRecord | None,
        clock: Clock,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._clock = clock
        self._next_beat_s = 0.0
        self.leader = meta.EpochRecord(
            epoch=epoch, cluster=self.cluster, process=process_name(), granted_ms=clock.wall_ms()
        )

    @property
    def cluster(self) -> ClusterId:
        """Whose jobs these are."""
        return NO_CLUSTER if self._cluster is None else self._cluster.cluster

    def beat(self) -> None:
        """Writes a heartbeat, if it is time."""
        if self._cluster is None or time.monotonic() < self._next_beat_s:
            return
        self._store.record_cluster(msgspec.structs.replace(self._cluster, heartbeat_ms=self._clock.wall_ms()))
        self._next_beat_s = time.monotonic() + BEAT_S

    def write_again(self) -> None:
        """The database was made again."""
        self._next_beat_s = 0.0
        self._store.record_epoch(self.leader)

    def ended(self) -> list[tuple[WriteKind, object]]:
        """The last rows of a leader that is closed."""
        now_ms = self._clock.wall_ms()
        leader = msgspec.structs.replace(self.leader, ended_ms=now_ms, reason="closed")
        rows: list[tuple[WriteKind, object]] = [(WriteKind.EPOCH, leader)]
        if self._cluster is not None:
            cluster = msgspec.structs.replace(self._cluster, heartbeat_ms=now_ms, ended_ms=now_ms)
            rows.append((WriteKind.CLUSTER, cluster))
        return rows


class PruningPasses:
    """Removes what is no longer kept, in passes of small steps, so that writes come in between. The first
    pass looks at all jobs, others only at those that changed since."""

    def __init__(
        self, store: meta.MetadataStore, epoch: LeaderEpoch, retention: MetadataRetention, clock: Clock
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._retention = retention
        self._clock = clock
        self._steps: Iterator[Pruned] | None = None
        self._since_ms = 0
        self._next_s = time.monotonic() + min(FIRST_PRUNING_S, retention.interval_ms / 1000)

    @property
    def due_s(self) -> float:
        """Seconds until the next step."""
        return PAUSE_S if self._steps is not None else self._next_s - time.monotonic()

    def step(self) -> None:
        """One step, if it is time. Raises as the store: the pass is over."""
        if self._steps is None:
            if time.monotonic() < self._next_s:
                return
            now_ms = self._clock.wall_ms()
            since_ms, self._since_ms = self._since_ms, now_ms
            self._steps = self._store.prune(self._retention, now_ms, self._epoch, ended_since_ms=since_ms)
        try:
            more = next(self._steps, None) is not None
        except BaseException:
            self.end_pass()
            raise
        if not more:
            self.end_pass()

    def end_pass(self) -> None:
        """The next one begins after the interval."""
        self._steps = None
        self._next_s = time.monotonic() + self._retention.interval_ms / 1000


class WriteHealth:
    """Whether the database can be used, and what failed. Not thread-safe.

    Args:
        away: Why the database does not answer now; None: it does, as far as is known.
    """

    def __init__(self, clock: Clock, away: str | None) -> None:
        self._clock = clock
        self._away = None if away is None else (clock.wall_ms(), away)
        self._made_again_ms: int | None = None
        self._next_log_s = 0.0
        self.failures = 0

    @property
    def is_away(self) -> bool:
        return self._away is not None

    def note_away(self, reason: str) -> bool:
        """The database cannot be used now. True: until now it could."""
        first = self._away is None
        self.failures += first
        self._away = (self._clock.wall_ms() if self._away is None else self._away[0], reason)
        return first

    def note_back(self) -> None:
        self._away = None

    def note_made_again(self) -> None:
        self._made_again_ms = self._clock.wall_ms()

    def shown(self, queued: int, dropped: Mapping[WriteKind, int]) -> MetadataHealth:
        since_ms, reason = self._away or (None, None)
        return MetadataHealth(
            queued=queued,
            dropped={kind.value: number for kind, number in dropped.items()},
            failures=self.failures,
            away_since_ms=since_ms,
            reason=reason,
            made_again_ms=self._made_again_ms,
        )

    def log(self, level: int, event: str, reason: str | None, health: MetadataHealth) -> None:
        """Logs it, at most once a minute; with the exception that is handled if `reason` is None."""
        if time.monotonic() < self._next_log_s:
            return
        self._next_log_s = time.monotonic() + LOG_S
        logger.log(
            level,
            "%s queued=%d dropped=%s failures=%d reason=%r",
            event,
            health.queued,
            health.dropped or "none",
            health.failures,
            reason,
            exc_info=reason is None,
        )

"""The workers of a cluster: when one is given up, which hosts are blocked, heartbeats. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unistream.base.config import DRAIN_TIMEOUT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SlotLease
from unistream.core.resource.messages import BlockedHost, ProbeOutcome, SlotView, WorkerProbed, WorkerView
from unistream.core.resource.slot_requests import RequestId
from unistream.model.resources import ANY_PROFILE, ResourceProfile

MISPLACED_MAX: Final = 2  # the first may have been placed while the cores of another host became free


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRules:
    """When a host is blocked, and for how long.

    Attributes:
        failures: Losses within `window_ms` after which their host is blocked; 0: never.
        event_ms: Workers of a host that ran at the same time and are lost within this time are one loss: an
            executor, or a machine, takes all its workers with it.
        elsewhere: Workers may be started on hosts that have none yet. Otherwise a host is blocked only while
            another one has workers.
    """

    failures: int = 0
    window_ms: int = 600_000
    block_ms: int = 60_000
    event_ms: int = 0
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """What a cluster's driver can do, and what its configuration says.

    Attributes:
        active: Workers are started and stopped on demand; otherwise they come and go by themselves.
        slot: The slot profile of a worker that is started for requests without one.
        largest: The maximum slot profile of a started worker; an unspecified part has no limit.
        startup_ms: Passive: the minimum age of the cluster at which requests that no registered worker is big
            enough for are refused.
        probe_interval_ms: Between two probes of one worker; 0: workers are not probed.
        unreachable_after: A worker is given up after so many probes in a row that could not connect; 0: only
            by timeout.
    """

    active: bool = True
    slot: ResourceProfile = ANY_PROFILE
    largest: ResourceProfile = ANY_PROFILE
    startup_ms: int = 300_000
    probe_interval_ms: int = 0
    unreachable_after: int = 2
    block: BlockRules = field(default_factory=BlockRules)


@dataclass(slots=True)
class Worker:
    """`address` None = starting. `heard_ms`: start, registration or last heartbeat; `reached_ms`:
    registration or last answered probe. `avoid`: hosts that it was not to start on. `leases`: by request."""

    id: TaskManagerId
    slots: int
    started_ms: int
    heard_ms: int
    idle_since_ms: int
    profile: ResourceProfile = ANY_PROFILE
    address: str | None = None
    host: str = ""
    avoid: tuple[str, ...] = ()
    reached_ms: int = 0
    probed_ms: int = 0
    is_probed: bool = False  # a probe is in progress
    silent: int = 0  # probes in a row without an answer
    unreachable: int = 0  # probes in a row that could not connect
    unreachable_why: str = ""
    draining: bool = False  # it gets no more leases, and ends without them
    drained_by_ms: int | None = None  # it ends then, with or without them
    leases: dict[RequestId, SlotLease] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - len(self.leases)

    @property
    def is_up(self) -> bool:
        return self.address is not None

    @property
    def is_unused(self) -> bool:
        """No job has a lease there."""
        return self.is_up and not self.leases

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return tuple(dict.fromkeys(job for job, _ in self.leases))

    def came_up(self, address: str, now_ms: int) -> None:
        self.address = address
        self.idle_since_ms = self.reached_ms = self.probed_ms = now_ms

    def drop(self, requests: Iterable[RequestId], now_ms: int) -> None:
        for request in requests:
            self.leases.pop(request, None)
        if self.is_unused:
            self.idle_since_ms = now_ms

    def probed(self, event: WorkerProbed, now_ms: int) -> None:
        self.is_probed = False
        if event.outcome is ProbeOutcome.ANSWERED:
            self.reached_ms = now_ms
            self.silent = self.unreachable = 0
            return
        self.silent += 1
        self.unreachable = self.unreachable + 1 if event.outcome is ProbeOutcome.UNREACHABLE else 0
        self.unreachable_why = event.reason

    def reason_to_give_up(
        self, rules: ResourceRules, *, now_ms: int, start_timeout_ms: int, heartbeat_timeout_ms: int
    ) -> str | None:
        """None: it is not given up."""
        silent_ms = now_ms - self.heard_ms
        if not self.is_up:
            late = silent_ms > start_timeout_ms
            return f"it did not register within {start_timeout_ms} ms" if late else None
        if silent_ms > heartbeat_timeout_ms:
            return f"no heartbeat for {silent_ms} ms (heartbeat.timeout)"
        if rules.unreachable_after and self.unreachable >= rules.unreachable_after:
            return (
                f"it could not be reached {self.unreachable} times in a row "
                f"(heartbeat.rpc-failure-threshold): {self.unreachable_why}"
            )
        if self.drained_by_ms is not None and now_ms >= self.drained_by_ms:
            return f"its tasks had not moved when it had to end ({DRAIN_TIMEOUT.key})"
        unheard_ms = now_ms - self.reached_ms
        if self.silent >= max(1, rules.unreachable_after) and unheard_ms > heartbeat_timeout_ms:
            return f"it has not answered for {unheard_ms} ms (heartbeat.timeout)"
        return None

    def view(self, blocked_ms: int) -> WorkerView:
        return WorkerView(
            task_manager=self.id,
            slots=self.slots,
            free=self.free,
            profile=self.profile,
            host=self.host,
            blocked_ms=blocked_ms,
            jobs=self.jobs,
            leased=tuple(SlotView(lease.allocation, job) for (job, _), lease in self.leases.items()),
            draining=self.draining,
        )


class Blocklist:
    """Counts losses by host. A host without a name is never blocked.

    Whether there are other hosts is not known in advance where workers can be started on hosts that have none
    (Spark): it is believed until workers that were to avoid the blocked ones were placed there nevertheless.
    """

    def __init__(self, rules: BlockRules) -> None:
        self._rules = rules
        self._losses: dict[str, deque[int]] = {}
        self._why: dict[str, deque[str]] = {}
        self._until_ms: dict[str, int] = {}
        self._misplaced = 0

    def lost(self, host: str, now_ms: int, *, started_ms: int, alternative: bool, reason: str = "") -> bool:
        """A worker was lost there, or could not start. True: the host is blocked from now on.

        Losses on a blocked host do not count. `started_ms`: when the worker was started;
        `alternative`: another host that is not blocked has workers; `reason`: for people.
        """
        rules = self._rules
        if not host or not rules.failures or self.left_ms(host, now_ms):
            return False
        losses = self._losses.setdefault(host, deque(maxlen=rules.failures))
        if losses and started_ms < losses[-1] and now_ms - losses[-1] <= rules.event_ms:
            return False
        losses.append(now_ms)
        self._why.setdefault(host, deque(maxlen=rules.failures)).append(reason)
        often = len(losses) == rules.failures and now_ms - losses[0] <= rules.window_ms
        if not often or not (alternative or rules.elsewhere):
            return False
        self._until_ms[host] = now_ms + rules.block_ms
        losses.clear()
        return True

    def placed(self, host: str, avoid: Iterable[str]) -> bool:
        """A worker that was to avoid some hosts has started on `host`. True: it is blocked no more, since
        `MISPLACED_MAX` such workers in a row were placed on one of them: the others, if any, have no room."""
        if host not in avoid:
            self._misplaced = 0
            return False
        self._misplaced += 1
        if self._misplaced < MISPLACED_MAX:
            return False
        self._misplaced = 0
        return self._until_ms.pop(host, None) is not None

    def left_ms(self, host: str, now_ms: int) -> int:
        """How much longer the host is blocked; 0: it is not."""
        return max(0, self._until_ms.get(host, 0) - now_ms)

    def expire(self, now_ms: int) -> tuple[str, ...]:
        """Hosts that are not blocked any more; each is returned once."""
        over = tuple(host for host, until_ms in self._until_ms.items() if until_ms <= now_ms)
        for host in over:
            del self._until_ms[host]
        self._losses = {
            host: losses
            for host, losses in self._losses.items()
            if losses and now_ms - losses[-1] <= self._rules.window_ms
        }
        known = self._losses.keys() | self._until_ms.keys()
        self._why = {host: why for host, why in self._why.items() if host in known}
        return over

    def blocked(self, now_ms: int, shut: Iterable[str]) -> tuple[BlockedHost, ...]:
        """The blocked hosts for people. `shut`: those whose slots are not granted."""
        closed = frozenset(shut)
        return tuple(
            BlockedHost(
                host=host,
                left_ms=self.left_ms(host, now_ms),
                shut=host in closed,
                losses=tuple(self._why.get(host, ())),
            )
            for host in self.hosts(now_ms)
        )

    def shut(self, now_ms: int, hosts: Iterable[str]) -> frozenset[str]:
        """Blocked hosts whose slots are not granted: as long as one of `hosts`, which have workers, is not
        blocked, or workers can be started elsewhere."""
        blocked = frozenset(self.hosts(now_ms))
        if not blocked or self._rules.elsewhere or any(host not in blocked for host in hosts):
            return blocked
        return frozenset()

    def hosts(self, now_ms: int) -> tuple[str, ...]:
        return tuple(host for host in self._until_ms if self.left_ms(host, now_ms))


class HeartbeatTerms(NamedTuple):
    """The terms of heartbeats, in milliseconds. A worker that registers takes over those of its master,
    whatever its own configuration says (in Flink the master requests the heartbeats)."""

    interval_ms: int
    timeout_ms: int


def heartbeat_terms(config: Configuration) -> HeartbeatTerms:
    """The configured terms.

    Raises:
        ConfigError: peers would be given up between two heartbeats.
    """
    terms = HeartbeatTerms(config.get(HEARTBEAT_INTERVAL), config.get(HEARTBEAT_TIMEOUT))
    if terms.interval_ms >= terms.timeout_ms:
        raise ConfigError(
            f"{HEARTBEAT_INTERVAL.key} is {terms.interval_ms} ms and {HEARTBEAT_TIMEOUT.key} "
            f"{terms.timeout_ms} ms: every peer would be given up between two heartbeats; make the interval "
            "shorter, a fifth of the timeout or less"
        )
    return terms
